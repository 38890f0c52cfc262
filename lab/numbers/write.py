#!/usr/bin/env python3
"""Writes the tables of docs/BENCHMARKS.md and the rows of README.md from docs/numbers.json.

usage: lab/numbers/write.py [--check]

With `--check` nothing is written. It fails if a table is not as it would be written, if a plot is of another run,
if the sections are of commits whose sources differ, or if the numbers are older than `COMMITS` allows. The sections
in `MANY_CORES` may be older, because a machine with many cores is not always at hand. The plots themselves are drawn
by `cargo run -p tourbillon-report --bin plots`, and a test of that program compares them byte by byte.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import median

sys.dont_write_bytecode = True
from collect import MANY_CORES

ROOT = Path(__file__).resolve().parent.parent.parent
NUMBERS, BENCHMARKS, README = (ROOT / name for name in ("docs/numbers.json", "docs/BENCHMARKS.md", "README.md"))
# docs/BENCHMARKS.md before its tables and plots are put in.
PAGE = ROOT / "lab/numbers/page.md"

# The numbers may be so many commits of `src/wheel` old. Of the first 93 of those, 8 moved the instruction count of
# an operation by more than 5 %, and most of the others renamed or described something. So 50 bring about four such
# changes. A smaller bound would ask for a quiet machine after every series of renames, and `ci/measure instructions`
# fails at once if an operation gets 3 % slower.
COMMITS = 50

OPERATIONS = {"insert": "insert", "cancel_insert": "cancel and insert", "reset_later": "reset to later",
              "reset_earlier": "reset to earlier", "fire": "fire"}
README_ROWS = {"insert": "insert", "cancel_insert": "cancel and insert another",
               "reset_later": "push the deadline back", "reset_earlier": "pull it forward"}
PLAIN, PINNED = "tourbillon", "tourbillon-pinned"
SYSTEMS = [PLAIN, PINNED, "tokio", "tokio-alt", "delay-queue", "nexus-timer", "heap", "async-io",
           "pingora-timeout", "hhwt", "floor", "floor-padded", "floor-clocked", "floor-vectors"]

PLOTS = {"cancel_insert": "CPU time of cancel and insert by armed timers",
         "reset_later": "CPU time of a reset by armed timers",
         "callers_cancel_insert": "throughput of cancel and insert by callers",
         "callers_reset_later": "throughput of resets by callers", "lateness": "lateness of fired timers",
         "sharing": "throughput by cores, computed from the cache lines that move and measured"}


class Section:
    """The values of a section, by key; empty if the run has no such section."""

    def __init__(self, numbers, name):
        section = numbers["sections"].get(name, {"commands": [], "values": {}, "run": 0})
        self.values, self.commands = section["values"], section["commands"]
        self.run = numbers["runs"][section["run"]]

    def value(self, *key):
        """The median over the rounds, or `None`."""
        rounds = self.values.get("/".join(map(str, key)))
        return median(rounds) if rounds else None

    def spread(self, *key):
        """Half of what the rounds differ by, over the median."""
        rounds = self.values.get("/".join(map(str, key)), [])
        return (max(rounds) - min(rounds)) / 2 / median(rounds) if len(rounds) > 1 and median(rounds) else None

    def ratio(self, key, other):
        """The median over the rounds of one value over another of the same round, or `None`."""
        pairs = zip(*(self.values.get("/".join(map(str, each)), []) for each in (key, other)))
        ratios = [value / by for value, by in pairs if by]
        return median(ratios) if ratios else None

    def parts(self, place):
        """The numbers that stand at a place of the keys, in order."""
        found = (key.split("/") for key in self.values)
        return sorted({int(key[place]) for key in found if len(key) > place and key[place].isdigit()})

    def caption(self):
        """The commands, rounds, machine and commit, in a line below a table."""
        shown = ", ".join(f"`{command}`" for command in merged(self.commands)) or "not measured"
        rounds = max((len(value) for value in self.values.values()), default=0)
        many = f"medians of up to {rounds} rounds" if rounds > 1 else "one round"
        return f"*{shown}: {many}; {where(self.run)}.*"


def merged(commands):
    """The commands, where those that differ in values alone are one: `--threads 2|4|8`."""
    alike = {}
    for command in commands:
        words = command.split(" ")
        alike.setdefault((words[0], len(words)), []).append(words)
    return [" ".join("|".join(dict.fromkeys(values)) for values in zip(*group)) for group in alike.values()]


def where(run):
    """The machine and the commit."""
    return f"{run['machine']['cpu']}, {run['machine']['cores']} cores, commit `{run['commit']}`, {run['date']}"


def digits(value):
    """A number with three digits or more."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(head, rows):
    """A Markdown table, its first column to the left and the others to the right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines).replace("| --- |", "|---|")


class Document:
    """All tables of one run, each by a method."""

    def __init__(self, numbers):
        self.numbers = numbers
        self.operations, self.fires = self.section("operations"), self.section("fire")
        self.timers = max(self.operations.parts(2), default=0)

    def section(self, name):
        return Section(self.numbers, name)

    def nanos(self, workload, system):
        section = self.fires if workload == "fire" else self.operations
        return section.value(workload, 1, self.timers, system, "cpu_ns")

    def rival(self, workload):
        """The fastest of those that support every operation."""
        able = [system for system in SYSTEMS if not system.startswith(("tourbillon", "floor"))
                and all(self.nanos(each, system) is not None for each in README_ROWS)]
        timed = {system: self.nanos(workload, system) for system in able}
        timed = {system: nanos for system, nanos in timed.items() if nanos is not None}
        return min(timed, key=timed.get) if timed else None

    def readme(self):
        rows = []
        for workload, name in README_ROWS.items():
            rival = self.rival(workload)
            ours = [digits(self.nanos(workload, system)) for system in (PLAIN, PINNED)]
            rows.append([name, *ours, f"{digits(self.nanos(workload, rival))} ({rival})"])
        head = ["nanoseconds", "one by one", "in batches", "the best of the others"]
        return f"{table(head, rows)}\n*{where(self.operations.run)}.*\n"

    def plot(self, name):
        """A plot, if the numbers were enough to draw it."""
        file = ROOT / "docs" / "plots" / f"{name}.svg"
        return f"![{PLOTS[name]}](plots/{file.name})\n" if file.exists() else ""

    def table_machines(self):
        """The machines."""
        rows = []
        for run in self.numbers["runs"]:
            names = [name for name, section in self.numbers["sections"].items()
                     if self.numbers["runs"][section["run"]] is run]
            machine = run["machine"]
            rows.append([", ".join(names), machine["cpu"], machine["cores"], machine["third_level_cache"],
                         f"{machine['memory_gib']} GiB", machine["system"],
                         re.sub(r"rustc (\S+).*", r"\1", run["rustc"]), f"`{run['commit']}`", run["date"]])
        return table(["sections", "processor", "cores", "L3", "memory", "system", "Rust", "commit", "date"], rows)

    def table_operations(self):
        rows = []
        for system in SYSTEMS:
            cells = []
            for workload in OPERATIONS:
                section = self.fires if workload == "fire" else self.operations
                key = (workload, 1, self.timers, system, "cpu_ns")
                spread = section.spread(*key)
                mark = "**" if self.rival(workload) == system else ""
                around = f" ±{spread:.0%}" if spread is not None else ""
                cells.append(f"{mark}{digits(section.value(*key))}{mark}{around}")
            if any(cell != "-" for cell in cells):
                rows.append([system, *cells])
        return (f"{table(['CPU time per operation (ns)', *OPERATIONS.values()], rows)}\n"
                f"{self.operations.caption()}\n{self.fires.caption()}\n")

    def table_ratios(self):
        rows = []
        for ours, mode in ((PLAIN, "one by one"), (PINNED, "in batches")):
            for name, of in (("best rival", self.rival), ("floor", self.floor)):
                ratios = []
                for workload in OPERATIONS:
                    mine, other = self.nanos(workload, ours), self.nanos(workload, of(workload))
                    ratios.append(f"{mine / other:.2f}" if mine and other else "-")
                rows.append([f"{mode} / {name}", *ratios])
        return table(["tourbillon's time over another's", *OPERATIONS.values()], rows)

    def floor(self, workload):
        return "floor-vectors" if workload == "fire" else "floor"

    def table_callers(self):
        section = self.section("callers")
        counts = section.parts(1)
        blocks = []
        for workload in ("insert", "cancel_insert", "reset_later"):
            rows = []
            for system in SYSTEMS:
                cells = []
                for count in counts:
                    key = (workload, count, self.timers, system)
                    rate, nanos = section.value(*key, "per_second"), section.value(*key, "cpu_ns")
                    cells.append(f"{digits(rate / 1e6)} ({digits(nanos)})" if rate else "-")
                if any(cell != "-" for cell in cells[1:]):
                    rows.append([system, *cells])
            head = [OPERATIONS[workload], *(f"{count} caller{'s' * (count > 1)}" for count in counts)]
            blocks.append(table(head, rows))
        return "\n".join([*blocks, section.caption() + "\n"])

    def table_herd(self):
        section = self.section("herd")
        quantiles = ["p50", "p99", "p99.99", "max"]
        rows = [[system, *(digits(section.value(system, quantile)) for quantile in quantiles)]
                for system in SYSTEMS if section.value(system, "p50") is not None]
        head = ["time of an operation (µs)", "median", *quantiles[1:]]
        return f"{table(head, rows)}\n{section.caption()}\n"

    def table_threads(self):
        section = self.section("threads")
        verbs, homes = ["cancel and insert", "reset to later", "reset to earlier"], {
            "in its own shard": "own", "half in another shard": "half another's"}
        counts = [count for count in (1, 2, 4, 8, 16, 32, 64, 128)
                  if section.value(f"{verbs[0]}, in its own shard", count, "ns")]
        columns = [(verb, home) for verb in verbs for home in homes]
        rate = lambda *key: section.value(*key, "elements") * 1e3 / section.value(*key, "ns")
        rows = [[count, *(digits(rate(f"{verb}, {home}", count)) if section.value(f"{verb}, {home}", count, "ns")
                          else "-" for verb, home in columns)] for count in counts]
        head = ["threads", *(f"{verb}, {homes[home]}" for verb, home in columns)]
        return f"{table(head, rows)}\n{section.caption()}\n"

    def table_sharing(self):
        section = self.section("sharing")
        figures = {"locked": "locked instructions", "taken": "taken", "recalled": "recalled", "fetched": "fetched"}
        rows = []
        for workload in ("insert", "cancel_insert", "reset_later", "fire"):
            for system, whose in ((PLAIN, "own"), (PLAIN, "another's"), (PLAIN, "all"), ("heap", "own")):
                for threads in (2, 8, 64):
                    cells = [section.value(system, workload, whose, threads, figure) for figure in figures]
                    if cells[0] is not None:
                        name = OPERATIONS[workload] + (", a heap in a lock" if system == "heap" else "")
                        rows.append([name, whose, threads, *(f"{cell:.3f}" for cell in cells)])
        head = ["operation", "timers", "threads", *figures.values()]
        return f"{table(head, rows)}\n{section.caption()}\n"

    def table_footprint(self):
        section = self.section("footprint")
        get = lambda *key: section.value(*key)
        per = lambda key, by: digits(get(*key) / by) if get(*key) is not None else "-"
        triple = lambda row, figures, by: " / ".join(per((row, figure), by) for figure in figures)
        mib = 2**20
        small = lambda row: [
            per((row, "resident"), 1) + ", " + per((row, "build_ns"), 1e3),
            per((row, "resident_at_most"), 1) + ", " + per((row, "build_ns_at_most"), 1e3)]
        rows = [
            ["bytes of a wheel with one shard and one timer, and time to build it (µs)", *small("small-wheel")],
            ["bytes of a delay queue with one value, and time to build it (µs)", *small("small-queue")],
            ["the same of tokio-util's delay queue", *small("small-tokio-queue")],
            ["bytes per timer, 1 M armed", per(("bytes-million", "bytes"), 1), per(("bytes-million", "at_most"), 1)],
            ["bytes per timer, 10 M armed", per(("bytes-ten-million", "bytes"), 1),
             per(("bytes-ten-million", "at_most"), 1)],
            ["resident after 100 M inserts and cancels, 1,000 live (MiB)", per(("churn", "bytes"), mib),
             per(("churn", "at_most"), mib)],
            ["resident before, during and after a burst of 10 M timers (MiB)",
             triple("burst", ["before", "most", "after"], mib), per(("burst", "at_most"), mib)],
            ["ten idle seconds, 10 M armed: sweeps, CPU (ms)",
             f"{per(('idle', 'sweeps'), 1)}, {per(('idle', 'cpu_ms'), 1)}", f"{per(('idle', 'at_most'), 1)} sweeps"],
            ["ten idle seconds, nothing armed: sweeps, CPU (ms)",
             f"{per(('empty', 'sweeps'), 1)}, {per(('empty', 'cpu_ms'), 1)}", f"{per(('empty', 'at_most'), 1)} sweeps"],
            ["1 M timers due in one tick are all delivered after (ms)", per(("herd", "max"), 1e3),
             per(("herd", "at_most"), 1e3)],
            ["lateness of 1 M timers within a second: median / p99 / max (ms)",
             triple("lateness", ["p50", "p99", "max"], 1e3),
             "- / " + triple("lateness", ["p99_at_most", "max_at_most"], 1e3)],
            ["lateness of 1 M timers within two seconds, ticks of 1 µs, 8 shards, `Inline`: median / p99 / max (ms)",
             triple("storm", ["p50", "p99", "max"], 1e3), f"- / - / {per(('storm', 'max_at_most'), 1e3)}"],
            ["CPU for an occupied tick of a long sweep, 1 / 8 / 64 shards (ns)",
             triple("ticks", ["catching_up_1", "catching_up_8", "catching_up_64"], 1), "-"],
            ["CPU for an occupied tick with a rest, 1 / 8 / 64 shards (ns)",
             triple("ticks", ["resting_1", "resting_8", "resting_64"], 1), "-"],
        ]
        return f"{table(['', 'measured', 'bound'], rows)}\n{section.caption()}\n"

    def compared(self, section, rows, head, ours, theirs):
        """Our time beside another's, and the ratio."""
        lines = []
        for name, key in rows:
            mine, other = (section.value(*key(system), "ns") for system in (ours, theirs))
            lines.append([name, digits(mine), digits(other), f"{mine / other:.2f}" if mine and other else "-"])
        return table(head, lines)

    def table_layers(self):
        section = self.section("layers")
        keyed = [(name, lambda system, verb=verb: ("a key", f"{verb}, {system}")) for name, verb in (
            ("replace the timer of a random key", "set again"), ("move the deadline of a random key", "move"),
            ("remove a random key and insert it again", "remove and set"))]
        closures = [("schedule a closure and cancel it",
                     lambda system: ("a closure, scheduled and cancelled", system))]
        return "\n".join([
            self.compared(section, keyed, ["time per operation (ns)", "tourbillon", "go-zero's design", "ratio"],
                          "tourbillon", "go-zero's design"),
            self.compared(section, closures, ["time per operation (ns)", "tourbillon", "scheduled-thread-pool",
                                              "ratio"], "tourbillon", "scheduled-thread-pool"),
            section.caption() + "\n"])

    def table_sleeps(self):
        section = self.section("futures")
        names = {"made, polled and dropped": "create, poll and drop", "pushed back and polled": "reset and poll a random one",
                 "polled again": "poll a random one again"}
        rows = []
        for armed in (10_000, 1_000_000):
            for verb, name in names.items():
                cells = []
                for threads in ("one thread", "two threads, each its own"):
                    mine, other = (section.value(f"a sleep, {armed} armed, {threads}", f"{verb}, {system}", "ns")
                                   for system in ("tourbillon", "tokio"))
                    cells += [digits(mine), digits(other), f"{mine / other:.2f}" if mine and other else "-"]
                rows.append([f"{name}, {armed:,} armed", *cells])
        head = ["time per operation (ns)", "tourbillon", "tokio", "ratio", "two threads: tourbillon", "tokio", "ratio"]
        return f"{table(head, rows)}\n{section.caption()}\n"

    def table_caches(self):
        section = self.section("caches")
        caches = ["tourbillon", "tourbillon, time to idle", "moka", "moka, time to idle", "quick_cache, and a look",
                  "quick_cache"]
        shown = {"quick_cache, and a look": "quick_cache, checking a deadline", "quick_cache": "quick_cache, no expiry"}
        operations, sizes = {"hit": "hit", "miss": "miss", "insert with TTL": "insert"}, section.parts(0)
        rows = []
        for cache in caches:
            cells = []
            for size in sizes:
                for operation in operations:
                    mine, plain = (section.value(size, operation, of) for of in (cache, caches[-1]))
                    cells.append(f"{digits(mine)} ({mine / plain:.2f})" if mine and plain else "-")
            rows.append([shown.get(cache, cache), *cells])
        head = ["time per operation (ns), and over quick_cache's",
                *(f"{name}, {size:,} entries" for size in sizes for name in operations.values())]
        late = [[cache, digits(section.value(cache, "bytes_an_entry")),
                 digits(section.value(cache, "told_within_5_s")),
                 *(digits(section.value(cache, figure)) for figure in ("p50_ms", "p99_ms", "most_ms"))]
                for cache in ("tourbillon", "moka", "quick_cache")]
        more = table(["", "bytes per entry", "of 10,000 expiries reported within 5 s", "lateness, median (ms)",
                      "p99 (ms)", "max (ms)"], late)
        return f"{table(head, rows)}\n{more}\n{section.caption()}\n"

    def table_servers(self):
        section = self.section("servers")
        servers = {"idle_server": {"tourbillon(own)": "one wheel per loop", "tourbillon(shared)": "one wheel for all",
                                   "heap(own)": "one ordered map per loop",
                                   "heap(shared)": "one ordered map in a lock"},
                   "http_server": {"tourbillon": "tourbillon", "tokio": "tokio"},
                   "quic_server": {"tourbillon": "tourbillon", "tokio": "tokio"},
                   "flow_server": {"tourbillon": "tourbillon", "tokio": "tokio's `Sleep`s",
                                   "delay-queue": "tokio-util's `DelayQueue`", "heap": "a lazy heap"},
                   "key_server": {"tourbillon": "tourbillon", "delay-queue": "tokio-util's `DelayQueue`",
                                  "heap": "a lazy heap", "ordered-set": "an ordered set"}}
        figures = {"requests_per_s": "requests per second", "p99_ms": "p99 (ms)", "early": "early",
                   "late_max_ms": "latest (ms)", "lost": "lost", "left": "left"}
        rows = []
        for server, all_timers in servers.items():
            first = next(iter(all_timers))
            for timers, name in all_timers.items():
                key, rival = ((server, each, "cpu_us_per_request") for each in (timers, first))
                spread, ratio = section.spread(*key), section.ratio(key, rival)
                around = f" ±{spread:.0%}" if spread is not None else ""
                rows.append([f"`{server}`", name, f"{digits(section.value(*key))}{around}",
                             digits(ratio), *(digits(section.value(server, timers, each)) for each in figures)])
        head = ["server", "timers", "CPU per request (µs)", "of the wheel's", *figures.values()]
        return f"{table(head, rows)}\n{section.caption()}\n"

    def table_connections(self):
        section, paced = self.section("connections"), self.section("paced")
        seconds = section.value("seconds")
        rate = lambda key: digits(section.value(key) / seconds / 1e6) if seconds else "-"
        everything = section.value("ops_per_s")
        spread = section.spread("ops_per_s")
        rows = [
            ["million operations per second", f"{digits(everything / 1e6) if everything else '-'}"
             + (f" ±{spread:.0%}" if spread is not None else "")],
            ["of these insert / reset / cancel / fire",
             " / ".join(rate(key) for key in ("inserted", "reset", "cancelled", "fired"))],
            ["CPU time of all cores that was used, at 70 % (%)",
             digits(100 * paced.value("cpu_share")) if paced.value("cpu_share") else "-"],
            *([f"lateness {name}: median / p99 / p99.9 / max (ms)",
               " / ".join(digits(of.value("lateness_ms", key)) for key in ("p50", "p99", "p999", "max"))]
              for name, of in (("at 70 %", paced), ("without pause", section))),
            ["bytes per timer", digits(section.value("bytes_per_timer"))],
            ["CPU of the tick thread / of all threads (s)",
             f"{digits(section.value('driver_cpu_s'))} / {digits(section.value('total_cpu_s'))}"],
            ["early, lost, twice", ", ".join(digits(section.value(key)) for key in ("early", "lost", "twice"))],
        ]
        return f"{table(['', 'measured'], rows)}\n{section.caption()}\n{paced.caption()}\n"

    def table_instructions(self):
        section = self.section("instructions")
        columns = {"plain": "one by one", "pinned": "in batches", "sleep": "`Sleep`", "tokio_sleep": "tokio's `Sleep`"}
        names = {**{key: OPERATIONS[key] for key in README_ROWS}, "deadline": "read the deadline"}
        rows = [[name, *(f"{section.value(verb, on):.0f}" if section.value(verb, on) is not None else "-"
                         for on in columns)] for verb, name in names.items()]
        return f"{table(['instructions per operation', *columns.values()], rows)}\n{section.caption()}\n"


def written(text, document):
    """The text with every block between its two markers written."""
    def block(found):
        name = found[2]
        if name.startswith("plot_"):
            return f"{found[1]}{document.plot(name.removeprefix('plot_'))}{found[3]}"
        return f"{found[1]}\n{getattr(document, f'table_{name}')()}\n{found[3]}"
    return re.sub(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->\n)", block, text, flags=re.S)


def readme(text, document):
    begin, end = "<!-- numbers begin -->\n", "<!-- numbers end -->\n"
    before, rest = text.split(begin)
    return before + begin + document.readme() + end + rest.split(end)[1]


def git(*words):
    run = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
    return run.stdout.strip() if run.returncode == 0 else None


def age(commit):
    """What is wrong with the age of the numbers, or `None`.

    Where the history is not there (a shallow clone, or sources without git) nothing is wrong: the age is a
    property of the repository, and every push is checked with its history by `.ci/run`. In a whole clone a
    commit that is missing, or that HEAD does not follow, is an error, because no reader could check it out.
    """
    if git("rev-parse", "--is-shallow-repository") != "false":
        print(f"the history is not available, so the age of the numbers (commit {commit}) was not checked")
        return None
    if git("merge-base", "--is-ancestor", commit, "HEAD") is None:
        return f"docs/numbers.json is of commit {commit}, which is not in the history of HEAD: measure again"
    since = int(git("rev-list", "--count", f"{commit}..HEAD", "--", "src/wheel"))
    if since > COMMITS:
        return (f"docs/numbers.json is of commit {commit}, and {since} commits have changed src/wheel since; "
                f"{COMMITS} are allowed: measure again (`ci/measure numbers`)")
    return None


def problems(numbers):
    """What is wrong with the numbers and the plots."""
    commits = {numbers["runs"][section["run"]]["commit"] for name, section in numbers["sections"].items()
               if name not in MANY_CORES}
    # What is not in the history is reported by its age. A benchmark may change while what it measures does not.
    if len({git("rev-parse", f"{commit}:src") for commit in commits} - {None}) > 1:
        yield f"docs/numbers.json has sections of commits whose `src` differs: {', '.join(sorted(commits))}"
    for commit in sorted(commits):
        yield age(commit)
    captions = [f"{run['machine']['cpu']}, {run['machine']['cores']} cores, commit {run['commit']}, {run['date']}"
                for run in numbers["runs"]]
    plots = sorted((ROOT / "docs" / "plots").glob("*.svg"))
    for plot in plots:
        if not any(caption in plot.read_text() for caption in captions):
            yield f"docs/plots/{plot.name} is not of this run: `ci/measure numbers write` draws it"
        if f"plots/{plot.name}" not in BENCHMARKS.read_text():
            yield f"docs/plots/{plot.name} is not shown in docs/BENCHMARKS.md"


def main():
    check = "--check" in sys.argv[1:]
    if not NUMBERS.exists():
        sys.exit("docs/numbers.json is not there: measure (`ci/measure numbers`)")
    numbers = json.loads(NUMBERS.read_text())
    document = Document(numbers)
    wrong = []
    for path, source, write in ((BENCHMARKS, PAGE, written), (README, README, readme)):
        old = path.read_text()
        new = write(source.read_text(), document)
        if new != old and check:
            wrong.append(f"{path.relative_to(ROOT)}: not as `ci/measure numbers write` leaves it")
        elif new != old:
            path.write_text(new)
    if check:
        wrong += [problem for problem in problems(numbers) if problem]
    print("\n".join(wrong), end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
