"""Values out of range: whatever the number of aggregators and the segment size, the model is the
same bits, for a client whose update has one sends nothing of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eris.core.rules import FedAvg
from eris.core.vectors import Vector
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.testing import assert_same_bits
from eris.training.trainer import LocalUpdate

N, CLIENTS = 1007, 10
CUTS = [(5, N), (1, 50), (5, 50), (7, 13)]


class OneBad:
    """A client with one value of 65, if it is the fifth."""

    def __init__(self, number: int) -> None:
        self.number = number

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        vector = np.random.default_rng([7, self.number, round]).normal(0, 0.1, N)
        if self.number == 4:
            vector[123] = 65
        return LocalUpdate(vector.astype(np.float32), samples=1 + self.number)


class Diverging:
    """A client whose loss is steep in one coordinate, for which the step is too long."""

    def __init__(self, number: int) -> None:
        self.number = number

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        curvature = np.full(N, 0.1, np.float32)
        curvature[77] = 4
        return LocalUpdate(curvature * (parameters - self.number / 10), samples=1 + self.number)


@pytest.mark.filterwarnings("ignore::eris.federation.RefusedWarning")
@pytest.mark.parametrize("dsc", [None, 0.3], ids=["dense", "compressed"])
@pytest.mark.parametrize(("kind", "rounds"), [(OneBad, 2), (Diverging, 12)])
def test_how_the_coordinates_are_cut_changes_no_bit(
    kind: Any, rounds: int, dsc: float | None
) -> None:
    def trained(aggregators: int, segment_size: int) -> tuple[Vector, list[float | None]]:
        clients = [kind(number) for number in range(CLIENTS)]
        method = ERIS(aggregators=aggregators, kept_fraction=dsc)
        start = np.zeros(N, np.float32)
        federation = Federation(
            clients, start, method, seed=3, rule=FedAvg(1.0), segment_size=segment_size
        )
        fit = federation.fit(rounds, progress=False)
        return fit.model, [record.included for record in fit.history]

    expected, included = trained(1, N)
    assert min(share for share in included if share is not None) < 1, "somebody must be refused"
    for aggregators, segment_size in CUTS:
        found, shares = trained(aggregators, segment_size)
        assert_same_bits(found, expected, f"A = {aggregators}, segments of {segment_size}")
        assert shares == included
