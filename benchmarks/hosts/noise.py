"""A learner whose update is noise, ready at once: what is left of a round is its messages."""

from __future__ import annotations

import numpy as np

from eris.core.vectors import Vector
from eris.training.trainer import LocalUpdate


class Noise:
    """One random vector for all rounds."""

    def __init__(self, parameters: int, seed: int) -> None:
        self._vector = np.random.default_rng(seed).standard_normal(parameters, np.float32)

    def initial(self) -> Vector:
        return np.zeros(len(self._vector), np.float32)

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        return LocalUpdate(self._vector, samples=1)


def make(name: str, *, parameters: int, seed: int) -> Noise:
    return Noise(parameters, seed)
