"""The enrolled compressors, with what they document, and vectors to compress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from eris.core.compress import (
    QSGD,
    MaskCompressor,
    Natural,
    Quantiser,
    RandK,
    RandP,
    UniformQuantiser,
)
from eris.core.errors import MalformedMessage
from eris.core.streams import Stream

Vector = NDArray[np.float32]
Doubles = NDArray[np.float64]
SIZE = 48
SIGMAS = 5.0
CONFIDENCE = 16.0
"""A bound fails by chance with probability 3·exp(−16) or that of five standard deviations, both
below 1e-6; about 4000 are checked, on fixed seeds."""


@dataclass(frozen=True)
class Enrolled:
    """A compressor with what it documents: its ω and the bytes of a segment."""

    compressor: MaskCompressor | Quantiser
    sent: Callable[[int], int]
    exact: bool = False
    """ω is the variance itself, not a bound on it."""

    def spread(self, values: Doubles) -> Doubles:
        """How far apart the values that a coordinate may become are, at most."""
        match self.compressor:
            case RandP() | RandK():
                return np.abs(values) * (1 + self.compressor.omega(len(values)))
            case QSGD(levels):
                return np.full(len(values), np.linalg.norm(values) / levels)
            case UniformQuantiser(bits):
                return np.full(len(values), 2 * np.abs(values).max() / (2**bits - 1))
            case Natural():
                return np.asarray(2 ** np.floor(np.log2(np.abs(values))))

    def compress(self, values: Vector, draw: Stream) -> Vector:
        """C(x)."""
        if isinstance(self.compressor, (RandP, RandK)):
            kept = self.compressor.kept(len(values), draw)
            result = np.zeros_like(values)
            positions = kept.among(np.arange(len(values)))
            result[positions] = values[positions] * np.float32(kept.scale)
            return result
        return self.compressor.decode(self.compressor.encode(values, draw), len(values))


def packed(width: int) -> Callable[[int], int]:
    return lambda size: -(-size * width // 8)


ENROLLED = {
    "rand-p 0.9": Enrolled(RandP(0.9), lambda size: 4 * size, exact=True),
    "rand-p 0.05": Enrolled(RandP(0.05), lambda size: 4 * size, exact=True),
    "rand-p 1": Enrolled(RandP(1.0), lambda size: 4 * size, exact=True),
    "rand-k 5": Enrolled(RandK(5), lambda size: 4 * 5, exact=True),
    "rand-k all": Enrolled(RandK(SIZE), lambda size: 4 * SIZE, exact=True),
    "qsgd 1": Enrolled(QSGD(1), packed(2)),
    "qsgd 4": Enrolled(QSGD(4), packed(4)),
    "qsgd 16": Enrolled(QSGD(), packed(6)),
    "qsgd 127": Enrolled(QSGD(127), packed(8)),
    "qsgd 32767": Enrolled(QSGD(32767), packed(16)),
    "uniform 1": Enrolled(UniformQuantiser(1), packed(1)),
    "uniform 3": Enrolled(UniformQuantiser(3), packed(3)),
    "uniform 8": Enrolled(UniformQuantiser(), packed(8)),
    "uniform 24": Enrolled(UniformQuantiser(24), packed(24)),
    "natural": Enrolled(Natural(), packed(9)),
}


def mixed() -> Vector:
    """Values of both signs, none so small that its draws would be too rare to count."""
    normal = Stream(1, "example").normal(0, SIZE)
    return (normal + np.copysign(0.3, normal)).astype(np.float32)


VECTORS = {
    "mixed": mixed(),
    "all alike": np.full(SIZE, -0.7, np.float32),
    "one large": np.where(np.arange(SIZE) == 7, -20, 0.5).astype(np.float32),
    "thirds": (np.float32(4 / 3) * 2.0 ** (np.arange(SIZE) % 5 - 2)).astype(np.float32),
}


def complaint(attempt: Callable[[], object]) -> str:
    with pytest.raises(MalformedMessage) as caught:
        attempt()
    return caught.value.field
