"""What a command prints: words for people or, with ``--json``, one document for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Annotated, Any

import typer

from eris.experiments.runs.store import finite

Figures = Callable[[Mapping[str, Any]], None]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document; words for people go to stderr."),
]


@contextmanager
def output(as_json: bool) -> Iterator[Figures]:
    """Give a function that takes the figures; with ``--json`` they alone are on stdout.

    >>> with output(as_json=True) as figures:
    ...     print("round 1 of 1")
    ...     figures({"rounds": 1, "loss": float("nan")})
    {
      "rounds": 1,
      "loss": null
    }
    >>> with output(as_json=False) as figures:
    ...     print("round 1 of 1")
    ...     figures({"rounds": 1})
    round 1 of 1
    """
    if not as_json:
        yield lambda document: None
        return
    stdout = sys.stdout

    def figures(document: Mapping[str, Any]) -> None:
        text = json.dumps(
            finite(document), indent=2, ensure_ascii=False, allow_nan=False, default=str
        )
        print(text, file=stdout)

    with redirect_stdout(sys.stderr):
        yield figures
