"""Completion where it works and where it fails: success against A, batch and kept share, and what
counting says; then the span test on published means. ``eris reproduce audit-completion``.

MNIST, the first layer (256 × 785) of a perceptron, one owner's view. Network, batch and plan are
new in every instance. *Success*: certified, 90 % of the columns determined, these right to 10⁻³.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from time import process_time

import numpy as np
import torch
from rich.table import Table

from eris.audit.completion import complete
from eris.audit.low_rank import Matrix
from eris.audit.recovery import filled, into_range, psnr
from eris.audit.roc import roc
from eris.audit.separation import separate, with_bias
from eris.audit.span import row_space, span_scores
from eris.experiments.audits.completion_cases import (
    DEVIATION,
    MEAN,
    PIXELS,
    WIDTH,
    LayerCase,
    case,
    images,
    mean_layer,
)
from eris.experiments.audits.programs import asked, told
from eris.experiments.figures import NOTHING, figure
from eris.theory.completion import completes, ratio
from eris.training.torch import single_threaded

SIDE = 28
OTHERS = 2_000
VARYING = {1: 0.2, 2: 0.28, 4: 0.36, 8: 0.47, 16: 0.51, 32: 0.57}
"""The share of MNIST's columns that are no multiples of the bias column, by the samples."""


@dataclass(frozen=True)
class CompletionSettings:
    """How much is tried."""

    seed: int = 0
    instances: int = 4


@dataclass(frozen=True)
class Cell:
    """What is seen of what: rows of the table."""

    shards: int
    kept: float
    samples: int
    rounds: int = 1


CELLS = (
    *(Cell(shards, 1.0, 1) for shards in (16, 32, 50)),
    *(Cell(shards, 1.0, 2) for shards in (8, 16, 32, 50)),
    *(Cell(shards, 1.0, 4) for shards in (4, 8, 16, 32)),
    *(Cell(shards, 1.0, 8) for shards in (4, 8, 16, 32)),
    *(Cell(shards, 1.0, 16) for shards in (4, 8, 16)),
    *(Cell(4, 0.1, samples) for samples in (1, 2)),
    Cell(16, 1.0, 8, rounds=2),
    Cell(32, 1.0, 4, rounds=4),
)
MEANS: dict[str, tuple[int, int, dict[str, float]]] = {
    "20 × 8": (20, 8, {}),
    "20 × 16": (20, 16, {}),
    "20 × 32": (20, 32, {}),
    "50 × 16": (50, 16, {}),
    "20 × 8, 5 local steps": (20, 8, {"steps": 5}),
    "20 × 8, clipped, noise 0.01 C": (20, 8, {"noise": 0.01}),
    "20 × 8, clipped, noise 6.002 C (ε 8 over 100 rounds)": (20, 8, {"noise": 6.002}),
}


@dataclass(frozen=True)
class Tried:
    """What came of the instances of a cell."""

    cell: Cell
    successes: int
    instances: int
    columns: float
    wrong: int
    """Certified ones whose determined part is off by more than 10⁻³."""
    outcomes: str
    recovered: int
    pictures: int
    milliseconds: float
    rho: float
    counted: str


def tried(cell: Cell, settings: CompletionSettings) -> Tried:
    """All instances of a cell."""
    good = wrong = recovered = pictures = 0
    columns, spent, outcomes = [], [], []
    for number in range(settings.instances):
        one = case(
            1000 * settings.seed + number,
            cell.samples,
            cell.shards,
            cell.kept,
            rounds=cell.rounds,
        )
        before = process_time()
        found = complete(one.entries, samples=cell.samples)
        spent.append(1000 * (process_time() - before))
        outcomes.append(found.why or "certified")
        columns.append(float(found.columns.mean()))
        if found.certified:
            parts = (found.rows, found.columns, found.left, found.right)
            good += one.success(*parts)
            wrong += one.error(*parts) > 1e-3
            decibels = best_decibels(one, found.left, found.right, found.residual)
            recovered += int((decibels > 30).sum())
        pictures += cell.samples
    varying = VARYING[cell.samples] * (PIXELS + 1)
    alive = 0.9 * WIDTH * (1 - 0.5**cell.samples)
    share = cell.kept / cell.shards
    counts = ", ".join(f"{outcomes.count(one)} {one}" for one in sorted(set(outcomes)))
    return Tried(
        cell, good, settings.instances, float(np.mean(columns)), wrong, counts, recovered,
        pictures, float(np.median(spent)), ratio(cell.rounds * alive, varying, share, cell.samples),
        completes(WIDTH, PIXELS + 1, cell.shards, cell.kept, cell.samples, rounds=cell.rounds,
                  varying=VARYING[cell.samples], background=True),
    )  # fmt: skip


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


def span_area(seed: int, clients: int, samples: int, **options: float) -> tuple[float, int]:
    """AUC of the span test on a mean, its samples against others of MNIST; and the rank found."""
    steps, noise = int(options.get("steps", 1)), options.get("noise")
    layer, places = mean_layer(seed, clients, samples, steps=steps, noise=noise)
    # Weights before and after are rounded: what is left of that is no direction.
    wanted = clients * samples if noise is not None or steps > 1 else None
    basis = row_space(layer, wanted)
    inputs, _, _ = images()
    other = np.setdiff1d(np.arange(len(inputs)), places)
    lot = np.linspace(0, len(other) - 1, OTHERS).astype(np.int64)
    both = inputs[torch.from_numpy(np.concatenate([places, other[lot]]))].numpy()
    scores = span_scores(basis, np.column_stack([both, np.ones(len(both))]))
    return float(roc(scores, np.arange(len(both)) < len(places)).auc), basis.shape[1]


def main(given: list[str] | None = None) -> None:
    """Print both tables."""
    names = ("seed", "instances")
    settings = asked(CompletionSettings, __name__, __doc__, names, given)
    with single_threaded():
        rows = [tried(cell, settings) for cell in CELLS]
        areas = {
            label: span_area(settings.seed, clients, samples, **options)
            for label, (clients, samples, options) in MEANS.items()
        }
    about = f"{images()[2]}; 784–256–10 ReLU, cross-entropy; seed {settings.seed}"
    grid = Table(
        "A", "kept", "samples", "rounds", "success", "columns %", "wrong", "outcomes",
        "images > 30 dB", "CPU ms", "ρ₊", "counting", title=f"Completion of one shard: {about}",
    )  # fmt: skip
    for row in rows:
        cell = row.cell
        grid.add_row(
            str(cell.shards), f"{cell.kept:g}", str(cell.samples), str(cell.rounds),
            f"{row.successes} of {row.instances}", f"{100 * row.columns:.1f}", str(row.wrong),
            row.outcomes, f"{row.recovered} of {row.pictures}" if row.recovered else NOTHING,
            f"{row.milliseconds:.0f}", figure(row.rho, ".1f"), row.counted,
        )  # fmt: skip
    told(grid, 150, {"completion": [asdict(row) for row in rows]})
    spans = Table(
        "mean of", "AUC", "rank", title=f"Span test on published means, {OTHERS:,} others: {about}"
    )
    for label, (area, rank) in areas.items():
        spans.add_row(label, f"{area:.4f}", str(rank))
    told(spans, 110, {"span": {label: area for label, (area, _) in areas.items()}})


if __name__ == "__main__":
    main()
