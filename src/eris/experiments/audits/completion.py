"""The best model of another client that an observer can complete from what it was sent.

An observer of an aggregating method puts what a client sent it on top of the round's model; one of
Shatter puts a chunk that some virtual node sent into its own last average. Messages come round by
round, so that those of earlier rounds need not be kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from eris.audit.linkability import true_owners
from eris.audit.neighbour import Neighbourhood
from eris.audit.watch import Watch
from eris.core.vectors import Vector
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.transcript import Record, Transcript


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
        self.watch = Watch(frame, initial, [frame.aggregator(owner) for owner in self._owners])

    def see(self, round: int, records: Sequence[Record]) -> tuple[Completed, ...]:
        """An owner's view of every client in a round, and that of a member without shards."""
        targets: list[Target] = []
        shares: list[float] = []
        places = self.watch.agreement.settings.places
        for sight in self.watch.follow(round, records):
            for client in self._clients:
                observer = self._owners.index(self._watching(client))
                pieces = sight.pieces(client)
                if observer in sight.observers and pieces is not None:
                    seen = sight.seen(client)[sight.observers.index(observer)]
                    targets.append(Target(sight.completed(observer, client), (client,)))
                    shares.append(float(pieces.sizes[seen].sum()) / places)
        kind = "server" if len(self._owners) == 1 else "aggregator"
        # All members are sent the same results, so one owner's model stands for everybody's.
        everyone = Target(self.watch.models()[0].copy(), tuple(self._clients))
        return (
            Completed(kind, round, float(np.mean(shares)), tuple(targets)),
            Completed("member", round, 1.0, (everyone,)),
        )

    def _watching(self, client: int) -> int:
        """One owner a client: the next in the ring, for it is sent nothing of its own."""
        return next((owner for owner in self._owners if owner > client), self._owners[0])


class Neighbours:
    """The nodes of a run of Shatter: each one's own average, and the chunks it received.

    Whose a virtual node is no neighbour knows: it is used to ask about the right samples.
    """

    def __init__(self, frame: Transcript, initial: Vector) -> None:
        self._settings = GossipSettings.from_canonical(frame.settings)
        observers = [frame.neighbour(node) for node in range(self._settings.nodes)]
        self.watch = Neighbourhood.of(self._settings, initial, observers)

    def see(self, round: int, records: Sequence[Record]) -> tuple[Completed, ...]:
        """One chunk a client, as the next node in the ring received it."""
        owners, nodes = true_owners(self._settings, records), self._settings.nodes
        sights = list(self.watch.follow(round, records))
        targets: list[Target] = []
        shares: list[float] = []
        for victim in range(nodes):
            ring = (sights[(victim + step) % nodes] for step in range(1, nodes))
            chunks = ((sight, piece) for sight in ring for piece in sight.pieces)
            found = ((s, piece) for s, piece in chunks if owners[piece.sender] == victim)
            # The round's graph may have led none of its chunks to anybody else.
            for sight, piece in islice(found, 1):
                targets.append(Target(sight.completed([piece]), (victim,)))
                shares.append(len(piece.coordinates) / len(sight.model))
        return (Completed("neighbour", round, float(np.mean(shares)), tuple(targets)),)
