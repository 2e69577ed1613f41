"""A gossiping federation in memory: every message is encoded and decoded, as on a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from eris.core.compress import Encoded
from eris.core.graphs import Graph
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.methods.ako import Ako
from eris.methods.dpsgd import DPSGD
from eris.methods.epidemic import EpidemicLearning
from eris.methods.method import GossipComposition, GossipMethod
from eris.methods.muffliato import Muffliato
from eris.methods.qdpsgd import QDPSGD1
from eris.methods.shatter import Shatter
from eris.protocol.codec import decode, encode
from eris.protocol.messages import Share

METHODS: dict[str, GossipMethod] = {
    "d-psgd": DPSGD(degree=3),
    "el": EpidemicLearning(degree=3),
    "muffliato": Muffliato(sigma=0.0, steps=3, degree=3),
    "q-dpsgd-1": QDPSGD1(),
    "ako": Ako(partitions=3),
    "shatter": Shatter(virtual_nodes=3, degree=4),
    "shatter-linear": Shatter(virtual_nodes=3, degree=4, chunking="linear"),
    "shatter-dynamic": Shatter(virtual_nodes=3, degree=4, chunking="dynamic"),
    "shatter-replacement": Shatter(virtual_nodes=3, degree=4, chunking="replacement"),
    "shatter-one-chunk": Shatter(virtual_nodes=3, degree=4, full_sharing=False),
}
EXACT = [name for name in METHODS if name != "q-dpsgd-1"]
"""Those that send models as they are, here without noise."""


class Loss(Protocol):
    """Whether a message is lost."""

    def __call__(self, sender: int, receiver: int, round: int, /) -> bool: ...


@dataclass(frozen=True)
class Sent:
    """One message on its way to one receiver."""

    round: int
    phase: int
    sender: int
    receiver: int
    data: bytes

    @property
    def share(self) -> Share:
        message = decode(self.data)
        assert isinstance(message, Share)
        return message

    @property
    def encoded(self) -> Encoded:
        return self.share.payload.encoded


@dataclass
class Gossip:
    """All members of a composition, driven in step."""

    composition: GossipComposition
    initial: Vector
    lost: Loss = lambda sender, receiver, round: False
    arrival: int | None = None
    """Seed of an order of arrival; None: as sent."""
    sent: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        members = range(len(self.composition.members))
        self.peers = [self.composition.peer(member, self.initial) for member in members]
        self.round = 0

    @property
    def models(self) -> list[Vector]:
        return [self.peers[node].model for node in self.composition.clients]

    @property
    def mean(self) -> Vector:
        mean: Vector = np.asarray(np.mean(self.models, axis=0, dtype=np.float64), np.float32)
        return mean

    def set_models(self, models: Sequence[Vector]) -> None:
        for node, model in zip(self.composition.clients, models, strict=True):
            self.peers[node].restore(self.peers[node].state() | {"model": model})

    def run(self, updates: Mapping[int, Vector] | None = None) -> None:
        """One round."""
        for _ in self.phases(updates):
            pass

    def phases(self, updates: Mapping[int, Vector] | None = None) -> Iterator[list[Sent]]:
        """One round; what is left in each list that is given out is delivered afterwards."""
        self.round += 1
        given = updates or {}
        said = [peer.begin(self.round, given.get(m)) for m, peer in enumerate(self.peers)]
        for phase in range(self.composition.phases):
            on_the_way: list[Sent] = []
            for sender, outgoings in enumerate(said):
                for outgoing in outgoings:
                    data = encode(outgoing.message)
                    on_the_way += [
                        Sent(self.round, phase, sender, receiver, data) for receiver in outgoing.to
                    ]
            self.sent += on_the_way
            yield on_the_way
            for sent in self._arrivals(on_the_way):
                if not self.lost(sent.sender, sent.receiver, self.round):
                    self.peers[sent.receiver].receive(sent.share, sent.sender)
            said = [peer.turn(phase) for peer in self.peers]
        assert not any(said), "messages after the last phase"

    def train(self, rounds: int, gradient: Callable[[int, Vector], Vector]) -> None:
        """Rounds in which every node's update is a gradient at its model."""
        for _ in range(rounds):
            nodes = self.composition.clients
            self.run({node: gradient(node, self.peers[node].model) for node in nodes})

    def _arrivals(self, sent: list[Sent]) -> list[Sent]:
        if self.arrival is None:
            return sent
        order = Stream(self.arrival, "test-arrival", self.round).permutations(1, len(sent))[0]
        return [sent[i] for i in order]


def names(nodes: int) -> list[str]:
    return [f"node {node}" for node in range(nodes)]


def compose(
    method: GossipMethod, *, nodes: int = 6, n: int = 40, seed: int = 1, rate: float = 0.5
) -> GossipComposition:
    return method.compose_gossip(names(nodes), n, seed, rate, [1] * nodes)


def gossip(
    method: GossipMethod,
    *,
    nodes: int = 6,
    n: int = 40,
    seed: int = 1,
    rate: float = 0.5,
    lost: Loss = lambda sender, receiver, round: False,
    arrival: int | None = None,
) -> Gossip:
    """A federation whose nodes start from different models."""
    composition = compose(method, nodes=nodes, n=n, seed=seed, rate=rate)
    driven = Gossip(composition, np.zeros(n, np.float32), lost, arrival)
    driven.set_models([vector(n, "model", node) for node in range(nodes)])
    return driven


def vector(n: int, what: str, node: int = 0, round: int = 0) -> Vector:
    """Any values."""
    return Stream(3, f"test-{what}", round, node).normal(0, n).astype(np.float32)


def updates(nodes: int, n: int, round: int) -> dict[int, Vector]:
    return {node: vector(n, "update", node, round) for node in range(nodes)}


def metropolis_matrix(graph: Graph) -> NDArray[np.float64]:
    """The mixing matrix W of a graph: symmetric, every row and column sums to 1."""
    weights = np.zeros((graph.nodes, graph.nodes))
    for node, others in enumerate(graph.neighbours):
        weights[node, list(others)] = graph.metropolis(node)
        weights[node, node] = 1 - weights[node].sum()
    return weights
