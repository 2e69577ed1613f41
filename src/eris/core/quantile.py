"""Q = −Φ⁻¹ to any precision, and the table of it by which draws are made fast.

``python -m eris.testing.quantile_table`` writes the table again (seconds of CPU); a test computes
some of its cells anew. mpmath is imported where it is used: hardly any draw needs it, and it takes
5 MiB of every process.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mpmath import mpf

OCTAVES, CELLS, DEGREE = 63, 128, 6
"""p in (0, ½) by its leading bit; cells of equal width in an octave; terms beyond the constant."""
MIDDLE_BITS = 120
"""Binary places of Q at a cell's middle."""
TABLE = "quantile.npz"
"""Beside this file."""


def quantile(p: mpf, bits: int) -> mpf:
    """Q(p): where a standard normal number is above with probability p ≤ ½.

    >>> import mpmath
    >>> print(mpmath.nstr(quantile(mpmath.mpf(1) / 4, 200), 20))
    0.6744897501960817432
    """
    import mpmath
    from mpmath import mpf

    with mpmath.workprec(53):
        found = mpf(-NormalDist().inv_cdf(float(p))) if p > mpf(2) ** -1000 else mpf(37)
    right = 30
    while right < bits + 20:
        right *= 2
        with mpmath.workprec(min(right, bits + 40) + 20):
            density = mpmath.exp(-found * found / 2) / mpmath.sqrt(2 * mpmath.pi)
            found += (mpmath.erfc(found / mpmath.sqrt(2)) / 2 - p) / density
    return found


def cell(octave: int, number: int, bits: int = 200) -> tuple[int, list[float]]:
    """Q at a cell's middle, times 2^:data:`MIDDLE_BITS`, and its Taylor terms across the cell.

    With t from −½ to ½ across the cell, Q = middle + Σ termₖ·tᵏ. Terms follow from
    Q″ = Q·(Q′)² and Q′ = −√(2π)·exp(Q²/2).
    """
    import mpmath
    from mpmath import mpf

    with mpmath.workprec(bits):
        least = mpf(2) ** -(octave + 2)
        width = least / CELLS
        middle = quantile(least + width * (mpf(number) + mpf(1) / 2), bits)
        slope = -mpmath.sqrt(2 * mpmath.pi) * mpmath.exp(middle * middle / 2) * width
        series = [middle, slope]
        for k in range(DEGREE - 1):
            slopes = [(j + 1) * series[j + 1] for j in range(k + 1)]
            squares = [sum(slopes[i] * slopes[j - i] for i in range(j + 1)) for j in range(k + 1)]
            second = sum(series[i] * squares[k - i] for i in range(k + 1))
            series.append(second / ((k + 1) * (k + 2)))
        fixed = int(mpmath.nint(middle * mpf(2) ** MIDDLE_BITS))
        return fixed, [float(term) for term in series[1:]]


@dataclass(frozen=True, eq=False)
class QuantileTable:
    """All cells, octave by octave."""

    middle: tuple[int, ...]
    terms: NDArray[np.float64]


@cache
def load_table() -> QuantileTable:
    """The table that is part of the package."""
    stored_at = files(__package__).joinpath(TABLE)
    with stored_at.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        halves, terms = stored["middle"], stored["terms"]
    return QuantileTable(tuple(int(h) << 64 | int(low) for h, low in halves), terms)
