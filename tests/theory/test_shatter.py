"""Shatter's theory against every regular graph on few vertices, and against drawn graphs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from eris.core.errors import InvalidSetting
from eris.theory import shatter_counts, shatter_trial
from eris.theory.shatter import (
    EdgeChances,
    NodeTraffic,
    VirtualGraph,
    chunk_reach,
    chunk_reach_printed,
    dpsgd_traffic,
    expected_share,
    lemma5_scatter,
    mixing,
    mixing_lemma5,
    mixing_limit,
    mixing_printed,
    shatter_traffic,
    whole_model_independent,
    whole_model_printed,
)
from eris.theory.shatter_trial import Estimate, trial

Matrix = NDArray[np.float64]

SMALL = [
    VirtualGraph(*sizes)
    for sizes in [
        (4, 1, 1), (5, 1, 2), (6, 1, 3), (2, 2, 1), (2, 2, 2), (3, 2, 1), (3, 2, 2), (3, 2, 3),
        (3, 2, 4), (3, 2, 5), (2, 3, 2), (2, 3, 3), (2, 3, 4), (4, 2, 1), (4, 2, 2), (4, 2, 3),
        (2, 4, 2), (2, 4, 3), (4, 2, 6),
    ]
]  # fmt: skip


def regular(vertices: int, degree: int) -> Iterator[Matrix]:
    """Every regular graph as an adjacency matrix, by trying all neighbours of each vertex."""
    adjacency = np.zeros((vertices, vertices))

    def extend(vertex: int) -> Iterator[Matrix]:
        if vertex == vertices:
            yield adjacency.copy()
            return
        lacking = degree - int(adjacency[vertex].sum())
        open_ends = [w for w in range(vertex + 1, vertices) if adjacency[w].sum() < degree]
        for chosen in combinations(open_ends, lacking) if lacking >= 0 else ():
            adjacency[vertex, chosen] = adjacency[chosen, vertex] = 1
            yield from extend(vertex + 1)
            adjacency[vertex, chosen] = adjacency[chosen, vertex] = 0

    return extend(0)


@cache
def all_graphs(vertices: int, degree: int) -> Matrix:
    return np.stack(list(regular(vertices, degree)))


def copies(graph: VirtualGraph) -> Matrix:
    """[graph, i, c, j]: copies of chunk c of node j that reach node i, in every regular graph."""
    n, k = graph.nodes, graph.virtual_nodes
    edges = all_graphs(graph.vertices, graph.degree)
    between: Matrix = edges.reshape(-1, n, k, n, k).sum(axis=2).transpose(0, 1, 3, 2)
    return between


def models(graph: VirtualGraph) -> Matrix:
    """Lopsided models whose mean is far from 0: (k chunks, N nodes)."""
    shape = (graph.virtual_nodes, graph.nodes)
    start: Matrix = 1.7 + np.arange(float(np.prod(shape))).reshape(shape) ** 1.5
    return start


def distance(spread: Matrix, around: Matrix) -> float:
    return float(((spread - around) ** 2).sum())


@pytest.mark.parametrize("graph", SMALL, ids=str)
def test_every_graph_what_is_seen(graph: VirtualGraph) -> None:
    seen = copies(graph)[:, 0, :, 1] > 0  # node 0 sees chunks of node 1
    assert chunk_reach(graph) == pytest.approx(seen.mean(), abs=1e-12)
    assert expected_share(graph) == pytest.approx(seen.sum(axis=1).mean() / graph.virtual_nodes)
    whole = Fraction(int(seen.all(axis=1).sum()), len(seen))
    assert shatter_counts.whole_model(graph) == whole


@pytest.mark.parametrize("graph", SMALL, ids=str)
def test_every_graph_contracts_as_the_sections_say(graph: VirtualGraph) -> None:
    received, start = copies(graph), models(graph)
    mean = start.mean(axis=1)
    before = distance(start, mean[:, None])
    sums = np.einsum("gicj,cj->gic", received, start)
    averaged = (sums + start.T) / (received.sum(axis=3) + 1)
    after = distance(averaged, mean) / len(received)
    assert float(shatter_counts.mixing(graph)) == pytest.approx(after / before, abs=1e-12)

    after = distance(sums / graph.degree, mean) / len(received)
    scattered = graph.nodes * lemma5_scatter(graph) * float((mean**2).sum())
    assert mixing_lemma5(graph) * before + scattered == pytest.approx(after, rel=1e-10, abs=1e-9)


@pytest.mark.parametrize(("vertices", "degree"), [(6, 2), (6, 3), (7, 4), (8, 3)])
def test_every_graph_edges_alone_and_in_pairs(vertices: int, degree: int) -> None:
    graphs = all_graphs(vertices, degree)
    chance = EdgeChances.of(VirtualGraph(vertices, 1, degree))
    one = graphs[:, 0, 1]
    assert chance.one == pytest.approx(one.mean())
    assert chance.sharing == pytest.approx((one * graphs[:, 1, 2]).mean())
    assert chance.disjoint == pytest.approx((one * graphs[:, 2, 3]).mean())


def test_golden_numbers_of_regular_graphs() -> None:
    """OEIS A001205, A002829 and A005815: labelled 2-, 3- and 4-regular graphs."""
    golden = {(6, 2): 70, (10, 2): 286884, (8, 3): 19355, (10, 3): 11180820, (9, 4): 1024380}
    assert {key: shatter_counts.regular_graphs(*key) for key in golden} == golden
    assert shatter_counts.regular_graphs(8, 3) == len(all_graphs(8, 3))


@pytest.mark.parametrize(
    ("graph", "draws"),
    [
        (VirtualGraph(10, 1, 4), 300),
        (VirtualGraph(10, 2, 4), 400),
        (VirtualGraph(12, 3, 4), 300),
        (VirtualGraph(30, 4, 6), 100),
        (VirtualGraph(100, 8, 8), 25),
    ],
    ids=str,
)
def test_drawn_graphs_agree(graph: VirtualGraph, draws: int) -> None:
    found = trial(graph, draws, seed=3)
    assert found.chunk_reach.agrees(chunk_reach(graph))
    assert found.lemma5.agrees(mixing_lemma5(graph))
    assert found.scatter.agrees(lemma5_scatter(graph))
    assert found.mixing.agrees(mixing(graph))
    assert found.consensus.mean <= found.mixing.mean
    if shatter_counts.countable(graph):
        assert found.mixing.agrees(float(shatter_counts.mixing(graph)))
        assert found.whole_model.agrees(float(shatter_counts.whole_model(graph)))
    # The test could fail: it sees the difference to the neighbouring degree.
    other = VirtualGraph(graph.nodes, graph.virtual_nodes, graph.degree + 2)
    assert not found.mixing.agrees(mixing(other))
    assert not found.lemma5.agrees(mixing_lemma5(other))


def test_equation_3_and_independent_arrivals_do_not_agree_with_drawn_graphs() -> None:
    graph = VirtualGraph(10, 2, 4)
    found = trial(graph, 1000, seed=3)
    assert not found.lemma5.agrees(mixing_printed(graph))
    assert not found.chunk_reach.agrees(chunk_reach_printed(graph))
    assert not found.whole_model.agrees(whole_model_independent(graph))


@pytest.mark.parametrize(("nodes", "degree"), [(4, 1), (10, 4), (101, 8)])
def test_one_virtual_node_is_epidemic_learning(nodes: int, degree: int) -> None:
    """k = 1: (N−1−r)/((N−1)(r+1)) with the own value, (N−r)/(r(N−1)) without."""
    graph = VirtualGraph(nodes, 1, degree)
    others = nodes - 1
    assert mixing(graph) == pytest.approx((others - degree) / (others * (degree + 1)))
    assert mixing_lemma5(graph) == pytest.approx((nodes - degree) / (degree * others))
    assert lemma5_scatter(graph) == pytest.approx(0.0, abs=1e-12)
    reach = degree / others
    assert chunk_reach(graph) == pytest.approx(reach)
    assert chunk_reach_printed(graph) == pytest.approx(reach)
    assert whole_model_independent(graph) == pytest.approx(reach)


@pytest.mark.parametrize(("nodes", "virtual"), [(5, 1), (4, 2), (3, 4), (10, 8)])
def test_on_a_complete_graph_all_is_seen_and_the_mean_is_reached(nodes: int, virtual: int) -> None:
    graph = VirtualGraph(nodes, virtual, nodes * virtual - 1)
    assert chunk_reach(graph) == whole_model_independent(graph) == 1
    assert mixing(graph) == pytest.approx(0, abs=1e-12)
    assert lemma5_scatter(graph) == pytest.approx(0, abs=1e-9)
    # Without the own value everybody gets k times the sum less the own, over Nk − 1.
    assert mixing_lemma5(graph) == pytest.approx(graph.degree**-2.0)


def test_more_virtual_nodes_show_less() -> None:
    """Theorems 2 and 3, for the exact chances."""
    graphs = [VirtualGraph(20, k, 6) for k in range(1, 17)]
    for more, fewer in zip(graphs[1:], graphs, strict=False):
        assert chunk_reach(more) < chunk_reach(fewer)
        assert whole_model_independent(more) < whole_model_independent(fewer)
        assert whole_model_printed(more) < whole_model_printed(fewer)


@pytest.mark.parametrize("graph", [VirtualGraph(10, 2, 4), VirtualGraph(100, 8, 8)], ids=str)
def test_the_printed_chance_is_too_small_and_close(graph: VirtualGraph) -> None:
    assert chunk_reach_printed(graph) < chunk_reach(graph) < 1.03 * chunk_reach_printed(graph)


@pytest.mark.parametrize(("virtual", "degree"), list(product((2, 8), (1, 4, 8))))
def test_with_many_nodes_the_limit_is_reached(virtual: int, degree: int) -> None:
    limit = mixing_limit(virtual, degree)
    gaps = [abs(mixing(VirtualGraph(n, virtual, degree)) / limit - 1) for n in (200, 2000, 20000)]
    assert gaps[1] == pytest.approx(gaps[0] / 10, rel=0.1)
    assert gaps[2] == pytest.approx(gaps[1] / 10, rel=0.1)
    assert gaps[2] < 1e-3
    poisson = (1 - np.exp(-degree)) / degree
    assert mixing_limit(10**6, degree) == pytest.approx(poisson, rel=1e-5)


@pytest.mark.parametrize(
    ("graph", "error"),
    [
        (VirtualGraph(5, 4, 3), 0.033),
        (VirtualGraph(10, 2, 4), 0.003),
        (VirtualGraph(12, 3, 4), 0.005),
        (VirtualGraph(40, 2, 3), 0.0005),
    ],
    ids=str,
)
def test_the_error_of_the_approximation(graph: VirtualGraph, error: float) -> None:
    """What docs/shatter.md says of it."""
    assert mixing(graph) == pytest.approx(float(shatter_counts.mixing(graph)), rel=error)


def test_cost_of_a_round() -> None:
    """Section 5.3: 2 + 1/r times the coordinates and 2k + k/r times the messages of D-PSGD."""
    k, r, d = 8, 4, 1000
    ours, plain = shatter_traffic(VirtualGraph(10, k, r), d), dpsgd_traffic(r, d)
    assert (ours, plain) == (NodeTraffic(9 * d, k + 2 * k * r), NodeTraffic(r * d, r))
    assert ours.coordinates / plain.coordinates == 2 + 1 / r
    assert ours.messages / plain.messages == 2 * k + k / r


def test_what_cannot_be_is_refused() -> None:
    for sizes, name in [((1, 4, 2), "nodes"), ((4, 0, 2), "virtual_nodes"), ((5, 1, 3), "degree")]:
        with pytest.raises(InvalidSetting, match=name):
            VirtualGraph(*sizes)
    for degree in (0, 8):
        with pytest.raises(InvalidSetting, match="degree"):
            VirtualGraph(4, 2, degree)
    graph = VirtualGraph(100, 8, 8)
    with pytest.raises(InvalidSetting, match="small graph"):
        shatter_counts.mixing(graph)
    with pytest.raises(InvalidSetting, match="coordinates"):
        shatter_traffic(graph, 0)
    with pytest.raises(InvalidSetting, match="draws"):
        trial(graph, draws=1)
    with pytest.raises(InvalidSetting, match="M − 3"):
        mixing_printed(VirtualGraph(3, 1, 2))


def test_the_tables_name_their_seed_and_sample_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shatter_trial, "SETTINGS", (VirtualGraph(4, 2, 3),))
    console = Console(width=150)
    with console.capture() as shown:
        shatter_trial.main(console, draws=5)
    text = shown.get()
    assert f"5 random r-regular graphs, seed {shatter_trial.SEED}" in text
    graph = VirtualGraph(4, 2, 3)
    for value in (chunk_reach(graph), mixing_lemma5(graph), mixing(graph)):
        assert f"{value:.5f}" in text


def test_the_documented_tables_are_what_the_formulas_give() -> None:
    """Every row of docs/shatter.md: the formulas' columns, and drawn ± error beside them."""
    text = (Path(__file__).parents[2] / "docs" / "shatter.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in text.splitlines()
        if re.match(r"\| \d+ \|", line)
    ]
    settings = shatter_trial.SETTINGS
    assert [tuple(map(int, row[:3])) for row in rows] == 3 * [
        (g.nodes, g.virtual_nodes, g.degree) for g in settings
    ]
    nothing = Estimate(0.0, 0.0)
    blank = shatter_trial.GraphTrial(*6 * [nothing])
    expected = [
        cells
        for table in shatter_trial.tables(dict.fromkeys(settings, blank))
        for cells in zip(*(column.cells for column in table.columns), strict=True)
    ]
    for row, cells in zip(rows, expected, strict=True):
        for documented, computed in zip(row, cells, strict=True):
            assert documented == computed or ("±" in documented and computed == str(nothing))
