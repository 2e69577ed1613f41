"""The figures that the papers print, as printed: whoever quotes one takes it from here.

``printed.toml`` holds them with their places. A quoted figure that is not in it, or is beside the
wrong row, cannot be asked for.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from eris.core.errors import InvalidSetting, one_of

NOTHING = "–"
"""Where a paper has no such figure."""


def printed(table: str, row: str, column: str) -> str:
    """One figure of a table of the papers.

    >>> printed("ERIS table 12", "ERIS + DSC 3.3 %", "accuracy, 16 samples")
    '90.26 ± 0.11'
    """
    found = tables()
    if table not in found:
        raise InvalidSetting("table", table, one_of(found, table))
    columns, rows = found[table]["columns"], found[table]["rows"]
    if row not in rows:
        raise InvalidSetting(f"row of {table}", row, one_of(rows, row))
    if column not in columns:
        raise InvalidSetting(f"column of {table}", column, one_of(columns, column))
    figure: str = rows[row][columns.index(column)]
    return figure


@cache
def tables() -> Mapping[str, Any]:
    """All tables: each has a place, columns, and rows of as many figures."""
    text = files("eris.experiments.runs").joinpath("printed.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
