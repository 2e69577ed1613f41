"""Words of a ring: integers modulo 2^w that pads are added to, and how they lie on the wire.

Sums are kept in 64 bits all along and cut to w = 8·B bits at the wire: 2^w divides 2⁶⁴. On the
wire and in pads words lie in tiles of :data:`TILE`: of 4 or 8 bytes one word after another, of 5
or 6 first the low 32 bits of all words of a tile, then the high 8 or 16 of all. So a pass over a
tile is straight vector code at every width.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting
from eris.core.kernels import compiled

Words = NDArray[np.uint64]
"""Words of the ring, in 64 bits."""
TILE = 4096
"""Words that lie together."""
RING_BYTES = (4, 5, 6, 8)
_HIGH: dict[int, Any] = {5: np.uint8, 6: np.uint16}


def check_ring_bytes(ring_bytes: int) -> None:
    """Refuse a width for which no layout is agreed."""
    if ring_bytes not in RING_BYTES:
        raise InvalidSetting("ring_bytes", ring_bytes, "4, 5, 6 or 8")


def tiles(count: int, ring_bytes: int) -> Iterator[tuple[slice, slice]]:
    """For every tile of ``count`` words: which words, and which bytes of the wire.

    >>> [(words.stop, data.stop) for words, data in tiles(5000, 5)]
    [(4096, 20480), (5000, 25000)]
    """
    for first in range(0, count, TILE):
        last = min(first + TILE, count)
        yield slice(first, last), slice(first * ring_bytes, last * ring_bytes)


def to_wire(words: Words, ring_bytes: int) -> bytes:
    """Words modulo 2^w, tile by tile.

    >>> to_wire(np.array([1, 2**40 - 1], np.uint64), 5).hex()
    '01000000ffffffff00ff'
    """
    if ring_bytes == 8:
        return words.astype("<u8", copy=False).tobytes()
    if ring_bytes == 4:
        return words.astype("<u4").tobytes()
    out = np.empty(len(words) * ring_bytes, np.uint8)
    high = _HIGH[ring_bytes]
    for some, where in tiles(len(words), ring_bytes):
        part, split = out[where], 4 * (some.stop - some.start)
        part[:split] = words[some].astype("<u4").view(np.uint8)
        part[split:] = (words[some] >> np.uint64(32)).astype(high).view(np.uint8)
    return out.tobytes()


def add_wire(total: Words, data: NDArray[np.uint8], ring_bytes: int) -> None:
    """Add the words of a wire's bytes; as many as ``total`` has room for.

    >>> total = np.array([1, 1], np.uint64)
    >>> add_wire(total, np.frombuffer(bytes.fromhex("01000000ffffffff00ff"), np.uint8), 5)
    >>> total.tolist()
    [2, 1099511627776]
    """
    for some, where in tiles(len(total), ring_bytes):
        add_tile(total[some], data[where], ring_bytes)


def add_tile(total: Words, data: NDArray[np.uint8], ring_bytes: int) -> None:
    """Add the words of one tile."""
    if ring_bytes == 8:
        _add(total, data.view("<u8"))
    elif ring_bytes == 4:
        _add(total, data.view("<u4"))
    else:
        split = 4 * len(total)
        _add_planes(total, data[:split].view("<u4"), data[split:].view(_HIGH[ring_bytes]))


def signed(words: Words, ring_bytes: int) -> NDArray[np.int64]:
    """Words of w bits as the signed integers that they stand for.

    >>> signed(np.array([1, 2**40 - 1], np.uint64), 5).tolist()
    [1, -1]
    """
    spare = np.int64(64 - 8 * ring_bytes)
    return (words.view(np.int64) << spare) >> spare


def check_sums(words: Words) -> tuple[int, int]:
    """Σ wᵢ and Σ (2i + 1)·wᵢ modulo 2⁶⁴.

    >>> check_sums(np.array([1, 2**64 - 1], np.uint64))
    (0, 18446744073709551614)
    """
    plain, weighted = _check_sums(words)
    return int(plain), int(weighted)


@compiled
def _add(total: Words, words: NDArray[Any]) -> None:
    for i in range(total.shape[0]):
        total[i] += np.uint64(words[i])


@compiled
def _add_planes(total: Words, low: NDArray[np.uint32], high: NDArray[Any]) -> None:
    for i in range(total.shape[0]):
        total[i] += np.uint64(low[i]) + (np.uint64(high[i]) << np.uint64(32))


@compiled
def _check_sums(words: Words) -> tuple[np.uint64, np.uint64]:
    plain, weighted = np.uint64(0), np.uint64(0)
    for i in range(words.shape[0]):
        plain += words[i]
        weighted += words[i] * np.uint64(2 * i + 1)
    return plain, weighted
