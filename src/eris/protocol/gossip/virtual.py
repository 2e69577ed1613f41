"""Real and virtual nodes: chunks of a model travel under names that hide whose they are.

Biswas et al., "Noiseless privacy-preserving decentralized learning", 2025 (Shatter), section 4.2.
A round has three hops, all of them real messages: a real node hands each of its virtual nodes one
chunk of its model; virtual nodes send theirs to their neighbours in a random graph; what a virtual
node received it passes on, unchanged, to its real node, which averages each coordinate over what
arrived and its own value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from eris.core.chunks import Chunking
from eris.core.compress import Encoding, decode_values, encode_values
from eris.core.errors import ErisError
from eris.core.graphs import Graph, regular_graph
from eris.core.mixing import add_difference_at, settled
from eris.core.streams import Stream
from eris.core.vectors import Indices, Vector
from eris.protocol.gossip.peer import (
    Arrived,
    GossipSettings,
    Piece,
    Sends,
    Turns,
    direction,
    expect_chunk,
    stepped,
    taken,
)
from eris.protocol.messages import Outgoing, Payload, Share
from eris.protocol.settings import starting_model

HAND_OUT, EXCHANGE, HAND_BACK = range(3)
"""The phases of a round."""
PHASES = 3


@dataclass(frozen=True)
class VirtualNodes:
    """Which virtual node is whose, and which chunk it carries.

    Members 0 … N − 1 are real; virtual member N + j·k + s carries chunk s, for everyone to see.
    Whose it is is a permutation of the real nodes for each chunk, drawn from ``secret``: neither
    the number nor the chunk says anything about the owner.

    >>> ownership = VirtualNodes(nodes=3, per_node=2, secret=5)
    >>> all(ownership.owner(ownership.virtual(1, chunk)) == 1 for chunk in range(2))
    True
    """

    nodes: int
    per_node: int
    secret: int = field(repr=False)

    @cached_property
    def _owners(self) -> Indices:
        return Stream(self.secret, "owners").permutations(self.per_node, self.nodes)

    @cached_property
    def _places(self) -> Indices:
        return np.argsort(self._owners, axis=1)

    def chunk(self, virtual: int) -> int:
        """The chunk a virtual member carries (public)."""
        return (virtual - self.nodes) % self.per_node

    @property
    def owners(self) -> tuple[int, ...]:
        """The real node behind every virtual member, in their order (secret)."""
        return tuple(self._owners.T.ravel().tolist())

    def owner(self, virtual: int) -> int:
        """The real node behind a virtual member (secret)."""
        return int(self._owners[self.chunk(virtual), (virtual - self.nodes) // self.per_node])

    def virtual(self, node: int, chunk: int) -> int:
        """The virtual member of a real node that carries a chunk (secret)."""
        return self.nodes + int(self._places[chunk, node]) * self.per_node + chunk


@dataclass(frozen=True)
class Shattering:
    """What real and virtual nodes share: chunks, the graph of a round, and who owns whom."""

    settings: GossipSettings
    chunking: Chunking
    degree: int
    full_sharing: bool
    ownership: VirtualNodes

    def graph(self, round: int) -> Graph:
        """The graph over the virtual nodes in a round; member N + i is its node i."""
        virtuals = self.ownership.nodes * self.ownership.per_node
        return regular_graph(virtuals, self.degree, self.settings.seed, round)

    def neighbours(self, virtual: int, round: int) -> tuple[int, ...]:
        """The virtual members a virtual member exchanges with in a round."""
        first = self.ownership.nodes
        return tuple(first + i for i in self.graph(round).neighbours[virtual - first])

    def shared_chunks(self, node: int, round: int) -> range:
        """The chunks a real node hands out: all of them, or without full sharing a random one."""
        chunks = self.ownership.per_node
        if self.full_sharing:
            return range(chunks)
        # The draw is secret: a chunk announced for a real node would name its virtual node.
        drawn = Stream(self.ownership.secret, "shared-chunk", round, node).uniform(0, 1)
        only = int(drawn[0] * chunks)
        return range(only, only + 1)

    def read(self, payload: Payload, round: int, chunk: int) -> Vector:
        """The values of a chunk."""
        size = self.chunking.size(round, chunk)
        return decode_values(payload.encoded, Encoding.DENSE, size)

    def places(self, round: int, virtual: int) -> Indices:
        """The coordinates a virtual member carries in a round."""
        return self.chunking.places(round, self.ownership.chunk(virtual), virtual)

    def check_exchange(self, share: Share, receiver: int) -> None:
        """Refuse what no neighbour of a virtual member sends it in a round."""
        header = share.header
        if header.segment != EXCHANGE:
            raise ErisError(f"is of step {header.segment}; virtual nodes exchange in {EXCHANGE}")
        if header.sender not in self.neighbours(receiver, header.round):
            raise ErisError(
                f"member {header.sender} is no neighbour of {receiver} in round {header.round}"
            )
        expect_chunk(share, self.ownership.chunk(header.sender))


class RealNode:
    """A member that trains: it hands out chunks of its model and averages what comes back."""

    def __init__(self, shattering: Shattering, me: int, initial: Vector) -> None:
        self.shattering, self.me = shattering, me
        self.settings = shattering.settings
        self.model = starting_model(self.settings.n, self.settings.initial, initial)
        self._turns = Turns(self.settings, me, PHASES)
        ownership = shattering.ownership
        self._virtuals = [ownership.virtual(me, chunk) for chunk in range(ownership.per_node)]

    def begin(self, round: int, update: Vector | None) -> list[Outgoing]:
        """Take the local step and hand every virtual node its chunk."""
        self._turns.check_next(round)
        model = stepped(self.me, self.model, update, self.settings.learning_rate)
        self._turns.begin(round)
        self.model = model
        out = []
        for chunk in self.shattering.shared_chunks(self.me, round):
            virtual = self._virtuals[chunk]
            values = encode_values(model[self.shattering.places(round, virtual)])
            header = self.settings.header(self.me, round, chunk, HAND_OUT)
            out.append(Outgoing((virtual,), Share(header, Payload(values))))
        return out

    def receive(self, message: Share, source: int) -> None:
        """Note a chunk that one of its virtual nodes passes on."""
        if source not in self._virtuals:
            raise ErisError(f"member {source} is no virtual node of this one")
        self._turns.check(message, HAND_BACK)
        self.shattering.check_exchange(message, source)
        round, chunk = message.header.round, message.header.shard
        self._turns.hold(
            message, source, HAND_BACK, lambda payload: self.shattering.read(payload, round, chunk)
        )

    def awaited(self, phase: int) -> frozenset[int]:
        """The virtual nodes that have passed nothing on yet."""
        if phase != HAND_BACK:
            return frozenset()
        return frozenset(self._virtuals) - self._turns.sources(phase)

    def turn(self, phase: int) -> list[Outgoing]:
        """At the end of the round, average every coordinate: 1/(count + 1) for each value."""
        received = self._turns.advance(phase)
        if phase != HAND_BACK:
            return []
        round, chunk = self._turns.round, self.shattering.ownership.chunk
        total, count = np.zeros(self.settings.n), np.zeros(self.settings.n, np.int64)
        for sender, payload in received:
            values = self.shattering.read(payload, round, chunk(sender))
            places = self.shattering.places(round, sender)
            add_difference_at(total, count, places, values, self.model)
        self.model = settled(self.model, total / (count + 1))
        return []

    def state(self) -> dict[str, Vector]:
        """The model."""
        return {"model": self.model.copy()}

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a model."""
        self.model = taken(state, {"model": self.settings.n})["model"]
        self._turns.forget()


class ShatterNeighbour(RealNode):
    """What a real node reads: chunks that its virtual nodes pass on, under names that do not say
    whose they are.

    Whom it owns it knows from its messages; the ``ownership`` of its parts is asked for nothing
    that is secret. With one chunk a round or with replacement, where nothing was handed out, the
    own local step is not in the view and counts as none.
    """

    names_clients: ClassVar[bool] = False
    sends: ClassVar[Sends] = "models"

    def __init__(self, shattering: Shattering, me: int, initial: Vector) -> None:
        super().__init__(shattering, me, initial)
        self._virtuals = []

    def overhear(self, round: int, own: Sequence[Arrived], came: Sequence[Arrived]) -> list[Piece]:
        """Go through a round from the chunks that were handed out, with those that came back."""
        if not own:
            return []  # away in this round
        parts, before, model = self.shattering, self.model, self.model.copy()
        for one in own:
            self._virtuals += one.receivers
            values = parts.read(one.share.payload, round, one.share.header.shard)
            for virtual in one.receivers:
                model[parts.places(round, virtual)] = values
        virtuals = range(self.settings.nodes, self.settings.nodes * (1 + parts.ownership.per_node))
        self._virtuals = sorted({*self._virtuals, *(one.source for one in came)} & {*virtuals})
        self.restore({"model": model})
        self._turns.begin(round)
        chunks: dict[int, Vector] = {}
        for one in came:
            try:
                self.receive(one.share, one.source)
            except ErisError:
                continue
            header = one.share.header
            chunks[header.sender] = parts.read(one.share.payload, round, header.shard)
        for phase in range(PHASES):
            self.turn(phase)
        return [
            self._piece(round, sender, sender, values, before)
            for sender, values in chunks.items()
            if sender not in self._virtuals
        ]

    def tapped(self, one: Arrived) -> Piece:
        """A chunk, as a real node hands it out or as virtual nodes pass it on."""
        header = one.share.header
        virtual = header.sender if header.segment == EXCHANGE else one.receivers[0]
        values = self.shattering.read(one.share.payload, header.round, header.shard)
        return self._piece(header.round, header.sender, virtual, values, self.model)

    def _piece(
        self, round: int, sender: int, virtual: int, values: Vector, before: Vector
    ) -> Piece:
        # Drawn with replacement, a coordinate may come twice; it has one value.
        places, first = np.unique(self.shattering.places(round, virtual), return_index=True)
        seen = values[first]
        return Piece(sender, 0, places, seen, direction(before[places], seen, self.settings))


class VirtualNode:
    """A member without data or model: it sends a chunk on its owner's behalf and passes on what
    it receives."""

    def __init__(self, shattering: Shattering, me: int) -> None:
        self.shattering, self.me = shattering, me
        self.settings = shattering.settings
        self.model = np.empty(0, np.float32)
        self._turns = Turns(self.settings, me, PHASES)
        self._owner = shattering.ownership.owner(me)
        self._chunk = shattering.ownership.chunk(me)

    def begin(self, round: int, update: Vector | None) -> list[Outgoing]:
        """Wait for the owner's chunk."""
        self._turns.begin(round)
        return []

    def receive(self, message: Share, source: int) -> None:
        """Note the owner's chunk, or a neighbour's."""
        header = message.header
        self._turns.check(message, header.segment)
        if header.sender != source:
            raise ErisError(f"claims to be from member {header.sender}")
        if header.segment == HAND_OUT:
            if source != self._owner:
                raise ErisError(f"member {source} does not hand chunks to this virtual node")
            expect_chunk(message, self._chunk)
        else:
            self.shattering.check_exchange(message, self.me)
        self._turns.hold(
            message,
            source,
            header.segment,
            lambda payload: self.shattering.read(payload, header.round, header.shard),
        )

    def awaited(self, phase: int) -> frozenset[int]:
        """The owner, then the neighbours, as far as they have sent nothing yet."""
        if phase == HAND_BACK:
            return frozenset()
        whose = [self._owner]
        if phase == EXCHANGE:
            whose = list(self.shattering.neighbours(self.me, self._turns.round))
        return frozenset(whose) - self._turns.sources(phase)

    def turn(self, phase: int) -> list[Outgoing]:
        """Send the owner's chunk to the neighbours, then the neighbours' chunks to the owner."""
        received, round = self._turns.advance(phase), self._turns.round
        if phase == HAND_OUT:
            header = self.settings.header(self.me, round, self._chunk, EXCHANGE)
            to = self.shattering.neighbours(self.me, round)
            return [Outgoing(to, Share(header, payload)) for _, payload in received]
        chunk = self.shattering.ownership.chunk
        return [
            Outgoing(
                (self._owner,),
                Share(self.settings.header(sender, round, chunk(sender), EXCHANGE), payload),
            )
            for sender, payload in received
        ]

    def state(self) -> dict[str, Vector]:
        """Nothing is kept between rounds."""
        return {}

    def restore(self, state: Mapping[str, Vector]) -> None:
        """There is nothing to continue from."""
        taken(state, {})
        self._turns.forget()
