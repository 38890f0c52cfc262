"""Finds functions and other items in Rust sources by name: imported by other scripts here.

It is a scanner, not a parser. It knows comments, strings and braces, which is enough for sources that
rustfmt has formatted.
"""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
# The folders of the crates beside the wheel's own.
CRATES = ("cache", "durable", "timerd", "timers", "web")
# Comments, strings and characters, of which lifetimes are not.
OPAQUE = re.compile(
    r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\[^\n\']+|[^\\\n\'])\'', re.S)
HEAD = re.compile(
    r"^[ ]*(?:pub(?:\([^)]*\))? )?(?:unsafe )?(?P<scope>impl|trait|mod)\b(?P<of>[^;{]*)"
    r"|\b(?<!')(?P<kind>fn|struct|enum|union|const|static|type|macro_rules!)\s+(?:mut\s+)?"
    r"(?!(?:fn|unsafe|async|extern|move)\b)(?P<name>\w+)", re.M)


class Item(NamedTuple):
    """An item with its attributes and comments: `name` is `Type::function` within an `impl`."""
    kind: str
    name: str
    start: int
    end: int


@cache
def module_files(module):
    """The files of a module, scripts in Lua and SQL included: `wheel/shard` is src/wheel/shard.rs and all
    files below src/wheel/shard. Those of `durable` are below crates/durable/src, and likewise with each of
    CRATES. A script is a module of its own, too."""
    parts = Path(module).parts
    other = parts[0] in CRATES
    below = Path("crates", parts[0], "src", *parts[1:]) if other else Path("src", *parts)
    below = ROOT / below
    suffixes = (".rs", ".lua", ".sql")
    single = (below.with_suffix(suffix) for suffix in suffixes)
    inside = (path for path in below.rglob("*") if path.suffix in suffixes)
    return [*(path for path in single if path.is_file()), *sorted(inside)]


def masked(text):
    """The text with blanks in place of comments, strings and characters."""
    return OPAQUE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def end_of(code, at):
    """Where the item that begins at `at` ends: after its braces, or at its semicolon."""
    depth = 0
    for found in re.finditer(r"[(){}\[\];]", code[at:]):
        character = found[0]
        if character in "({[":
            depth += 1
        elif character in ")}]":
            depth -= 1
            if depth == 0 and character == "}":
                return at + found.end()
        elif depth == 0:
            return at + found.end()
    return len(code)


def type_of(head):
    """The type of an `impl`, without its generics: `Drop for Slab<T>` is `Slab`."""
    depth, plain = 0, []
    for character in head.replace("->", "  "):
        depth += (character == "<") - (character == ">")
        plain.append(" " if depth or character == ">" else character)
    plain = "".join(plain).split(" where ")[0].split(" for ")[-1]
    names = re.findall(r"\w+", plain)
    return names[-1] if names else ""


@cache
def items(path):
    """All items of a file."""
    text = path.read_text()
    code, found, scopes = masked(text), [], []
    for head in HEAD.finditer(code):
        at = head.start()
        scopes = [scope for scope in scopes if at < scope[1]]
        if head["scope"]:
            name = type_of(head["of"]) if head["scope"] != "mod" else ""
            scopes.append((name, end_of(code, head.end())))
            continue
        before = max(code.rfind(character, 0, at) for character in ";{}") + 1
        names = [scope[0] for scope in scopes[-1:] if scope[0]]
        found.append(Item(head["kind"], "::".join([*names, head["name"]]), before,
                          end_of(code, head.end())))
    return found


def named(path, name):
    """The items of a file with this name, `Type::function` or its end."""
    return [item for item in items(path) if item.name == name or item.name.endswith(f"::{name}")]
