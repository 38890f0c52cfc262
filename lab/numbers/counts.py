"""Counts the instructions of each operation by callgrind, without the loop around it."""

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from pathlib import Path

OPERATIONS, RUNS = 64 * 64, 3
VERBS = ["insert", "cancel_insert", "reset_later", "reset_earlier", "deadline"]
# What is counted, the loop around it, and the operations.
GROUPS = [(["sleep", "tokio_sleep"], "bare_sleep", VERBS[:3]), (["pinned", "plain"], "bare", VERBS),
          (["bounded"], "bare", VERBS[:2])]


def possible(program):
    """Whether this machine has the program and valgrind."""
    return Path(program).exists() and shutil.which("valgrind") is not None


def once(program, on, verb):
    run = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                          "--toggle-collect=*instructions::counted*", program, on, verb],
                         capture_output=True, text=True)
    total = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode or not total or total[1] == "0":
        sys.exit(f"{on} {verb} was not counted:\n{run.stderr}")
    return int(total[1]) / OPERATIONS


def count(program):
    """`OPERATION/ON` for each. Code that reads the clock differs from run to run, so that each count is the
    least of three."""
    jobs = list({(on, verb) for ons, bare, verbs in GROUPS for on in [*ons, bare] for verb in verbs})
    with ThreadPoolExecutor(cpu_count()) as pool:
        runs = list(zip(jobs * RUNS, pool.map(lambda job: once(program, *job), jobs * RUNS)))
    least = {job: min(count for of, count in runs if of == job) for job in jobs}
    return {f"{verb}/{on}": round(least[on, verb] - least[bare, verb], 1)
            for ons, bare, verbs in GROUPS for on in ons for verb in verbs}
