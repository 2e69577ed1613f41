"""The papers' experiments by name: what is run, what the paper reports, what comes out here.

Every row is a recipe that is run for several seeds and kept as any other run is, so an experiment
that was stopped goes on where it was, and `eris runs show` tells everything about each of its runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from eris.experiments.figures import NOTHING, figure, panels, saved
from eris.experiments.runs import runner
from eris.experiments.runs.printed import COMPARED, quoted
from eris.experiments.runs.progress import Progress, size
from eris.experiments.runs.recipe import UNBIASED, Recipe
from eris.experiments.runs.store import MODEL, RECORD, ROUNDS, Run


@dataclass(frozen=True)
class Row:
    """One line of a table, or one point of a curve."""

    label: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    paper: str = NOTHING
    """What the paper reports, as printed."""


@dataclass(frozen=True)
class Experiment:
    """Rows that differ from one base recipe."""

    name: str
    title: str
    base: Mapping[str, Any]
    rows: tuple[Row, ...]
    curve: str | None = None
    """What the rows vary, for a picture: the recipe's key."""
    at: tuple[int, ...] = ()
    """Earlier rounds whose accuracy is shown, too."""

    def recipe(self, row: Row, seed: int) -> Recipe:
        """What one run of a row is."""
        own = {"name": self.run_name(row, seed), "seed": seed}
        return Recipe().changed({**UNBIASED, **self.base, **row.changes, **own})

    def run_name(self, row: Row, seed: int) -> str:
        """The name under which a run of a row is kept."""
        return f"{self.name}-{slug(row.label)}-{seed}"


MNIST_ROUNDS, CIFAR_ROUNDS, FAULT_ROUNDS = 160, 100, 200


def images(data: str, rounds: int, samples: int = 16) -> dict[str, Any]:
    """The papers' unbiased setting: one full-batch step of SGD with momentum, kept."""
    return {
        "data.name": data,
        "data.clients": 50,
        "data.samples": samples,
        "training.rounds": rounds,
        "training.learning_rate": 0.01,
        "training.momentum": 0.9,
    }


def _rows(table: str, labels: Iterable[str]) -> tuple[Row, ...]:
    """Methods of a table of ERIS, with the accuracy that it prints for 16 samples."""
    column = "accuracy, 16 samples"
    return tuple(Row(label, COMPARED[label], quoted(label, table, column)) for label in labels)


def _rates(kind: str, label: str) -> tuple[Row, ...]:
    rates = (0.0, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
    return tuple(Row(f"{label} {rate:g}", {f"faults.{kind}": rate}) for rate in rates)


SKEWED = {"data.partition": "dirichlet", "data.alpha": 0.2}


def _limited(kept: float, basis: str, limit: float) -> dict[str, Any]:
    """Few coordinates and the momentum in the server rule, where a limit bounds its steps."""
    return {
        "method.name": "eris",
        "method.kept_fraction": kept,
        "method.basis": basis,
        "method.limit": limit,
        "server.rule": "fedavgm",
        "training.momentum": 0.0,
    }


def _sparse() -> tuple[Row, ...]:
    """Masks that keep little, and what they are held against."""
    named = ["FedAvg", "ERIS + DSC 3.3 %", "ERIS + DSC 0.6 %, coordinates",
             "ERIS + DSC 0.6 %, paper mode", "ERIS + DSC 0.6 %, rotated"]  # fmt: skip
    rotated, few = "ERIS + DSC 0.6 %, rotated", 0.006
    return (
        *(Row(label, COMPARED[label]) for label in named),
        Row(f"{rotated}, Dirichlet 0.2", {**COMPARED[rotated], **SKEWED}),
        Row(f"{rotated}, limit 0.3", _limited(few, "rotated", 0.3)),
        Row(f"{rotated}, limit 0.3, Dirichlet 0.2", _limited(few, "rotated", 0.3) | SKEWED),
        Row(f"{rotated}, 10 groups", _limited(few, "rotated", 0.0) | {"method.mask_groups": 10}),
        Row("ERIS + DSC 0.6 %, coordinates, limit 0.4", _limited(few, "coordinates", 0.4)),
        Row("ERIS + DSC 0.12 %, rotated, limit 0.3", _limited(0.0012, "rotated", 0.3)),
    )


EXPERIMENTS: Mapping[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "mnist",
            "ERIS table 12: MNIST, LeNet-5, 16 samples a client, unbiased",
            images("mnist", MNIST_ROUNDS),
            _rows("ERIS table 12", [
                "FedAvg", "ERIS", "ERIS + DSC 3.3 %", "ERIS + DSC 3.3 %, paper mode",
                "FedAvg-LDP ε 10", "FedAvg-LDP ε 1", "SoteriaFL ε 10", "SoteriaFL ε 1",
                "PriPrune 0.01", "PriPrune 0.05", "PriPrune 0.1", "Shatter, k = 8, r = 4",
            ]),
        ),
        Experiment(
            "cifar10",
            "ERIS table 10: CIFAR-10, ResNet-9, 16 samples a client, unbiased",
            images("cifar10", CIFAR_ROUNDS) | {"model.name": "resnet9"},
            _rows("ERIS table 10", [
                "FedAvg", "ERIS + DSC 5 %", "ERIS + DSC 0.6 %, rotated",
                "ERIS + DSC 0.6 %, paper mode",
            ]),
        ),
        Experiment(
            "sparse",
            "Masks that keep little: MNIST, LeNet-5, 16 samples a client, unbiased (of no paper)",
            images("mnist", MNIST_ROUNDS),
            _sparse(),
            at=(80, 120),
        ),
        Experiment(
            "dropout",
            "ERIS figure 11: aggregators away, each by a coin (the paper: a fixed share of them; "
            "accuracy holds up to 70 %)",
            images("mnist", FAULT_ROUNDS) | {"method.name": "eris"},
            _rates("dropout", "dropout"),
            curve="faults.dropout",
        ),
        Experiment(
            "links",
            "ERIS figure 12: client–aggregator links down, both ways (the paper: accuracy holds up "
            "to 50 %)",
            images("mnist", FAULT_ROUNDS) | {"method.name": "eris"},
            _rates("link", "links down"),
            curve="faults.link",
        ),
    )
}  # fmt: skip


def reproduce(
    experiment: Experiment, seeds: Sequence[int], root: Path, progress: Progress
) -> dict[str, list[Run]]:
    """Run what is not yet finished of an experiment; the runs of every row."""
    done: dict[str, list[Run]] = {}
    for row in experiment.rows:
        for seed in seeds:
            recipe = experiment.recipe(row, seed)
            path = root / str(recipe.name)
            over = (path / RECORD).is_file() and Run(path).over
            run = Run(path) if over else runner.start(recipe, root, progress)
            run.check(ROUNDS, MODEL)
            if not run.over:
                return done  # asked to stop
            done.setdefault(row.label, []).append(run)
    return done


@dataclass(frozen=True)
class RunOutcome:
    """What a run came to: at its end, and where its test loss was lowest."""

    accuracy: float
    by_round: Mapping[int, float]
    """Accuracy where it was evaluated."""
    failed: bool
    nodes: float | None
    """Mean accuracy of single nodes' models, where each has its own."""
    best_round: int
    best_accuracy: float
    sent: float
    received: float
    epsilon: float | None

    @classmethod
    def of(cls, run: Run) -> RunOutcome:
        """Read a finished run."""
        rounds = run.rounds()
        evaluated = [line for line in rounds if line["metrics"]]
        best = min(evaluated, key=lambda line: line["metrics"]["loss"] or math.inf)
        last, spent = evaluated[-1]["metrics"], run.about.get("privacy")
        return cls(
            last["accuracy"],
            {line["round"]: line["metrics"]["accuracy"] for line in evaluated},
            run.state == "failed",
            last.get("node_accuracy"),
            best["round"],
            best["metrics"]["accuracy"],
            float(np.mean([line["clients_sent"] / line["clients"] for line in rounds])),
            float(np.mean([line["clients_received"] / line["clients"] for line in rounds])),
            spent["epsilon"] if spent else None,
        )


def table(experiment: Experiment, runs: Mapping[str, Sequence[Run]]) -> Table:
    """Ours beside the paper's."""
    earlier = (f"round {round}" for round in experiment.at)
    shown = Table(
        "", *earlier, "ours, %", "at lowest test loss", "of round", "paper, %", "ε in all", "up",
        "down", title=experiment.title,
    )  # fmt: skip
    for row in experiment.rows:
        found = [RunOutcome.of(run) for run in runs.get(row.label, ())]
        if not found:
            continue
        own = [outcome.nodes for outcome in found if outcome.nodes is not None]
        nodes = f" (a node: {_spread(own)})" if own else ""
        failed = sum(outcome.failed for outcome in found)
        fate = f", {failed} of {len(found)} diverged" if failed else ""
        shown.add_row(
            row.label,
            *(_spread([outcome.by_round[at] for outcome in found]) for at in experiment.at),
            _spread([outcome.accuracy for outcome in found]) + nodes + fate,
            _spread([outcome.best_accuracy for outcome in found]),
            f"{np.mean([outcome.best_round for outcome in found]):.0f}",
            row.paper,
            figure(found[0].epsilon, ",.0f"),
            size(float(np.mean([outcome.sent for outcome in found]))),
            size(float(np.mean([outcome.received for outcome in found]))),
        )
    return shown


def document(experiment: Experiment, runs: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """The same as plain values, for programs: every run of ours beside the paper's figure."""
    rows = [
        {
            "label": row.label,
            "paper": row.paper,
            "runs": [{"name": run.name, **asdict(RunOutcome.of(run))} for run in runs[row.label]],
        }
        for row in experiment.rows
        if row.label in runs
    ]
    unfinished = len(experiment.rows) - len(rows)
    return {"experiment": experiment.name, "title": experiment.title, "rows": rows,
            "unfinished": unfinished}  # fmt: skip


def draw(experiment: Experiment, runs: Mapping[str, Sequence[Run]], path: Path) -> None:
    """Accuracy, and the round of the lowest loss, along the curve."""
    assert experiment.curve is not None
    picture, (left, right) = panels(2, 10, 4)
    rows = [row for row in experiment.rows if row.label in runs]
    places = [row.changes[experiment.curve] for row in rows]
    outcomes = [[RunOutcome.of(run) for run in runs[row.label]] for row in rows]
    for axis, what, label in (
        (left, "accuracy", "test accuracy"),
        (right, "best_round", "round of the lowest test loss"),
    ):
        values = [[getattr(outcome, what) for outcome in some] for some in outcomes]
        means, spread = [np.mean(v) for v in values], [np.std(v) for v in values]
        axis.errorbar(places, means, spread, marker="o", capsize=3)
        axis.set(xlabel=experiment.curve.rpartition(".")[2], ylabel=label)
    picture.suptitle(experiment.title)
    saved(picture, path)


def _spread(shares: Sequence[float]) -> str:
    """Mean and deviation over seeds, in percent."""
    mean = 100 * float(np.mean(shares))
    return f"{mean:.2f} ± {100 * float(np.std(shares)):.2f}" if len(shares) > 1 else f"{mean:.2f}"


def slug(label: str) -> str:
    """A label as part of a folder's name.

    >>> slug("ERIS + DSC, paper mode"), slug("FedAvg-LDP ε 10")
    ('eris-dsc-paper-mode', 'fedavg-ldp-10')
    """
    words = "".join(c if c.isascii() and (c.isalnum() or c == ".") else " " for c in label.lower())
    return "-".join(words.split())
