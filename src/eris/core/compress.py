"""Compressors C with E[C(x)] = x and E‖C(x) − x‖² ≤ ω‖x‖² (ERIS definition 3.1).

Each is a frozen dataclass that states its ω and its wire form. A compressor works on one segment
at a time: ``encode`` at the client gives what travels, ``decode`` at the receiver the values that
are combined. The linear ones (rand-p, rand-k) draw a :class:`~eris.core.masks.KeptSet` for the
whole vector instead; what travels is the kept values alone, and 1/p is applied once, after
combining.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from eris.core import kernels
from eris.core.errors import InvalidSetting, MalformedMessage, require
from eris.core.masks import KeptSet, exactly_kept, fraction_kept
from eris.core.streams import Stream
from eris.core.vectors import Vector

_LARGEST = float(np.finfo(np.float32).max)


class Encoding(IntEnum):
    """How the buffer of an encoded segment is to be read (numbers are part of the wire format)."""

    DENSE = 1
    KEPT = 2
    QSGD = 3
    UNIFORM = 4
    NATURAL = 5
    SPARSE = 7
    RING = 8
    CLUSTERED = 9
    CIPHERTEXTS = 10


@dataclass(frozen=True)
class Encoded:
    """A segment as it travels: ``count`` values in ``data``, scaled by ``parameter`` if need be."""

    encoding: Encoding
    count: int
    data: bytes
    parameter: float = 0.0


def encode_values(values: Vector, encoding: Encoding = Encoding.DENSE) -> Encoded:
    """Plain little-endian float32 values."""
    return Encoded(encoding, len(values), values.astype("<f4", copy=False).tobytes())


def decode_values(encoded: Encoded, encoding: Encoding, size: int) -> Vector:
    """The values of :func:`encode_values`, checked against what the receiver expects.

    >>> decode_values(encode_values(np.ones(2, np.float32)), Encoding.DENSE, 2)
    array([1., 1.], dtype=float32)
    """
    _expect(encoded, encoding, size, 4 * size)
    return np.frombuffer(encoded.data, "<f4").astype(np.float32, copy=False)


def _expect(encoded: Encoded, encoding: Encoding, count: int, size: int) -> None:
    if encoded.encoding != encoding:
        raise MalformedMessage(
            "payload.encoding", f"is {encoded.encoding!r}; this federation uses {encoding!r}"
        )
    if encoded.count != count:
        raise MalformedMessage("payload.count", f"is {encoded.count}; expected {count} values")
    if len(encoded.data) != size:
        raise MalformedMessage("payload.data", f"has {len(encoded.data)} bytes; expected {size}")


@dataclass(frozen=True)
class RandP:
    """rand-p: each coordinate is kept with probability p and scaled by 1/p. ω = 1/p − 1.

    p is ``kept_fraction`` rounded to a multiple of 2⁻³², for the words that decide have 32 bits.

    >>> RandP(0.25).omega(1000)
    3.0
    """

    kept_fraction: float
    name: ClassVar[str] = "rand-p"

    def __post_init__(self) -> None:
        if not 0 < self.kept_fraction <= 1:
            raise InvalidSetting("kept_fraction", self.kept_fraction, "a number in (0, 1]")
        if self.kept_fraction < 2**-32:
            raise InvalidSetting("kept_fraction", self.kept_fraction, "a number in [2**-32, 1]")

    def omega(self, size: int) -> float:
        """Relative variance on a vector of ``size`` coordinates."""
        # As in fraction_kept, so that ω, and with it γ, is that of the scale 1/p which is applied.
        return 2**32 / round(self.kept_fraction * 2**32) - 1

    def kept(self, n: int, stream: Stream) -> KeptSet:
        """The kept set of a whole vector."""
        return fraction_kept(n, self.kept_fraction, stream)


@dataclass(frozen=True)
class RandK:
    """rand-k: exactly k of n coordinates, scaled by n/k. ω = n/k − 1."""

    kept_count: int
    name: ClassVar[str] = "rand-k"

    def __post_init__(self) -> None:
        require(self.kept_count >= 1, "kept_count", self.kept_count, "at least 1 coordinate")

    def omega(self, size: int) -> float:
        """Relative variance on a vector of ``size`` coordinates."""
        return size / self.kept_count - 1

    def kept(self, n: int, stream: Stream) -> KeptSet:
        """The kept set of a whole vector."""
        require(self.kept_count <= n, "kept_count", self.kept_count, f"at most n = {n} coordinates")
        return exactly_kept(n, self.kept_count, stream)


MaskCompressor = RandP | RandK


@dataclass(frozen=True)
class QSGD:
    """QSGD with s levels (Alistarh et al., 2017): |x|/‖x‖ rounded at random to a multiple of 1/s.

    The norm is that of the segment. ω = min(d/s², √d/s) for a segment of d coordinates.
    """

    levels: int = 16
    name: ClassVar[str] = "qsgd"
    encoding: ClassVar[Encoding] = Encoding.QSGD

    def __post_init__(self) -> None:
        require(1 <= self.levels < 1 << 15, "levels", self.levels, "1 to 32767 levels")

    @property
    def _width(self) -> int:
        return (2 * self.levels).bit_length()

    def omega(self, size: int) -> float:
        """Relative variance on a segment of ``size`` coordinates."""
        # √ and not **0.5: ω decides γ, whose bits must not depend on a C library (see shift_step).
        return float(min(size / self.levels**2, math.sqrt(size) / self.levels))

    def reach(self, values: Vector) -> float:
        """The largest magnitude that may come of these values, whatever is drawn."""
        norm = _norm(values)
        largest = float(np.abs(values).max(initial=0))
        level = min(math.ceil(largest * self.levels / norm), self.levels) if norm else 0
        return float(np.float32(norm / self.levels * level))

    def encode(self, values: Vector, draw: Stream) -> Encoded:
        """Sign and level of each coordinate, packed, and the segment's norm."""
        norm = _norm(values)
        ratio = np.abs(values, dtype=np.float64) * (self.levels / norm if norm else 0.0)
        level = np.minimum(np.floor(ratio + draw.uniform(0, len(values))), self.levels)
        signed = np.where(np.signbit(values), -level, level)
        codes = (signed + self.levels).astype(np.uint32)
        return Encoded(self.encoding, len(values), _pack(codes, self._width), norm)

    def decode(self, encoded: Encoded, size: int) -> Vector:
        """The values the codes stand for."""
        codes = _unpack(encoded, self.encoding, size, self._width)
        largest = int(codes.max(initial=0))
        if largest > 2 * self.levels:
            raise MalformedMessage("payload.data", f"holds code {largest} above {2 * self.levels}")
        step = encoded.parameter / self.levels
        return ((codes.astype(np.float64) - self.levels) * step).astype(np.float32)


@dataclass(frozen=True)
class UniformQuantiser:
    """b bits a coordinate on an even grid over ±max|x|, rounded at random. ω = d/(2ᵇ − 1)²."""

    bits: int = 8
    name: ClassVar[str] = "uniform"
    encoding: ClassVar[Encoding] = Encoding.UNIFORM

    def __post_init__(self) -> None:
        require(1 <= self.bits <= 24, "bits", self.bits, "1 to 24 bits")

    def omega(self, size: int) -> float:
        """Relative variance on a segment of ``size`` coordinates."""
        return float(size / (2**self.bits - 1) ** 2)

    def reach(self, values: Vector) -> float:
        """The largest magnitude that may come of these values, whatever is drawn."""
        return float(np.abs(values).max(initial=0))

    def encode(self, values: Vector, draw: Stream) -> Encoded:
        """Grid position of each coordinate, packed, and the segment's largest magnitude."""
        top = (1 << self.bits) - 1
        reach = self.reach(values)
        place = (values.astype(np.float64) + reach) * (top / (2 * reach) if reach else 0.0)
        codes = np.minimum(np.floor(place + draw.uniform(0, len(values))), top).astype(np.uint32)
        return Encoded(self.encoding, len(values), _pack(codes, self.bits), reach)

    def decode(self, encoded: Encoded, size: int) -> Vector:
        """The values the codes stand for."""
        codes = _unpack(encoded, self.encoding, size, self.bits)
        step = 2 * encoded.parameter / ((1 << self.bits) - 1)
        return (codes.astype(np.float64) * step - encoded.parameter).astype(np.float32)


@dataclass(frozen=True)
class Natural:
    """Natural compression (Horváth et al., 2022): to a neighbouring power of two. ω = 1/8.

    Nine bits travel: the sign and the exponent. Magnitudes below 2⁻¹²⁶ round to 0 or 2⁻¹²⁶.
    """

    name: ClassVar[str] = "natural"
    encoding: ClassVar[Encoding] = Encoding.NATURAL

    def omega(self, size: int) -> float:
        """Relative variance on a segment of ``size`` coordinates."""
        return 1 / 8

    def reach(self, values: Vector) -> float:
        """The largest magnitude that may come of these values, whatever is drawn."""
        largest = float(np.abs(values).max(initial=0))
        mantissa, exponent = math.frexp(largest)
        return largest if mantissa in (0, 0.5) else math.ldexp(1, exponent)

    def encode(self, values: Vector, draw: Stream) -> Encoded:
        """Sign and exponent of each coordinate, packed."""
        word = values.view(np.uint32)
        exponent = (word >> np.uint32(23)) & np.uint32(0xFF)
        # The 23 fraction bits are the chance of the upper neighbour, for subnormals too.
        up = (draw.words(0, len(values)) >> np.uint32(9)) < (word & np.uint32(0x7FFFFF))
        exponent = np.minimum(exponent + up, 254).astype(np.uint32)
        codes = exponent | ((word >> np.uint32(31)) << np.uint32(8))
        return Encoded(self.encoding, len(values), _pack(codes, 9))

    def decode(self, encoded: Encoded, size: int) -> Vector:
        """The values the codes stand for."""
        codes = _unpack(encoded, self.encoding, size, 9)
        sign, exponent = codes >> np.uint32(8), codes & np.uint32(0xFF)
        if (exponent == 255).any():
            raise MalformedMessage("payload.data", "holds an exponent that is not a finite number")
        word = (exponent << np.uint32(23)) | (sign << np.uint32(31))
        return word.view(np.float32)


Quantiser = QSGD | UniformQuantiser | Natural
Compressor = MaskCompressor | Quantiser
COMPRESSORS: Mapping[str, type[Compressor]] = {
    kind.name: kind for kind in (RandP, RandK, QSGD, UniformQuantiser, Natural)
}
"""By the names that recipes have for them."""


def _norm(values: Vector) -> float:
    """The smallest float32 that is not below the norm: no ratio to it may exceed 1."""
    norm = float(np.sqrt(np.sum(np.square(values, dtype=np.float64))))
    rounded = np.float32(norm)
    # Compared as doubles: against a float32, NumPy would round the norm first.
    below = float(rounded) < norm
    return float(np.nextafter(rounded, np.float32(np.inf)) if below else rounded)


def _pack(codes: NDArray[np.uint32], width: int) -> bytes:
    out = np.empty(-(-len(codes) * width // 8), np.uint8)
    kernels.pack_codes(out, codes, width)
    return out.tobytes()


def _unpack(encoded: Encoded, encoding: Encoding, size: int, width: int) -> NDArray[np.uint32]:
    _expect(encoded, encoding, size, -(-size * width // 8))
    if not 0 <= encoded.parameter <= _LARGEST:
        raise MalformedMessage(
            "payload.parameter", f"is {encoded.parameter}; expected 0 to {_LARGEST:.7g} (float32)"
        )
    codes = np.empty(size, np.uint32)
    kernels.unpack_codes(codes, np.frombuffer(encoded.data, np.uint8), width)
    return codes
