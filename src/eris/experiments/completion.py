"""The best model of another client that an observer can complete from what it was sent.

An observer of an aggregating method puts what a client sent it on top of the round's model; one of
Shatter puts a chunk that some virtual node sent into its own last average. Messages come round by
round, so that those of earlier rounds need not be kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eris.audit.linkability import true_owners
from eris.audit.neighbour import Neighbourhood, NeighbourSight
from eris.audit.watch import Watch
from eris.core.vectors import Vector
from eris.protocol.gossip import GossipSettings
from eris.protocol.transcript import Transcript


@dataclass(frozen=True, eq=False)
class Target:
    """A model that an observer completed, and the clients whose samples it is asked about."""

    model: Vector
    clients: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Completed:
    """What observers of one kind made of a round, with the share of coordinates that they saw."""

    observer: str
    round: int
    visible: float
    targets: tuple[Target, ...]


class Owners:
    """The owners of a run, one of whom watches each client, and a member without shards."""

    def __init__(self, frame: Transcript, initial: Vector) -> None:
        self._clients, self._owners = frame.membership.clients, sorted(frame.owners)
        observers = [frame.aggregator(owner) for owner in self._owners]
        self.watch = Watch(frame, initial, observers)
        self._targets: list[Target] = []
        self._shares: list[float] = []

    def see(self, round: int, transcript: Transcript) -> None:
        """Take in a round's messages: complete the clients' models, then follow the results."""
        self._targets, self._shares = [], []
        for sight in self.watch.follow(round, transcript.records):
            for client in self._clients:
                observer = self._owners.index(self._watching(client))
                pieces = sight.pieces(client)
                if observer in sight.observers and pieces is not None:
                    seen = sight.seen(client)[sight.observers.index(observer)]
                    self._targets.append(Target(sight.completed(observer, client), (client,)))
                    self._shares.append(float(pieces.sizes[seen].sum()) / len(sight.model))

    def sights(self, round: int) -> Iterator[Completed]:
        """An owner's view of every client, and the view of a member without shards."""
        observer = "server" if len(self._owners) == 1 else "aggregator"
        yield Completed(observer, round, float(np.mean(self._shares)), tuple(self._targets))
        # All members are sent the same results, so one owner's model stands for everybody's.
        everyone = Target(self.watch.models()[0].copy(), tuple(self._clients))
        yield Completed("member", round, 1.0, (everyone,))

    def _watching(self, client: int) -> int:
        """One owner a client: the next in the ring, for it is sent nothing of its own."""
        return next((owner for owner in self._owners if owner > client), self._owners[0])


class Neighbours:
    """The nodes of a run of Shatter: each one's own average, and the chunks it received.

    Whose a virtual node is no neighbour knows: it is used to ask about the right samples.
    """

    def __init__(self, frame: Transcript, initial: Vector) -> None:
        self._settings = GossipSettings.from_canonical(frame.settings)
        self._nodes, self._owners = self._settings.nodes, dict[int, int]()
        observers = [frame.neighbour(node) for node in range(self._nodes)]
        self.watch = Neighbourhood.of(self._settings, initial, observers)
        self._sights: list[NeighbourSight] = []

    def see(self, round: int, transcript: Transcript) -> None:
        """Take in a round's messages."""
        self._owners = true_owners(self._settings, transcript.records)
        self._sights = list(self.watch.follow(round, transcript.records))

    def sights(self, round: int) -> Iterator[Completed]:
        """One chunk a client, as the next node in the ring received it."""
        found = [self._target(victim) for victim in range(self._nodes)]
        targets = [target for target, _ in filter(None, found)]
        shares = [share for _, share in filter(None, found)]
        yield Completed("neighbour", round, float(np.mean(shares)), tuple(targets))

    def _target(self, victim: int) -> tuple[Target, float] | None:
        for node in ((victim + step) % self._nodes for step in range(1, self._nodes)):
            sight = self._sights[node]
            for piece in sight.pieces:
                if self._owners[piece.sender] == victim:
                    model = sight.completed([piece])
                    return Target(model, (victim,)), len(piece.coordinates) / len(model)
        return None  # the round's graph led none of its chunks to anybody else
