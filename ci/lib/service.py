"""Runs instances of timerd, the servers of their stores, and a receiver of their webhooks: imported by
`ci/test deploy` and `ci/test upgrade`. All of them end with the script.
"""

import atexit
import http.client
import http.server
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
# How long anything may take.
PATIENCE = 60


def folder():
    """A folder that is removed at the end."""
    place = Path(tempfile.mkdtemp(prefix="timerd-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def until(what, ask):
    """The first answer that is true."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if answer := ask():
            return answer
        time.sleep(0.1)
    raise SystemExit(f"{what} does not come")


def run(*command, **options):
    """The output of a command, which must succeed."""
    options = {"stdout": subprocess.PIPE, "text": True, "check": True} | options
    return subprocess.run([str(word) for word in command], **options).stdout


def start(*command, **options):
    """Starts a process that is killed at the end."""
    process = subprocess.Popen([str(word) for word in command], **options)

    def end():
        process.kill()
        process.wait()

    atexit.register(end)
    return process


class Receiver(http.server.ThreadingHTTPServer):
    """A receiver of webhooks. It refuses those for paths that begin with `/gone`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        self.calls, self.opened = [], set()
        super().__init__(("127.0.0.1", 0), Call)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, path):
        return f"http://127.0.0.1:{self.server_port}{path}"

    def config(self):
        """The settings with which timerd calls it."""
        return f'[webhooks]\nallow = ["127.0.0.1"]\nports = [{self.server_port}]\n'

    def called(self, path):
        return [key for of, key in self.calls if of == path]


class Call(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.calls.append((self.path, self.headers["Idempotency-Key"]))
        is_gone = self.path.startswith("/gone") and self.path not in self.server.opened
        self.send_response(410 if is_gone else 204)
        self.end_headers()

    def log_message(self, *_):
        pass


class Postgres:
    """A server with one role and one database of its name."""

    def __init__(self, role, password):
        programs = max(Path("/usr/lib/postgresql").iterdir(), key=lambda place: int(place.name)) / "bin"
        place, self.port, self.role = folder(), free_port(), role
        (place / "password").write_text(password)
        shutil.chown(place, "postgres")
        shutil.chown(place / "password", "postgres")
        user = {"cwd": place, "user": "postgres", "stderr": subprocess.DEVNULL}
        run(programs / "initdb", "--no-sync", f"--username={role}", "--pwfile=password", "--auth=scram-sha-256",
            "-D", "data", **user)
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", f"port={self.port}", "fsync=off"]
        start(programs / "postgres", "-D", "data", *(word for setting in settings for word in ("-c", setting)), **user)
        ready = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        until("PostgreSQL", lambda: subprocess.run(ready).returncode == 0)
        address = f"postgres://{role}:{password}@127.0.0.1:{self.port}"
        run("psql", "-q", f"{address}/postgres", "-c", f"CREATE DATABASE {role}")
        self.url = f"{address}/{role}"


class Redis:
    def __init__(self):
        self.port = free_port()
        start("redis-server", "--port", self.port, "--bind", "127.0.0.1", "--dir", folder(), "--save", "",
              stdout=subprocess.DEVNULL)
        self.url = f"redis://127.0.0.1:{self.port}/"

        def answers():
            with socket.socket() as asked:
                return asked.connect_ex(("127.0.0.1", self.port)) == 0

        until("Redis", answers)


class Timerd:
    """An instance of timerd, and a client of its API."""

    def __init__(self, program, token, arguments=(), **environment):
        environment = os.environ | {"TIMERD_LISTEN": f"127.0.0.1:{free_port()}"} | environment
        self.token, self.listen, self.place = token, environment["TIMERD_LISTEN"], folder()
        self.log = self.place / "log"
        with self.log.open("w") as log:
            self.process = start(program, *arguments, env=environment, cwd=self.place, stdout=subprocess.PIPE,
                                 stderr=log, text=True)
        if "listens on" not in self.process.stdout.readline():
            raise SystemExit(self.log.read_text())

    def request(self, method, path, body=None):
        connection = http.client.HTTPConnection(self.listen, timeout=PATIENCE)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body else None, headers)
        response = connection.getresponse()
        text = response.read().decode()
        if response.status >= 400:
            raise SystemExit(f"{method} {path}: {response.status} {text}")
        return json.loads(text) if "json" in response.headers["Content-Type"] else text

    def put(self, name, url, **schedule):
        self.request("PUT", f"/v1/timers/{name}", {"webhook": {"url": url}, "schedule": schedule})

    def stop(self):
        self.process.terminate()
        code = self.process.wait(PATIENCE)
        if code != 0:
            raise SystemExit(f"timerd ended with {code}: {self.log.read_text()}")
