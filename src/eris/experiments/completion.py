"""The best model of another client that an observer can complete from what it was sent.

An observer of an aggregating method follows the published results, as every member does, and puts
what a client sent it on top. An observer of Shatter keeps its own average and puts a chunk in that
some virtual node sent. Both look into :class:`~eris.protocol.transcript.Observation`s only, round
by round, so that the messages of earlier rounds need not be kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eris.core.chunks import Chunking
from eris.core.compress import Encoding, decode_values
from eris.core.errors import InvalidSetting
from eris.core.mixing import add_difference_at, settled
from eris.core.rules import FedAvg
from eris.core.vectors import Indices, Vector
from eris.methods.shatter import Shatter
from eris.protocol.agreement import Agreement
from eris.protocol.messages import Share
from eris.protocol.replica import Replica
from eris.protocol.transcript import Observation, Transcript
from eris.protocol.virtual import Ownership


@dataclass(frozen=True, eq=False)
class Target:
    """A model that an observer completed, and the clients whose samples it is asked about."""

    model: Vector
    clients: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Sight:
    """What observers of one kind made of a round, with the share of coordinates that they saw."""

    observer: str
    round: int
    visible: float
    targets: tuple[Target, ...]


class Owners:
    """The owners of a run without compression: what each makes of every client's contributions."""

    def __init__(self, agreement: Agreement, initial: Vector) -> None:
        settings = agreement.settings
        if settings.compressor is not None or not isinstance(settings.rule, FedAvg):
            found = f"compressor {settings.compressor}, rule {settings.rule.name}"
            raise InvalidSetting("method", found, "no compression, and the fedavg rule")
        self.agreement = agreement
        self.replica = Replica(agreement, initial)
        self._rate = np.float32(settings.rule.learning_rate)
        self._owners = sorted(set(agreement.view.owners))
        self._shares: dict[int, float] = {}
        self._completed: dict[int, Vector] = {}

    def see(self, transcript: Transcript) -> None:
        """Take in a round's messages: complete the clients' models, then follow the results."""
        self._completed, self._shares = {}, {}
        for client in self.agreement.view.clients:
            self._complete(client, transcript.as_aggregator(self._watching(client)))
        # All members are sent the same results, so one replica stands for everybody's.
        for result in transcript.as_aggregator(self._owners[0]).results():
            self.replica.offer(result)

    def sights(self, round: int) -> Iterator[Sight]:
        """An owner's view of every client, and the view of a member without shards."""
        observer = "server" if len(self._owners) == 1 else "aggregator"
        targets = tuple(Target(model, (k,)) for k, model in sorted(self._completed.items()))
        yield Sight(observer, round, float(np.mean(list(self._shares.values()))), targets)
        everyone = Target(self.replica.model.copy(), tuple(self.agreement.view.clients))
        yield Sight("member", round, 1.0, (everyone,))

    def _watching(self, client: int) -> int:
        """One owner a client: the next in the ring, for it is sent nothing of its own."""
        return next((owner for owner in self._owners if owner > client), self._owners[0])

    def _complete(self, client: int, observation: Observation) -> None:
        model, seen = self.replica.model.copy(), 0
        for message in observation.contributions():
            if message.header.sender != client:
                continue
            segment = self.agreement.segments(message.header.round)[message.header.key]
            update = decode_values(message.payload.encoded, Encoding.DENSE, segment.size)
            segment.scatter(model, segment.gather(model) - self._rate * update)
            seen += segment.size
        if seen:
            self._completed[client], self._shares[client] = model, seen / len(model)


@dataclass(frozen=True, eq=False)
class Chunk:
    """What a virtual node sent: its number, where the values belong, and the values."""

    sender: int
    places: Indices
    values: Vector


class Neighbours:
    """The nodes of a run of Shatter: each one's own average, and the chunks it received."""

    def __init__(self, method: Shatter, nodes: int, initial: Vector, seed: int) -> None:
        if not method.full_sharing:
            expected = "True: a node's own model is read off what it hands out"
            raise InvalidSetting("full_sharing", False, expected)
        if method.owner_secret is None:
            raise InvalidSetting("owner_secret", None, "one, to score the attack with")
        self._chunking = Chunking(method.virtual_nodes, method.chunking, len(initial), seed)
        self._ownership = Ownership(nodes, method.virtual_nodes, method.owner_secret)
        self.averages = [initial.copy() for _ in range(nodes)]
        self._before = list(self.averages)
        self._received: list[list[Chunk]] = [[] for _ in range(nodes)]

    def see(self, transcript: Transcript) -> None:
        """Take in a round's messages."""
        self._before = list(self.averages)
        for node in range(len(self.averages)):
            self._listen(node, transcript.as_neighbour(node))

    def sights(self, round: int) -> Iterator[Sight]:
        """One chunk a client, as the next node in the ring received it.

        Whose a chunk is no neighbour knows: the secret is used to ask about the right samples.
        """
        found = (self._target(victim) for victim in range(len(self.averages)))
        targets = tuple(target for target in found if target is not None)
        yield Sight("neighbour", round, 1 / self._chunking.chunks, targets)

    def _target(self, victim: int) -> Target | None:
        nodes = len(self.averages)
        for node in ((victim + step) % nodes for step in range(1, nodes)):
            for chunk in self._received[node]:
                if self._ownership.owner(chunk.sender) == victim:
                    model = self._before[node].copy()
                    model[chunk.places] = chunk.values
                    return Target(model, (victim,))
        return None  # the round's graph led none of its chunks to anybody else

    def _listen(self, node: int, observation: Observation) -> None:
        """What a node itself knows of its average, from what it handed out and what came back."""
        own = self.averages[node].copy()
        for message in observation.messages():
            if isinstance(message, Share) and message.header.sender == node:
                part = self._read(message)
                own[part.places] = part.values
        chunks = sorted(map(self._read, observation.shares()), key=lambda chunk: chunk.sender)
        total, count = np.zeros(len(own)), np.zeros(len(own), np.int64)
        for chunk in chunks:
            add_difference_at(total, count, chunk.places, chunk.values, own)
        self.averages[node], self._received[node] = settled(own, total / (count + 1)), chunks

    def _read(self, share: Share) -> Chunk:
        header = share.header
        places = self._chunking.places(header.round, header.shard, header.sender)
        values = decode_values(share.payload.encoded, Encoding.DENSE, len(places))
        return Chunk(header.sender, places, values)
