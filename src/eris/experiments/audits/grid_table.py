"""What a common grid costs beside FedAvg and clusters: error of the mean, accuracy, bytes.

Ten clients with 150 of scikit-learn's digits each train a 64-256-10 network (2 epochs a round, SGD
0.1, batches of 32; plain average, a segment for each layer), by lot and by labels from Dir(0.1).
Sums are really masked, "2 of 3"; bytes are those of encoded messages. The error is that of the
published mean update over the variance of the exact one.

``python -m eris.experiments.audits.grid_table`` takes a seed, ``--seeds 3`` their mean; ``--quick``
has six rounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.table import Table

from eris.core.rules import FedAvg
from eris.core.vectors import Vector
from eris.experiments.audits.mapping_cases import CLIENTS, EACH, DigitsClients, initial
from eris.experiments.audits.programs import asked, told
from eris.federation import Federation
from eris.methods.registry import create
from eris.runtimes.station import Traffic
from eris.training.torch import single_threaded
from eris.training.trainer import LocalUpdate, PerSampleNoise

FIRST_LAYER = 64 * 256 + 256
SHOWN = 1, 6, 30
"""Rounds whose errors are shown."""
LAST = 5
"""Rounds over which an accuracy is the mean."""
DEALT: dict[str, float | None] = {"IID": None, "Dir(0.1)": 0.1}
_GRID = {"average": "plain"}
_WEIGHTS = _GRID | {"travelling": "weights", "range": 2.0}
ROWS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "FedAvg, float32": ("fedavg", {}),
    "update, following, 12 bits": ("grid", _GRID),
    "update, following, 10 bits": ("grid", _GRID | {"bits": 10}),
    "update, following, 8 bits": ("grid", _GRID | {"bits": 8}),
    "update, fixed ±0.5, 12 bits": ("grid", _GRID | {"follows": False, "range": 0.5}),
    "weights ±2, stochastic, 16 bits": ("grid", _WEIGHTS | {"bits": 16}),
    "weights ±2, stochastic, 12 bits": ("grid", _WEIGHTS),
    "weights ±2, nearest, 12 bits": ("grid", _WEIGHTS | {"rounding": "nearest"}),
    "weights in 128 clusters": ("fedavg-wc", {"clusters": 128}),
}


@dataclass(frozen=True)
class GridTableSettings:
    """What is asked for; the first of ``seeds`` is ``seed``."""

    seed: int = 0
    seeds: int = 1
    quick: bool = False

    @property
    def rounds(self) -> int:
        """How long clients train."""
        return 6 if self.quick else max(SHOWN)


class _Digits:
    """The clients, as a population; and the mean of what they trained last."""

    def __init__(self, clients: DigitsClients) -> None:
        self._clients, self.mean = clients, np.zeros(0)

    def __len__(self) -> int:
        return CLIENTS

    def updates(
        self, clients: Sequence[int], models: Vector | Sequence[Vector], round: int,
        noise: PerSampleNoise | None = None,
    ) -> Iterator[LocalUpdate]:  # fmt: skip
        """One update a client."""
        assert isinstance(models, np.ndarray)
        made = [models - self._clients.trained(models, round, client) for client in clients]
        self.mean = np.mean(np.stack(made), axis=0, dtype=np.float64)
        return iter([LocalUpdate(update, EACH) for update in made])

    def state(self) -> dict[str, Vector]:
        """They keep nothing."""
        return {}

    def restore(self, state: Mapping[str, Vector]) -> None:
        """They kept nothing."""


@dataclass
class GridCourse:
    """One training: errors and accuracies by round, bytes of one, and what was withheld."""

    errors: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    upload: float = 0.0
    """Contribution bytes of a client in a round."""
    total: float = 0.0
    """All bytes of a round, as they are sent."""
    withheld: int = 0
    """Rounds in which not every segment moved."""


def trained(clients: DigitsClients, row: str, settings: GridTableSettings, seed: int) -> GridCourse:
    """Train by one row of the table."""
    name, method = ROWS[row]
    population, course = _Digits(clients), GridCourse()
    made = Federation(
        population, initial(seed), create(name, **method), samples=[EACH] * CLIENTS, seed=seed,
        rule=FedAvg(1.0), segment_size=FIRST_LAYER,
    )  # fmt: skip
    session = made.start(settings.rounds)
    for _ in range(settings.rounds):
        before = session.model.astype(np.float64)
        done = session.step()
        error = before - session.model - population.mean
        course.errors.append(float(np.square(error).mean() / population.mean.var()))
        course.accuracies.append(clients.accuracy(session.model))
        course.withheld += done.included != 1
        course.upload, course.total = _bytes(done.traffic)
    return course


def _bytes(traffic: Traffic) -> tuple[float, float]:
    """What a client uploads, and all that is sent."""
    up = sum(size for (_, kind), size in traffic.sent.items() if kind == "Contribution")
    return up / CLIENTS, float(sum(traffic.sent.values()))


def grid_table(settings: GridTableSettings) -> None:
    """Print the table."""
    courses: dict[tuple[str, str], list[GridCourse]] = defaultdict(list)
    with single_threaded():
        for seed in range(settings.seed, settings.seed + settings.seeds):
            for dealt, alpha in DEALT.items():
                clients = DigitsClients(seed, alpha=alpha)
                for row in ROWS:
                    courses[row, dealt].append(trained(clients, row, settings, seed))
    shown = [round for round in SHOWN if round <= settings.rounds]
    named = ", ".join(map(str, shown))
    table = Table(
        "what travels", "client upload", "total",
        *(f"error/variance, rounds {named}: {dealt}" for dealt in DEALT),
        *(f"accuracy, last {LAST}: {dealt}" for dealt in DEALT), "withheld",
        title=f"A common grid: digits, N = {CLIENTS}, {settings.rounds} rounds, "
        f"{settings.seeds} seeds from {settings.seed}",
        caption="upload and total: × FedAvg, of encoded messages; withheld: rounds of all runs in "
        "which a segment did not move",
    )  # fmt: skip
    base, figures = courses["FedAvg, float32", "IID"][0], []
    for row in ROWS:
        runs = {dealt: courses[row, dealt] for dealt in DEALT}
        errors = {d: [_mean(run.errors[r - 1] for run in runs[d]) for r in shown] for d in DEALT}
        right = {d: _mean(np.mean(run.accuracies[-LAST:]) for run in runs[d]) for d in DEALT}
        one, late = runs["IID"][0], sum(run.withheld for some in runs.values() for run in some)
        upload, total = one.upload / base.upload, one.total / base.total
        table.add_row(
            row, f"{upload:.4f}", f"{total:.3f}",
            *(", ".join(f"{error:.1e}" for error in errors[dealt]) for dealt in DEALT),
            *(f"{right[dealt]:.3f}" for dealt in DEALT), str(late),
        )  # fmt: skip
        figures.append({"row": row, "upload": upload, "total": total, "errors": errors,
                        "accuracy": right, "withheld": late})  # fmt: skip
    told(table, 190, {"grid": figures})


def _mean(values: Iterator[Any]) -> float:
    return float(np.mean([*values]))


def main(given: list[str] | None = None) -> None:
    """Ask for settings and print the table."""
    options = ("seed", "seeds", "quick")
    module = "eris.experiments.audits.grid_table"
    grid_table(asked(GridTableSettings, module, __doc__, options, given))


if __name__ == "__main__":
    main()
