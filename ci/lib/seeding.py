"""Puts many seeded faults into one copy of the sources, to choose among at run time: imported by
ci/seeds.

Of a function with seeded faults the copy has the body as it is and one body for each fault:

    { match crate::seeded_fault() { 17 => { … }, 18 => { … }, _ => { … } } }

So each check is compiled once and not once for each fault. The environment variable SEEDED_FAULT has
the number of the fault for a run. A script in Lua or SQL has a copy for each of its faults, and the
crate uses that copy in place of the script. A fault outside a function, in a function that the
compiler evaluates, or of which the compiler does not accept the copy, has to be tried alone.
"""

import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import sources

VARIABLE = "SEEDED_FAULT"
CHOICE = f"""
/// The number of the seeded fault that this process has, or 0.
pub(crate) fn seeded_fault() -> u32 {{
    static NUMBER: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *NUMBER.get_or_init(|| std::env::var("{VARIABLE}").map_or(0, |number| number.parse().unwrap()))
}}
"""
# Where scripts are used, by their suffix, and what replaces it.
SCRIPTS = {
    ".lua": (re.compile(r"Script::new\((concat!\(.*?\))\),$", re.M | re.S),
             r"Script::new(&self::seeded_script(\1)),"),
    ".sql": (re.compile(r"\bstatement\.replace\("), "self::seeded_script(statement).replace("),
}
CHOICE_OF_SCRIPTS = """
/// A script with the seeded fault of this process.
pub(crate) fn seeded_script(script: &str) -> String {{
    match crate::seeded_fault() {{
{}        _ => script.to_owned(),
    }}
}}
"""
# The roots of the crates that compile the sources.
ROOTS = ["src/lib.rs", "loom-tests/src/lib.rs",
         *(f"crates/{name}/src/{root}.rs" for name in sources.CRATES for root in ("lib", "main"))]


class Seed(NamedTuple):
    """A fault that can be chosen: its number, and its text within the body of its function."""
    number: int
    start: int
    end: int
    new: str


def body_of(path, start, end):
    """Where the body of the outermost function around a text begins and ends, if the text lies in one
    that runs at run time. The body of a script is all of it."""
    if path.suffix in SCRIPTS:
        return 0, len(path.read_text())
    around = [item for item in sources.items(path) if item.start <= start < item.end]
    functions = [item for item in around if item.kind == "fn"]
    if len(functions) < len(around) or not functions:
        return None
    outermost = min(functions, key=lambda item: item.start)
    code = sources.masked(path.read_text())
    head = re.compile(r"\bfn\s").search(code, outermost.start).start()
    depth = 0
    for found in re.compile(r"[(){}\[\]]").finditer(code, head, outermost.end):
        if found[0] == "{" and depth == 0:
            is_evaluated = re.search(r"\bconst\b", code[outermost.start:head])
            is_within = found.start() < start and end < outermost.end
            return (found.start(), outermost.end) if is_within and not is_evaluated else None
        depth += 1 if found[0] in "([{" else -1
    return None


def seeded(path, seeds):
    """The text of a file with all `seeds` to choose from, and the lines that each of them has."""
    text = path.read_text()
    bodies = {}
    for seed in seeds:
        bodies.setdefault(body_of(path, seed.start, seed.end), []).append(seed)
    parts, lines, done = [], {}, 0

    def add(part):
        parts.append(part)
        return sum(part.count("\n") for part in parts) + 1

    for (start, end), variants in sorted(bodies.items()):
        add(text[done:start] + "{ match crate::seeded_fault() {\n")
        for seed in variants:
            first = add("")
            body = text[start:seed.start] + seed.new + text[seed.end:end]
            last = add(f"{seed.number} => {body}\n")
            lines[seed.number] = range(first, last + 1)
        first = add("")
        last = add(f"_ => {text[start:end]}\n")
        for seed in variants:
            # An error in the body as it is comes from the others, which have another type.
            lines[-seed.number] = range(first, last + 1)
        add("}}")
        done = end
    add(text[done:])
    return "".join(parts), lines


def add_scripts(texts, scripts):
    """Adds the copies of `scripts`, one for each of their faults, to the texts of files, and has the
    Rust files choose among them."""
    choices = {}
    for path, of_file in scripts.items():
        text = path.read_text()
        used, chosen = SCRIPTS[path.suffix]
        modules = path.parent.parent.glob("*.rs")
        (uses,) = (file for file in modules if used.search(file.read_text()))
        for seed in of_file:
            copy = path.with_suffix(f".{seed.number}{path.suffix}")
            texts[copy] = text[:seed.start] + seed.new + text[seed.end:]
            old, new = (f'include_str!("{file.relative_to(uses.parent)}")' for file in (path, copy))
            choice = f"        {seed.number} => script.replace({old}, {new}),\n"
            choices.setdefault((uses, used, chosen), []).append(choice)
    for (uses, used, chosen), of_file in choices.items():
        text = texts.get(uses, uses.read_text())
        texts[uses] = used.sub(chosen, text) + CHOICE_OF_SCRIPTS.format("".join(of_file))


def seed_copy(root, copied, work, seeds):
    """Makes a copy of the sources, and returns the lines of each fault in its files. Leaves a file
    that is there already untouched, so that it is not compiled again."""
    scripts = {path: of_file for path, of_file in seeds.items() if path.suffix in SCRIPTS}
    texts, lines = {}, {}
    for path in seeds.keys() - scripts.keys():
        texts[path], lines[path.relative_to(root)] = seeded(path, seeds[path])
    add_scripts(texts, scripts)
    wanted = set()
    for name in copied:
        top = root / name
        files = [path for path in top.rglob("*") if path.is_file()] if top.is_dir() else [top]
        files += [path for path in texts if top in path.parents and not path.exists()]
        for path in files:
            target = work / path.relative_to(root)
            wanted.add(target)
            text = texts.get(path, path.read_text() if path.suffix == ".rs" else None)
            if str(path.relative_to(root)) in ROOTS:
                text += CHOICE
            data = path.read_bytes() if text is None else text.encode()
            if not target.exists() or target.read_bytes() != data:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
                if path.exists():
                    shutil.copymode(path, target)
    for path in [path for path in work.rglob("*") if path.is_file() and path not in wanted]:
        if path.relative_to(work).parts[0] != "target":
            path.unlink()
    return lines


def rejected(errors, lines, work):
    """The numbers of the faults at which a compiler's errors point."""
    found = set()
    for name, line in re.findall(r"--> (\S+\.rs):(\d+):", errors):
        file = Path(os.path.relpath(work / name, work))
        found |= {abs(number) for number, of_fault in lines.get(file, {}).items()
                  if int(line) in of_fault}
    return found
