"""Partial gradient exchange: a node sends every peer one partition of its updates a round.

Watcharapichat et al., "Ako: decentralised deep learning with partial gradient exchange", 2016.
Updates are cut into v partitions. In round t a node sends partition (t + i) mod v to the peer i
places after it, and what a peer has not been sent accumulates: in v rounds every peer gets every
partition once, with the sum of the updates since the last time. Nothing is lost, only late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from eris.core.compress import Encoding, decode_values, encode_values
from eris.core.errors import ErisError
from eris.core.mixing import add_difference, settled
from eris.core.vectors import Vector
from eris.protocol.gossip.peer import (
    Arrived,
    GossipSettings,
    Piece,
    Sends,
    Turns,
    expect_chunk,
    stepped,
    taken,
)
from eris.protocol.messages import Outgoing, Payload, Share
from eris.protocol.settings import starting_model


class AccumulatingPeer:
    """One member that sends partitions of its updates and applies those it receives at once.

    Every update counts 1/K, the node's own among them: x ← x − (λ/K)·(own + received).
    """

    def __init__(self, settings: GossipSettings, me: int, initial: Vector, partitions: int) -> None:
        self.settings, self.me, self.partitions = settings, me, partitions
        self.model = starting_model(settings.n, settings.initial, initial)
        self._turns = Turns(settings, me, phases=1)
        # Peers whose places differ by a multiple of v are sent the same, so they share a row.
        self._rows = min(partitions, settings.nodes - 1)
        self._unsent = np.zeros((self._rows, settings.n), np.float32)

    def begin(self, round: int, update: Vector | None) -> list[Outgoing]:
        """Apply the own update's share, and send each peer the partition that is its turn."""
        self._turns.check_next(round)
        rate = self.settings.learning_rate / self.settings.nodes
        after = stepped(self.me, self.model, update, rate)
        unsent = self._unsent
        if update is not None:
            exact = update.astype(np.float64)
            unsent = np.stack([settled(row, exact) for row in unsent])
        self._turns.begin(round)
        self.model, self._unsent = after, unsent
        return [self._send(row) for row in range(self._rows)]

    def receive(self, message: Share, source: int) -> None:
        """Note a peer's partition."""
        header = message.header
        self._turns.check(message, header.segment)
        if header.sender != source:
            raise ErisError(f"claims to be from member {header.sender}")
        if not 0 <= source < self.settings.nodes or source == self.me:
            raise ErisError(f"member {source} is no peer")
        expect_chunk(message, self._partition(source, self.me))
        self._turns.hold(
            message, source, header.segment, lambda payload: self._read(payload, header.shard)
        )

    def awaited(self, phase: int) -> frozenset[int]:
        """The peers whose partitions are not here yet."""
        others = frozenset(range(self.settings.nodes)) - {self.me}
        return others - self._turns.sources(phase)

    def turn(self, phase: int) -> list[Outgoing]:
        """Apply what the peers sent."""
        total, nothing = np.zeros(self.settings.n), np.zeros(self.settings.n, np.float32)
        rate = self.settings.learning_rate / self.settings.nodes
        for sender, payload in self._turns.advance(phase):
            partition = self._partition(sender, self.me)
            part, values = self._part(partition), self._read(payload, partition)
            add_difference(total[part], values, nothing[part], -rate)
        self.model = settled(self.model, total)
        return []

    def state(self) -> dict[str, Vector]:
        """The model, and what each group of peers has not been sent yet."""
        return {"model": self.model.copy(), "unsent": self._unsent.ravel().copy()}

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a state."""
        mine = taken(state, {"model": self.settings.n, "unsent": self._unsent.size})
        self.model, self._unsent = mine["model"], mine["unsent"].reshape(self._unsent.shape)
        self._turns.forget()

    def _place(self, sender: int, receiver: int) -> int:
        """How many places a peer comes after a sender: 1 to K − 1."""
        return (receiver - sender) % self.settings.nodes

    def _partition(self, sender: int, receiver: int) -> int:
        return (self._turns.round + self._place(sender, receiver)) % self.partitions

    def _part(self, partition: int) -> slice:
        n, count = self.settings.n, self.partitions
        return slice(n * partition // count, n * (partition + 1) // count)

    def _read(self, payload: Payload, partition: int) -> Vector:
        part = self._part(partition)
        return decode_values(payload.encoded, Encoding.DENSE, part.stop - part.start)

    def _send(self, row: int) -> Outgoing:
        """Row i holds for the peers i + 1, i + 1 + v, … places after this node."""
        nodes = self.settings.nodes
        places = range(row + 1, nodes, self.partitions)
        peers = tuple(sorted((self.me + place) % nodes for place in places))
        partition = self._partition(self.me, peers[0])
        part = self._part(partition)
        header = self.settings.header(self.me, self._turns.round, partition, 0)
        encoded = encode_values(self._unsent[row, part])
        self._unsent[row, part] = 0
        return Outgoing(peers, Share(header, Payload(encoded)))


class AccumulatingNeighbour(AccumulatingPeer):
    """What a node reads: its own shares add up to what it trained.

    Its model is exact but for rounding if there are fewer partitions than nodes; with more it lags
    where none was sent yet. A piece is a partition of updates itself.
    """

    names_clients: ClassVar[bool] = True
    sends: ClassVar[Sends] = "increments"

    def __init__(self, settings: GossipSettings, me: int, initial: Vector, partitions: int) -> None:
        super().__init__(settings, me, initial, partitions)
        self._start = self.model.astype(np.float64)
        # A group of peers has been sent the sum of all updates up to the last time it was served.
        self._told = np.zeros((self._rows, settings.n))
        self._own, self._others = np.zeros(settings.n), np.zeros(settings.n)

    def overhear(self, round: int, own: Sequence[Arrived], came: Sequence[Arrived]) -> list[Piece]:
        """Add up what was sent and what came."""
        before = self.model
        self._turns.begin(round)
        for one in own:
            partition = one.share.header.shard
            row, part = (partition - round - 1) % self.partitions, self._part(partition)
            self._told[row, part] += self._read(one.share.payload, partition)
            self._own[part] = self._told[row, part]
        pieces: list[Piece] = []
        for one in came:
            try:
                self.receive(one.share, one.source)
            except ErisError:
                continue
            pieces.append(self._piece(one, before))
            self._others[pieces[-1].coordinates] += pieces[-1].update
        rate = self.settings.learning_rate / self.settings.nodes
        self.model = (self._start - rate * (self._own + self._others)).astype(np.float32)
        return pieces

    def tapped(self, one: Arrived) -> Piece:
        """A partition of updates."""
        return self._piece(one, self.model)

    def _piece(self, one: Arrived, before: Vector) -> Piece:
        partition = one.share.header.shard
        part, update = self._part(partition), self._read(one.share.payload, partition)
        values = before[part] - np.float32(self.settings.learning_rate) * update
        return Piece(one.source, 0, np.arange(part.start, part.stop), values, update)
