"""What the protocol asks of a client's training code, whatever framework it is written in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from eris.core.combine import MOST_SAMPLES
from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.protocol.codec import MOST_STEPS


@dataclass(frozen=True)
class LocalUpdate:
    """What one client computed in one round.

    ``vector`` is the update direction g_k: a gradient, or for several local steps the
    pseudo-gradient (x − x_k)/λ. ``samples`` is the client's integer weight, ``steps`` the number
    of local steps behind the vector (FedNova divides by it). ``metrics`` stay with the client.
    """

    vector: Vector
    samples: int
    steps: int = 1
    metrics: Mapping[str, float] = field(default_factory=dict)


class Trainer(Protocol):
    """One client's training code."""

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        """Train from ``parameters`` (the flat model) and return the update of this round."""
        ...


@runtime_checkable
class Learner(Trainer, Protocol):
    """What a node trains with: a trainer that knows the model everyone starts from.

    ``update`` may also return a plain ``(update, samples, metrics)``. A learner may have
    ``evaluate(parameters)``, which returns metrics of a model; all metrics stay with the node.
    """

    def initial(self) -> Vector:
        """The flat model all members start from, the same bits at each."""
        ...


def as_update(made: object, client: str) -> LocalUpdate:
    """What ``update`` returned: a :class:`LocalUpdate`, or (update, samples, metrics).

    >>> as_update((np.zeros(2, np.float32), 10, {"loss": 0.5}), "anna").samples
    10
    """
    if isinstance(made, LocalUpdate):
        return made
    if isinstance(made, tuple) and len(made) in (2, 3):
        return LocalUpdate(made[0], made[1], metrics=made[2] if len(made) == 3 else {})
    expected = "a LocalUpdate, or (update, samples, metrics)"
    raise InvalidSetting(f"what update() of {client} returned", type(made).__name__, expected)


@dataclass(frozen=True)
class PerSampleNoise:
    """Local differential privacy inside a step: clip every sample's gradient, add noise to the sum.

    A step's gradient becomes (Σ clip(gᵢ, ``clip``) + N(0, ``sigma``²))/batch. The noise of client k
    in round t is drawn from the stream (``seed``, "noise", t, k), one vector after another for
    several steps; for protection the seed is the client's secret.
    """

    clip: float
    sigma: float
    seed: int


@runtime_checkable
class PrivateTrainer(Trainer, Protocol):
    """A trainer that can see single samples, and so protect them."""

    def private_update(self, parameters: Vector, round: int, noise: PerSampleNoise) -> LocalUpdate:
        """As ``update``, with clipping and noise in every step."""
        ...


@runtime_checkable
class StatefulTrainer(Trainer, Protocol):
    """A trainer that keeps something between rounds, say its momentum."""

    def state(self) -> Mapping[str, Vector]:
        """What is kept."""
        ...

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()``."""
        ...


def check_update(update: LocalUpdate, client: str, n: int) -> None:
    """Say whose update it is that cannot be sent."""
    vector = update.vector
    if not isinstance(vector, np.ndarray) or vector.shape != (n,) or vector.dtype != np.float32:
        kind = (
            f"{vector.dtype} array of shape {vector.shape}" if hasattr(vector, "dtype") else vector
        )
        raise InvalidSetting(f"update of {client}", kind, f"{n} float32 values")
    for name, count, most in (
        ("samples", update.samples, MOST_SAMPLES),
        ("steps", update.steps, MOST_STEPS),
    ):
        if count != int(count) or not 1 <= count <= most:
            raise InvalidSetting(f"{name} of {client}", count, f"a whole number from 1 to {most}")
