"""Ako: every peer gets one partition of a node's accumulated updates a round.

Watcharapichat et al., "Ako: decentralised deep learning with partial gradient exchange", 2016.
A node sends (K − 1)/v of its model a round, and every update reaches every peer within v rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from eris.core.errors import InvalidSetting, require
from eris.core.vectors import Vector
from eris.methods.method import GossipMethod
from eris.protocol.gossip.accumulating import AccumulatingNeighbour, AccumulatingPeer
from eris.protocol.gossip.peer import GossipSettings, Neighbour, Nodes


@dataclass(frozen=True)
class Ako(GossipMethod):
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
    public: ClassVar[tuple[str, ...]] = ("partitions",)
    paper: ClassVar[str] = (
        "Watcharapichat, Lopez Morales, Fernandez, Pietzuch: Ako: decentralised deep learning "
        "with partial gradient exchange, 2016"
    )

    def __post_init__(self) -> None:
        require(self.partitions >= 1, "partitions", self.partitions, "at least 1")

    def nodes(self, settings: GossipSettings) -> Nodes:
        """Nodes that send each other partitions."""
        if self.partitions > settings.n:
            raise InvalidSetting("partitions", self.partitions, f"1 to n = {settings.n}")
        return Nodes(1, partial(AccumulatingPeer, settings, partitions=self.partitions))

    def neighbour(self, settings: GossipSettings, member: int, initial: Vector) -> Neighbour:
        """What a node can read out of its messages."""
        return AccumulatingNeighbour(settings, member, initial, self.partitions)
