"""Words of a ring: integers modulo 2^w that pads are added to, and how they lie on the wire.

A *form* is a number that says how words are cut. Sums are kept in 64 bits all along and cut to w
bits at the wire: 2^w divides 2⁶⁴. The forms 4, 5, 6 and 8 are words of so many bytes: on the wire
and in pads they lie in tiles of :data:`TILE`: of 4 or 8 bytes one word after another, of 5 or 6
first the low 32 bits of all words of a tile, then the high 8 or 16 of all. So a pass over a tile is
straight vector code at every width. A *packed* form (:func:`packed_form`) is words of b bits, one
behind the other on the wire, the low bits of words of 2 or 4 bytes in pads; where the unit of the
words is not agreed for good, the form names it, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting, require
from eris.core.kernels import compiled, pack_codes, unpack_codes

Words = NDArray[np.uint64]
"""Words of the ring, in 64 bits."""
Wire = bytes | memoryview
"""Words as they travel; what was read is a view into its message."""
Planes = tuple[NDArray[Any], NDArray[Any]]
"""The low and the high parts of words, where they lie."""
TILE = 4096
"""Words that lie together."""
RING_BYTES = (4, 5, 6, 8)
PACKED_BITS = (8, 32)
"""The least and the most bits of packed words."""
EXPONENTS = (-63, 63)
"""The least and the largest exponent that a form names."""
_WHOLE: dict[int, Any] = {4: np.dtype("<u4"), 8: np.dtype("<u8")}
_HIGH: dict[int, Any] = {5: np.dtype("<u1"), 6: np.dtype("<u2")}
_PACKED = 256


def check_ring_bytes(ring_bytes: int) -> None:
    """Refuse a width for which no layout is agreed."""
    if ring_bytes not in RING_BYTES:
        raise InvalidSetting("ring_bytes", ring_bytes, "4, 5, 6 or 8")


def packed_form(bits: int, exponent: int | None = None) -> int:
    """The form of packed words of ``bits`` bits, in units of 2^−``exponent`` if that is named.

    >>> packed_form(12), packed_form(12, 11)
    (268, 4915468)
    """
    least, most = PACKED_BITS
    require(least <= bits <= most, "bits", bits, f"{least} to {most} bits a word")
    if exponent is None:
        return _PACKED + bits
    least, most = EXPONENTS
    require(least <= exponent <= most, "exponent", exponent, f"{least} to {most}")
    return (exponent + 64 << 16) + _PACKED + bits


def exponent_in(form: int) -> int | None:
    """The exponent that a form names.

    >>> exponent_in(packed_form(12, -3)), exponent_in(packed_form(12)), exponent_in(8)
    (-3, None, None)
    """
    return (form >> 16) - 64 if form >> 16 else None


def word_bits(form: int) -> int:
    """w: bits of a word.

    >>> word_bits(5), word_bits(packed_form(12, 11))
    (40, 12)
    """
    return form & 255 if form & _PACKED else 8 * form


def wire_bytes(count: int, form: int) -> int:
    """Bytes of so many words on the wire.

    >>> wire_bytes(3, 5), wire_bytes(3, packed_form(12))
    (15, 5)
    """
    return -(-count * word_bits(form) // 8)


def pad_bytes(form: int) -> int:
    """Bytes of a pad that a word takes.

    >>> [pad_bytes(form) for form in (5, packed_form(12), packed_form(17))]
    [5, 2, 4]
    """
    if not form & _PACKED:
        return form
    return 2 if word_bits(form) <= 16 else 4


def planes(data: NDArray[np.uint8], form: int) -> Planes:
    """Bytes of a pad as numbers: the low parts of words, and the high ones where there are any.

    A tile begins at a multiple of both, so one array of each serves all tiles.
    """
    if form in _HIGH:
        return data[: len(data) // 4 * 4].view(_WHOLE[4]), data.view(_HIGH[form])
    return data.view(f"<u{pad_bytes(form)}"), data[:0]


def to_wire(words: Words, form: int) -> memoryview:
    """Words modulo 2^w; of 8 bytes it is the words' own memory.

    >>> to_wire(np.array([1, 2**40 - 1], np.uint64), 5).hex()
    '01000000ffffffff00ff'
    >>> to_wire(np.array([1, 2**40 - 1], np.uint64), packed_form(12)).hex()
    '01f0ff'
    """
    if form & _PACKED:
        out = np.empty(wire_bytes(len(words), form), np.uint8)
        pack_codes(out, words & _mask(form), word_bits(form))
    elif form in _HIGH:
        out = np.empty(wire_bytes(len(words), form), np.uint8)
        _cut(words, *planes(out, form), form)
    else:
        out = words.astype(_WHOLE[form], copy=False).view(np.uint8)
    return out.data


def add_wire(total: Words, wire: Wire, form: int) -> tuple[int, int]:
    """Add the words of a wire's bytes; as many as ``total`` has room for.

    Returns the check sums of what was added: who keeps only the sum can take them in no later pass.

    >>> total = np.array([1, 1], np.uint64)
    >>> add_wire(total, bytes.fromhex("01000000ffffffff00ff"), 5)
    (1099511627776, 3298534883326)
    >>> total.tolist()
    [2, 1099511627776]
    """
    data = np.frombuffer(wire, np.uint8)
    if form & _PACKED:
        words = np.empty(len(total), np.uint64)
        unpack_codes(words, data, word_bits(form))
        plain, weighted = _add_checked(total, words)
    elif form in _HIGH:
        plain, weighted = _add_planes_checked(total, *planes(data, form), form)
    else:
        plain, weighted = _add_checked(total, planes(data, form)[0])
    return int(plain), int(weighted)


def add_planes(total: Words, data: Planes, form: int) -> None:
    """Add words and nothing else: the loop in which pads are added up."""
    if form & _PACKED:
        _add_low(total, data[0], _mask(form))
    elif form in _HIGH:
        _add_planes(total, *data, form)
    else:
        _add(total, data[0])


def signed(words: Words, form: int) -> NDArray[np.int64]:
    """Words of w bits as the signed integers that they stand for.

    >>> signed(np.array([1, 2**40 - 1], np.uint64), 5).tolist()
    [1, -1]
    """
    spare = np.int64(64 - word_bits(form))
    return (words.view(np.int64) << spare) >> spare if spare else words.view(np.int64)


def check_sums(words: Words) -> tuple[int, int]:
    """Σ wᵢ and Σ (2i + 1)·wᵢ modulo 2⁶⁴.

    >>> check_sums(np.array([1, 2**64 - 1], np.uint64))
    (0, 18446744073709551614)
    """
    plain, weighted = _check_sums(words)
    return int(plain), int(weighted)


def _mask(form: int) -> np.uint64:
    return np.uint64((1 << word_bits(form)) - 1)


@compiled
def _add_low(total: Words, words: NDArray[Any], mask: np.uint64) -> None:
    for i in range(total.shape[0]):
        total[i] += np.uint64(words[i]) & mask


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
