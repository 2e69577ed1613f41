"""Compiled loops over coordinates, where NumPy would need several passes over memory for one.

Nothing here allocates more than a few kilobytes or knows about messages. Floating-point work uses
plain + − × ÷ only and no fast-math, so that LLVM may not fuse or reorder it: a coordinate rounds
alike wherever a piece begins and on every platform.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from eris.core.vectors import Vector

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile ``function`` on first call; keep the machine code between processes."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))


LANES = 64
"""Philox counters computed side by side; one tile of 4 × 64 words serves 256 coordinates."""
TILE = 4 * LANES
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)


@compiled
def philox_tile(words: NDArray[np.uint32], tile: np.uint64, name: NDArray[np.uint32]) -> None:
    """Philox4x32-10 (Salmon et al., SC'11) on counters 64·tile … 64·tile + 63.

    ``name`` holds (key₀, key₁, counter₂, counter₃); word w of counter 64·tile + l is written to
    ``words[64·w + l]``. The loop over lanes is innermost so that it becomes vector code.
    """
    for lane in range(LANES):
        counter = np.uint64(LANES) * tile + np.uint64(lane)
        words[lane] = np.uint32(counter)
        words[LANES + lane] = np.uint32(counter >> np.uint64(32))
        words[2 * LANES + lane] = name[2]
        words[3 * LANES + lane] = name[3]
    key_0, key_1 = name[0], name[1]
    for _ in range(10):
        for lane in range(LANES):
            product_0 = _MULTIPLIER_0 * np.uint64(words[lane])
            product_1 = _MULTIPLIER_1 * np.uint64(words[2 * LANES + lane])
            second, fourth = words[LANES + lane], words[3 * LANES + lane]
            words[lane] = np.uint32(product_1 >> np.uint64(32)) ^ second ^ key_0
            words[LANES + lane] = np.uint32(product_1)
            words[2 * LANES + lane] = np.uint32(product_0 >> np.uint64(32)) ^ fourth ^ key_1
            words[3 * LANES + lane] = np.uint32(product_0)
        key_0 = np.uint32(key_0 + _WEYL_0)
        key_1 = np.uint32(key_1 + _WEYL_1)


@compiled
def stream_words(out: NDArray[np.uint32], start: int, name: NDArray[np.uint32]) -> None:
    """Write words ``start`` … of a stream to ``out``."""
    tile_words = np.empty(TILE, np.uint32)
    done = 0
    while done < out.shape[0]:
        at = start + done
        philox_tile(tile_words, np.uint64(at // TILE), name)
        skip = at % TILE
        take = min(TILE - skip, out.shape[0] - done)
        out[done : done + take] = tile_words[skip : skip + take]
        done += take


@compiled
def bits_at_most(bits: NDArray[np.uint64], limit: np.uint32, name: NDArray[np.uint32]) -> None:
    """Set bit i where word i of the stream is at most ``limit`` (bit i is bit i mod 64 of word
    i div 64 of ``bits``, whose length is a multiple of 4)."""
    words = np.empty(TILE, np.uint32)
    for tile in range(bits.shape[0] // 4):
        philox_tile(words, np.uint64(tile), name)
        for quarter in range(4):
            packed = np.uint64(0)
            for lane in range(LANES):
                packed |= np.uint64(words[quarter * LANES + lane] <= limit) << np.uint64(lane)
            bits[4 * tile + quarter] = packed


@compiled
def count_halves(
    counts: NDArray[np.int64], size: int, high: int | None, name: NDArray[np.uint32]
) -> None:
    """Histogram of the upper 16 bits of the first ``size`` words of a stream or, of those words
    whose upper 16 are ``high``, of the lower ones."""
    words = np.empty(TILE, np.uint32)
    for tile in range((size + TILE - 1) // TILE):
        philox_tile(words, np.uint64(tile), name)
        for i in range(min(TILE, size - tile * TILE)):
            upper = words[i] >> np.uint32(16)
            if high is None:
                counts[upper] += 1
            elif upper == high:
                counts[words[i] & np.uint32(0xFFFF)] += 1


@compiled
def find_word(out: NDArray[np.int64], size: int, word: np.uint32, name: NDArray[np.uint32]) -> int:
    """Positions among the first ``size`` words equal to ``word``, in order; returns how many."""
    words = np.empty(TILE, np.uint32)
    found = 0
    for tile in range((size + TILE - 1) // TILE):
        philox_tile(words, np.uint64(tile), name)
        for i in range(min(TILE, size - tile * TILE)):
            if words[i] == word and found < out.shape[0]:
                out[found] = tile * TILE + i
                found += 1
    return found


@compiled
def add_weighted(total: NDArray[np.int64], values: Vector, weight: int, scale: float) -> None:
    """total += weight · round(values · scale), ties to even."""
    for i in range(values.shape[0]):
        total[i] += weight * np.int64(np.rint(np.float64(values[i]) * scale))


@compiled
def count_refused(values: Vector, limit: float) -> int:
    """How many values are beyond ±limit or not a number."""
    refused = 0
    for i in range(values.shape[0]):
        refused += not (abs(np.float64(values[i])) <= limit)
    return refused


@compiled
def sent_value(values: Vector, reference: Vector | None, i: int) -> np.float32:
    """What a client sends of coordinate i: its value, or the difference to a reference."""
    if reference is None:
        return np.float32(values[i])
    return np.float32(values[i] - reference[i])


@compiled
def is_kept(kept: NDArray[np.uint64] | None, i: int) -> np.uint32:
    """1 where coordinate i is kept, else 0; all are where there are no bits."""
    if kept is None:
        return np.uint32(1)
    return np.uint32((kept[i >> 6] >> np.uint64(i & 63)) & np.uint64(1))


@compiled
def largest_bits(
    values: Vector, reference: Vector | None, kept: NDArray[np.uint64] | None
) -> np.uint32:
    """The bits of the largest magnitude of what a client sends.

    As whole numbers, magnitudes are in their own order, infinity and NaN above all: so this is one
    vectorised pass.
    """
    most = np.uint32(0)
    for i in range(values.shape[0]):
        bits = np.float32(sent_value(values, reference, i)).view(np.uint32)
        most = max(most, (bits & np.uint32(0x7FFFFFFF)) * is_kept(kept, i))
    return most


@compiled
def beyond(
    values: Vector, reference: Vector | None, kept: NDArray[np.uint64] | None, limit: float
) -> tuple[int, int]:
    """How many of the values that a client sends are refused, and which coordinate is the first."""
    count, first = 0, -1
    for i in range(values.shape[0]):
        value = np.float64(sent_value(values, reference, i))
        if is_kept(kept, i) and not (abs(value) <= limit):
            if count == 0:
                first = i
            count += 1
    return count, first


@compiled
def squares(
    values: Vector, reference: Vector | None, kept: NDArray[np.uint64] | None, scale: float
) -> tuple[float, float]:
    """Of the values that a client sends, times ``scale``: the sum of squares of what rounding
    takes away, and of all."""
    lost, whole = 0.0, 0.0
    for i in range(values.shape[0]):
        if is_kept(kept, i):
            value = np.float64(sent_value(values, reference, i)) * scale
            rest = value - np.rint(value)
            lost += rest * rest
            whole += value * value
    return lost, whole


@compiled
def mean_of(
    out: Vector, low: NDArray[np.int64], high: NDArray[np.int64] | None, bits: int, divisor: float
) -> None:
    """out = total / divisor, rounded to float32. A total is one word, or two after a carry."""
    scale = np.float64(1 << bits)
    for i in range(low.shape[0]):
        total = np.float64(low[i])
        if high is not None:
            # Exact but for the sum while the high word has 53 bits: then as if it were one word.
            total = np.float64(high[i]) * scale + total
        out[i] = np.float32(total / divisor)


@compiled
def carry(low: NDArray[np.int64], high: NDArray[np.int64], bits: int) -> None:
    """Leave ``bits`` bits in each low word, 0 or more, and add the rest to its high word."""
    for i in range(low.shape[0]):
        high[i] += low[i] >> bits
        low[i] &= (1 << bits) - 1


@compiled
def log(x: float) -> float:
    """Natural logarithm of a positive finite double from + − × ÷ alone (the classic reduction to
    [√½, √2) and a minimax polynomial in s² with s = f/(2+f)), so that it is the same everywhere."""
    exponent = 0
    while x < 0.7071067811865476:
        x *= 2.0
        exponent -= 1
    while x >= 1.4142135623730951:
        x *= 0.5
        exponent += 1
    f = x - 1.0
    s = f / (2.0 + f)
    z = s * s
    series = 0.1531383769920937332 + z * 0.1479819860511658591
    series = 0.1818357216161805012 + z * series
    series = 0.2222219843214978396 + z * series
    series = 0.2857142874366239149 + z * series
    series = 0.3999999999940941908 + z * series
    series = z * (0.6666666666666735130 + z * series)
    half = 0.5 * f * f
    return exponent * 6.93147180369123816490e-01 - (
        (half - (s * (half + series) + exponent * 1.90821492927058770002e-10)) - f
    )


@compiled
def kept_positions(
    out: NDArray[np.int64], coordinates: NDArray[np.int64], bits: NDArray[np.uint64]
) -> int:
    """Positions j whose coordinate has its bit set, in order; returns how many."""
    found = 0
    for j in range(coordinates.shape[0]):
        coordinate = coordinates[j]
        out[found] = j
        found += (bits[coordinate >> 6] >> np.uint64(coordinate & 63)) & np.uint64(1)
    return found


@compiled
def pack_codes(
    out: NDArray[np.uint8], codes: NDArray[np.unsignedinteger], width: int, start: int = 0
) -> None:
    """Lay codes of ``width`` bits one behind the other, lowest bit first, from bit ``start`` on.

    Bits before ``start`` stay; those behind the last code, up to the end of its byte, are 0.
    """
    buffer, filled, at = np.uint64(0), start & 7, start >> 3
    if filled > 0:
        buffer = np.uint64(out[at]) & ((np.uint64(1) << np.uint64(filled)) - np.uint64(1))
    for i in range(codes.shape[0]):
        buffer |= np.uint64(codes[i]) << np.uint64(filled)
        filled += width
        while filled >= 8:
            out[at] = np.uint8(buffer & np.uint64(0xFF))
            buffer >>= np.uint64(8)
            filled -= 8
            at += 1
    if filled > 0:
        out[at] = np.uint8(buffer & np.uint64(0xFF))


@compiled
def unpack_codes(
    out: NDArray[np.unsignedinteger], data: NDArray[np.uint8], width: int, start: int = 0
) -> None:
    """The codes that :func:`pack_codes` laid down."""
    buffer, filled, at = np.uint64(0), 0, start >> 3
    if start & 7:
        buffer, filled, at = np.uint64(data[at]) >> np.uint64(start & 7), 8 - (start & 7), at + 1
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    for i in range(out.shape[0]):
        while filled < width:
            buffer |= np.uint64(data[at]) << np.uint64(filled)
            filled += 8
            at += 1
        out[i] = buffer & mask
        buffer >>= np.uint64(width)
        filled -= width
