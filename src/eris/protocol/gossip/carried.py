"""Shatter where members may fail: every virtual node is carried by another member's process.

A virtual node that ran beside its owner would tell by its address whose it is. So in every round a
member draws a name for each of its virtual nodes and a carrier among the *other* members, both from
a secret source, and a round has five hops:

- **hand out**: the member gives every carrier its names and chunks, most of them none;
- **announce**: a carrier tells everybody which names it carries, in their order;
- **echo**: everybody tells everybody what it was told; what more than two thirds say is the
  :mod:`~eris.protocol.gossip.roll`, also where a carrier died in the middle of its announcement;
- **exchange**: carriers send chunks along the edges of the roll's graph, under their names;
- **hand back**: a carrier gives the owner what its virtual node received, which averages it as
  :class:`~eris.protocol.gossip.virtual.RealNode` does.

In each hop a member has one message for another. What is not there in time is not mixed: a carrier
that dies costs the chunks that it carried in this round. No carrier gets more than
⌈k/(members − 1)⌉ of a member's k chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from eris.core.chunks import Chunking
from eris.core.compress import Encoding, decode_values, encode_values
from eris.core.errors import ErisError, MalformedMessage
from eris.core.mixing import add_difference_at, settled
from eris.core.vectors import Indices, Vector
from eris.protocol.gossip.peer import GossipSettings, Turns, stepped, taken
from eris.protocol.gossip.roll import (
    LABEL_BYTES,
    NAME_BYTES,
    Echo,
    Label,
    Roll,
    most_say,
    pack_echo,
    pack_labels,
    unpack_echo,
    unpack_labels,
)
from eris.protocol.messages import Outgoing, Payload, Share
from eris.protocol.settings import starting_model

HAND_OUT, ANNOUNCE, ECHO, EXCHANGE, HAND_BACK = range(5)
"""The hops of a round."""
HOPS = 5
EDGE_BYTES = NAME_BYTES + LABEL_BYTES
"""Of a chunk that comes back: the name that it was sent to, and its own label."""
LEAST = 4
"""Fewest members: whoever gets a chunk from its carrier knows that it is of neither of them."""
Draw = Callable[[int], bytes]
"""So many secret random bytes, such as ``os.urandom``."""


@dataclass(frozen=True)
class Carrying:
    """What members that carry each other's virtual nodes agree on.

    >>> agreed = GossipSettings(n=100, nodes=5, method="shatter")
    >>> carrying = Carrying(agreed, Chunking(8, "static", 100, seed=1), 4, True)
    >>> carrying.of_one, carrying.most, carrying.largest
    (2, 24, 1037)
    """

    settings: GossipSettings
    chunking: Chunking
    degree: int
    full_sharing: bool

    @property
    def of_one(self) -> int:
        """Most chunks of one member that a carrier gets."""
        return -(-self.chunking.chunks // (self.settings.nodes - 1))

    @property
    def most(self) -> int:
        """Most virtual nodes that a member carries in a round: twice what it has to expect, and a
        few. Whatever is beyond is not carried; it hardly ever is."""
        return 2 * self.chunking.chunks + 8

    @property
    def edges(self) -> int:
        """Most chunks that come back from a carrier."""
        return self.of_one * max(2, self.degree)

    @property
    def largest(self) -> int:
        """Values of the largest message, however few members there are; four bytes of names take
        as much as a value."""
        chunks = self.chunking.chunks
        edges = -(-chunks // (LEAST - 1)) * max(2, self.degree)
        size, label, edge = -(-self.settings.n // chunks), LABEL_BYTES // 4, EDGE_BYTES // 4
        echo = self.settings.nodes * (1 + self.most * label)
        return max(self.most * (size + label), edges * (size + edge)) + echo

    def places(self, round: int, label: Label) -> Indices:
        """The coordinates that a virtual node has."""
        name, chunk = label
        return self.chunking.places(round, chunk, int.from_bytes(name[:8], "little"))

    def deal(self, draw: Draw, me: int) -> list[tuple[int, Label]]:
        """Carriers and labels for a member's chunks: as many carriers as there are, each as often
        as any other, in a secret order.

        >>> agreed = GossipSettings(n=100, nodes=5, method="shatter")
        >>> carrying = Carrying(agreed, Chunking(3, "static", 100, seed=1), 4, True)
        >>> import os
        >>> len({carrier for carrier, _ in carrying.deal(os.urandom, me=0)} - {0})
        3
        """
        count = self.chunking.chunks
        chunks = list(range(count))
        if not self.full_sharing:
            chunks = [int.from_bytes(draw(8), "little") * count >> 64]
        others = [place for place in range(self.settings.nodes) if place != me]
        carriers: list[int] = []
        while len(carriers) < len(chunks):
            carriers += [place for _, place in sorted((draw(8), place) for place in others)]
        pairs = zip(carriers, chunks, strict=False)
        return [(carrier, (draw(NAME_BYTES), chunk)) for carrier, chunk in pairs]


@dataclass(frozen=True, eq=False)
class Guest:
    """A virtual node that is carried for somebody."""

    owner: int
    label: Label
    values: Vector = field(repr=False)


@dataclass(frozen=True, eq=False)
class Bundle:
    """All that a member has for another in a hop."""

    labels: tuple[Label, ...] = ()
    values: tuple[Vector, ...] = field(default=(), repr=False)
    near: tuple[bytes, ...] = ()
    """Of chunks that come back: the names that they were sent to."""
    echo: Echo = ()


class CarriedNode:
    """One member: it trains, has virtual nodes, and carries those of others."""

    def __init__(self, carrying: Carrying, me: int, initial: Vector, draw: Draw) -> None:
        self.carrying, self.me, self._draw = carrying, me, draw
        self.settings = carrying.settings
        self.model = starting_model(self.settings.n, self.settings.initial, initial)
        self._turns = Turns(self.settings, me, HOPS)
        self._others = frozenset(range(self.settings.nodes)) - {me}
        self._forget()

    def _forget(self) -> None:
        """Whatever lasts a round."""
        self._own: dict[bytes, tuple[int, int]] = {}
        """By name: the carrier of a virtual node of this member, and its chunk; nobody else has
        them together."""
        self._guests: dict[bytes, Guest] = {}
        self._announced: dict[int, tuple[Label, ...]] = {}
        self._roll = Roll({}, self.carrying.degree, 0, 0)
        self._known_to: set[int] = set()
        """Who has heard what this member announced: who has not will not send it anything."""
        self._held: dict[int, dict[int, Bundle]] = {}
        """By hop and place: what has come."""

    # -- a round ------------------------------------------------------------------------------

    def begin(self, round: int, update: Vector | None) -> list[Outgoing]:
        """Take the local step, draw names and carriers, and hand chunks out."""
        self._turns.check_next(round)
        model = stepped(self.me, self.model, update, self.settings.learning_rate)
        self._turns.begin(round)
        self._forget()
        self.model = model
        given: dict[int, list[Label]] = {place: [] for place in self._others}
        for carrier, label in self.carrying.deal(self._draw, self.me):
            given[carrier].append(label)
            self._own[label[0]] = carrier, label[1]
        out = []
        for place, labels in sorted(given.items()):
            labels.sort()
            values = [model[self.carrying.places(round, label)] for label in labels]
            out.append(self._say((place,), HAND_OUT, pack_labels(labels), values))
        return out

    def receive(self, message: Share, source: int) -> None:
        """Note what a member has for this one in a hop."""
        header = message.header
        self._turns.check(message, header.segment)
        if header.sender != source or source not in self._others:
            raise ErisError(f"claims to be from member {header.sender}")
        if header.shard:
            raise ErisError(f"is of chunk {header.shard}; chunks are in its names")
        held = self._held.setdefault(header.segment, {})
        if source in held:
            raise ErisError(f"member {source} has already sent this")
        held[source] = self._read(message)

    def awaited(self, phase: int) -> frozenset[int]:
        """Whose messages are not here: of those that were heard in the hop before, or that the
        roll names."""
        if phase == HAND_OUT:
            whose = self._others
        elif phase in (ANNOUNCE, ECHO):
            whose = frozenset(self._held.get(phase - 1, ()))
        elif phase == EXCHANGE:
            homes = {place for name in self._carried() for place in self._homes(name)}
            whose = frozenset(homes & self._known_to)
        else:
            whose = frozenset(self._own[name][0] for name in self._listed())
        return whose - self._held.get(phase, {}).keys()

    def turn(self, phase: int) -> list[Outgoing]:
        """End a hop: take in what came, and say what the next one needs."""
        self._turns.advance(phase)
        came = sorted(self._held.get(phase, {}).items())
        if phase == HAND_OUT:
            return self._announce(came)
        if phase == ANNOUNCE:
            self._announced |= {place: bundle.labels for place, bundle in came}
            return [self._say(tuple(sorted(self._others)), ECHO, pack_echo(self._echo()))]
        if phase == ECHO:
            mine = self._announced[self.me]
            self._known_to = {place for place, bundle in came if bundle.echo[self.me] == mine}
            return self._exchange([bundle.echo for _, bundle in came])
        if phase == EXCHANGE:
            return self._hand_back(dict(came))
        self._mix(came)
        self._forget()
        return []

    def _announce(self, came: Sequence[tuple[int, Bundle]]) -> list[Outgoing]:
        """Take in virtual nodes of others, and tell all that they are here."""
        for place, bundle in came:
            for label, values in zip(bundle.labels, bundle.values, strict=True):
                if len(self._guests) < self.carrying.most:
                    self._guests.setdefault(label[0], Guest(place, label, values))
        labels = tuple(sorted(guest.label for guest in self._guests.values()))
        self._announced[self.me] = labels
        return [self._say(tuple(sorted(self._others)), ANNOUNCE, pack_labels(labels))]

    def _echo(self) -> Echo:
        return tuple(self._announced.get(place) for place in range(self.settings.nodes))

    def _exchange(self, echoes: Sequence[Echo]) -> list[Outgoing]:
        """The roll stands: send chunks to the carriers of their neighbours, once to each."""
        told = most_say([self._echo(), *echoes])
        self._roll = Roll.of(told, self.carrying.degree, self.settings.seed, self._turns.round)
        wanted: dict[int, list[bytes]] = {}
        for name in self._carried():
            for place in self._homes(name):
                wanted.setdefault(place, []).append(name)
        return [
            self._say(
                (place,), EXCHANGE, pack_labels(self._guests[name].label for name in names),
                [self._guests[name].values for name in names],
            )
            for place, names in sorted(wanted.items())
        ]  # fmt: skip

    def _hand_back(self, came: Mapping[int, Bundle]) -> list[Outgoing]:
        """Give owners what their virtual nodes received, unchanged."""
        met = {guest.label: guest.values for guest in self._guests.values()}
        for place, bundle in came.items():
            for label, values in zip(bundle.labels, bundle.values, strict=True):
                if self._roll.carriers.get(label[0]) == (place, label[1]):
                    met[label] = values
        back: dict[int, list[tuple[bytes, Label]]] = {}
        for name in self._carried():
            edges = back.setdefault(self._guests[name].owner, [])
            edges += [(name, label) for label in self._met(name) if label in met]
        return [
            self._say(
                (place,), HAND_BACK, b"".join(near + pack_labels([far]) for near, far in edges),
                [met[far] for _, far in edges],
            )
            for place, edges in sorted(back.items())
        ]  # fmt: skip

    def _mix(self, came: Sequence[tuple[int, Bundle]]) -> None:
        """Average every coordinate over what came back and the own value."""
        received: dict[tuple[bytes, bytes], tuple[Label, Vector]] = {}
        for place, bundle in came:
            for near, label, values in zip(bundle.near, bundle.labels, bundle.values, strict=True):
                mine = near in self._own and self._own[near][0] == place
                if mine and label in self._met(near):
                    received.setdefault((label[0], near), (label, values))
        total, count = np.zeros(self.settings.n), np.zeros(self.settings.n, np.int64)
        for _, (label, values) in sorted(received.items(), key=lambda item: item[0]):
            places = self.carrying.places(self._turns.round, label)
            add_difference_at(total, count, places, values, self.model)
        self.model = settled(self.model, total / (count + 1))

    # -- the roll -----------------------------------------------------------------------------

    def _carried(self) -> list[bytes]:
        """The virtual nodes carried here that are on the roll, in order."""
        here = [
            name
            for name, guest in self._guests.items()
            if self._roll.carriers.get(name) == (self.me, guest.label[1])
        ]
        return sorted(here)

    def _listed(self) -> list[bytes]:
        """The own virtual nodes that are on the roll where they should be."""
        return [name for name, place in self._own.items() if self._roll.carriers.get(name) == place]

    def _around(self, name: bytes) -> tuple[bytes, ...]:
        return self._roll.neighbours.get(name, ())

    def _met(self, name: bytes) -> list[Label]:
        """The labels of those that a virtual node exchanges with."""
        return [(far, self._roll.carriers[far][1]) for far in self._around(name)]

    def _homes(self, name: bytes) -> set[int]:
        """Who else carries those that a virtual node exchanges with."""
        return {self._roll.carriers[far][0] for far in self._around(name)} - {self.me}

    # -- messages -----------------------------------------------------------------------------

    def _say(
        self, to: tuple[int, ...], hop: int, names: bytes, values: Sequence[Vector] = ()
    ) -> Outgoing:
        header = self.settings.header(self.me, self._turns.round, 0, hop)
        joined = np.concatenate(values) if values else np.empty(0, np.float32)
        return Outgoing(to, Share(header, Payload(encode_values(joined)), names))

    def _read(self, share: Share) -> Bundle:
        """What a message says, if it is one of its hop; nothing in it is larger than it may be."""
        hop, names, parts = share.header.segment, share.names, self.carrying
        chunks = parts.chunking.chunks
        near: tuple[bytes, ...] = ()
        labels: tuple[Label, ...] = ()
        echo: Echo = ()
        if hop == ECHO:
            echo = unpack_echo(names, self.settings.nodes, chunks, parts.most)
        elif hop == HAND_BACK:
            near, labels = self._edges(names)
        else:
            labels = unpack_labels(names, chunks, parts.of_one if hop == HAND_OUT else parts.most)
        if hop == HAND_OUT and len({chunk for _, chunk in labels}) < len(labels):
            raise MalformedMessage("share.names", "has two virtual nodes of one chunk")
        with_values = labels if hop in (HAND_OUT, EXCHANGE, HAND_BACK) else ()
        sizes = [parts.chunking.size(share.header.round, chunk) for _, chunk in with_values]
        values = decode_values(share.payload.encoded, Encoding.DENSE, sum(sizes))
        if not np.isfinite(values).all():
            raise MalformedMessage("share.payload.data", "holds a value that is not finite")
        cut = np.split(values, np.cumsum(sizes)[:-1]) if sizes else []
        return Bundle(labels, tuple(cut), near, echo)

    def _edges(self, names: bytes) -> tuple[tuple[bytes, ...], tuple[Label, ...]]:
        """Near names and far labels of the chunks that came back."""
        if len(names) % EDGE_BYTES or len(names) // EDGE_BYTES > self.carrying.edges:
            most = self.carrying.edges
            raise MalformedMessage("share.names", f"has {len(names)} bytes; at most {most} edges")
        parts = [names[at : at + EDGE_BYTES] for at in range(0, len(names), EDGE_BYTES)]
        near = tuple(part[:NAME_BYTES] for part in parts)
        chunks = self.carrying.chunking.chunks
        return near, tuple(unpack_labels(part[NAME_BYTES:], chunks, 1)[0] for part in parts)

    # -- checkpoints --------------------------------------------------------------------------

    def state(self) -> dict[str, Vector]:
        """The model: names and guests last a round."""
        return {"model": self.model.copy()}

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a model."""
        self.model = taken(state, {"model": self.settings.n})["model"]
        self._turns.forget()
        self._forget()
