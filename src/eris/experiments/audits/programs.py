"""Experiments as programs of their own: options in, a table and a line of JSON out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from eris.experiments.figures import parts, say, widened

T = TypeVar("T")


def asked(
    kind: type[T], module: str, about: str | None, options: Sequence[str], given: list[str] | None
) -> T:
    """The settings of an experiment, of which some are options; the others stay as they are."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    for name in options:
        default, option = getattr(kind(), name), f"--{name.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(option, action="store_true")
        else:
            parser.add_argument(option, type=type(default), default=default)
    return kind(**vars(parser.parse_args(given)))


def told(table: Table, width: int, figures: Mapping[str, Any]) -> None:
    """Print a table, in full also where lines are short, and all figures as one line of JSON."""
    wide = widened(Console(), width)
    wide.print(*parts(table, wide))
    say(json.dumps(figures))
