"""Completion against what counting says: layers, aggregators, samples, kept share and rounds; and
the span test on published means. :mod:`eris.experiments.audits.completion_tables` prints them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import process_time

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table

from eris.audit.completion import complete
from eris.audit.low_rank import Matrix
from eris.audit.recovery import filled, into_range, psnr
from eris.audit.roc import Roc, roc
from eris.audit.separation import separate, with_bias
from eris.audit.span import row_space, span_scores
from eris.experiments.audits.completion_cases import (
    DEVIATION,
    FIRST,
    FULL1,
    FULL2,
    FULL3,
    MEAN,
    RESNET,
    SIDE,
    LayerCase,
    Local,
    Studied,
    case,
    images,
    mean_layer,
    opened_layer,
)
from eris.experiments.audits.programs import told
from eris.experiments.figures import NOTHING, figure
from eris.theory.completion import completes, ratio

OTHERS = 2_000
VARYING = {1: 0.2, 2: 0.28, 4: 0.36, 8: 0.47, 16: 0.51, 32: 0.57}
"""The share of MNIST's columns that are no multiples of the bias column, by the samples."""


@dataclass(frozen=True)
class CompletionSettings:
    """How much is tried; ``only`` is one table, or ``all``."""

    seed: int = 0
    instances: int = 4
    only: str = "all"

    @property
    def about(self) -> str:
        """What every table is of."""
        return f"{images()[2]}; cross-entropy; seed {self.seed}, {self.instances} instances a row"

    def seeds(self) -> range:
        """One an instance."""
        return range(1000 * self.seed, 1000 * self.seed + self.instances)


# -- success against counting -----------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """What is seen of what: rows of the tables."""

    shards: int
    kept: float
    samples: int
    rounds: int = 1
    of: Studied = FIRST
    learning_rate: float = 0.1

    def case(self, seed: int) -> LayerCase:
        """One instance."""
        return case(
            seed, self.samples, self.shards, self.kept, rounds=self.rounds,
            learning_rate=self.learning_rate, of=self.of,
        )  # fmt: skip

    def counted(self, height: int, width: int) -> tuple[float, str]:
        """Entries over unknowns as far as they vary, and what the planner says."""
        varying = self.of.varying or VARYING[self.samples]
        alive = 0.9 * height * (1 - (1 - self.of.alive) ** self.samples)
        rho = ratio(self.rounds * alive, varying * width, self.kept / self.shards, self.samples)
        verdict = completes(
            height, width, self.shards, self.kept, self.samples, rounds=self.rounds,
            alive=self.of.alive, varying=varying, background=self.of.varying is None,
        )  # fmt: skip
        return rho, verdict


GRID = (
    *(Cell(shards, 1.0, 1) for shards in (16, 32, 50)),
    *(Cell(shards, 1.0, 2) for shards in (8, 16, 32, 50)),
    *(Cell(shards, 1.0, 4) for shards in (4, 8, 16, 32)),
    *(Cell(shards, 1.0, 8) for shards in (4, 8, 16, 32)),
    *(Cell(shards, 1.0, 16) for shards in (4, 8, 16)),
    *(Cell(4, 0.1, samples) for samples in (1, 2)),
    Cell(16, 1.0, 8, rounds=2),
    Cell(32, 1.0, 4, rounds=4),
    Cell(50, 0.033, 1, rounds=200, learning_rate=0.02),
)
LAYERS = tuple(
    Cell(shards, 1.0, samples, of=of)
    for of, cells in (
        (FULL1, {1: (16, 32), 2: (8, 16, 32), 4: (4, 8, 16), 8: (4, 8)}),
        (FULL2, {1: (8, 16, 32), 2: (4, 8, 16), 4: (2, 4, 8), 8: (2, 4)}),
        (FULL3, {1: (2, 4, 8), 2: (2, 4)}),
        (RESNET, {1: (2, 4, 8), 2: (2, 4), 4: (2,)}),
    )
    for samples, many in cells.items()
    for shards in many
)


@dataclass(frozen=True)
class Tried:
    """What came of the instances of a cell."""

    layer: str
    shards: int
    kept: float
    samples: int
    rounds: int
    successes: int
    instances: int
    columns: float
    """Of those that are not zero, the share that is determined."""
    wrong: int
    """Certified ones whose determined part is off by more than 10⁻³."""
    outcomes: str
    recovered: int
    milliseconds: float
    rho: float
    counted: str


def tried(cell: Cell, settings: CompletionSettings) -> Tried:
    """All instances of a cell."""
    good = wrong = recovered = 0
    columns, spent, outcomes = [], [], []
    shape = (0, 0)
    for seed in settings.seeds():
        one = cell.case(seed)
        shape = one.truth.shape[0] // cell.rounds, one.truth.shape[1]
        before = process_time()
        found = complete(one.entries, samples=cell.samples)
        spent.append(1000 * (process_time() - before))
        outcomes.append(found.why or "certified")
        columns.append(one.coverage(found.columns))
        if found.certified:
            parts = (found.rows, found.columns, found.left, found.right)
            good += one.success(*parts)
            wrong += one.error(*parts) > 1e-3
            if cell.of is FIRST:
                decibels = best_decibels(one, found.left, found.right, found.residual)
                recovered += int((decibels > 30).sum())
    return Tried(
        f"{cell.of.title}, {shape[0]} × {shape[1]}", cell.shards, cell.kept, cell.samples,
        cell.rounds, good, settings.instances, float(np.mean(columns)), wrong, counts(outcomes),
        recovered, float(np.median(spent)), *cell.counted(*shape),
    )  # fmt: skip


def counts(outcomes: list[str]) -> str:
    """How often there was what.

    >>> counts(["stuck", "certified", "stuck"])
    '1 certified, 2 stuck'
    """
    return ", ".join(f"{outcomes.count(one)} {one}" for one in sorted(set(outcomes)))


def best_decibels(one: LayerCase, left: Matrix, right: Matrix, residual: float) -> Matrix:
    """Of every true image: how near the best separated one comes, in decibels."""
    inputs = separate(left, right, residual=residual)
    if inputs is None:
        return np.full(len(one.inputs), -np.inf)
    if np.isfinite(inputs[0, -1]):
        found = with_bias(inputs)[:, :-1]
    else:
        found = into_range(inputs[:, :-1], -MEAN / DEVIATION, (1 - MEAN) / DEVIATION)
    shown = psnr(filled(found, (SIDE, SIDE)), one.inputs, 1 / DEVIATION)
    return np.asarray(np.nan_to_num(shown, nan=-np.inf).max(axis=0))


def against_counting(cells: tuple[Cell, ...], settings: CompletionSettings) -> None:
    """Print what came of some cells."""
    rows = [tried(cell, settings) for cell in cells]
    grid = Table(
        "layer", "A", "kept", "samples", "rounds", "success", "columns %", "wrong", "outcomes",
        "images > 30 dB", "CPU ms", "ρ₊", "counting",
        title=f"Completion of one shard: {settings.about}",
    )  # fmt: skip
    for row in rows:
        pictures = row.samples * row.instances
        grid.add_row(
            row.layer, str(row.shards), f"{row.kept:g}", str(row.samples), str(row.rounds),
            f"{row.successes} of {row.instances}", f"{100 * row.columns:.1f}", str(row.wrong),
            row.outcomes, f"{row.recovered} of {pictures}" if row.recovered else NOTHING,
            f"{row.milliseconds:.0f}", figure(row.rho, ".1f"), row.counted,
        )  # fmt: skip
    told(grid, 170, {"completion": [asdict(row) for row in rows]})


# -- what is published ------------------------------------------------------------------------

Mean = tuple[Matrix, NDArray[np.int64]]
"""The first layer of a mean update, and the places of the images behind it."""
EIGHT = 20, 8
MEANS: dict[str, tuple[Callable[[int], Mean], int | None]] = {
    "20 × 8": (lambda seed: mean_layer(seed, *EIGHT), None),
    "20 × 16": (lambda seed: mean_layer(seed, 20, 16), None),
    "20 × 32": (lambda seed: mean_layer(seed, 20, 32), None),
    "50 × 16": (lambda seed: mean_layer(seed, 50, 16), None),
    # Weights before and after are rounded: what is left of that is no direction.
    "20 × 8, 5 local steps": (lambda seed: mean_layer(seed, *EIGHT, local=Local(5)), 160),
    "20 × 8, one step of Adam": (
        lambda seed: mean_layer(seed, *EIGHT, local=Local(1, torch.optim.Adam, 1e-3)), None,
    ),
    "20 × 8, clipped, noise 0.01 C": (lambda seed: mean_layer(seed, *EIGHT, noise=0.01), 160),
    "20 × 8, secure sums": (lambda seed: opened_layer(seed, *EIGHT), None),
    "20 × 8, secure sums, shared noise of ε 8 over 100 rounds": (
        lambda seed: opened_layer(seed, *EIGHT, 8.0), 160,
    ),
    "20 × 8, secure sums, shared noise of ε 2 over 100 rounds": (
        lambda seed: opened_layer(seed, *EIGHT, 2.0), 160,
    ),
}  # fmt: skip
"""What is published, and its rank where noise or rounding fills all directions. Rows with secure
sums are of recorded messages."""


def span_area(seed: int, label: str) -> tuple[Roc, int]:
    """The curve of the span test on a mean, its samples against others of MNIST; and the rank."""
    made, rank = MEANS[label]
    layer, places = made(seed)
    basis = row_space(layer, rank)
    inputs, _, _ = images()
    other = np.setdiff1d(np.arange(len(inputs)), places)
    lot = np.linspace(0, len(other) - 1, OTHERS).astype(np.int64)
    both = inputs[torch.from_numpy(np.concatenate([places, other[lot]]))].numpy()
    scores = span_scores(basis, np.column_stack([both, np.ones(len(both))]))
    return roc(scores, np.arange(len(both)) < len(places)), basis.shape[1]


def means(settings: CompletionSettings) -> None:
    """Print the span test's table."""
    areas = {label: span_area(settings.seed, label) for label in MEANS}
    spans = Table(
        "mean of", "AUC", "95 %", "rank",
        title=f"Span test on published means, {OTHERS:,} others: {images()[2]}; 784–256–10 ReLU; "
        f"seed {settings.seed}",
    )  # fmt: skip
    for label, (curve, rank) in areas.items():
        spans.add_row(label, f"{curve.auc:.4f}", f"{curve.low:.3f}–{curve.high:.3f}", str(rank))
    told(spans, 110, {"span": {label: asdict(curve) for label, (curve, _) in areas.items()}})
