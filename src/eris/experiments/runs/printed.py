"""The papers' tables: the methods in their rows, and the figures that they print, as printed.

``printed.toml`` holds the figures with their places. A quoted figure that is not in it, or is
beside the wrong row, cannot be asked for.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from eris.core.errors import InvalidSetting, one_of
from eris.methods.eris import KEPT_SHARES


def _dsc(kept: float, masks: str = "shared") -> dict[str, Any]:
    return {"method.name": "eris", "method.kept_fraction": kept, "method.masks": masks}


def _noisy(name: str, epsilon: float) -> dict[str, Any]:
    """A budget for every round, as the ERIS authors have it."""
    return {
        "method.name": name,
        "method.epsilon": epsilon,
        "method.calibration": "per-round",
    }


COMPARED: Mapping[str, Mapping[str, Any]] = {
    "FedAvg": {"method.name": "fedavg"},
    "ERIS": {"method.name": "eris"},
    "ERIS + DSC 5 %": _dsc(0.05),
    "ERIS + DSC 3.3 %": _dsc(KEPT_SHARES["mnist"]),
    "ERIS + DSC 3.3 %, paper mode": _dsc(KEPT_SHARES["mnist"], "independent"),
    # In the model's own coordinates, masks that all clients share do not train with so little.
    "ERIS + DSC 0.6 %, coordinates": _dsc(KEPT_SHARES["cifar10"]) | {"method.basis": "coordinates"},
    "ERIS + DSC 0.6 %, rotated": _dsc(KEPT_SHARES["cifar10"]) | {"method.basis": "rotated"},
    "ERIS + DSC 0.6 %, paper mode": _dsc(KEPT_SHARES["cifar10"], "independent"),
    "FedAvg-LDP ε 10": _noisy("fedavg-ldp", 10.0),
    "FedAvg-LDP ε 1": _noisy("fedavg-ldp", 1.0),
    "SoteriaFL ε 10": _noisy("soteriafl", 10.0),
    "SoteriaFL ε 1": _noisy("soteriafl", 1.0),
    "PriPrune 0.01": {"method.name": "priprune", "method.rate": 0.01},
    "PriPrune 0.05": {"method.name": "priprune", "method.rate": 0.05},
    "PriPrune 0.1": {"method.name": "priprune", "method.rate": 0.1},
    # The degree of the ERIS authors (E.3); Shatter's own have r = 8.
    "Shatter, k = 8, r = 4": {
        "method.name": "shatter",
        "method.virtual_nodes": 8,
        "method.degree": 4,
    },
}
"""What each row is here; a comma tells ways apart of running what the papers print in one."""


def quoted(label: str, table: str, column: str) -> str:
    """What a paper prints for a method.

    >>> quoted("ERIS + DSC 3.3 %, paper mode", "ERIS table 12", "membership, 16 samples")
    '56.11 ± 1.58'
    """
    return printed(table, label.partition(",")[0], column)


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
