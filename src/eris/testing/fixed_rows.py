"""A learner whose samples have the same gradients whatever the model: sums are known beforehand.

What is left of an opened sum once these are taken off is its noise.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eris.core.exact_clip import add_clipped
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.testing.quadratic import LOOK_EVERY
from eris.training.trainer import LocalUpdate, PerSampleClip, PerSampleNoise


class FixedRows:
    """What a node trains with: ``samples`` gradients of length one or so, by its name.

    Training takes ``pace`` seconds, waits on a ``leash`` (:class:`~eris.testing.quadratic`), and
    raises in the rounds of ``fails``.

    >>> anna = FixedRows("anna", n=400)
    >>> anna.rows.shape, round(float(np.linalg.norm(anna.rows[0])), 1)
    ((8, 400), 1.0)
    """

    def __init__(
        self, name: str, *, n: int = 6000, samples: int = 8, pace: float = 0.0, leash: str = "",
        fails: Sequence[int] = (),
    ) -> None:  # fmt: skip
        drawn = Stream(3, "fixed-rows", 0, zlib.crc32(name.encode()) >> 1).normal(0, samples * n)
        self.rows = (drawn.reshape(samples, n) / np.sqrt(n)).astype(np.float32)
        self.n, self.samples, self.pace = n, samples, pace
        self.leash = Path(leash) if leash else None
        self.fails = frozenset(fails)

    def initial(self) -> Vector:
        """Zeros."""
        return np.zeros(self.n, np.float32)

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        """The mean of the gradients; its metrics are what must not be told under noise."""
        self._wait(round)
        mean = self.rows.mean(0, dtype=np.float32)
        return LocalUpdate(mean, self.samples, metrics={"loss": 0.125})

    def private_update(self, parameters: Vector, round: int, noise: PerSampleNoise) -> LocalUpdate:
        """The mean of the clipped gradients, with noise on their sum."""
        self._wait(round)
        added = noise.sigma * noise.draws(round, 0).normal(0, self.n)
        mean = (self.clipped("sample", noise.clip) + added) / self.samples
        return LocalUpdate(mean.astype(np.float32), self.samples, metrics={"loss": 0.125})

    def check_clipping(self, parameters: Vector, *, packed: bool = False) -> None:
        """Its samples never meet."""

    def clipped_update(self, parameters: Vector, round: int, clip: PerSampleClip) -> LocalUpdate:
        """The sum of the clipped gradients, or of those of a batch."""
        self._wait(round)
        batch = None if clip.batch is None else clip.batch(self.samples)
        rows = clip.select(self.rows)
        content = np.zeros(rows.shape[1], np.int64)
        add_clipped(content, rows if batch is None else rows[batch], clip.clip, clip.places)
        metrics = {"loss": 0.125}
        return LocalUpdate(np.zeros(self.n, np.float32), self.samples, 1, metrics, content)

    def clipped(self, protects: str, clip: float) -> Vector:
        """What it contributes to a sum without noise, in float64."""
        rows = self.rows.astype(np.float64)
        if protects == "client":
            rows = self.rows.mean(0, dtype=np.float32).astype(np.float64)[None]
        scales = np.minimum(1, clip / np.linalg.norm(rows, axis=1))
        found: Vector = scales @ rows
        return found

    def _wait(self, round: int) -> None:
        time.sleep(self.pace)
        while self.leash is not None and int(self.leash.read_text()) < round:
            time.sleep(LOOK_EVERY)
        if round in self.fails:
            raise RuntimeError(f"no data in round {round}")
