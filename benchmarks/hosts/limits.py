"""What the network allows: the physical limit of a round, the bounds, and the law of its bytes.

The formulas are those of :mod:`eris.theory.distribution_time`. They count payload only; headers are
charged by the links, so that no measurement on Ethernet comes below 1.046 of a limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from eris.theory.distribution_time import (
    Links,
    eris_link_loads,
    eris_physical_limit,
    eris_round,
    fedavg_round,
)

BYTES = 4
"""Of a coordinate."""


@dataclass(frozen=True)
class Round:
    """One round to be measured: so many coordinates, shards and clients, on links of one rate.

    >>> round = Round(10_000_000, aggregators=8)
    >>> round.limit_s, round.papers_s, round.central_s
    (5.6, 5.6, 51.2)
    """

    parameters: int
    aggregators: int
    clients: int = 8
    kept_fraction: float = 1.0
    rate: float = 100e6 / 8
    """Bytes a second in each direction of every link."""

    @property
    def model_bytes(self) -> float:
        """The dense model or update, b."""
        return BYTES * self.parameters

    @property
    def payload_bytes(self) -> float:
        """What is sent of an update, b′, and of a result, d: the kept values."""
        return self.kept_fraction * self.model_bytes

    @property
    def limit_s(self) -> float:
        """The most loaded direction of any link, for results that leave segment by segment."""
        sent, links = self.payload_bytes, Links.uniform(self.rate)
        return eris_physical_limit(sent, sent, self.clients, self.aggregators, links)

    @property
    def papers_s(self) -> float:
        """The papers' bound: two phases, one after the other."""
        sent, links = self.payload_bytes, Links.uniform(self.rate)
        return eris_round(sent, sent, self.clients, self.aggregators, links).seconds

    @property
    def central_s(self) -> float:
        """The bound of one server that gets every dense update and returns the model: 2Kb/rate."""
        return fedavg_round(self.model_bytes, self.clients, Links.uniform(self.rate)).seconds

    @property
    def law_bytes(self) -> float:
        """What all members together send in a round."""
        sent = self.payload_bytes
        loads = eris_link_loads(sent, sent, self.clients, self.aggregators)
        return math.fsum(up for up, _ in loads)
