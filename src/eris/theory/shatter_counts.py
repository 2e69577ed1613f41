"""Shatter's chances on small graphs, exactly: by counting all r-regular graphs of each kind.

The edges of one node's k virtual nodes are laid one virtual node after the other; vertices of the
same kind and the same number of edges so far are alike, so only their numbers are kept. Each way
of laying them leaves degrees for the rest of the vertices, and the number of graphs with those
degrees is counted in the same manner. Whole numbers throughout: the results are exact fractions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import cache

from eris.core.errors import require
from eris.theory.shatter import VirtualGraph

Tally = tuple[int, ...]
"""Entry e is the number of vertices of a kind that have e edges to the node so far, e = 0..r."""

Tallies = tuple[Tally, ...]
"""One tally a kind: siblings still to be laid, watched vertices, all the rest."""

MOST_EDGES = 16
"""Edges of one node's virtual nodes, kr, beyond which laying them takes long."""
MOST_TALLIES = 200_000
"""Degree tallies of the rest of the graph beyond which counting takes long."""


def countable(graph: VirtualGraph) -> bool:
    """Whether the graph is small enough to be counted within seconds.

    >>> countable(VirtualGraph(10, 2, 4)), countable(VirtualGraph(100, 8, 8))
    (True, False)
    """
    edges = graph.virtual_nodes * graph.degree
    rest = graph.vertices - graph.virtual_nodes
    return edges <= MOST_EDGES and math.comb(rest + graph.degree, graph.degree) <= MOST_TALLIES


def mixing(graph: VirtualGraph) -> Fraction:
    """The contraction that :func:`eris.theory.shatter.mixing` approximates, exactly.

    >>> mixing(VirtualGraph(nodes=4, virtual_nodes=1, degree=2))
    Fraction(1, 9)
    """
    laws = _edges_of_a_node(graph, graph.nodes - 1)
    squares = Fraction(0)
    for (own, holders), ways in laws.items():
        count = own + sum(copies * number for copies, number in enumerate(holders))
        squared = sum(copies * copies * number for copies, number in enumerate(holders))
        squares += Fraction(ways * ((1 + own) ** 2 + squared), (1 + count) ** 2)
    squares /= sum(laws.values())
    return (graph.nodes * squares - 1) / (graph.nodes - 1)


def whole_model(graph: VirtualGraph) -> Fraction:
    """Chance that all k chunks of a node reach a given other node in one round, exactly.

    >>> whole_model(VirtualGraph(nodes=3, virtual_nodes=2, degree=1))
    Fraction(2, 15)
    """
    laws = _edges_of_a_node(graph, graph.virtual_nodes)
    seen = sum(ways for (_, chunks), ways in laws.items() if chunks[0] == 0)
    return Fraction(seen, sum(laws.values()))


def regular_graphs(vertices: int, degree: int) -> int:
    """How many r-regular graphs there are on so many labelled vertices.

    >>> regular_graphs(vertices=8, degree=3)  # OEIS A002829
    19355
    """
    return _graphs((0,) * (degree - 1) + (vertices,))


def _edges_of_a_node(graph: VirtualGraph, watched: int) -> Counter[tuple[int, Tally]]:
    """Numbers of graphs by (siblings next to the first virtual node, tally of watched vertices).

    ``watched`` vertices of other nodes are told apart from the rest: the other holders of a
    chunk, or the virtual nodes of one other node.
    """
    require(countable(graph), "graph", graph, "a small graph, as countable() says")
    k, r = graph.virtual_nodes, graph.degree
    kinds = (k - 1, watched, graph.vertices - k - watched)
    start = tuple((number, *(0,) * r) for number in kinds)
    # The first virtual node holds the chunk: the siblings next to it get the node's own copies.
    states = Counter({(after[0][1], after): ways for after, ways in _laid(start, r)})
    for _ in range(k - 1):
        states = _next_sibling(states)
    laws: Counter[tuple[int, Tally]] = Counter()
    for (own, (_, seen, rest)), ways in states.items():
        left = tuple(seen[r - degree] + rest[r - degree] for degree in range(1, r + 1))
        laws[own, seen] += ways * _graphs(left)
    return laws


def _next_sibling(states: Counter[tuple[int, Tallies]]) -> Counter[tuple[int, Tallies]]:
    """Lay the edges that one more of the node's virtual nodes still lacks."""
    after: Counter[tuple[int, Tallies]] = Counter()
    for (own, (siblings, *others)), ways in states.items():
        edges = max(e for e, number in enumerate(siblings) if number)
        fewer = (*siblings[:edges], siblings[edges] - 1, *siblings[edges + 1 :])
        for laid, more in _laid((fewer, *others), len(siblings) - 1 - edges):
            after[own, laid] += ways * more
    return after


def _laid(tallies: Tallies, edges: int) -> Iterator[tuple[Tallies, int]]:
    """All ways to give one edge more to each of ``edges`` vertices: tallies after, number of ways.

    >>> list(_laid(((2, 0),), 1))
    [(((1, 1),), 2)]
    """
    if not tallies:
        if edges == 0:
            yield (), 1
        return
    first, *others = tallies
    for given in range(min(edges, sum(first[:-1])) + 1):
        for after, ways in _raised(first, given):
            for rest, more in _laid(tuple(others), edges - given):
                yield (after, *rest), ways * more


@cache
def _raised(tally: Tally, edges: int) -> tuple[tuple[Tally, int], ...]:
    """The same for one tally; who has r edges already takes no more."""
    if len(tally) == 1:
        return ((tally, 1),) if edges == 0 else ()
    number, *others = tally
    found = []
    for given in range(min(number, edges) + 1):
        for after, ways in _raised(tuple(others), edges - given):
            risen = (number - given, after[0] + given, *after[1:])
            found.append((risen, ways * math.comb(number, given)))
    return tuple(found)


@cache
def _graphs(lacking: Tally) -> int:
    """Number of simple graphs in which ``lacking[d − 1]`` labelled vertices have degree d.

    >>> _graphs((0, 3)), _graphs((2, 1)), _graphs((1, 1))
    (1, 1, 0)
    """
    most = max((d for d, number in enumerate(lacking, 1) if number), default=0)
    if most == 0:
        return 1
    # Edges of one vertex that lacks the most: whoever gets one lacks one less afterwards. A tally
    # counts upwards, so degrees are turned round: nothing lacking comes last.
    others = (*lacking[: most - 1], lacking[most - 1] - 1)
    tally = (*reversed(others), 0)
    return sum(ways * _graphs(after[-2::-1]) for after, ways in _raised(tally, most))
