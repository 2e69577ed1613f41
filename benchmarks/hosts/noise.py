"""A learner whose update is noise, ready at once: what is left of a round is its messages.

Values stay within ±0.125, so that four bytes a word of a masked sum have places left for them.
"""

from __future__ import annotations

import numpy as np

from eris.core.vectors import Vector
from eris.training.trainer import LocalUpdate


class Noise:
    """One random vector for all rounds."""

    def __init__(self, parameters: int, seed: int) -> None:
        drawn = np.random.default_rng(seed).random(parameters, np.float32)
        self._vector = drawn / np.float32(4) - np.float32(0.125)

    def initial(self) -> Vector:
        return np.zeros(len(self._vector), np.float32)

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        return LocalUpdate(self._vector, samples=1)


def make(name: str, *, parameters: int, seed: int) -> Noise:
    return Noise(parameters, seed)
