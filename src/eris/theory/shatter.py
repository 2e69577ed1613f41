"""What Shatter's virtual nodes hide, cost and mix, for one round (Shatter, sections 4.2, 5, F).

N nodes run k virtual nodes each; all M = Nk of them are the vertices of a random r-regular graph.
Virtual node s of a node sends chunk s of its model to its r neighbours. By symmetry the chances of
one edge and of two edges are known exactly (:class:`EdgeChances`), and with them all that needs no
more than two edges: the chance that a chunk arrives and the contraction of Lemma 5. What needs
three edges, the chance that a whole model arrives and the contraction of what really runs, has no
closed form; it is approximated here, counted exactly for small graphs by
:mod:`eris.theory.shatter_counts`, and compared with drawn graphs by ``python -m
eris.theory.shatter``. ``docs/shatter.md`` has the derivations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import require
from eris.core.graphs import check_degree


@dataclass(frozen=True)
class VirtualGraph:
    """A random r-regular graph over the virtual nodes of all nodes.

    >>> VirtualGraph(nodes=100, virtual_nodes=8, degree=8).vertices
    800
    """

    nodes: int
    virtual_nodes: int
    degree: int

    def __post_init__(self) -> None:
        require(self.nodes >= 2, "nodes", self.nodes, "at least 2")
        require(self.virtual_nodes >= 1, "virtual_nodes", self.virtual_nodes, "at least 1")
        check_degree(self.vertices, self.degree)

    @property
    def vertices(self) -> int:
        """M = Nk, the number of virtual nodes."""
        return self.nodes * self.virtual_nodes


# What others see.


def chunk_reach(graph: VirtualGraph) -> float:
    """Chance that a given chunk of a node reaches a given other node: 1 − C(M−1−k, r)/C(M−1, r).

    The neighbours of the virtual node that holds the chunk are a uniform r-subset of the others,
    and the chunk arrives unless that subset misses all k virtual nodes of the receiver.

    >>> chunk_reach(VirtualGraph(nodes=5, virtual_nodes=1, degree=2))
    0.5
    """
    others = graph.vertices - 1
    missed = math.comb(others - graph.virtual_nodes, graph.degree)
    return 1 - missed / math.comb(others, graph.degree)


def chunk_reach_printed(graph: VirtualGraph) -> float:
    """The paper's approximation of :func:`chunk_reach`, 1 − (1 − r/(M−1))^k (appendix F.2).

    It takes the k virtual nodes of the receiver for independent, which makes it too small.

    >>> round(chunk_reach_printed(VirtualGraph(nodes=100, virtual_nodes=8, degree=8)), 4)
    0.0773
    """
    return 1 - (1 - graph.degree / (graph.vertices - 1)) ** graph.virtual_nodes


def expected_share(graph: VirtualGraph) -> float:
    """Expected share of another node's model that a node sees in a round: :func:`chunk_reach`.

    Each of the k chunks is 1/k of the model and arrives with that chance; expectations add up
    whether or not arrivals are independent (Theorem 3, exactly).

    >>> expected_share(VirtualGraph(nodes=2, virtual_nodes=4, degree=7))
    1.0
    """
    return chunk_reach(graph)


def whole_model_independent(graph: VirtualGraph) -> float:
    """Chance that all k chunks of a node reach a given other one, were arrivals independent.

    They are not: chunks compete for the receiver's kr edges, so the real chance is smaller unless
    k = 1 or the graph is complete. :func:`eris.theory.shatter_counts.whole_model` counts it.

    >>> round(whole_model_independent(VirtualGraph(nodes=10, virtual_nodes=2, degree=4)), 4)
    0.149
    """
    return chunk_reach(graph) ** graph.virtual_nodes


def whole_model_printed(graph: VirtualGraph) -> float:
    """The paper's chance of a whole model, (1 − (1 − r/(M−1))^k)^k (Theorem 2, appendix F.2).

    >>> round(whole_model_printed(VirtualGraph(nodes=10, virtual_nodes=2, degree=4)), 4)
    0.1419
    """
    return chunk_reach_printed(graph) ** graph.virtual_nodes


# What it costs.


@dataclass(frozen=True)
class NodeTraffic:
    """What one node, its virtual nodes included, sends in a round."""

    coordinates: int
    messages: int


def shatter_traffic(graph: VirtualGraph, coordinates: int) -> NodeTraffic:
    """(1 + 2r)·d coordinates in k + 2kr messages (section 5.3).

    To the virtual nodes (d in k messages), from them to their neighbours (rd in kr), and what
    they receive back to the node (rd in kr).

    >>> shatter_traffic(VirtualGraph(nodes=100, virtual_nodes=8, degree=8), coordinates=1000)
    NodeTraffic(coordinates=17000, messages=136)
    """
    require(coordinates >= 1, "coordinates", coordinates, "at least 1")
    k, r = graph.virtual_nodes, graph.degree
    return NodeTraffic((1 + 2 * r) * coordinates, k + 2 * k * r)


def dpsgd_traffic(degree: int, coordinates: int) -> NodeTraffic:
    """r·d coordinates in r messages: D-PSGD, to compare with (section 5.3).

    >>> dpsgd_traffic(degree=8, coordinates=1000)
    NodeTraffic(coordinates=8000, messages=8)
    """
    require(degree >= 1, "degree", degree, "at least 1")
    require(coordinates >= 1, "coordinates", coordinates, "at least 1")
    return NodeTraffic(degree * coordinates, degree)


# How it mixes. m_ij is the number of copies of node j's chunk that reach node i, m_ii those of
# its own chunk that come back through siblings, D_i = Σ_j m_ij the count of section 4.2.


@dataclass(frozen=True)
class EdgeChances:
    """Chances of edges in a random r-regular graph on M vertices, exact by symmetry (Lemma 5)."""

    one: float
    """A given edge is there: r/(M−1)."""
    sharing: float
    """Two given edges with a common end are there: r(r−1)/((M−1)(M−2))."""
    disjoint: float
    """Two given edges without a common end are there: r/(M−1) · (r − 2(r−1)/(M−2))/(M−3)."""

    @classmethod
    def of(cls, graph: VirtualGraph) -> EdgeChances:
        """The chances in ``graph``; 0 for what so few vertices have no room for.

        >>> EdgeChances.of(VirtualGraph(nodes=4, virtual_nodes=1, degree=1))
        EdgeChances(one=0.3333333333333333, sharing=0.0, disjoint=0.3333333333333333)
        """
        m, r = graph.vertices, graph.degree
        one = r / (m - 1)
        next_to = (r - 1) / (m - 2) if m > 2 else 0.0
        apart = (r - 2 * next_to) / (m - 3) if m > 3 else 0.0
        return cls(one, one * next_to, one * apart)


@dataclass(frozen=True)
class CopyMoments:
    """First and second moments of the copies m_ij that reach a node, exactly."""

    own: float
    """E m_ii."""
    own_squared: float
    """E m_ii²."""
    other_squared: float
    """E m_ij², j ≠ i."""
    own_other: float
    """E m_ii·m_ij, j ≠ i."""
    two_others: float
    """E m_ij·m_ij′ for three different nodes."""

    @classmethod
    def of(cls, graph: VirtualGraph) -> CopyMoments:
        """Every pair of edges that a product counts, by whether the two share an end."""
        k, chance = graph.virtual_nodes, EdgeChances.of(graph)
        one, sharing, disjoint = chance.one, chance.sharing, chance.disjoint
        siblings, pairs = k - 1, (k - 1) * (k - 2)
        return cls(
            own=siblings * one,
            own_squared=siblings * one + pairs * sharing,
            other_squared=k * one + k * siblings * sharing,
            own_other=2 * siblings * sharing + pairs * disjoint,
            two_others=k * sharing + k * siblings * disjoint,
        )

    def count_squared(self, nodes: int) -> float:
        """E D², of the number of copies of a coordinate that a node receives; E D is r."""
        others = nodes - 1
        return (
            self.own_squared
            + others * self.other_squared
            + 2 * others * self.own_other
            + others * (others - 1) * self.two_others
        )


def mixing_lemma5(graph: VirtualGraph) -> float:
    """ρ of Lemma 5, exactly, for models of mean θ̄ = 0: E Σ‖C(θ)_i‖² = ρ·Σ‖θ_i‖².

    C(θ)_i = (1/r)·Σ_j m_ij·θ_j leaves the own value out and divides by r, not by the count. The
    paper takes θ̄ = 0 "without loss of generality", but C does not keep equal models equal: in
    general Σ‖C(θ)_i − θ̄‖² is ρ·Σ‖θ_i − θ̄‖² + N·s·‖θ̄‖² in expectation, with s from
    :func:`lemma5_scatter`. See :func:`mixing_printed` for what the paper has in place of ρ.

    >>> mixing_lemma5(VirtualGraph(nodes=5, virtual_nodes=1, degree=4))
    0.0625
    """
    moments, n = CopyMoments.of(graph), graph.nodes
    squares = moments.own_squared + (n - 1) * moments.other_squared
    products = 2 * moments.own_other + (n - 2) * moments.two_others
    return (squares - products) / graph.degree**2


def lemma5_scatter(graph: VirtualGraph) -> float:
    """s = Var(D)/r²: how far Lemma 5's operator drives *equal* models apart, relative to ‖θ̄‖².

    0 only for k = 1 and on a complete graph. So the lemma's inequality (2) fails for k > 1 unless
    θ̄ = 0; with the weights 1/(count+1) of section 4.2 equal models stay equal.

    >>> lemma5_scatter(VirtualGraph(nodes=10, virtual_nodes=1, degree=4))
    0.0
    >>> round(lemma5_scatter(VirtualGraph(nodes=100, virtual_nodes=8, degree=8)), 3)
    0.107
    """
    variance = CopyMoments.of(graph).count_squared(graph.nodes) - graph.degree**2
    return max(0.0, variance) / graph.degree**2


def mixing_printed(graph: VirtualGraph) -> float:
    """ρ as the paper prints it: (M/(r(M−1)))·(1 + (k−r)/(M−3) + (k−1)(r−1)/((M−2)(M−3))) (3).

    Not the contraction: its proof has r − 2 − (r−1)/(M−2) for r − 2(r−1)/(M−2) in the chance of two
    disjoint edges. It even is negative on a complete graph with k = 1. Kept to be compared with.

    >>> mixing_printed(VirtualGraph(nodes=5, virtual_nodes=1, degree=4)) < 0
    True
    """
    m, k, r = graph.vertices, graph.virtual_nodes, graph.degree
    require(m > 3, "nodes", graph.nodes, "more than 3 virtual nodes in all: (3) divides by M − 3")
    bracket = 1 + (k - r) / (m - 3) + (k - 1) * (r - 1) / ((m - 2) * (m - 3))
    return m / (r * (m - 1)) * bracket


def mixing(graph: VirtualGraph) -> float:
    """The contraction ρ of what runs, each coordinate the mean of own and received (section 4.2).

    E Σ‖θ′_i − θ̄‖² = ρ·Σ‖θ_i − θ̄‖² with ρ = (N·E Σ_j w_ij² − 1)/(N − 1) for the weights w_ij that
    node i gives to node j: exact. E Σ_j w_ij² = E[(1 + D + 2m_ii + Σ_j m_ij(m_ij−1))/(1+D)²] needs
    the law of D; it is taken from k independent neighbourhoods, and own copies and pairs of copies
    are put in proportion to D and D(D−1). Exact for k = 1 and on a complete graph; for the error
    elsewhere see ``docs/shatter.md``. Small graphs are counted exactly by
    :func:`eris.theory.shatter_counts.mixing`.

    >>> round(mixing(VirtualGraph(nodes=10, virtual_nodes=1, degree=4)), 6)
    0.111111
    """
    n, r = graph.nodes, graph.degree
    moments = CopyMoments.of(graph)
    own = moments.own / r
    twice = moments.own_squared + (n - 1) * moments.other_squared - r
    pairs = moments.count_squared(n) - r
    chances = _count_law(graph)
    count = np.arange(len(chances), dtype=np.float64)
    doubled = twice / pairs * count * (count - 1) if pairs > 0 else 0.0
    squares = (1 + count + 2 * own * count + doubled) / (1 + count) ** 2
    return (n * float(chances @ squares) - 1) / (n - 1)


def mixing_limit(virtual_nodes: int, degree: int) -> float:
    """:func:`mixing` for ever more nodes: E 1/(1+D), D binomial(kr, 1/k); tends to (1−e^(−r))/r.

    Lemma 5's contraction tends to 1/r instead.

    >>> mixing_limit(virtual_nodes=1, degree=8) == 1 / 9
    True
    >>> round(mixing_limit(virtual_nodes=16, degree=8), 4)
    0.124
    """
    require(virtual_nodes >= 1, "virtual_nodes", virtual_nodes, "at least 1")
    require(degree >= 1, "degree", degree, "at least 1")
    draws = virtual_nodes * degree
    never = (1 - 1 / virtual_nodes) ** (draws + 1)
    return virtual_nodes * (1 - never) / (draws + 1)


def _count_law(graph: VirtualGraph) -> NDArray[np.float64]:
    """Chances of the counts 0..kr, were the neighbourhoods of a node's virtual nodes independent.

    The one that holds the chunk itself has N − 1 other holders among the M − 1, its siblings N.
    """
    n, r, others = graph.nodes, graph.degree, graph.vertices - 1
    law = _hypergeometric(others, n - 1, r)
    for _ in range(graph.virtual_nodes - 1):
        law = np.convolve(law, _hypergeometric(others, n, r))
    return law


def _hypergeometric(population: int, marked: int, drawn: int) -> NDArray[np.float64]:
    total, plain = math.comb(population, drawn), population - marked
    return np.array(
        [math.comb(marked, d) * math.comb(plain, drawn - d) / total for d in range(drawn + 1)]
    )


if __name__ == "__main__":
    from eris.theory.shatter_trial import main

    main()
