"""Graphs of gossip: simple, regular or of a given density, connected where they are kept, the same
for the same seed, every edge as likely as any other; and weights that keep the mean."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from eris.core.errors import InvalidSetting
from eris.core.graphs import (
    Graph,
    check_degree,
    connected_random_graph,
    connected_regular_graph,
    regular_graph,
)
from support.gossip import metropolis_matrix

POSSIBLE = [(n, r) for n in range(2, 15) for r in range(1, n) if n * r % 2 == 0]


def edges(graph: Graph) -> set[tuple[int, int]]:
    """Edges once each; fails if the graph is not simple and undirected."""
    found = set()
    for node, others in enumerate(graph.neighbours):
        assert list(others) == sorted(set(others)), "neighbours in order, each once"
        assert node not in others, "no loops"
        assert all(node in graph.neighbours[other] for other in others), "both ends know"
        found |= {(min(node, other), max(node, other)) for other in others}
    return found


@pytest.mark.parametrize(("nodes", "degree"), [*POSSIBLE, (40, 20), (101, 8), (1600, 8)])
def test_regular_graphs_are_simple_and_regular(nodes: int, degree: int) -> None:
    for round in range(3):
        graph = regular_graph(nodes, degree, seed=5, round=round)
        assert graph.nodes == nodes
        assert len(edges(graph)) == nodes * degree // 2
        assert {graph.degree(node) for node in range(nodes)} == {degree}


@pytest.mark.parametrize(("nodes", "degree"), [(n, r) for n, r in POSSIBLE if r > 1 or n == 2])
def test_graphs_that_are_kept_are_connected(nodes: int, degree: int) -> None:
    graph = connected_regular_graph(nodes, degree, seed=7)
    assert len(edges(graph)) == nodes * degree // 2
    power = np.linalg.matrix_power(metropolis_matrix(graph), nodes)
    assert (power > 0).all()


def test_a_graph_in_two_pieces_is_not_connected() -> None:
    assert Graph(((1,), (0, 2), (1,))).connected
    assert not Graph(((1,), (0,), (3,), (2,))).connected
    assert not Graph(((), (2,), (1,))).connected
    # Of six nodes with two neighbours each some are two triangles.
    kinds = {regular_graph(6, 2, seed).connected for seed in range(30)}
    assert kinds == {True, False}


@pytest.mark.parametrize(("nodes", "degree"), [(6, 3), (8, 3), (8, 5), (9, 4), (20, 8)])
def test_every_edge_is_as_likely_as_any_other(nodes: int, degree: int) -> None:
    draws = 300
    counts: Counter[tuple[int, int]] = Counter()
    for round in range(draws):
        counts.update(edges(regular_graph(nodes, degree, seed=11, round=round)))
    chance = degree / (nodes - 1)
    deviation = np.sqrt(draws * chance * (1 - chance))
    for edge in combinations(range(nodes), 2):
        assert abs(counts[edge] - draws * chance) < 4.5 * deviation, edge


@pytest.mark.parametrize(("nodes", "degree", "graphs"), [(6, 3, 70), (6, 2, 70), (5, 2, 12)])
def test_small_regular_graphs_are_uniform(nodes: int, degree: int, graphs: int) -> None:
    """Counts of labelled graphs: of six nodes 60 prisms and 10 utility graphs, their complements
    hexagons and pairs of triangles; of five the 12 pentagons."""
    draws = 15 * graphs
    counts: Counter[frozenset[tuple[int, int]]] = Counter()
    for round in range(draws):
        counts[frozenset(edges(regular_graph(nodes, degree, seed=2, round=round)))] += 1
    assert len(counts) <= graphs
    expected = draws / graphs
    chi_square = sum((count - expected) ** 2 for count in counts.values()) / expected
    chi_square += (graphs - len(counts)) * expected
    freedom = graphs - 1
    assert abs(chi_square - freedom) < 4 * np.sqrt(2 * freedom)


def test_larger_graphs_have_as_many_triangles_as_they_should() -> None:
    """(r − 1)³/6 on average, and Poisson, in the limit (Bollobás 1980); a ring with chords has ten
    times as many."""
    counts = []
    for round in range(40):
        matrix = np.zeros((120, 120))
        for one, other in edges(regular_graph(120, 5, seed=4, round=round)):
            matrix[one, other] = matrix[other, one] = 1
        counts.append(np.trace(matrix @ matrix @ matrix) / 6)
    expected = 4**3 / 6
    assert abs(np.mean(counts) - expected) < 4 * np.sqrt(expected / 40)


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 10, 50])
def test_random_graphs_have_the_density_and_are_connected(nodes: int) -> None:
    pairs = nodes * (nodes - 1) // 2
    for seed in range(5):
        graph = connected_random_graph(nodes, 0.4, seed)
        assert len(edges(graph)) == max(nodes - 1, round(0.4 * pairs))
        assert graph.connected
    assert len(edges(connected_random_graph(nodes, 1.0, 0))) == pairs


def test_every_edge_of_a_random_graph_is_as_likely_as_any_other() -> None:
    counts: Counter[tuple[int, int]] = Counter()
    for seed in range(400):
        counts.update(edges(connected_random_graph(10, 0.4, seed)))
    chance = 18 / 45
    assert all(
        abs(counts[edge] - 400 * chance) < 4.5 * np.sqrt(400 * chance * (1 - chance))
        for edge in combinations(range(10), 2)
    )


def test_a_graph_follows_from_seed_and_round() -> None:
    drawn = {(s, r): regular_graph(12, 4, s, r) for s in range(3) for r in range(3)}
    assert len({graph.neighbours for graph in drawn.values()}) == 9
    regular_graph.cache_clear()
    assert all(regular_graph(12, 4, s, r) == graph for (s, r), graph in drawn.items())
    kept = connected_regular_graph(12, 4, 1), connected_random_graph(12, 0.4, 1)
    connected_regular_graph.cache_clear()
    connected_random_graph.cache_clear()
    assert (connected_regular_graph(12, 4, 1), connected_random_graph(12, 0.4, 1)) == kept


def test_graphs_are_the_same_on_every_platform() -> None:
    """Golden values: this package's own, so that a later version draws the same graphs."""
    assert regular_graph(6, 3, seed=1, round=4).neighbours == GOLDEN_REGULAR
    assert connected_random_graph(5, 0.4, seed=1).neighbours == GOLDEN_RANDOM


GOLDEN_REGULAR = ((2, 3, 4), (2, 3, 5), (0, 1, 4), (0, 1, 5), (0, 2, 5), (1, 3, 4))
GOLDEN_RANDOM = ((3, 4), (2, 4), (1,), (0,), (0, 1))


@pytest.mark.parametrize(
    "graph",
    [
        Graph(((1, 2, 3), (0,), (0,), (0,))),
        connected_random_graph(20, 0.4, 3),
        connected_regular_graph(20, 3, 3),
    ],
    ids=["star", "density", "regular"],
)
def test_metropolis_weights_are_doubly_stochastic_and_symmetric(graph: Graph) -> None:
    weights = metropolis_matrix(graph)
    assert (weights == weights.T).all()
    np.testing.assert_allclose(weights.sum(axis=0), 1, atol=1e-15)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-15)
    assert (np.diag(weights) > 0).all()
    present = {(i, j) for i, j in combinations(range(graph.nodes), 2) if weights[i, j]}
    assert present == edges(graph)
    for i, j in present:
        assert weights[i, j] == 1 / (1 + max(graph.degree(i), graph.degree(j)))
    # All but one eigenvalue lie inside (−1, 1): mixing reaches the mean.
    assert np.sort(np.abs(np.linalg.eigvalsh(weights)))[-2] < 1 - 1e-6


@pytest.mark.parametrize(
    ("nodes", "degree", "message"),
    [
        (1, 1, "nodes is 1; expected at least 2"),
        (5, 5, "degree is 5; expected 1 to 4 for 5 nodes"),
        (5, 0, "degree is 0; expected 1 to 4"),
        (5, 3, "degree is 3; expected an even number for 5 nodes"),
    ],
)
def test_degrees_that_cannot_be(nodes: int, degree: int, message: str) -> None:
    for draw in (check_degree, lambda n, r: regular_graph(n, r, 0)):
        with pytest.raises(InvalidSetting, match=message):
            draw(nodes, degree)


def test_graphs_that_cannot_be_connected() -> None:
    with pytest.raises(InvalidSetting, match="degree is 1; expected at least 2: else 4 nodes"):
        connected_regular_graph(4, 1, 0)
    with pytest.raises(InvalidSetting, match=r"density is 0\.001; expected more: 1000 draws"):
        connected_random_graph(60, 0.001, 0)
    with pytest.raises(InvalidSetting, match=r"density is 1.5; expected a number in \(0, 1\]"):
        connected_random_graph(5, 1.5, 0)
    with pytest.raises(InvalidSetting, match="nodes is 1; expected at least 2"):
        connected_random_graph(1, 0.5, 0)
