"""Starts what crates/timerd/deploy/compose/compose.yaml has, with the same environment and secrets but without
containers: run by `ci/test deploy PROGRAM`.

Two instances on one PostgreSQL call each webhook once, also after one of them is killed. The health check of the
image succeeds while they run. Prometheus scrapes both. Each query of the dashboard is valid, and no alert fires. The
system calls of the service are those that the systemd unit permits.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import yaml

from service import ROOT, Postgres, Receiver, Timerd, folder, free_port, run, start, until

DEPLOY = ROOT / "crates" / "timerd" / "deploy"
# Grafana replaces these.
VARIABLES = {"$__rate_interval": "1m", "$job": ".*", "$store": ".*"}
CALLS = 20


def say(what):
    print(f"  {what}")


class Composition:
    """The services of compose.yaml as processes."""

    def __init__(self, program, receiver):
        self.program, self.place = program, folder() / "compose"
        shutil.copytree(DEPLOY / "compose", self.place, ignore=shutil.ignore_patterns("secrets"))
        run(self.place / "prepare")
        file = yaml.safe_load((self.place / "compose.yaml").read_text())
        self.secrets = {name: self.place / secret["file"] for name, secret in file["secrets"].items()}
        self.token = (self.place / "secrets" / "token").read_text()
        self.service, database = file["services"]["timerd"], file["services"]["postgres"]["environment"]
        assert database["POSTGRES_USER"] == database["POSTGRES_DB"]
        password = self.in_place(database["POSTGRES_PASSWORD_FILE"]).read_text()
        server = Postgres(database["POSTGRES_USER"], password)
        # The network of the containers resolves the name of a service.
        config = self.secrets["timerd.toml"]
        text = config.read_text()
        assert "@postgres/" in text
        config.write_text(text.replace("@postgres/", f"@127.0.0.1:{server.port}/") + receiver.config())

    def in_place(self, path):
        """The file of a secret that a container has in /run/secrets."""
        return self.secrets[Path(path).name]

    def environment(self):
        environment = dict(self.service["environment"])
        return environment | {"TIMERD_CONFIG": str(self.in_place(environment["TIMERD_CONFIG"]))}

    def start(self):
        return Timerd(self.program, self.token, **self.environment())

    def start_all(self):
        return [self.start() for _ in range(self.service["deploy"]["replicas"])]


def health(program, instance):
    """The exit code of the health check in the image."""
    check = re.search(r"^HEALTHCHECK .*CMD (\[.*\])$", (DEPLOY.parent / "Dockerfile").read_text(), re.M)
    command = json.loads(check[1])
    assert command[0] == "timerd"
    environment = os.environ | {"TIMERD_LISTEN": instance.listen}
    return subprocess.run([program, *command[1:]], env=environment, stderr=subprocess.DEVNULL).returncode


def call(instances, receiver, start_of):
    """Puts webhooks on all instances by turns, and checks that each is called once."""
    names = [f"{start_of}-{number}" for number in range(CALLS)]
    for number, name in enumerate(names):
        instances[number % len(instances)].put(name, receiver.url(f"/{name}"), after="1s")
    until("the calls", lambda: all(receiver.called(f"/{name}") for name in names))
    assert all(len(receiver.called(f"/{name}")) == 1 for name in names), receiver.calls


def stop(instance):
    """Stops an instance, whose log has JSON in a container."""
    instance.stop()
    events = [json.loads(line) for line in instance.log.read_text().splitlines()]
    assert events[-1]["message"] == "stopping", events


class Prometheus:
    """A server with the scrape and the alerts of this folder, of these instances."""

    def __init__(self, instances, token):
        place, self.port = folder(), free_port()
        config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
        scrape = config["scrape_configs"][0]
        scrape["scrape_interval"] = "1s"
        scrape["static_configs"] = [{"targets": [instance.listen for instance in instances]}]
        config["global"] = {"evaluation_interval": "1s"}
        (place / "prometheus.yml").write_text(yaml.safe_dump(config))
        (place / scrape["authorization"]["credentials_file"]).write_text(token)
        for rules in config["rule_files"]:
            shutil.copy(DEPLOY / "prometheus" / rules, place)
        start("prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{self.port}",
              "--storage.tsdb.path=data", cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        up = f'sum(up{{job="{scrape["job_name"]}"}}) == {len(instances)}'
        until("a scrape of all instances", lambda: self.is_up() and self.query(up))

    def is_up(self):
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready").status == 200
        except OSError:
            return False

    def ask(self, path, **parameters):
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}") as answer:
            return json.load(answer)["data"]

    def query(self, query):
        try:
            return self.ask("query", query=query)["result"]
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{query}: {error.read().decode()}") from error


def check_dashboard(prometheus):
    panels = json.loads((DEPLOY / "grafana" / "timerd.json").read_text())["panels"]
    queries = [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", [])]
    for title, query in queries:
        for variable, value in VARIABLES.items():
            query = query.replace(variable, value)
        # A rate needs several scrapes.
        until(f"data for {title}", lambda query=query: prometheus.query(query))
    say(f"each of {len(queries)} queries of the dashboard has data")


def check_alerts(prometheus):
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    unwell = [rule for rule in rules if rule["health"] != "ok" or rule["state"] != "inactive"]
    assert rules and not unwell, unwell
    say(f"none of {len(rules)} alerts fires")


def expanded(names):
    """The system calls of systemd's sets, and of sets in them."""
    calls, sets = set(), set(names)
    while sets:
        for line in run("systemd-analyze", "syscall-filter", sets.pop()).splitlines()[1:]:
            name = line.strip()
            if name.startswith("@"):
                sets.add(name)
            elif name and not name.startswith("#"):
                calls.add(name)
    return calls


def check_system_calls(composition, receiver):
    """Runs an instance under strace, which calls a webhook and ends."""
    trace = folder() / "trace"
    program = ["strace", "-f", "-qq", "-o", trace, composition.program]
    traced = Timerd(program[0], composition.token, program[1:], **composition.environment())
    call([traced], receiver, "traced")
    # The signal is for the service and not for strace.
    service = run("pgrep", "-P", traced.process.pid).split()[0]
    run("kill", "-TERM", service)
    traced.process.wait()
    used = {found[1] for line in trace.read_text().splitlines() if (found := re.match(r"\d+ +(\w+)\(", line))}
    unit = (DEPLOY / "systemd" / "timerd.service").read_text()
    lists = re.findall(r"^SystemCallFilter=(~?)(.*)$", unit, re.M)
    allowed = expanded(name for sign, names in lists if not sign for name in names.split())
    allowed -= expanded(name for sign, names in lists if sign for name in names.split())
    assert not used - allowed, f"the unit forbids {used - allowed}"
    say(f"the unit permits the {len(used)} system calls of the service")


def main():
    program = sys.argv[1]
    receiver = Receiver()
    composition = Composition(program, receiver)
    instances = composition.start_all()
    until("their health", lambda: all(health(program, instance) == 0 for instance in instances))
    say(f"{len(instances)} instances are healthy")
    call(instances, receiver, "shared")
    say(f"they call each of {CALLS} webhooks once")

    prometheus = Prometheus(instances, composition.token)
    call(instances, receiver, "scraped")
    check_dashboard(prometheus)
    check_alerts(prometheus)

    killed = instances.pop()
    killed.process.kill()
    killed.process.wait()
    assert health(program, killed) == 1
    call(instances, receiver, "alone")
    instances.append(composition.start())
    call(instances, receiver, "again")
    say("webhooks are called while one instance is away, and after it is back")
    check_system_calls(composition, receiver)
    for instance in instances:
        stop(instance)


main()
