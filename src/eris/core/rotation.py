"""A fixed public rotation R of a model's coordinates: signs, an order, Hadamard in small blocks.

Where gradients are large curvature is large, so what a sparse mask adds hurts most just where it is
largest; in a rotated basis every place carries as much as any other (``docs/protocol.md``). R is
drawn once a federation and known to all: it spreads, it hides nothing.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import require
from eris.core.kernels import TILE, bits_at_most, compiled
from eris.core.streams import Stream
from eris.core.vectors import Indices, Vector

BLOCK = TILE
"""Places that are mixed with one another; a power of 4, so that 1/√256 = 2⁻⁴ is exact."""

SIDE_BY_SIDE = 8
"""Vectors that are rotated together, a lane each."""


def rotated_size(n: int) -> int:
    """n′: the places of a rotated vector of ``n`` coordinates, whole blocks.

    >>> rotated_size(61_706)
    61952
    """
    return BLOCK * -(-n // BLOCK)


class Rotation:
    """R for vectors of ``n`` coordinates; one orthogonal map in float32, the same bits everywhere.

    >>> turn = Rotation(1000, seed=7)
    >>> x = np.ones(1000, np.float32)
    >>> len(turn.forward(x)), bool(np.allclose(turn.back(turn.forward(x)), x))
    (1024, True)
    """

    def __init__(self, n: int, seed: int) -> None:
        require(0 < n < 1 << 32, "n", n, "1 to 2**32 - 1 coordinates to rotate")
        self.n, self.size = n, rotated_size(n)
        words = Stream(seed, "rotation-order").words(0, n)
        self._order = np.argsort(words, kind="stable").astype(np.uint32)
        self._negative = np.empty(self.size // 64, np.uint64)
        """A bit a place: set where the word's top bit is not."""
        signs = Stream(seed, "rotation")
        bits_at_most(self._negative, np.uint32((1 << 31) - 1), signs.name)

    def forward(self, x: Vector) -> Vector:
        """R·x: n′ places."""
        y = np.empty(self.size, np.float32)
        _rotate(y, x, self._order, self._negative)
        return y

    def forward_at(self, places: Indices, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """R·x at some places, in ascending order, for every row x: the bits of :meth:`forward`.

        >>> rows, some = np.eye(3, 300, dtype=np.float32), np.array([5, 256])
        >>> turn = Rotation(300, seed=7)
        >>> np.array_equal(turn.forward_at(some, rows)[2], turn.forward(rows[2])[some])
        True
        """
        found = np.empty((len(rows), len(places)), np.float32)
        for first in range(0, len(rows), SIDE_BY_SIDE):
            some = slice(first, first + SIDE_BY_SIDE)
            _rotate_rows(found[some], places, rows[some], self._places, self._negative)
        return found

    @cached_property
    def _places(self) -> NDArray[np.uint32]:
        """Where each coordinate goes."""
        places = np.empty(self.n, np.uint32)
        places[self._order] = np.arange(self.n, dtype=np.uint32)
        return places

    def back(self, y: Vector) -> Vector:
        """Rᵀ·y: n coordinates; what is on padded places is dropped."""
        x = np.empty(self.n, np.float32)
        _rotate_back(x, y, self._order, self._negative)
        return x


@compiled
def _butterflies(block: Vector) -> None:
    """The Hadamard transform of a block of 256 values, divided by √256."""
    reach = 1
    while reach < BLOCK:
        for start in range(0, BLOCK, 2 * reach):
            for at in range(start, start + reach):
                a, b = block[at], block[at + reach]
                block[at], block[at + reach] = a + b, a - b
        reach *= 2
    for at in range(BLOCK):
        block[at] *= np.float32(0.0625)


@compiled
def _rotate(y: Vector, x: Vector, order: NDArray[np.uint32], negative: NDArray[np.uint64]) -> None:
    """y ← R·x, block after block; y has whole blocks, ``negative`` a bit a place."""
    for start in range(0, y.shape[0], BLOCK):
        block = y[start : start + BLOCK]
        for at in range(BLOCK):
            place = start + at
            value = x[order[place]] if place < x.shape[0] else np.float32(0)
            bit = negative[place // 64] >> np.uint64(place % 64) & np.uint64(1)
            block[at] = -value if bit else value
        _butterflies(block)


@compiled
def _rotate_back(
    x: Vector, y: Vector, order: NDArray[np.uint32], negative: NDArray[np.uint64]
) -> None:
    """x ← Rᵀ·y; y is left as it is."""
    block = np.empty(BLOCK, np.float32)
    for start in range(0, y.shape[0], BLOCK):
        block[:] = y[start : start + BLOCK]
        _butterflies(block)
        for place in range(start, min(start + BLOCK, x.shape[0])):
            value = block[place - start]
            bit = negative[place // 64] >> np.uint64(place % 64) & np.uint64(1)
            x[order[place]] = -value if bit else value


@compiled
def _rotate_rows(
    out: NDArray[np.float32], kept: Indices, rows: NDArray[np.float32],
    places: NDArray[np.uint32], negative: NDArray[np.uint64],
) -> None:  # fmt: skip
    """The same for a few vectors at once, a lane each, of which only some places are kept."""
    count, n = rows.shape
    lanes = np.zeros((len(negative) * 64, SIDE_BY_SIDE), np.float32)
    for at in range(n):
        place = places[at]
        bit = negative[place // 64] >> np.uint64(place % 64) & np.uint64(1)
        sign = np.float32(1) - np.float32(2) * np.float32(bit)
        into = lanes[place]
        for row in range(count):
            into[row] = sign * rows[row, at]
    found = 0
    for start in range(0, len(lanes), BLOCK):
        if found == len(kept) or kept[found] >= start + BLOCK:
            continue
        _butterflies_of_lanes(lanes[start : start + BLOCK].reshape(-1))
        while found < len(kept) and kept[found] < start + BLOCK:
            for row in range(count):
                out[row, found] = lanes[kept[found], row] * np.float32(0.0625)
            found += 1


@compiled
def _butterflies_of_lanes(block: Vector) -> None:
    """:func:`_butterflies` in every lane, not divided; two steps at a time."""
    reach = SIDE_BY_SIDE
    while reach < len(block):
        for start in range(0, len(block), 4 * reach):
            a, b = block[start : start + reach], block[start + reach : start + 2 * reach]
            later = block[start + 2 * reach : start + 4 * reach]
            c, d = later[:reach], later[reach:]
            for at in range(reach):
                sum_ab, sum_cd = a[at] + b[at], c[at] + d[at]
                gap_ab, gap_cd = a[at] - b[at], c[at] - d[at]
                a[at], b[at] = sum_ab + sum_cd, gap_ab + gap_cd
                c[at], d[at] = sum_ab - sum_cd, gap_ab - gap_cd
        reach *= 4
