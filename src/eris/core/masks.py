"""Kept sets: which coordinates travel in a round.

A kept set is a function of (seed, round, global coordinate) alone, so it depends neither on the
number of shards, nor on the plan, nor on the segment size, and it is named on the wire by its
stream instead of being listed. Held as one bit a coordinate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.core import kernels
from eris.core.streams import Stream


@dataclass(frozen=True)
class KeptSet:
    """The coordinates of an n-vector that are kept in a round, and what makes them unbiased.

    ``scale`` is 1/p: a kept value times ``scale`` estimates the coordinate without bias.

    >>> kept = fraction_kept(1000, 1 / 4, Stream(seed=1, purpose="mask"))
    >>> kept.count, kept.scale
    (243, 4.0)
    """

    n: int
    count: int
    scale: float
    bits: NDArray[np.uint64]

    def among(self, coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions in ``coordinates`` of those that are kept, in order."""
        found = np.empty(len(coordinates) + 1, np.int64)
        return found[: kernels.kept_positions(found, coordinates, self.bits)].copy()


def _empty_bits(n: int) -> NDArray[np.uint64]:
    return np.empty(4 * -(-n // kernels.TILE), np.uint64)


def _finish(n: int, scale: float, bits: NDArray[np.uint64]) -> KeptSet:
    """Clear the bits beyond n and count the rest."""
    full, rest = divmod(n, 64)
    bits[full + (rest > 0) :] = 0
    if rest:
        bits[full] &= np.uint64((1 << rest) - 1)
    return KeptSet(n, int(np.bitwise_count(bits).sum()), scale, bits)


def fraction_kept(n: int, fraction: float, stream: Stream, group: int = 0) -> KeptSet:
    """Each coordinate with probability ``fraction``, independently; for groups, disjoint sets.

    The probability is rounded to a multiple of 2⁻³² (at least one), and ``scale`` is the exact
    inverse of what was rounded to, so that the estimate stays unbiased.
    """
    threshold = max(1, round(fraction * 2**32))
    bits = _empty_bits(n)
    kernels.bits_at_most(bits, np.uint32((group + 1) * threshold - 1), stream.name)
    if group:
        lower = _empty_bits(n)
        kernels.bits_at_most(lower, np.uint32(group * threshold - 1), stream.name)
        bits &= ~lower
    return _finish(n, 2**32 / threshold, bits)


def exactly_kept(n: int, count: int, stream: Stream) -> KeptSet:
    """The ``count`` coordinates whose words are smallest, ties to the lower coordinate.

    Found by two histogram passes over the stream, without sorting or listing n words.

    >>> exactly_kept(1000, 37, Stream(seed=1, purpose="mask")).count
    37
    """
    histogram = np.zeros(1 << 16, np.int64)
    kernels.count_halves(histogram, n, None, stream.name)
    upto = np.cumsum(histogram)
    high = int(np.searchsorted(upto, count))
    before = int(upto[high] - histogram[high])
    histogram[:] = 0
    kernels.count_halves(histogram, n, high, stream.name)
    upto = before + np.cumsum(histogram)
    low = int(np.searchsorted(upto, count))
    limit = np.uint32(high << 16 | low)
    bits = _empty_bits(n)
    kernels.bits_at_most(bits, limit, stream.name)
    surplus = int(upto[low]) - count
    if surplus:
        tied = np.empty(int(histogram[low]), np.int64)
        kernels.find_word(tied, n, limit, stream.name)
        for coordinate in tied[-surplus:]:
            bits[coordinate >> 6] &= ~(np.uint64(1) << np.uint64(coordinate & 63))
    return _finish(n, n / count, bits)
