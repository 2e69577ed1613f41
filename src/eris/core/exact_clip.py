"""Clipping on a fine grid of integers, so that a bound holds for the numbers that are summed.

A vector is scaled to length C at most and cut, towards zero, to multiples of 2^−F. What was cut has
no coordinate that grew, so the integers themselves have length C·2^F at most; and sums of integers
have no order. One vector more or less moves a sum by C, exactly, however long the vectors are.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting, require
from eris.core.kernels import compiled

Content = NDArray[np.int64]
"""What a client contributes, in multiples of the fine grid."""
ROOM_BITS = 62
"""A sum stays below 2^62, that noise has room beside it."""
SIDE_BY_SIDE = 64
"""Sums of squares at once."""


def check_room(largest: float, places: int) -> None:
    """Refuse a grid on which the largest coordinate of a sum would leave 64 bits.

    >>> check_room(64.0, 43)
    >>> check_room(64.0, 56)
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: places is 56; expected fewer than 56 for sums of up to 64
    """
    if math.ldexp(largest, places) >= 2.0**ROOM_BITS:
        most = ROOM_BITS - math.floor(math.log2(largest))
        raise InvalidSetting("places", places, f"fewer than {most} for sums of up to {largest:g}")


def add_clipped(
    total: Content, rows: NDArray[np.float32], clip: float, places: int, weight: float = 1.0
) -> None:
    """Add rows to a sum, each scaled to L2 norm ``clip`` at most, times ``weight`` ≤ 1.

    In any order of summation float64 is off by (n + 8)·2⁻⁵³ of a norm at most, roundings of the
    scale included, so that much is left free. A row that is not finite counts as 0: to refuse it
    would tell.

    >>> total = np.zeros(2, np.int64)
    >>> add_clipped(total, np.array([[3, 4], [0.25, 0], [np.nan, 1]], np.float32), 2.5, 8)
    >>> total.tolist()
    [447, 511]
    """
    require(0 < clip < math.inf, "clip", clip, "a finite number above 0")
    require(0 < weight <= 1, "weight", weight, "a number in (0, 1]")
    if rows.ndim != 2 or rows.dtype != np.float32 or rows.shape[1] != len(total):
        found = f"{rows.dtype} {rows.shape}"
        raise InvalidSetting("rows", found, f"float32 rows of {len(total)} values")
    _add(total, np.ascontiguousarray(rows), clip, 2.0**places, weight)


@compiled
def _add(
    total: Content, rows: NDArray[np.float32], clip: float, unit: float, weight: float
) -> None:
    n = rows.shape[1]
    room = 1.0 - (n + 8) * 2.0**-53
    sums = np.empty(SIDE_BY_SIDE)
    for number in range(rows.shape[0]):
        row = rows[number]
        norm = np.sqrt(_square(row, sums))
        if not np.isfinite(norm):
            continue
        scale = 1.0 if norm <= clip * room else clip / norm * room
        # A unit is a power of two, so that this rounds as if it came last.
        scale = scale * weight * unit
        for i in range(n):
            total[i] += np.int64(np.float64(row[i]) * scale)


@compiled
def _square(row: NDArray[np.float32], sums: NDArray[np.float64]) -> float:
    """The sum of squares; many sums side by side, for an addition waits for the one before it."""
    n = row.shape[0]
    sums[:] = 0.0
    for first in range(0, n - SIDE_BY_SIDE + 1, SIDE_BY_SIDE):
        piece = row[first : first + SIDE_BY_SIDE]
        for lane in range(SIDE_BY_SIDE):
            value = np.float64(piece[lane])
            sums[lane] += value * value
    found = 0.0
    for i in range(n - n % SIDE_BY_SIDE, n):
        value = np.float64(row[i])
        found += value * value
    for lane in range(SIDE_BY_SIDE):
        found += sums[lane]
    return found
