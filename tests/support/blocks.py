"""Blocks of code on a page: which there are, and what one who follows the page would do with them.

A block below ``<!-- not run here: WHY -->`` is only parsed. A block of Python with ``title="FILE"``
is written to that file. Lines of ``sh`` must succeed; in ``console`` a line after ``$`` is typed,
and what stands below it must be said.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.command import Eris
from support.commands import options_of

ROOT = Path(__file__).parents[2]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
FENCE = re.compile(
    r"(?P<mark><!-- not run here: [^>]+ -->\n)?^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$",
    re.M | re.S,
)
LANGUAGES = {"python", "sh", "console", "toml", "text", "proto", "pycon", "dockerfile", "json",
             "ini", "csv", ""}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """One block: its language, the file it is for, and whether it can run here."""

    language: str
    file: str | None
    text: str
    runs: bool


def blocks(page: Path) -> Iterator[Block]:
    """All blocks of a page."""
    for found in FENCE.finditer(page.read_text(encoding="utf-8")):
        language, _, more = found["info"].strip().partition(" ")
        title = re.search(r'title="([^"]+)"', more)
        yield Block(language, title[1] if title else None, found["text"], found["mark"] is None)


def typed(block: Block) -> list[tuple[str, list[str]]]:
    """Lines that one types, joined where they go on below, each with what is said to it."""
    text = re.sub(r" *\\\n *", " ", block.text)
    lines = [line for line in text.splitlines() if line.strip()]
    if block.language == "sh":
        return [(line, []) for line in lines if not line.startswith("#")]
    made: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith("$ "):
            made.append((line[2:], []))
        elif made:
            made[-1][1].append(line)
    return made


def parse(block: Block) -> None:
    """Hold a block against the grammar of its language; a command, against its options."""
    assert block.language in LANGUAGES, block.language
    if block.language == "python":
        ast.parse(block.text)
    elif block.language == "toml":
        tomllib.loads(block.text)
    elif block.language in ("sh", "console"):
        for line, _ in typed(block):
            for command in re.split(r" *(?:;|&&) *", line):
                _known(command)


def _known(line: str) -> None:
    """Refuse a command that ERIS, or its Makefile, does not have."""
    words = shlex.split(line, comments=True)
    words = [word for word in words if "=" not in word or word[0] == "-"]
    if words[0] == "eris":
        options_of(line[line.index("eris") :])
    elif words[0] == "make":
        assert {*words[1:]} <= TARGETS, line


@contextmanager
def own_modules() -> Iterator[None]:
    """Let modules of a page's folder be imported, whatever folder of tests has their names."""
    rooms = {path.name for path in Path(__file__).parents[1].iterdir()} - {"support"}
    hidden = {name: sys.modules.pop(name) for name in rooms & sys.modules.keys()}
    before = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = before
        for name in rooms:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)


def follow(page: Path, eris: Eris) -> None:
    """Do in this folder what a page says, from top to bottom."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with own_modules():
        for block in blocks(page):
            parse(block)
            if block.runs:
                _do(block, page, names, eris)


def _do(block: Block, page: Path, names: dict[str, Any], eris: Eris) -> None:
    if block.file is not None:
        Path(block.file).write_text(block.text, encoding="utf-8")
    elif block.language == "python":
        sys.path.insert(0, str(Path.cwd()))
        exec(compile(block.text, str(page), "exec", dont_inherit=True), names)
    elif block.language in ("sh", "console"):
        for line, said in typed(block):
            _type(line, said, eris)


def _type(line: str, said: list[str], eris: Eris) -> None:
    words = shlex.split(line, comments=True)
    if words[0] == "cd":
        os.chdir(words[1])
        return
    assert words[0] == "eris", f"{line}: mark the block as not run here"
    code = eris(*words[1:])
    told = " ".join((eris.out + eris.err).split())
    assert code == (2 if any(one.startswith("error:") for one in said) else 0), f"{line}: {told}"
    for one in said:
        assert " ".join(one.split()) in told, f"{line} says {told}"
