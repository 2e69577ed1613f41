"""Tables with more columns than a terminal has room for: in parts, one below the other."""

from __future__ import annotations

import os
from dataclasses import replace

from rich.console import Console
from rich.table import Column, Table


def widened(console: Console, width: int) -> Console:
    """Let a file, of which nobody said how wide it is, have whole rows."""
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = max(console.width, width)
    return console


def parts(table: Table, console: Console) -> list[Table]:
    """The table, or as many as it takes until each is as narrow as the console; every one begins
    with the first column, which says what a row is.

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
