"""What words of a secure sum stand for: how they are cut, and what an opened sum is worth.

In fixed point, times a client's samples; with noise that clients share, on its grid; or on a coarse
grid that all clients have in common (:mod:`eris.protocol.schemes.grid`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from eris.core.grid import CommonGrid, Integers
from eris.core.ring import word_bits
from eris.core.vectors import Vector
from eris.protocol.schemes.grid import GridCoding
from eris.protocol.secure.sums import OpenedSum

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement
    from eris.protocol.secure.noise_terms import NoiseGrid
    from eris.protocol.settings import Settings


class Wording(Protocol):
    """What words of one segment and round stand for."""

    @property
    def form(self) -> int:
        """How they are cut (:mod:`eris.core.ring`)."""

    def bounds(self, included: int) -> tuple[float, float, float]:
        """The largest magnitude of a word for a weight of one, what else may add to a sum, and the
        largest weight of one."""

    def mean(self, opened: OpenedSum) -> Vector:
        """What is combined of so many clients' words."""

    def values(self, words: Integers, samples: int) -> Vector:
        """What a single client's words say."""


@dataclass(frozen=True)
class FixedWords:
    """Values in fixed point."""

    settings: Settings

    @property
    def form(self) -> int:
        """How they are cut."""
        assert self.settings.secure is not None
        return self.settings.secure.ring_bytes

    @property
    def _places(self) -> int:
        assert self.settings.secure is not None
        return self.settings.secure.fraction_bits(self.settings.precision)

    def bounds(self, included: int) -> tuple[float, float, float]:
        """The largest magnitude of a word for a weight of one."""
        assert self.settings.secure is not None
        return self.settings.secure.bound(self.settings.precision), 0.0, math.inf

    def mean(self, opened: OpenedSum) -> Vector:
        """The mean with the bits of a sum in the clear."""
        return opened.mean(self._places)

    def values(self, words: Integers, samples: int) -> Vector:
        """What a single client's words say."""
        over = float(np.ldexp(samples, self._places))
        return (words / over).astype(np.float32)


@dataclass(frozen=True)
class NoisyWords(FixedWords):
    """Words with noise that clients share, on a grid and by a weight of its own."""

    def bounds(self, included: int) -> tuple[float, float, float]:
        """The largest magnitude of a word for a weight of one, and what noise may add to a sum."""
        assert self.settings.noise is not None
        return *self.settings.noise.bounds(included, self._grid), math.inf

    @property
    def _grid(self) -> NoiseGrid:
        assert self.settings.noise is not None
        return self.settings.noise.grid(self.form, self.settings.precision.fraction_bits)

    def mean(self, opened: OpenedSum) -> Vector:
        """The mean over what the noise was made for."""
        assert self.settings.noise is not None
        return opened.mean(self._grid.places, self.settings.noise.divisor(opened.samples))

    def values(self, words: Integers, samples: int) -> Vector:
        """What a single client's words say."""
        assert self.settings.noise is not None
        over = float(np.ldexp(self.settings.noise.divisor(samples), self._grid.places))
        return (words / over).astype(np.float32)


@dataclass(frozen=True)
class GridWords:
    """Words on a common grid: weights are inside, and the ring itself is the bound."""

    coding: GridCoding
    round: int
    exponent: int

    @property
    def form(self) -> int:
        """How they are cut."""
        return self.coding.form(self.exponent)

    @property
    def _grid(self) -> CommonGrid:
        return self.coding.grid(self.round, self.exponent)

    def bounds(self, included: int) -> tuple[float, float, float]:
        """Whatever fits a word may be a sum, of the samples that were declared."""
        return 0.0, float(1 << word_bits(self.form) - 1), self._grid.reference

    def mean(self, opened: OpenedSum) -> Vector:
        """The mean of what travelled."""
        return self._grid.mean(opened.total, opened.samples)

    def values(self, words: Integers, samples: int) -> Vector:
        """What a single client's words say."""
        return self._grid.mean(words, samples)


def wording(agreement: Agreement, round: int, exponent: int) -> Wording:
    """What words stand for in a round; the exponent is a segment's, where units follow."""
    if isinstance(agreement.coding, GridCoding):
        return GridWords(agreement.coding, round, exponent)
    fixed = FixedWords if agreement.settings.noise is None else NoisyWords
    return fixed(agreement.settings)
