"""Words of a ring: integers modulo 2^w that pads are added to, and how they lie on the wire.

Sums are kept in 64 bits all along and cut to w = 8·B bits at the wire: 2^w divides 2⁶⁴. On the
wire and in pads words lie in tiles of :data:`TILE`: of 4 or 8 bytes one word after another, of 5
or 6 first the low 32 bits of all words of a tile, then the high 8 or 16 of all. So a pass over a
tile is straight vector code at every width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting
from eris.core.kernels import compiled

Words = NDArray[np.uint64]
"""Words of the ring, in 64 bits."""
Wire = bytes | memoryview
"""Words as they travel; what was read is a view into its message."""
Planes = tuple[NDArray[Any], NDArray[Any]]
"""The low and the high parts of words, where they lie."""
TILE = 4096
"""Words that lie together."""
RING_BYTES = (4, 5, 6, 8)
_WHOLE: dict[int, Any] = {4: np.dtype("<u4"), 8: np.dtype("<u8")}
_HIGH: dict[int, Any] = {5: np.dtype("<u1"), 6: np.dtype("<u2")}


def check_ring_bytes(ring_bytes: int) -> None:
    """Refuse a width for which no layout is agreed."""
    if ring_bytes not in RING_BYTES:
        raise InvalidSetting("ring_bytes", ring_bytes, "4, 5, 6 or 8")


def planes(data: NDArray[np.uint8], ring_bytes: int) -> Planes:
    """Bytes of a wire as numbers: the low parts of words, and the high ones where there are any.

    A tile begins at a multiple of both, so one array of each serves all tiles.
    """
    if ring_bytes in _HIGH:
        return data[: len(data) // 4 * 4].view(_WHOLE[4]), data.view(_HIGH[ring_bytes])
    return data.view(_WHOLE[ring_bytes]), data[:0]


def to_wire(words: Words, ring_bytes: int) -> memoryview:
    """Words modulo 2^w, tile by tile; of 8 bytes it is the words' own memory.

    >>> to_wire(np.array([1, 2**40 - 1], np.uint64), 5).hex()
    '01000000ffffffff00ff'
    """
    if ring_bytes in _HIGH:
        out = np.empty(len(words) * ring_bytes, np.uint8)
        _cut(words, *planes(out, ring_bytes), ring_bytes)
    else:
        out = words.astype(_WHOLE[ring_bytes], copy=False).view(np.uint8)
    return out.data


def add_wire(total: Words, wire: Wire, ring_bytes: int) -> tuple[int, int]:
    """Add the words of a wire's bytes; as many as ``total`` has room for.

    Returns the check sums of what was added: who keeps only the sum can take them in no later pass.

    >>> total = np.array([1, 1], np.uint64)
    >>> add_wire(total, bytes.fromhex("01000000ffffffff00ff"), 5)
    (1099511627776, 3298534883326)
    >>> total.tolist()
    [2, 1099511627776]
    """
    low, high = planes(np.frombuffer(wire, np.uint8), ring_bytes)
    if ring_bytes in _HIGH:
        plain, weighted = _add_planes_checked(total, low, high, ring_bytes)
    else:
        plain, weighted = _add_checked(total, low)
    return int(plain), int(weighted)


def add_planes(total: Words, data: Planes, ring_bytes: int) -> None:
    """Add words and nothing else: the loop in which pads are added up."""
    if ring_bytes in _HIGH:
        _add_planes(total, *data, ring_bytes)
    else:
        _add(total, data[0])


def signed(words: Words, ring_bytes: int) -> NDArray[np.int64]:
    """Words of w bits as the signed integers that they stand for.

    >>> signed(np.array([1, 2**40 - 1], np.uint64), 5).tolist()
    [1, -1]
    """
    spare = np.int64(64 - 8 * ring_bytes)
    return (words.view(np.int64) << spare) >> spare if spare else words.view(np.int64)


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
def _add_checked(total: Words, words: NDArray[Any]) -> tuple[np.uint64, np.uint64]:
    plain, weighted = np.uint64(0), np.uint64(0)
    for i in range(total.shape[0]):
        word = np.uint64(words[i])
        total[i] += word
        plain += word
        weighted += word * np.uint64(2 * i + 1)
    return plain, weighted


@compiled
def _tile(
    words: Words, low: NDArray[Any], high: NDArray[Any], ring_bytes: int, first: int
) -> tuple[Words, NDArray[Any], NDArray[Any]]:
    """The tile that begins with a word: words, and where their two planes lie."""
    size = min(TILE, words.shape[0] - first)
    below, above = first * ring_bytes // 4, (first * ring_bytes + 4 * size) // (ring_bytes - 4)
    return words[first : first + size], low[below : below + size], high[above : above + size]


@compiled
def _add_planes(total: Words, low: NDArray[Any], high: NDArray[Any], ring_bytes: int) -> None:
    for first in range(0, total.shape[0], TILE):
        part, below, above = _tile(total, low, high, ring_bytes, first)
        for i in range(part.shape[0]):
            part[i] += np.uint64(below[i]) + (np.uint64(above[i]) << np.uint64(32))


@compiled
def _add_planes_checked(
    total: Words, low: NDArray[Any], high: NDArray[Any], ring_bytes: int
) -> tuple[np.uint64, np.uint64]:
    plain, weighted = np.uint64(0), np.uint64(0)
    for first in range(0, total.shape[0], TILE):
        part, below, above = _tile(total, low, high, ring_bytes, first)
        for i in range(part.shape[0]):
            word = np.uint64(below[i]) + (np.uint64(above[i]) << np.uint64(32))
            part[i] += word
            plain += word
            weighted += word * np.uint64(2 * (first + i) + 1)
    return plain, weighted


@compiled
def _cut(words: Words, low: NDArray[Any], high: NDArray[Any], ring_bytes: int) -> None:
    for first in range(0, words.shape[0], TILE):
        part, below, above = _tile(words, low, high, ring_bytes, first)
        for i in range(part.shape[0]):
            below[i] = part[i]
            above[i] = part[i] >> np.uint64(32)


@compiled
def _check_sums(words: Words) -> tuple[np.uint64, np.uint64]:
    plain, weighted = np.uint64(0), np.uint64(0)
    for i in range(words.shape[0]):
        plain += words[i]
        weighted += words[i] * np.uint64(2 * i + 1)
    return plain, weighted
