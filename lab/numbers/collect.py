#!/usr/bin/env python3
"""Runs the measuring programs and collects their results in one JSON file.

The programs come from a folder that `lab/numbers/build` has filled, so that this runs on a
machine without cargo: it needs Python and its standard library.

Every task runs once, and then again in turn while the time allows, up to its number of rounds. The
file is written after each task, so that nothing is lost if the run is cut off. If the file exists,
a section of the same commit and machine gets more rounds, and any other is replaced. So
`--only instructions` adds what one machine counts to what another has measured. On a machine with few
cores, the sections in `MANY_CORES` are kept if a machine with more of them has measured them.

    {"runs": [{"commit", "date", "rustc", "machine": {"cpu", "cores", …}}],
     "sections": {NAME: {"run": place in runs, "commands": […], "values": {KEY: [one per round]}}}}
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Callable

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import counts

# The systems beside which several callers are measured. The others take minutes more.
SCALED = ("tourbillon,tourbillon-pinned,tokio,tokio-alt,delay-queue,nexus-timer,heap,floor")
FOOTPRINT = {"small-wheel": 1, "small-queue": 1, "small-tokio-queue": 1, "bytes-million": 1, "bytes-ten-million": 1,
             "burst": 1, "churn": 1, "idle": 1, "empty": 1, "lateness": 5, "lateness-inline": 1, "herd": 5,
             "ticks": 3, "storm": 3}
# The sections that need many cores: they show how the wheel scales, or load a server from another process.
MANY_CORES = ("callers", "threads", "servers")
# Rows that a neighbour does not change: they count, or wait.
BESIDE = ("idle", "empty")


@dataclass
class Task:
    """One command, whose results belong to a section."""
    section: str
    command: list
    # From the output of the command and the JSON file that it wrote to {KEY: value}.
    read: Callable
    rounds: int = 1
    # Runs at the same time as the other tasks of this kind, before all that is timed.
    beside: bool = False
    took: float = 0.0
    done: int = 0

    def said(self):
        """The command without the words that differ from round to round."""
        program, *words = self.command
        pairs = list(zip(words, [*words[1:], ""]))
        own = {place for place, pair in enumerate(pairs)
               if pair[1] in ("{json}", "{turn}") or pair == ("--rounds", "1")}
        kept = [word for place, word in enumerate(words) if not {place, place - 1} & own]
        return " ".join([Path(program).name, *kept])


def read_peers(_, results):
    """`WORKLOAD/THREADS/TIMERS/SYSTEM/FIGURE`."""
    return {f"{of['workload']}/{of['threads']}/{of['timers']}/{system['name']}/{figure}": system[figure][0]
            for of in results for system in of["systems"]
            for figure in ("cpu_ns", "per_second") if system[figure]}


def read_herd(_, results):
    """`SYSTEM/QUANTILE`, in microseconds."""
    quantiles = ["p50", "p99", "p99.99", "max"]
    return {f"{system['name']}/{quantile}": value for system in results
            for quantile, value in zip(quantiles, system["micros"][0])}


def read_footprint(output, _):
    """`ROW/FIGURE`; the points of a distribution as `ROW/curve/SHARE`."""
    values = {}
    for line in output.splitlines():
        results = json.loads(line)
        row = results.pop("row")
        values |= {f"{row}/curve/{share:g}": late for share, late in results.pop("curve", [])}
        values |= {f"{row}/{figure}": value for figure, value in results.items()}
    return values


def read_caches(_, results):
    """`ENTRIES/OPERATION/CACHE` in nanoseconds, and `CACHE/FIGURE`."""
    values = {f"{line['entries']}/{line['operation']}/{line['cache']}": line["ns"]
              for line in results["times"]}
    for line in results["alone"]:
        cache = line.pop("cache")
        values |= {f"{cache}/{figure}": value for figure, value in line.items() if value is not None}
    return values


def read_sharing(_, results):
    """`SYSTEM/WORKLOAD/WHOSE/THREADS/FIGURE`, for one operation."""
    figures = {"locked": "locked", "taken": "written_by_another_last", "recalled": "read_by_others_since",
               "fetched": "written_by_another_since", "hottest": "hottest"}
    return {f"{row['system']}/{row['operation']}/{row['timers']}/{row['threads']}/{figure}":
            row[key] / row["operations"]
            for row in ({**row, "operation": row["workload"]} for row in results)
            for figure, key in figures.items()}


def read_connections(_, results):
    values = {key: value for key, value in results.items() if isinstance(value, (int, float))}
    return values | {f"lateness_ms/{key}": value for key, value in results["lateness_ms"].items()}


def read_servers(_, results):
    """`SERVER/TIMERS/FIGURE`."""
    return {f"{row['server']}/{row['timers']}/{figure}": value for row in results
            for figure, value in row.items() if isinstance(value, (int, float))}


def read_criterion(home):
    """`GROUP/BENCHMARK/ns`, and `…/elements` where a benchmark has a throughput."""
    def read(*_):
        values = {}
        for estimates in Path(home).rglob("new/estimates.json"):
            about = json.loads((estimates.parent / "benchmark.json").read_text())
            values[f"{about['full_id']}/ns"] = json.loads(estimates.read_text())["median"]["point_estimate"]
            if about["throughput"]:
                values[f"{about['full_id']}/elements"] = next(iter(about["throughput"].values()))
        return values
    return read


def tasks(programs, callers, tiny, home):
    """All tasks, those first that matter most."""
    timers = 20_000 if tiny else 1_000_000
    json_to = ["--json", "{json}"]
    peers = lambda *more: [str(programs / "peers"), "--rounds", "1", "--turn", "{turn}", *more, *json_to]
    four = "insert,cancel_insert,reset_later,reset_earlier"
    all_tasks = [Task("operations", peers("--timers", str(timers), "--only", four), read_peers, 7)]
    all_tasks += [
        Task("callers", peers("--timers", str(timers), "--threads", str(threads), "--systems", SCALED,
                              "--only", "insert,cancel_insert,reset_later"), read_peers, 3)
        for threads in callers]
    all_tasks += [Task("fire", peers("--timers", str(timers), "--only", "fire"), read_peers, 3)]
    size = ["1000", "1"] if tiny else ["1000000", "10"]
    connections = [str(programs / "connections"), "--connections", size[0], "--seconds", size[1]]
    all_tasks += [Task("connections", [*connections, "--flat-out", *json_to], read_connections, 4)]
    all_tasks += [Task("paced", [*connections, *json_to], read_connections, 3)]
    rows = ["herd", "bytes-million"] if tiny else FOOTPRINT
    all_tasks += [Task("footprint", [str(programs / "footprint"), "--row", row], read_footprint,
                       FOOTPRINT[row], row in BESIDE) for row in rows]
    armed = [1000] if tiny else [1000, 10_000, 100_000]
    all_tasks += [Task("sizes", peers("--timers", str(few), "--only", "cancel_insert,reset_later"),
                       read_peers, 3) for few in armed]
    for name, seconds in {"futures": 0.7, "layers": 0.7, "threads": 0.6}.items():
        seconds = 0.05 if tiny else seconds
        times = ["--warm-up-time", f"{seconds / 3:.2f}", "--measurement-time", str(seconds)]
        all_tasks += [Task(name, [str(programs / name), "--bench", "--noplot", "--sample-size", "10", *times],
                           read_criterion(home / name), 2)]
    some = ["1000"] if tiny else ["10000", "1000000"]
    few = ["--rounds", "1", "--operations", "1000"] if tiny else ["--rounds", "5"]
    all_tasks += [Task("caches", [str(programs / "caches"), "--entries", ",".join(some), *few, *json_to],
                       read_caches, 2)]
    herd = ["--herd", "--timers", str(timers), "--systems", SCALED]
    all_tasks += [Task("herd", peers(*herd), read_herd, 3)]
    threads = "2" if tiny else "2,8,16,64"
    all_tasks += [Task("sharing", [str(programs / "sharing"), "--threads", threads, *json_to],
                       read_sharing, beside=True)]
    size = ["100", "10", "1000", "1"] if tiny else ["20000", "5000", "1000000", "8"]
    size = [word for pair in zip(["--connections", "--quic", "--timers", "--seconds"], size) for word in pair]
    all_tasks += [Task("servers", [str(programs / "load"), *size, "--rounds", "1", *json_to], read_servers, 3)]
    for task in all_tasks if tiny else []:
        task.rounds = min(task.rounds, 2 if task.section == "operations" else 1)
    return all_tasks


def perform(task, home):
    """Runs a task once and returns its values. Ends with a message if it fails."""
    start = time.monotonic()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        words = {"json": file.name, "turn": str(task.done)}
        command = [word.format(**words) if word in ("{json}", "{turn}") else word for word in task.command]
        environment = os.environ | {"CRITERION_HOME": str(home / task.section)}
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
        if run.returncode:
            raise RuntimeError(f"failed: {' '.join(command)}\n{run.stdout}")
        written = Path(file.name).read_text()
        values = task.read(run.stdout, json.loads(written) if written else None)
    task.took = time.monotonic() - start
    task.done += 1
    return {key: rounded(value) for key, value in values.items()}


def rounded(value):
    """With five digits, which is more than a measurement has."""
    return float(f"{value:.5g}") if isinstance(value, float) else value


def machine():
    """What this machine is."""
    def line(path, name):
        lines = Path(path).read_text().splitlines() if Path(path).exists() else []
        return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), "unknown")

    cache = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    memory = line("/proc/meminfo", "MemTotal").split(" ")[0]
    return {"cpu": line("/proc/cpuinfo", "model name"), "cores": len(os.sched_getaffinity(0)),
            "third_level_cache": cache.read_text().strip() if cache.exists() else "unknown",
            "memory_gib": round(int(memory) / 2**20) if memory.isdigit() else 0,
            "system": f"{platform.system()} {platform.release()}"}


class Numbers:
    """The file."""

    def __init__(self, path, built):
        self.path = path
        self.all = json.loads(path.read_text()) if path.exists() else {"runs": [], "sections": {}}
        self.run = {"commit": built["commit"], "date": date.today().isoformat(), "rustc": built["rustc"],
                    "machine": machine()}

    def of_more_cores(self):
        """The sections in `MANY_CORES` that a machine with more cores has measured."""
        cores = lambda run: run["machine"]["cores"]
        return {name for name, section in self.all["sections"].items()
                if name in MANY_CORES and cores(self.all["runs"][section["run"]]) > cores(self.run)}

    def place(self):
        """The place of this run among the runs: a run of the same commit and machine is the same."""
        same = lambda run: (run["commit"], run["machine"]) == (self.run["commit"], self.run["machine"])
        for place, run in enumerate(self.all["runs"]):
            if same(run):
                return place
        self.all["runs"].append(self.run)
        return len(self.all["runs"]) - 1

    def add(self, name, command, values):
        """Adds a round to a section, and writes the file."""
        place = self.place()
        section = self.all["sections"].get(name)
        if section is None or section["run"] != place:
            section = self.all["sections"][name] = {"run": place, "commands": [], "values": {}}
        if command not in section["commands"]:
            section["commands"].append(command)
        for key, value in values.items():
            section["values"].setdefault(key, []).append(value)
        self.write()

    def write(self):
        used = sorted({section["run"] for section in self.all["sections"].values()})
        kept = {"runs": [self.all["runs"][place] for place in used], "sections": {
            name: section | {"run": used.index(section["run"])}
            for name, section in self.all["sections"].items()}}
        self.all = kept
        self.path.write_text(text(kept))


def text(numbers):
    """As JSON with a line for each key, so that a change can be read as a difference."""
    compact = lambda value: json.dumps(value, ensure_ascii=False)
    runs = ",\n".join("  " + compact(run) for run in numbers["runs"])
    sections = []
    for name, section in numbers["sections"].items():
        values = ",\n".join(f"    {compact(key)}: {compact(rounds)}" for key, rounds in section["values"].items())
        sections.append(f'  {compact(name)}: {{\n   "run": {section["run"]},\n'
                        f'   "commands": {compact(section["commands"])},\n   "values": {{\n{values}\n   }}\n  }}')
    return f'{{\n "runs": [\n{runs}\n ],\n "sections": {{\n' + ",\n".join(sections) + "\n }\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True, help="the folder of built programs")
    parser.add_argument("--out", type=Path, default=Path("docs/numbers.json"), help="the file")
    parser.add_argument("--budget", type=float, default=1020, metavar="SECONDS",
                        help="begin nothing that would take longer in all (1020 by default)")
    parser.add_argument("--callers", help="numbers of callers; by default 1, 2, 4, 8, 16 up to the cores")
    parser.add_argument("--only", help="these sections only, separated by commas")
    parser.add_argument("--tiny", action="store_true", help="with tiny counts, to test this program")
    arguments = parser.parse_args()
    programs = arguments.programs.resolve()
    numbers = Numbers(arguments.out, json.loads((programs / "built.json").read_text()))
    cores = numbers.run["machine"]["cores"]
    callers = [int(count) for count in arguments.callers.split(",")] if arguments.callers else [
        count for count in (1, 2, 4, 8, 16) if count <= cores]
    # Servers hold a connection per file.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        chosen = tasks(programs, callers, arguments.tiny, home)
        names = {task.section for task in chosen} | {"instructions"}
        wanted = set(arguments.only.split(",")) if arguments.only else names
        if wanted - names:
            sys.exit(f"unknown sections: {', '.join(sorted(wanted - names))}; known are {', '.join(sorted(names))}")
        kept = set() if arguments.only else numbers.of_more_cores()
        for name in sorted(kept):
            print(f"{name}: kept, from a machine with more cores")
        chosen = [task for task in chosen if task.section in wanted - kept]
        absent = [task for task in chosen if not Path(task.command[0]).exists()]
        chosen = [task for task in chosen if task not in absent]
        failures = [f"{task.section}: {task.command[0]} is not there" for task in absent]
        if "instructions" in wanted:
            failures += instructions(numbers, programs)
        failures += measure(numbers, chosen, home, start + arguments.budget)
    print(f"{time.monotonic() - start:.0f} s in all")
    if failures:
        sys.exit("not measured:\n" + "\n".join(failures))


def instructions(numbers, programs):
    """Counts instructions, if this machine can. Returns why not."""
    if not counts.possible(programs / "instructions"):
        return ["instructions: needs valgrind and the program; run `--only instructions` where they are, "
                "into the same file"]
    numbers.add("instructions", "ci/measure instructions", counts.count(programs / "instructions"))
    return []


def measure(numbers, chosen, home, end):
    """Runs the tasks, round after round. Returns what was not run, and why."""
    failed = []

    def attempt(task):
        began = time.monotonic()
        try:
            values = perform(task, home)
        except (RuntimeError, ValueError, KeyError, OSError) as error:
            failed.append(f"{task.section}: {error}")
            task.rounds = 0
            return None
        print(f"{task.section:12} round {task.done}: {time.monotonic() - began:6.1f} s", flush=True)
        return values

    beside = [task for task in chosen if task.beside]
    if beside:
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(len(beside)) as pool:
            for task, values in zip(beside, pool.map(attempt, beside)):
                if values:
                    numbers.add(task.section, task.said(), values)
    timed = [task for task in chosen if not task.beside]
    for done in range(max((task.rounds for task in timed), default=0)):
        for task in timed:
            if done < task.rounds and time.monotonic() + task.took <= end:
                values = attempt(task)
                if values:
                    numbers.add(task.section, task.said(), values)
    return failed + [f"{task.section}: no time was left for {task.said()}" for task in timed
                     if task.done == 0 and task.rounds]


if __name__ == "__main__":
    main()
