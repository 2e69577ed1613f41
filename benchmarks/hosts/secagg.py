"""Flower's SecAgg+ on the hosts: seconds and CPU of a round, and whether its mean is right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.hosts.cpu import CpuMeter
from benchmarks.hosts.flower import SECAGG, flower_report
from benchmarks.hosts.places import Place

FLOAT32_EPS = 2.0**-23


@dataclass(frozen=True)
class SecAggRound:
    """One round: ``seconds`` are less training, ``cpu_s`` those of all processes together."""

    seconds: float
    cpu_s: float
    included: int
    worst_error: float


@dataclass(frozen=True)
class SecAggRun:
    """Rounds of SecAgg+, and what exactly was measured."""

    terms: dict[str, Any]
    rounds: tuple[SecAggRound, ...]

    @property
    def step(self) -> float:
        """A step of its grid: the mean of values rounded at random is off by less."""
        return float(2 * self.terms["clipping_range"] / self.terms["levels"])

    def check(self) -> None:
        """Refuse rounds whose mean is wrong: nobody is to be fast by doing less."""
        for number, one in enumerate(self.rounds, 1):
            if not one.worst_error <= self.step + FLOAT32_EPS:
                raise SystemExit(
                    f"Flower's SecAgg+, round {number}: the mean is off by {one.worst_error:.3g}; "
                    f"its grid allows {self.step:.3g}"
                )


def secagg_run(
    places: Sequence[Place], parameters: int, dropouts: Sequence[int], *, deadline_s: float
) -> SecAggRun:
    """A round for every number of ``dropouts``; all places but the last are clients."""
    wanted: dict[str, int | str] = {
        "parameters": parameters,
        "dropouts": json.dumps(list(dropouts)),
    }
    with CpuMeter() as meter:
        found = flower_report(places, SECAGG, wanted, deadline_s=deadline_s)
    rounds = tuple(
        SecAggRound(one["seconds"], meter.between(one["began"], one["ended"]),
                    one["included"], one["worst_error"])
        for one in found["rounds"]
    )  # fmt: skip
    run = SecAggRun(found["terms"], rounds)
    run.check()
    return run
