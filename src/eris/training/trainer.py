"""What the protocol asks of a client's training code, whatever framework it is written in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from eris.core.vectors import Vector


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
class StatefulTrainer(Trainer, Protocol):
    """A trainer that keeps something between rounds, say its momentum."""

    def state(self) -> Mapping[str, Vector]:
        """What is kept."""
        ...

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()``."""
        ...
