"""The tree of commands, and whether a line that somebody may type is one of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from eris.cli.main import app

TREE: Any = get_command(app)
"""Typer's own click is private, hence no type."""


def leaves(node: Any = TREE, path: tuple[str, ...] = ("eris",)) -> Iterator[tuple[str, Any]]:
    """Every command that does something, as one types it."""
    children = getattr(node, "commands", {})
    if not children or node.invoke_without_command:
        yield " ".join(path), node
    for name, child in children.items():
        yield from leaves(child, (*path, name))


def examples(text: str) -> list[str]:
    """The lines of a help or a block of shell that call the command, joined where continued."""
    lines = re.sub(r" *\\\n *", " ", text).splitlines()
    called = (re.match(r" *(?:[A-Z_]+=\S+ )*(eris( .*)?)$", line) for line in lines)
    return [found[1].strip() for found in called if found]


def options_of(line: str) -> Any:
    """What the parser makes of a line; an error is what its user would see.

    >>> options_of("eris local 5 --rounds 3 | jq .nodes").params["rounds"]
    3
    """
    words = shlex.split(line, comments=True)
    ends = [place for place, word in enumerate(words) if word in ("|", ">", "&", "&&")]
    words = words[: min(ends, default=len(words))]
    node, context = TREE, None
    while True:
        context = node.make_context(words[0], words[1:], parent=context)
        words = [*getattr(context, "_protected_args", ()), *context.args]
        if not words or not hasattr(node, "commands"):
            return context
        node = node.get_command(context, words[0]) or node.resolve_command(context, words)[1]
