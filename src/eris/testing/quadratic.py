"""A learner for node processes that need no data: quick to start, its updates known beforehand.

Every member's loss is ‖x − target‖²/2 with a target of its own and noise of (member, round), so the
model moves in every round and whoever knows the names can compute every update again.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.training.trainer import LocalUpdate

LOOK_EVERY = 0.02
"""Seconds between two looks at a leash."""


class Quadratic:
    """What a node trains with, and a trainer for the simulator: the same updates in both.

    An update takes ``pace`` seconds, and on a ``leash`` as long as the number in that file is below
    its round. In the rounds of ``fails`` training raises, in those of ``poisoned`` it gives NaN, in
    those of ``faint`` next to nothing.

    >>> anna = Quadratic("anna", n=4)
    >>> first = anna.update(anna.initial(), 1)
    >>> first.samples, bool((first.vector == anna.update(anna.initial(), 1).vector).all())
    (4, True)
    """

    def __init__(
        self,
        name: str,
        *,
        n: int = 600,
        pace: float = 0.0,
        leash: str = "",
        fails: Sequence[int] = (),
        poisoned: Sequence[int] = (),
        faint: Sequence[int] = (),
        seed: int = 0,
    ) -> None:
        self.n, self.pace, self.seed = n, pace, seed
        self.member = zlib.crc32(name.encode()) >> 1
        self.leash = Path(leash) if leash else None
        self.fails, self.poisoned = frozenset(fails), frozenset(poisoned)
        self.faint = frozenset(faint)
        self.samples = 3 + self.member % 5
        self.target = Stream(seed, "quadratic-target", 0, self.member).normal(0, n)

    def initial(self) -> Vector:
        """The same model at every member."""
        return Stream(self.seed, "quadratic-model").normal(0, self.n).astype(np.float32)

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        """The gradient at ``parameters``, and this member's noise of the round."""
        time.sleep(self.pace)
        while self.leash is not None and int(self.leash.read_text()) < round:
            time.sleep(LOOK_EVERY)
        if round in self.fails:
            raise RuntimeError(f"no data in round {round}")
        noise = Stream(self.seed, "quadratic-noise", round, self.member).normal(0, self.n)
        vector = (0.1 * (parameters - self.target) + 0.1 * noise).astype(np.float32)
        if round in self.poisoned:
            vector[:] = np.nan
        if round in self.faint:
            vector[:] = 1e-12
        return LocalUpdate(vector, self.samples)

    def evaluate(self, parameters: Vector) -> Mapping[str, float]:
        """The member's loss."""
        return {"loss": float(np.square(parameters - self.target).mean() / 2)}


def let_train(leash: Path, through: int) -> None:
    """Let learners on a leash train up to a round."""
    new = leash.with_name(f".{leash.name}")
    new.write_text(str(through))
    new.replace(leash)  # nobody reads half a number
