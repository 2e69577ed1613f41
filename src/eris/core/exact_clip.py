"""Clipping on a fine grid of integers, so that a bound holds for the numbers that are summed.

A vector is scaled to length C at most and cut, towards zero, to multiples of 2^−F. What was cut has
no coordinate that grew, so the integers themselves have length C·2^F at most; and sums of integers
have no order. One vector more or less moves a sum by C, exactly, however long the vectors are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting, require
from eris.core.kernels import compiled
from eris.core.vectors import Indices

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


@dataclass(frozen=True, eq=False)
class Arranged:
    """Some coordinates of every row, in an order.

    >>> turn = Arranged(np.array([2, 0, 1]))
    >>> turn(np.array([[5, 6, 7]], np.float32)).tolist(), turn.has_all(3), turn.has_all(4)
    ([[7.0, 5.0, 6.0]], True, False)
    """

    order: Indices

    def __call__(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The rows in that order."""
        return np.ascontiguousarray(rows[:, self.order])

    def has_all(self, n: int) -> bool:
        """Whether each of ``n`` coordinates is there once: then rows are as long before as after,
        and sums may be taken first."""
        return len(self.order) == n and bool((np.bincount(self.order, minlength=n) == 1).all())


class Products(NamedTuple):
    """Rows in parts that are outer products: single samples' gradients, which nobody writes out.

    A line (place, height, width, i, j) of ``layout`` says that coordinates ``place`` … of row r are
    left[r, i : i + height] ⊗ entered[r, j : j + width], line by line, and where ``width`` is 1
    left[r, i : i + height] as it is. Parts follow on each other and leave no coordinate out.
    """

    left: NDArray[np.float32]
    entered: NDArray[np.float32]
    layout: NDArray[np.int64]


def add_clipped_products(total: Content, rows: Products, clip: float, places: int) -> None:
    """:func:`add_clipped` of rows that are given as products.

    A product's length is that of its factors, so a norm costs a few hundred numbers instead of all.
    Products of two float32 are not rounded to float32, and the bound is the same: norm, scale and
    products in float64 are off by less than (n + 8)·2⁻⁵³ again.

    >>> total, ones = np.zeros(4, np.int64), np.ones((1, 2), np.float32)
    >>> add_clipped_products(total, Products(ones, ones, np.array([[0, 2, 2, 0, 0]])), 1.0, 8)
    >>> total.tolist()
    [127, 127, 127, 127]
    """
    require(0 < clip < math.inf, "clip", clip, "a finite number above 0")
    at, height, width, i, j = rows.layout.T
    ends = np.cumsum(height * width)
    known = (i + height <= rows.left.shape[1]) & (
        (width == 1) | (j + width <= rows.entered.shape[1])
    )
    whole = np.array_equal(at, [0, *ends[:-1]]) and ends[-1] == len(total)
    if (rows.layout < 0).any() or not (
        whole and known.all() and len(rows.left) == len(rows.entered)
    ):
        expected = f"parts of {len(total)} values, one behind the other, of columns that there are"
        raise InvalidSetting("layout", rows.layout.tolist(), expected)
    _add_products(total, *rows, clip, 2.0**places)


@compiled
def _add(
    total: Content, rows: NDArray[np.float32], clip: float, unit: float, weight: float
) -> None:
    n = rows.shape[1]
    room = 1.0 - (n + 8) * 2.0**-53
    sums = np.empty(SIDE_BY_SIDE)
    for number in range(rows.shape[0]):
        row = rows[number]
        scale = _scale(np.sqrt(_square(row, sums)), clip, room) * weight * unit
        if scale > 0.0:
            _add_scaled(total, row, scale)


@compiled
def _scale(norm: float, clip: float, room: float) -> float:
    """What brings a row to its clip; 0 for one that is not finite."""
    if not np.isfinite(norm):
        return 0.0
    return 1.0 if norm <= clip * room else clip / norm * room


@compiled
def _add_scaled(total: Content, row: NDArray[np.float32], scale: float) -> None:
    """A unit is a power of two, so a scale with it in it rounds as if it came last."""
    for i in range(row.shape[0]):
        total[i] += np.int64(np.float64(row[i]) * scale)


@compiled
def _add_products(
    total: Content, left: NDArray[np.float32], entered: NDArray[np.float32],
    layout: NDArray[np.int64], clip: float, unit: float,
) -> None:  # fmt: skip
    room = 1.0 - (total.shape[0] + 8) * 2.0**-53
    sums, scales = np.empty(SIDE_BY_SIDE), np.empty(left.shape[0])
    for row in range(left.shape[0]):
        squared = 0.0
        for part in range(layout.shape[0]):
            _, height, width, i, j = layout[part]
            square = _square(left[row, i : i + height], sums)
            squared += square if width == 1 else square * _square(entered[row, j : j + width], sums)
        scales[row] = _scale(np.sqrt(squared), clip, room) * unit
    for part in range(layout.shape[0]):
        place, height, width, i, j = layout[part]
        if width == 1:
            for row in range(left.shape[0]):
                if scales[row] > 0.0:
                    _add_scaled(
                        total[place : place + height], left[row, i : i + height], scales[row]
                    )
            continue
        for line in range(height):
            into = total[place + line * width : place + (line + 1) * width]
            for row in range(left.shape[0]):
                factor = np.float64(left[row, i + line]) * scales[row]
                # Of a unit that is off there is nothing to add: what it would meet is finite.
                if factor != 0.0 and scales[row] > 0.0:
                    _add_scaled(into, entered[row, j : j + width], factor)


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
