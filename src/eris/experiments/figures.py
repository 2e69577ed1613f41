"""What all reports have in common: lines, cells, tables in parts, pictures without a screen."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

NOTHING = "–"
"""Where there is no such figure."""


def say(*lines: str, console: Console | None = None) -> None:
    """Print lines as they are, however long."""
    for line in lines:
        (console or Console()).print(line, markup=False, highlight=False, soft_wrap=True)


def figure(value: float | None, form: str) -> str:
    """A number in a format, or that there is none.

    >>> figure(0.12345, ".3g"), figure(0.5, ".1%"), figure(None, ".2f")
    ('0.123', '50.0%', '–')
    """
    return NOTHING if value is None else format(value, form)


def percent(share: float | None) -> str:
    """A share in percent, without the sign.

    >>> percent(0.1234), percent(None)
    ('12.3', '–')
    """
    return NOTHING if share is None else f"{100 * share:.1f}"


def widened(console: Console, width: int) -> Console:
    """Let a file, of which nobody said how wide it is, have whole rows."""
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = max(console.width, width)
    return console


def parts(table: Table, console: Console) -> list[Table]:
    """A table with more columns than there is room for as several, one below the other; every one
    begins with the first column, which says what a row is.

    >>> table = Table("row", "a" * 30, "b" * 30, "c" * 30)
    >>> [len(part.columns) for part in parts(table, Console(width=80))]
    [3, 2]
    """
    between = 3 if table.box else 1
    sizes = [between + _width(column, console) for column in table.columns]
    first, *others = table.columns
    groups: list[list[Column]] = [[]]
    room = left = console.width - sizes[0] - 1
    for column, size in zip(others, sizes[1:], strict=True):
        if size > left and groups[-1]:
            groups.append([])
            left = room
        groups[-1].append(column)
        left -= size
    if len(groups) == 1:
        return [table]
    made = [_of([first, *group], table) for group in groups]
    made[0].title, made[-1].caption = table.title, table.caption
    return made


def _width(column: Column, console: Console) -> int:
    cells = [column.header, *column.cells]
    return max(console.measure(cell).maximum for cell in cells)


def _of(columns: list[Column], table: Table) -> Table:
    """A table with some of another's columns."""
    part = Table(
        *(replace(column, _cells=[]) for column in columns),
        box=table.box,
        padding=table.padding,
        pad_edge=table.pad_edge,
        caption_justify=table.caption_justify,
    )
    for row in zip(*(column.cells for column in columns), strict=True):
        part.add_row(*row)
    return part


def panels(count: int, width: float, height: float, **options: Any) -> tuple[Any, Any]:
    """A picture, and its panels side by side, each with a grid."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    picture, axes = plt.subplots(
        1, count, figsize=(width, height), layout="constrained", squeeze=False, **options
    )
    for axis in axes[0]:
        axis.grid(alpha=0.3)
    return picture, axes[0]


def saved(picture: Any, path: Path) -> Path:
    """Write a picture, and be done with it."""
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=120)
    plt.close(picture)
    return path
