"""What the planner is asked: who takes part, on which links, against whom, with which targets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from eris.core.errors import ErisError, InvalidSetting, require
from eris.core.ring import check_ring_bytes
from eris.protocol.secure.noise_terms import Level
from eris.protocol.secure.seats import Threshold
from eris.theory.distribution_time import Links

MOST_CLIENTS = 10_000
LEAST_KEPT = 0.006
"""Shared masks in a rotated basis train down to here (docs/threat-model.md)."""
AUTO = "auto"


class ImpossiblePlan(ErisError):
    """No plan meets the targets: says which constraint binds, and what would make one possible."""

    def __init__(self, constraint: str, remedy: str) -> None:
        self.constraint, self.remedy = constraint, remedy
        super().__init__(f"no such plan: {constraint}; possible with {remedy}")


@dataclass(frozen=True)
class Question:
    """A federation of ``clients`` that train ``parameters`` on ``links``, and its targets.

    ``colluders`` is how many members, an owner among them, may put together what they see.
    Targets: ``most_seen``, the largest share of an update that such a coalition reads a round;
    ``epsilon`` for whoever reads all rounds; ``seconds`` of a round, with ``training`` seconds in
    it. ``kept``, ``aggregators`` and ``secure`` are chosen unless they are given. ``shards`` are
    ``"equal"``, as nodes cut them, or ``"weighted"`` by links, as simulations can.

    >>> Question(clients=8, parameters=10**6, links=Links.uniform(12.5e6)).name(0)
    'member 1'
    """

    clients: int
    parameters: int
    links: Links
    names: tuple[str, ...] = ()
    rounds: int = 100
    samples: int | None = None
    colluders: int = 1
    most_seen: float | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    protects: Level = "sample"
    clip: float = 1.0
    seconds: float | None = None
    training: float = 0.0
    kept: float | None = None
    aggregators: int | None = None
    secure: str = AUTO
    ring_bytes: int = 8
    shards: Literal["equal", "weighted"] = "equal"
    members_per_core: float = 1.0
    """Nodes that share one core: a test on one machine has several."""
    layers: tuple[tuple[int, int], ...] = ()
    """Linear layers of the model, (rows, columns with the bias), where it is known."""

    def __post_init__(self) -> None:
        require(3 <= self.clients <= MOST_CLIENTS, "clients", self.clients,
                f"3 to {MOST_CLIENTS:,}: a mean over fewer than 3 is not published")  # fmt: skip
        require(1 <= self.parameters <= 10**12, "parameters", self.parameters, "1 to 10^12")
        require(1 <= self.rounds <= 10**9, "rounds", self.rounds, "1 to 10^9")
        require(1 <= self.colluders < self.clients, "colluders", self.colluders,
                f"1 to {self.clients - 1}: one member at least is honest")  # fmt: skip
        self._check_targets()
        if self.names and len(self.names) != self.clients:
            raise InvalidSetting("names", f"{len(self.names)} names", f"{self.clients} or none")
        if self.aggregators is not None:
            most = min(self.clients, self.parameters)
            require(1 <= self.aggregators <= most, "aggregators", self.aggregators,
                    f"1 to {most}")  # fmt: skip
        if self.secure not in (AUTO, "none"):
            Threshold.parse(self.secure)
        check_ring_bytes(self.ring_bytes)
        self.links.client_up(self.clients), self.links.client_down(self.clients)

    def _check_targets(self) -> None:
        above = "a number above 0"
        for name in ("epsilon", "seconds", "clip", "members_per_core"):
            value = getattr(self, name)
            require(value is None or 0 < value < math.inf, name, value, above)
        for name in ("most_seen", "kept"):
            value = getattr(self, name)
            require(value is None or 0 < value <= 1, name, value, "a share in (0, 1]")
        require(self.kept is None or self.kept * self.parameters >= 1, "kept", self.kept,
                f"a share that keeps one of {self.parameters} coordinates")  # fmt: skip
        require(0 < self.delta < 1, "delta", self.delta, "a number in (0, 1)")
        require(0 <= self.training < math.inf, "training", self.training, "seconds, not below 0")
        require(self.samples is None or self.samples >= 1, "samples", self.samples, "at least 1")
        if self.epsilon is not None and self.samples is None:
            expected = "the samples of a client: what noise costs depends on them"
            raise InvalidSetting("samples", None, expected)

    def name(self, member: int) -> str:
        """A member as its user calls it."""
        return self.names[member] if self.names else f"member {member + 1}"
