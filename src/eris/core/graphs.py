"""Communication graphs of gossip: who exchanges with whom, and with which weight.

Pure functions of (nodes, settings, seed, round) that every node evaluates alike. A random regular
graph begins as a ring with chords under random names; then pairs of edges swap ends at random, a
Markov chain in which all regular graphs are alike likely (Cooper, Dyer & Greenhill, "Sampling
regular graphs and a peer-to-peer network", 2007). Edges are alike likely whatever the swaps do.
Mixing weights are those of Metropolis and Hastings (Xiao & Boyd, "Fast linear iterations for
distributed averaging", 2004): symmetric and doubly stochastic, so mixing keeps the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from eris.core.errors import InvalidSetting, require
from eris.core.kernels import compiled
from eris.core.streams import Stream
from eris.core.vectors import Indices

MOST_DRAWS = 1000
"""Graphs drawn before a wish (connected, simple) is called hopeless."""
SWITCHES = 20
"""Attempts to swap ends, for each edge."""


@dataclass(frozen=True)
class Graph:
    """A simple undirected graph; ``neighbours[i]`` are those of node i, in order.

    >>> Graph(((1,), (0, 2), (1,))).metropolis(0)
    (0.3333333333333333,)
    """

    neighbours: tuple[tuple[int, ...], ...]

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.neighbours)

    def degree(self, node: int) -> int:
        """How many neighbours a node has."""
        return len(self.neighbours[node])

    @cached_property
    def connected(self) -> bool:
        """Whether news of every node can reach every other."""
        reached, fringe = {0}, [0]
        while fringe:
            fresh = set(self.neighbours[fringe.pop()]) - reached
            reached |= fresh
            fringe.extend(fresh)
        return len(reached) == self.nodes

    def metropolis(self, node: int) -> tuple[float, ...]:
        """Weights of a node's neighbours, 1/(1 + the larger degree); the rest is its own."""
        own = self.degree(node)
        return tuple(1 / (1 + max(own, self.degree(other))) for other in self.neighbours[node])


def check_degree(nodes: int, degree: int) -> None:
    """Refuse a degree that no simple graph of so many nodes has."""
    require(nodes >= 2, "nodes", nodes, "at least 2: one alone has nobody to exchange with")
    require(1 <= degree < nodes, "degree", degree, f"1 to {nodes - 1} for {nodes} nodes")
    if nodes * degree % 2:
        expected = f"an even number for {nodes} nodes: every edge has two ends"
        raise InvalidSetting("degree", degree, expected)


def possible_degree(nodes: int, degree: int) -> int:
    """The degree next to one that is wanted that a graph of so many nodes can have.

    >>> [possible_degree(nodes, 3) for nodes in (2, 3, 4, 5, 6)]
    [1, 2, 3, 2, 3]
    """
    fits = min(degree, nodes - 1)
    if nodes * fits % 2:
        fits += 1 if fits == 1 else -1
    check_degree(nodes, fits)
    return fits


@lru_cache(maxsize=8)
def regular_graph(nodes: int, degree: int, seed: int, round: int = 0, step: int = 0) -> Graph:
    """A random graph in which every node has ``degree`` neighbours, for one step of one round.

    >>> graph = regular_graph(nodes=6, degree=3, seed=1, round=4)
    >>> {graph.degree(node) for node in range(6)}
    {3}
    """
    check_degree(nodes, degree)
    return _regular(nodes, degree, seed, round, step=step)


@lru_cache(maxsize=8)
def connected_regular_graph(nodes: int, degree: int, seed: int) -> Graph:
    """A random regular graph that is connected, to be kept for a whole training.

    >>> connected_regular_graph(nodes=10, degree=2, seed=1).connected
    True
    """
    check_degree(nodes, degree)
    if degree == 1 and nodes > 2:
        raise InvalidSetting("degree", degree, f"at least 2: else {nodes} nodes fall into pairs")
    for draw in range(MOST_DRAWS):
        graph = _regular(nodes, degree, seed, 0, draw=draw)
        if graph.connected:
            return graph
    raise InvalidSetting("degree", degree, f"more: {MOST_DRAWS} draws were not connected")


@lru_cache(maxsize=8)
def connected_random_graph(nodes: int, density: float, seed: int) -> Graph:
    """A random graph with the share ``density`` of all pairs as edges, and connected.

    All graphs of so many edges are alike likely, as far as they are connected. A tree needs
    nodes − 1 edges, so few nodes may get more edges than the density says.

    >>> sum(map(len, connected_random_graph(nodes=50, density=0.4, seed=1).neighbours)) // 2
    490
    """
    require(nodes >= 2, "nodes", nodes, "at least 2: one alone has nobody to exchange with")
    require(0 < density <= 1, "density", density, "a number in (0, 1]")
    one, other = np.triu_indices(nodes, 1)
    count = max(nodes - 1, round(density * len(one)))
    for draw in range(MOST_DRAWS):
        words = Stream(seed, "density-graph", 0, draw).words(0, len(one))
        chosen = np.argsort(words, kind="stable")[:count]
        graph = _graph(nodes, one[chosen], other[chosen])
        if graph.connected:
            return graph
    raise InvalidSetting("density", density, f"more: {MOST_DRAWS} draws were not connected")


def _regular(nodes: int, degree: int, seed: int, round: int, draw: int = 0, step: int = 0) -> Graph:
    # Where most edges are taken few swaps are possible. The complement of a random regular graph is
    # one too, so the sparser of the two is drawn.
    sparse = min(degree, nodes - 1 - degree)
    neighbours = _ring_with_chords(nodes, sparse)
    name = Stream(seed, "graph-names", round, draw, step).permutations(1, nodes)[0]
    neighbours[name] = name[neighbours]
    ends = np.stack([np.repeat(np.arange(nodes), sparse), neighbours.ravel()], axis=1)
    ends = ends[ends[:, 0] < ends[:, 1]]
    attempts = SWITCHES * len(ends)
    words = Stream(seed, "graph-switches", round, draw, step).words(0, 3 * attempts)
    _switch(neighbours, ends, words.reshape(attempts, 3).astype(np.int64))
    if sparse != degree:
        absent = np.ones((nodes, nodes), bool)
        absent[np.repeat(np.arange(nodes), sparse), neighbours.ravel()] = False
        np.fill_diagonal(absent, False)
        neighbours = np.nonzero(absent)[1].reshape(nodes, degree)
    return Graph(tuple(map(tuple, np.sort(neighbours, axis=1).tolist())))


def _ring_with_chords(nodes: int, degree: int) -> Indices:
    """Neighbours on both sides, and for an odd degree (of an even ring) the one opposite."""
    sides = np.arange(1, degree // 2 + 1)
    steps = np.concatenate([sides, -sides, [nodes // 2] * (degree % 2)]).astype(np.int64)
    return (np.arange(nodes)[:, None] + steps) % nodes


@compiled
def _find(row: Indices, node: int) -> int:
    for place in range(row.shape[0]):
        if row[place] == node:
            return place
    return -1


@compiled
def _switch(neighbours: Indices, ends: Indices, words: Indices) -> None:
    """Edges a–b and c–d become a–d and c–b wherever that leaves the graph simple."""
    for attempt in range(words.shape[0]):
        one, other = words[attempt, 0] % ends.shape[0], words[attempt, 1] % ends.shape[0]
        a, b = ends[one]
        c, d = ends[other]
        if words[attempt, 2] & 1:
            c, d = d, c
        if a in (c, d) or b in (c, d):
            continue
        if _find(neighbours[a], d) >= 0 or _find(neighbours[c], b) >= 0:
            continue
        for node, before, after in ((a, b, d), (b, a, c), (c, d, b), (d, c, a)):
            neighbours[node, _find(neighbours[node], before)] = after
        ends[one, 1], ends[other, 0], ends[other, 1] = d, c, b


def _graph(nodes: int, one: Indices, other: Indices) -> Graph:
    source, target = np.concatenate([one, other]), np.concatenate([other, one])
    order = np.lexsort((target, source))
    stops = np.cumsum(np.bincount(source, minlength=nodes))[:-1]
    return Graph(tuple(tuple(part.tolist()) for part in np.split(target[order], stops)))
