"""Shatter's formulas beside drawn graphs: averages over random regular graphs, and their table.

The trial knows nothing of the formulas: it draws a graph and models, passes every chunk to its
neighbours, averages as section 4.2 says, and measures. Run as ``python -m eris.theory.shatter``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from eris.core.errors import require
from eris.core.graphs import regular_graph
from eris.core.streams import Stream
from eris.theory import shatter_counts
from eris.theory.shatter import (
    VirtualGraph,
    chunk_reach,
    chunk_reach_printed,
    lemma5_scatter,
    mixing,
    mixing_lemma5,
    mixing_limit,
    mixing_printed,
    whole_model_independent,
    whole_model_printed,
)

SETTINGS = (
    VirtualGraph(10, 1, 4),
    VirtualGraph(10, 2, 4),
    VirtualGraph(12, 3, 4),
    VirtualGraph(8, 4, 4),
    VirtualGraph(25, 8, 4),
    VirtualGraph(100, 2, 8),
    VirtualGraph(100, 8, 8),
    VirtualGraph(100, 16, 8),
)
DRAWS, SEED = 1000, 1


@dataclass(frozen=True)
class Estimate:
    """A mean over draws, and its standard error.

    >>> print(Estimate(0.25, 0.001))
    0.25000 ± 0.00100
    """

    mean: float
    error: float

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Estimate:
        """The estimate from independent draws."""
        return cls(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))

    def agrees(self, value: float, errors: float = 4.0) -> bool:
        """Whether ``value`` lies within so many standard errors (rounding apart)."""
        return abs(self.mean - value) <= errors * self.error + 1e-9

    def __str__(self) -> str:
        return f"{self.mean:.5f} ± {self.error:.5f}"


@dataclass(frozen=True)
class GraphTrial:
    """What drawn graphs showed."""

    chunk_reach: Estimate
    """Share of (sender, other receiver, chunk) that arrived."""
    whole_model: Estimate
    """Share of (sender, other receiver) whose k chunks all arrived."""
    lemma5: Estimate
    """Contraction by Lemma 5's operator of models that add up to zero."""
    scatter: Estimate
    """How far Lemma 5's operator drives equal models apart."""
    mixing: Estimate
    """Contraction of the distance to the old mean by section 4.2's averaging."""
    consensus: Estimate
    """The same to the new mean: less by what the mean itself moved."""


def trial(graph: VirtualGraph, draws: int = DRAWS, seed: int = SEED) -> GraphTrial:
    """Measure over ``draws`` random graphs, each with models drawn anew.

    >>> complete = trial(VirtualGraph(nodes=3, virtual_nodes=2, degree=5), draws=2)
    >>> complete.whole_model.mean, round(complete.mixing.mean, 12)
    (1.0, 0.0)
    """
    require(draws >= 2, "draws", draws, "at least 2, to have a standard error")
    rows = np.array([_draw(graph, seed, draw) for draw in range(draws)])
    return GraphTrial(*(Estimate.of(column) for column in rows.T))


def _draw(graph: VirtualGraph, seed: int, draw: int) -> tuple[float, ...]:
    """One graph: virtual node v belongs to node v div k and carries its chunk v mod k."""
    n, k, r = graph.nodes, graph.virtual_nodes, graph.degree
    drawn = regular_graph(graph.vertices, r, seed, draw)
    senders = np.array(drawn.neighbours).ravel()
    receivers = np.repeat(np.arange(graph.vertices), r) // k
    old = Stream(seed, "shatter-trial", draw).normal(0, n * k).reshape(n, k)  # one value a chunk
    centred = old - old.mean(axis=0)
    cell = receivers * k + senders % k
    count = np.bincount(cell, minlength=n * k).reshape(n, k)
    received = np.bincount(cell, old.ravel()[senders], n * k).reshape(n, k)
    lemma5 = np.bincount(cell, centred.ravel()[senders] / r, n * k)
    new = (old + received) / (count + 1)
    start = _distance(old, old)
    return (
        *_seen(graph, senders, receivers),
        float((lemma5**2).sum()) / start,
        float(((count / r - 1) ** 2).mean()),
        _distance(new, old) / start,
        _distance(new, new) / start,
    )


def _distance(models: NDArray[np.float64], around: NDArray[np.float64]) -> float:
    return float(((models - around.mean(axis=0)) ** 2).sum())


def _seen(
    graph: VirtualGraph, senders: NDArray[np.int64], receivers: NDArray[np.int64]
) -> tuple[float, float]:
    """Shares of chunks and of whole models that reached another node."""
    n, k = graph.nodes, graph.virtual_nodes
    seen = np.zeros((n, n, k), bool)
    seen[receivers, senders // k, senders % k] = True
    seen[np.arange(n), np.arange(n)] = False
    pairs = n * (n - 1)
    return seen.sum() / (pairs * k), seen.all(axis=2).sum() / pairs


Cell = Callable[[VirtualGraph, GraphTrial], str]


def _formula(value: Callable[[VirtualGraph], float], digits: str = ".5f") -> Cell:
    return lambda graph, found: format(value(graph), digits)


def _counted(value: Callable[[VirtualGraph], Fraction]) -> Cell:
    exact = _formula(lambda graph: float(value(graph)))
    return lambda graph, found: exact(graph, found) if shatter_counts.countable(graph) else "–"


def _drawn(name: str) -> Cell:
    return lambda graph, found: str(getattr(found, name))


TABLES: dict[str, tuple[tuple[str, Cell], ...]] = {
    "Chance to reach a given other node in a round": (
        ("chunk, exact", _formula(chunk_reach)),
        ("(printed)", _formula(chunk_reach_printed)),
        ("drawn", _drawn("chunk_reach")),
        ("whole, exact", _counted(shatter_counts.whole_model)),
        ("independent", _formula(whole_model_independent, ".3g")),
        ("(printed)", _formula(whole_model_printed, ".3g")),
        ("drawn", _drawn("whole_model")),
    ),
    "Lemma 5: ρ of models with mean 0, scatter of equal models": (
        ("ρ, exact", _formula(mixing_lemma5)),
        ("(printed)", _formula(mixing_printed)),
        ("drawn", _drawn("lemma5")),
        ("scatter, exact", _formula(lemma5_scatter)),
        ("drawn", _drawn("scatter")),
    ),
    "Section 4.2: contraction ρ of the distance to the mean": (
        ("4.2, exact", _counted(shatter_counts.mixing)),
        ("approximation", _formula(mixing)),
        ("N → ∞", _formula(lambda graph: mixing_limit(graph.virtual_nodes, graph.degree))),
        ("drawn", _drawn("mixing")),
        ("to the new mean", _drawn("consensus")),
    ),
}


def tables(results: dict[VirtualGraph, GraphTrial]) -> Iterator[Table]:
    """The formulas beside what drawn graphs showed."""
    for title, columns in TABLES.items():
        table = Table("N", "k", "r", title=title)
        for name, _ in columns:
            table.add_column(name, justify="right")
        for graph, found in results.items():
            sizes = map(str, (graph.nodes, graph.virtual_nodes, graph.degree))
            table.add_row(*sizes, *(cell(graph, found) for _, cell in columns))
        yield table


def main(console: Console | None = None, draws: int = DRAWS) -> None:
    """Print the tables, with the seed and the number of graphs drawn."""
    console = console or Console()
    for table in tables({graph: trial(graph, draws) for graph in SETTINGS}):
        console.print(table)
    console.print(
        f"drawn: mean ± standard error over {draws} random r-regular graphs, seed {SEED}; "
        "printed: the paper's formula; –: too large to be counted"
    )
