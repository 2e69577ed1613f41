"""What stops completion and what does not: rounding and noise on the way, what clients do, layers
that are not linear, and sums."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import torch
from rich.table import Table

from eris.audit.completion import BFLOAT16, FLOAT16, complete
from eris.audit.low_rank import rms
from eris.core.compress import QSGD, UniformQuantiser
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.experiments.audits.completion_cases import (
    CONV2,
    FIRST,
    FULL1,
    LAST,
    Local,
    Studied,
    Wire,
    case,
)
from eris.experiments.audits.completion_grid import CompletionSettings, best_decibels, counts
from eris.experiments.audits.programs import told
from eris.experiments.figures import NOTHING, figure

# -- precision --------------------------------------------------------------------------------


def _rounded(kind: torch.dtype) -> Wire:
    return lambda values, stream: torch.from_numpy(values).to(kind).float().numpy()


def _noised(share: float) -> Wire:
    """Gaussian noise, relative to the root mean square of the values."""

    def noised(values: Vector, stream: Stream) -> Vector:
        draws = stream.normal(0, len(values))
        return np.asarray(values + share * rms(values) * draws, np.float32)

    return noised


def _compressed(by: QSGD | UniformQuantiser) -> Wire:
    """A shard is one segment."""
    return lambda values, stream: by.decode(by.encode(values, stream), len(values))


SHARDS, SAMPLES = 8, 4
WIRES: dict[str, tuple[Wire, float]] = {
    "float16": (_rounded(torch.float16), FLOAT16),
    "bfloat16": (_rounded(torch.bfloat16), BFLOAT16),
    "Gaussian, 1 % of the rms": (_noised(0.01), 0.015),
    "Gaussian, 10 % of the rms": (_noised(0.1), 0.15),
    "UniformQuantiser(8)": (_compressed(UniformQuantiser(8)), 0.25),
    "QSGD(16)": (_compressed(QSGD(16)), 0.15),
}
"""What happens to values on their way, and the tolerance of the fit."""


@dataclass(frozen=True)
class Coarse:
    """What came of values that were not exact."""

    wire: str
    outcomes: str
    residual: float
    error: float | None
    """Of what is called determined, relative; the median."""
    recovered: int
    pictures: int


def coarse(name: str, settings: CompletionSettings) -> Coarse:
    """All instances of a row."""
    wire, tolerance = WIRES[name]
    outcomes, residuals, errors, recovered = [], [], [], 0
    for seed in settings.seeds():
        one = case(seed, SAMPLES, SHARDS, wire=wire)
        found = complete(one.entries, samples=SAMPLES, tolerance=tolerance)
        outcomes.append(found.why or "certified")
        residuals.append(found.residual)
        if found.certified:
            errors.append(one.error(found.rows, found.columns, found.left, found.right))
            decibels = best_decibels(one, found.left, found.right, found.residual)
            recovered += int((decibels > 30).sum())
    return Coarse(
        name, counts(outcomes), float(np.median(residuals)),
        float(np.median(errors)) if errors else None, recovered, SAMPLES * settings.instances,
    )  # fmt: skip


def precision(settings: CompletionSettings) -> None:
    """Print what low precision and noise do."""
    rows = [coarse(name, settings) for name in WIRES]
    table = Table(
        "values on their way", "outcomes", "residual", "error of the layer", "images > 30 dB",
        title=f"256 × 785, one shard of {SHARDS}, {SAMPLES} samples: {settings.about}",
    )  # fmt: skip
    for row in rows:
        table.add_row(
            row.wire, row.outcomes, f"{row.residual:.1e}", figure(row.error, ".1e"),
            f"{row.recovered} of {row.pictures}" if row.error is not None else NOTHING,
        )  # fmt: skip
    told(table, 120, {"precision": [asdict(row) for row in rows]})


# -- training ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """A layer, and what clients do before an owner sees one shard of four of it."""

    title: str
    of: Studied = FIRST
    local: Local | None = None
    samples: int = 4
    clients: int = 1
    shards: int = 4


ADAM = torch.optim.Adam
TRAININGS = (
    Trained("one step"),
    Trained("5 steps of SGD", local=Local(5)),
    Trained("one step of Adam", local=Local(1, ADAM, 1e-3)),
    Trained("5 steps of Adam", local=Local(5, ADAM, 1e-3)),
    Trained("one step", FULL1),
    Trained("5 steps of SGD", FULL1, Local(5)),
    Trained("one step", LAST, samples=2, shards=2),
    Trained("5 steps of SGD", LAST, Local(5), samples=2, shards=2),
    Trained("one step", CONV2, shards=2),
    Trained("sum of 2 clients × 2", samples=2, clients=2, shards=16),
    Trained("sum of 20 clients × 8", samples=8, clients=20, shards=16),
)
DIRECTION = 1e-5
"""Singular values above this share of the largest count for the rank."""


@dataclass(frozen=True)
class TrainedFigures:
    """What came of a row."""

    layer: str
    title: str
    shards: int
    samples: int
    rank: str
    successes: int
    instances: int
    outcomes: str


def outcome(row: Trained, settings: CompletionSettings) -> TrainedFigures:
    """All instances of a row."""
    samples = row.samples * row.clients
    ranks, outcomes, good = set(), [], 0
    layer = row.of.title
    for seed in settings.seeds():
        one = case(
            seed, row.samples, row.shards, of=row.of, local=row.local, clients=row.clients
        )  # fmt: skip
        layer = f"{row.of.title}, {one.truth.shape[0]} × {one.truth.shape[1]}"
        sizes = np.linalg.svd(one.truth, compute_uv=False)
        ranks.add(int((sizes > DIRECTION * sizes[0]).sum()))
        found = complete(one.entries, samples=samples, tolerance=one.tolerance)
        outcomes.append(found.why or "certified")
        if found.certified:
            good += one.success(found.rows, found.columns, found.left, found.right)
    rank = " to ".join(str(one) for one in sorted({min(ranks), max(ranks)}))
    return TrainedFigures(
        layer, row.title, row.shards, samples, rank, good, settings.instances, counts(outcomes)
    )


def training(settings: CompletionSettings) -> None:
    """Print what local steps, optimisers, convolutions and sums do."""
    rows = [outcome(row, settings) for row in TRAININGS]
    table = Table(
        "layer", "update", "A", "samples", "rank", "success", "outcomes", title=settings.about
    )
    for row in rows:
        table.add_row(
            row.layer, row.title, str(row.shards), str(row.samples), row.rank,
            f"{row.successes} of {row.instances}", row.outcomes,
        )  # fmt: skip
    told(table, 130, {"training": [asdict(row) for row in rows]})
