"""What a node of a gossiping federation can replay from its own messages: its model, and others'.

A node knows the protocol and its own part in it. Its own shares hold the model after its local
step, and what it received is mixed in by the method's rule. So its model follows from its view
alone, to the bit in D-PSGD, EL, Muffliato and Shatter, with these exceptions:

- Q-DPSGD-1: the own model is known as it was sent, quantised;
- Shatter with one chunk a round or with replacement: where nothing was handed out, the own local
  step is not in the view and counts as none;
- Ako: exact but for rounding, since own updates add up over v rounds, if v is less than the number
  of nodes; with more partitions the own model lags where none was sent yet.

What a sender trained from is not known to its neighbours. The node's own last average stands for
it: the update of a sender is (own average − received)/learning rate on the received coordinates (in
Ako the partition itself). Where models have drifted apart that difference is in it as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from eris.core.chunks import Chunking
from eris.core.compress import Encoding, UniformQuantiser, decode_values
from eris.core.errors import ErisError, InvalidSetting, did_you_mean
from eris.core.graphs import connected_random_graph, connected_regular_graph, regular_graph
from eris.core.mixing import add_difference_at, settled
from eris.core.vectors import Indices, Vector
from eris.protocol.gossip import GossipSettings, starting_model
from eris.protocol.messages import Payload, Share
from eris.protocol.mixing import Mixing, MixingPeer
from eris.protocol.virtual import Shattering, VirtualNodes


@dataclass(frozen=True, eq=False)
class Piece:
    """What one sender told of its model in one gossip step.

    ``values`` is its model on the coordinates, ``update`` the direction it seems to have trained
    in. ``sender`` is who the message says made it: in Shatter a virtual node.
    """

    sender: int
    step: int
    coordinates: Indices
    values: Vector = field(repr=False)
    update: Vector = field(repr=False)


@dataclass(frozen=True)
class Arrived:
    """A share and who carried it to whom."""

    source: int
    receivers: tuple[int, ...]
    share: Share


class Machine(Protocol):
    """The own model, round by round, and the pieces of others."""

    @property
    def model(self) -> Vector:
        """The own average now."""
        ...

    def take(self, round: int, own: Sequence[Arrived], came: Sequence[Arrived]) -> list[Piece]:
        """What the node sent and received in a round; gives the pieces of others."""
        ...


def machine(settings: GossipSettings, me: int, initial: Vector) -> Machine:
    """What replays a node's model, by the federation's method."""
    said = _Said(settings.parameters)
    nodes, seed = settings.nodes, settings.seed
    if settings.method == "ako":
        return _Accumulated(settings, me, initial, said["partitions"])
    if settings.method == "shatter":
        return _Shattered(settings, initial, said)
    if settings.method == "el":
        mixing = Mixing(partial(regular_graph, nodes, said["degree"], seed), weights="uniform")
    elif settings.method == "muffliato":
        mixing = Mixing(partial(regular_graph, nodes, said["degree"], seed), steps=said["steps"])
    elif settings.method == "d-psgd":
        fixed = connected_regular_graph(nodes, said["degree"], seed)
        mixing = Mixing(lambda round, step: fixed)
    elif settings.method == "q-dpsgd-1":
        drawn = connected_random_graph(nodes, said["density"], seed)
        quantiser = UniformQuantiser(said["bits"])
        mixing = Mixing(lambda round, step: drawn, quantiser=quantiser, pace=said["pace"])
    else:
        known = ("d-psgd", "el", "muffliato", "q-dpsgd-1", "ako", "shatter")
        hint = did_you_mean(settings.method, known)
        raise InvalidSetting("method", settings.method, f"one of {', '.join(known)}{hint}")
    return _Mixed(settings, me, initial, mixing)


class _Said(dict[str, Any]):
    """The public parameters of a method; one that is missing is named."""

    def __missing__(self, name: str) -> Any:
        raise InvalidSetting("settings", f"without {name}", "all public parameters of the method")


class _Mixed:
    """Whole models: the protocol's own machine, set to the model that the node sent."""

    def __init__(self, settings: GossipSettings, me: int, initial: Vector, mixing: Mixing) -> None:
        self.settings, self.mixing = settings, mixing
        self._peer = MixingPeer(settings, me, initial, mixing)
        self._all = np.arange(settings.n)

    @property
    def model(self) -> Vector:
        return self._peer.model

    def take(self, round: int, own: Sequence[Arrived], came: Sequence[Arrived]) -> list[Piece]:
        first = [one.share.payload for one in own if one.share.header.segment == 0]
        if not first:
            return []  # away in this round
        before, peer = self.model, self._peer
        peer.restore({"model": self._read(first[0])})
        peer.begin(round, None)
        pieces = []
        for one in came:
            try:
                peer.receive(one.share, one.source)
            except ErisError:
                continue
            values = self._read(one.share.payload)
            update = _direction(before, values, self.settings)
            pieces.append(Piece(one.source, one.share.header.segment, self._all, values, update))
        for step in range(self.mixing.steps):
            peer.turn(step)
        return pieces

    def _read(self, payload: Payload) -> Vector:
        if self.mixing.quantiser is None:
            return decode_values(payload.encoded, Encoding.DENSE, self.settings.n)
        return self.mixing.quantiser.decode(payload.encoded, self.settings.n)


class _Shattered:
    """Chunks that virtual nodes pass on, under names that do not say whose they are."""

    def __init__(self, settings: GossipSettings, initial: Vector, said: Mapping[str, Any]) -> None:
        self.settings, self.model = settings, starting_model(settings, initial)
        count = said["virtual_nodes"]
        # Who owns whom is a secret. It is not asked for: only what the numbers say is.
        public = VirtualNodes(settings.nodes, count, secret=0)
        chunking = Chunking(count, said["chunking"], settings.n, settings.seed)
        full, degree = said["full_sharing"], said["degree"]
        self._parts = Shattering(settings, chunking, degree, full, public)
        self._virtual = range(settings.nodes, settings.nodes * (1 + count))
        self._mine: set[int] = set()

    def take(self, round: int, own: Sequence[Arrived], came: Sequence[Arrived]) -> list[Piece]:
        if not own:
            return []  # away in this round
        before, model = self.model, self.model.copy()
        for one in own:
            for virtual in one.receivers:
                self._mine.add(virtual)
                values = self._parts.read(one.share.payload, round, one.share.header.shard)
                model[self._parts.places(round, virtual)] = values
        received: dict[tuple[int, int], Vector] = {}
        for one in came:
            if one.source in self._virtual and (read := self._read(round, one)) is not None:
                self._mine.add(one.source)
                received.setdefault((one.share.header.sender, one.source), read)
        total, count = np.zeros(self.settings.n), np.zeros(self.settings.n, np.int64)
        for sender, source in sorted(received):
            places = self._parts.places(round, sender)
            add_difference_at(total, count, places, received[sender, source], model)
        self.model = settled(model, total / (count + 1))
        others = {sender: values for (sender, _), values in received.items()}
        return [
            self._piece(round, sender, values, before)
            for sender, values in others.items()
            if sender not in self._mine
        ]

    def _read(self, round: int, one: Arrived) -> Vector | None:
        """A chunk that is passed on, if the node would have taken it."""
        try:
            self._parts.check_exchange(one.share, one.source)
            values = self._parts.read(one.share.payload, round, one.share.header.shard)
        except ErisError:
            return None
        return values if np.isfinite(values).all() else None

    def _piece(self, round: int, sender: int, values: Vector, before: Vector) -> Piece:
        # Drawn with replacement, a coordinate may come twice; it has one value.
        places, first = np.unique(self._parts.places(round, sender), return_index=True)
        seen = values[first]
        return Piece(sender, 0, places, seen, _direction(before[places], seen, self.settings))


class _Accumulated:
    """Partitions of accumulated updates (Ako); what the node sends adds up to what it trained."""

    def __init__(self, settings: GossipSettings, me: int, initial: Vector, partitions: int) -> None:
        self.settings, self.me, self.partitions = settings, me, partitions
        self._start = starting_model(settings, initial).astype(np.float64)
        # A group of peers has been sent the sum of all updates up to the last time it was served.
        self._told = np.zeros((min(partitions, settings.nodes - 1), settings.n))
        self._own, self._others = np.zeros(settings.n), np.zeros(settings.n)

    @property
    def model(self) -> Vector:
        rate = self.settings.learning_rate / self.settings.nodes
        return (self._start - rate * (self._own + self._others)).astype(np.float32)

    def take(self, round: int, own: Sequence[Arrived], came: Sequence[Arrived]) -> list[Piece]:
        before = self.model
        for one in own:
            partition = one.share.header.shard
            row = (partition - round - 1) % self.partitions
            part = self._part(partition)
            self._told[row, part] += self._read(one.share, part)
            self._own[part] = self._told[row, part]
        pieces: dict[int, Piece] = {}
        for one in came:
            if one.source in pieces or (update := self._received(round, one)) is None:
                continue
            part = self._part(one.share.header.shard)
            self._others[part] += update
            values = before[part] - np.float32(self.settings.learning_rate) * update
            places = np.arange(part.start, part.stop)
            pieces[one.source] = Piece(one.source, 0, places, values, update)
        return list(pieces.values())

    def _received(self, round: int, one: Arrived) -> Vector | None:
        """A peer's partition, if the node would have taken it."""
        header = one.share.header
        place = (self.me - one.source) % self.settings.nodes
        expected = (one.source, (round + place) % self.partitions)
        if (header.sender, header.shard) != expected or one.source >= self.settings.nodes:
            return None
        try:
            update = self._read(one.share, self._part(header.shard))
        except ErisError:
            return None
        return update if np.isfinite(update).all() else None

    def _part(self, partition: int) -> slice:
        n, count = self.settings.n, self.partitions
        return slice(n * partition // count, n * (partition + 1) // count)

    def _read(self, share: Share, part: slice) -> Vector:
        return decode_values(share.payload.encoded, Encoding.DENSE, part.stop - part.start)


def _direction(before: Vector, values: Vector, settings: GossipSettings) -> Vector:
    moved = before.astype(np.float64) - values
    return (moved / settings.learning_rate).astype(np.float32)
