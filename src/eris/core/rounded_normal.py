"""Rounded normal numbers, exactly: ⌊a + s·Z + ½⌋ for a standard normal Z.

Z = ±Q(p) where p has infinitely many random bits, of which as many are looked at as the result
needs. The integer is a mathematical function of (bits, a, s): no two right implementations differ,
the law is exact, and no pattern of floating point survives for anyone to read.

Nearly all draws need 64 bits and one polynomial (:mod:`eris.core.quantile`). Where its error could
matter, or p is below 2⁻¹³, further bits are taken; where even they leave a doubt, Q is computed to
hundreds of bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import count
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting
from eris.core.kernels import compiled
from eris.core.quantile import CELLS, MIDDLE_BITS, OCTAVES, load_table, quantile

Further = Callable[[int, NDArray[np.int64]], NDArray[np.uint8]]
"""Blocks of 16 further bytes for some draws, by the number of the block (from 1)."""

DEEP = 12
"""Octaves from which on 64 bits leave too few for a cell: 1 draw in 4,096."""
LEEWAY = 64
"""Binary places within which a high-precision draw must not lie at an integer."""
LEAST, MOST = 0.5, 2.0**47
"""Standard deviations for which the error bounds of the fast path are small."""


@dataclass(frozen=True, eq=False)
class ScaledCells:
    """The table times a standard deviation: s·Q = whole + part + Σ termₖ·tᵏ."""

    std: float
    whole: NDArray[np.int64]
    part: NDArray[np.float64]
    terms: NDArray[np.float64]
    errors: NDArray[np.float64]
    """By octave: how far a draw by its first 64 bits may be off."""


@lru_cache(maxsize=4)
def scaled_cells(std: float) -> ScaledCells:
    """For a standard deviation in units of the grid; a few milliseconds, once."""
    if not LEAST <= std <= MOST:
        raise InvalidSetting("standard deviation in units of the grid", std, "½ to 2⁴⁷")
    table = load_table()
    numerator, denominator = std.as_integer_ratio()
    shift = MIDDLE_BITS + denominator.bit_length() - 1
    half = 1 << shift - 1
    whole = [(m * numerator + half) >> shift for m in table.middle]
    parts = [m * numerator - (w << shift) for m, w in zip(table.middle, whole, strict=True)]
    return ScaledCells(
        std,
        np.array(whole, np.int64),
        np.array([math.ldexp(p, -shift) for p in parts]),
        table.terms * std,
        np.array([std * (2.0**-57 + 2.0 ** (o - 61)) + 2.0**-48 for o in range(DEEP)]),
    )


def rounded_normal(
    words: NDArray[np.uint64],
    std: float,
    further: Further,
    content: NDArray[np.int64] | None = None,
    fine_bits: int = 0,
    first: int = 0,
) -> NDArray[np.int64]:
    """⌊a + s·Z + ½⌋ for every word of 64 random bits.

    ``content`` is a·2^``fine_bits``, 0 if not given; ``first`` is the number of the first draw,
    by which ``further`` bits are found.

    >>> def none_needed(block, draws):
    ...     return np.zeros((len(draws), 16), np.uint8)
    >>> rounded_normal(np.array([1 << 62, 1 << 62 | 1], np.uint64), 100.0, none_needed).tolist()
    [115, -115]
    """
    cells = scaled_cells(std)
    held = np.zeros(len(words), np.int64) if content is None else content
    out, doubtful = np.empty(len(words), np.int64), np.empty(len(words), np.int64)
    unit = 2.0**-fine_bits
    places = doubtful[: _fast(out, doubtful, words, held, fine_bits, unit, cells.whole, cells.part,
                              cells.terms, cells.errors)]  # fmt: skip
    if not len(places):
        return out
    more = further(1, places + first)[:, :8].copy().view(">u8")[:, 0].astype(np.uint64)
    some, doubtful = out[places], np.empty(len(places), np.int64)
    left = _with_more_bits(some, doubtful, words[places], more, held[places], fine_bits, unit,
                            cells.whole, cells.part, cells.terms, std)  # fmt: skip
    out[places] = some
    for place in places[doubtful[:left]].tolist():
        a = Fraction(int(held[place]), 1 << fine_bits)
        out[place] = exact_draw(int(words[place]), place + first, a, std, further)
    return out


def exact_draw(word: int, number: int, a: Fraction, std: float, further: Further) -> int:
    """One draw at high precision: bits are taken until those to come can change nothing."""
    import mpmath  # see eris.core.quantile
    from mpmath import mpf

    sign, bits, size = (-1 if word & 1 else 1), word >> 1, 64
    for block in count(1):
        bits = bits << 128 | int.from_bytes(further(block, np.array([number]))[0].tobytes(), "big")
        size += 128
        # Bits to come move p by 2^−size, Q by that over its density, which is at least 0.6·p.
        if not bits or std / 0.6 > math.ldexp(bits, -LEEWAY - 1):
            continue
        with mpmath.workprec(size + 64):
            z = sign * quantile(mpf(bits) / (1 << size), size + 64)
            y = mpf(a.numerator) / a.denominator + std * z + mpf(0.5)
            found = int(mpmath.floor(y))
            if min(y - found, found + 1 - y) > mpf(2) ** -LEEWAY:
                return found
    raise AssertionError("bits do not end")


def _count_leading_zeros(typing: Any, word: Any) -> Any:
    """Of a word of 64 bits: what the processor counts in one instruction."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), code


_leading_zeros = cast(Callable[[np.uint64], int], intrinsic(_count_leading_zeros))


@compiled
def _one(
    v: np.uint64, octave: int, negative: bool, a: np.int64, fine: int, unit: float, error: float,
    whole: NDArray[np.int64], part: NDArray[np.float64], terms: NDArray[np.float64],
) -> tuple[np.int64, bool]:  # fmt: skip
    """A draw by its cell's polynomial, and whether its error could change the integer.

    ``v`` has its leading one at bit 62, ``octave`` places above where it was drawn.
    """
    at = octave * CELLS + int((v >> np.uint64(55)) & np.uint64(CELLS - 1))
    t = np.float64(v & np.uint64((1 << 55) - 1)) * 2.0**-55 - 0.5
    c = terms[at]
    y = part[at] + t * (c[0] + t * (c[1] + t * (c[2] + t * (c[3] + t * (c[4] + t * c[5])))))
    floor = a >> fine
    fraction = np.float64(a - (floor << fine)) * unit
    i = whole[at]
    if negative:
        y, i = -y, -i
    y += fraction + 0.5
    down = np.floor(y)
    edge = y - down
    return floor + i + np.int64(down), edge < error or edge > 1.0 - error


@compiled
def _fast(
    out: NDArray[np.int64], doubtful: NDArray[np.int64], words: NDArray[np.uint64],
    content: NDArray[np.int64], fine: int, unit: float, whole: NDArray[np.int64],
    part: NDArray[np.float64], terms: NDArray[np.float64], errors: NDArray[np.float64],
) -> int:  # fmt: skip
    """All draws by their first 64 bits; how many were left to do, and in ``doubtful`` which."""
    found = 0
    for n in range(words.shape[0]):
        v = words[n] >> np.uint64(1)
        octave = int(_leading_zeros(v)) - 1
        doubt = octave >= DEEP
        if not doubt:
            negative = words[n] & np.uint64(1) != 0
            out[n], doubt = _one(v << np.uint64(octave), octave, negative, content[n], fine, unit,
                                 errors[octave], whole, part, terms)  # fmt: skip
        doubtful[found] = n
        found += doubt
    return found


@compiled
def _with_more_bits(
    out: NDArray[np.int64], doubtful: NDArray[np.int64], words: NDArray[np.uint64],
    more: NDArray[np.uint64], content: NDArray[np.int64], fine: int, unit: float,
    whole: NDArray[np.int64], part: NDArray[np.float64], terms: NDArray[np.float64], std: float,
) -> int:  # fmt: skip
    """The same with 64 bits more each."""
    found = 0
    for n in range(words.shape[0]):
        v = words[n] >> np.uint64(1)
        octave = int(_leading_zeros(v)) - 1
        doubt = octave >= OCTAVES
        if not doubt:
            v = v << np.uint64(octave)
            if octave > 0:
                v |= more[n] >> np.uint64(64 - octave)
            error = std * 2.0**-56 + 2.0**-48
            negative = words[n] & np.uint64(1) != 0
            out[n], doubt = _one(v, octave, negative, content[n], fine, unit,
                                 error, whole, part, terms)  # fmt: skip
        doubtful[found] = n
        found += doubt
    return found
