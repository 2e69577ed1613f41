"""A coarse grid that clients have in common: values as small integers whose sum fits b bits.

A client's weight is inside: u = ⌊x·levels·S_i/S_ref + ρ⌋, so the integers of all clients add up to
a mean. Words are added modulo 2^b, so only the sum must fit, never a single client's integers. With
ρ uniform in [0, 1) a value is right on average, and the mean's squared error is N·Δ²/6 on average
(at most N·Δ²/4), Δ = S_ref/(levels·Σ_I S); with ρ = ½ it is N·Δ²/12, and small values vanish.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import require
from eris.core.vectors import Vector

Integers = NDArray[np.int64]
Draws = NDArray[np.float64]
MOST_SAMPLES = (1 << 24) - 1
"""Of a client: a float32 times that is exact in float64."""
MOST_EXPONENT = 30
ROOM = 4
"""How many times larger than the last mean the next one may be."""
STEP_BACK = 3
"""By how much an exponent falls after a sum that did not fit."""


def room(bits: int, clients: int) -> int:
    """How far from 0 the sum of values may be: each of so many clients may round up by one.

    >>> room(12, 10)
    2037
    """
    return max(1, (1 << bits - 1) - 1 - clients)


def most_clients(bits: int) -> int:
    """So many clients leave most of a word to values.

    >>> most_clients(12)
    512
    """
    return 1 << bits - 3


def exponent_for(bits: int, clients: int, most: float) -> int:
    """The finest unit 2^−e in which a mean of at most ``most`` fits.

    >>> exponent_for(12, 10, 0.5), exponent_for(12, 10, 0.0)
    (11, 30)
    """
    if most <= 0:
        return MOST_EXPONENT
    # Of a quotient, not a difference of logarithms: a power of two is its own.
    _, above = math.frexp(room(bits, clients) / most)
    return min(above - 1, MOST_EXPONENT)


@dataclass(frozen=True)
class CommonGrid:
    """``levels`` a unit, for clients of ``reference`` samples in all.

    >>> grid = CommonGrid(levels=2.0**11, reference=4)
    >>> sums = grid.integers(np.array([0.25, -0.5], np.float32), samples=1, draws=None)
    >>> sums.tolist(), grid.mean(sums, included_samples=1).tolist()
    ([128, -256], [0.25, -0.5])
    """

    levels: float
    reference: int
    """S_ref"""

    def __post_init__(self) -> None:
        require(0 < self.levels < math.inf, "levels", self.levels, "a positive finite number")
        require(self.reference >= 1, "reference samples", self.reference, "at least 1")

    def integers(self, values: Vector, samples: int, draws: Draws | None) -> Integers:
        """u, rounded by ``draws`` in [0, 1), or to the nearest integer where there are none."""
        scaled = values.astype(np.float64)
        scaled *= self.levels
        scaled *= samples
        scaled /= self.reference
        scaled += 0.5 if draws is None else draws
        return np.floor(scaled).astype(np.int64)

    def unit(self, included_samples: int) -> float:
        """Δ: the mean's grid."""
        return self.reference / included_samples / self.levels

    def mean(self, sums: Integers, included_samples: int) -> Vector:
        """The mean over clients that have so many samples."""
        return (sums / self.levels * (self.reference / included_samples)).astype(np.float32)
