"""Ako: every peer gets one partition of a node's accumulated updates a round.

Watcharapichat et al., "Ako: decentralised deep learning with partial gradient exchange", 2016.
A node sends (K − 1)/v of its model a round, and every update reaches every peer within v rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.methods.gossip import compose_nodes
from eris.methods.method import GossipComposition
from eris.protocol.accumulating import AccumulatingNeighbour, AccumulatingPeer
from eris.protocol.gossip import GossipSettings, Neighbour


@dataclass(frozen=True)
class Ako:
    """Updates are cut into ``partitions`` (v) contiguous pieces.

    Peers apply what they receive at once, scaled by 1/K: when updates stop, after v − 1 further
    rounds every node holds x⁰ − λ·(the sum over rounds of the mean update).

    >>> Ako(partitions=5).compose_gossip(["anna", "ben"], 4, 0, 0.1, [1, 1])
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: partitions is 5; expected 1 to n = 4
    """

    partitions: int = 5
    name: ClassVar[str] = "ako"
    paper: ClassVar[str] = (
        "Watcharapichat, Lopez Morales, Fernandez, Pietzuch: Ako: decentralised deep learning "
        "with partial gradient exchange, 2016"
    )

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise InvalidSetting("partitions", self.partitions, "at least 1")

    def compose_gossip(
        self,
        names: Sequence[str],
        n: int,
        seed: int,
        learning_rate: float,
        samples: Sequence[int],
    ) -> GossipComposition:
        """The parts for these nodes."""
        parameters = (("partitions", self.partitions),)
        settings = GossipSettings(n, len(names), self.name, parameters, seed, learning_rate)
        if self.partitions > n:
            raise InvalidSetting("partitions", self.partitions, f"1 to n = {n}")
        return compose_nodes(settings, names, samples, phases=1, build=self._peer)

    def _peer(self, settings: GossipSettings, member: int, initial: Vector) -> AccumulatingPeer:
        return AccumulatingPeer(settings, member, initial, self.partitions)

    def neighbour(self, settings: GossipSettings, member: int, initial: Vector) -> Neighbour:
        """What a node can read out of its messages."""
        return AccumulatingNeighbour(settings, member, initial, self.partitions)
