"""EncCluster's experiments: tables 3, 4 and 5, filters and clusters, ours beside the paper's.

Every row is a kept run, trained by the method itself, ciphertexts and all: a filter without a list
of exceptions maps weights wrongly, and only the real thing says what that does. DeTrust-FL's model
is FedAvg's but for rounding to 2^−20, so it has no row; SEFL's costs are in
:mod:`eris.experiments.runs.encryption_costs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich.table import Table

from eris.core.errors import InvalidSetting
from eris.experiments.figures import NOTHING
from eris.experiments.runs.printed import printed
from eris.experiments.runs.reproduce import Experiment, Row, RunOutcome
from eris.experiments.runs.store import Run

CIFAR100 = "enccluster-table3-cifar100"
"""The one that needs the user's own copy of the data."""
FEDAVG = "FedAvg"
COMPARED: Mapping[str, Mapping[str, Any]] = {
    FEDAVG: {"method.name": "fedavg"},
    "FedAvg_wc": {"method.name": "fedavg-wc", "method.coding": "huffman"},
    "EncCluster without filter": {"method.name": "enccluster", "method.coding": "huffman"},
    "EncCluster": {
        "method.name": "enccluster",
        "method.coding": "filter8",
        "method.policy": "first",
    },
}
"""The methods of tables 3 and 4; the paper's filter has 8 bits, and its first hit counts."""


def _images(clients: int, samples: int, rounds: int) -> dict[str, Any]:
    """A pass of SGD over a client's own images a round; none keeps its momentum."""
    return {
        "data.name": "cifar10",
        "data.clients": clients,
        "data.samples": samples,
        "model.name": "resnet20",
        "training.rounds": rounds,
        "training.epochs": 1,
        "training.batch_size": 16,
        "training.learning_rate": 0.01,
        "training.momentum": 0.9,
        "training.keep_momentum": False,
        "training.path": "loop",
        "training.evaluate_every": 2,
        "engine.checkpoint_every": 1,
    }


def _filters() -> tuple[Row, ...]:
    """What is held against FedAvg: no filter, filters by their first hit or the largest cluster
    that hits, then κ."""
    enc = {"method.name": "enccluster"}
    return (
        Row(FEDAVG, COMPARED[FEDAVG]),
        Row("EncCluster, no filter", enc),
        *(
            Row(
                f"EncCluster, filter of {bits} bits",
                {**enc, "method.coding": f"filter{bits}", "method.policy": "first"},
                printed("EncCluster table 3", "EncCluster, IID, ρ = 1", "accuracy")
                if bits == 8
                else NOTHING,
            )
            for bits in (8, 16, 32)
        ),
        Row(
            "EncCluster, filter of 8 bits, by size",
            {**enc, "method.coding": "filter8", "method.policy": "populous"},
        ),
        *(Row(f"EncCluster, κ = {count}", {**enc, "method.clusters": count})
          for count in (16, 32, 64, 256, 512)),
    )  # fmt: skip


def _settings() -> dict[str, dict[str, Any]]:
    """Table 3's four, by their names in ``printed.toml``."""
    found = {}
    for dealt, alpha in (("IID", 10.0), ("skewed", 0.1)):
        for share in (1.0, 0.2):
            changes: dict[str, Any] = {"data.partition": "dirichlet", "data.alpha": alpha}
            if share < 1:
                changes["training.sampled"] = round(30 * share)
            found[f"{dealt}, ρ = {share:g}"] = changes
    return found


def _table3(table: str) -> tuple[Row, ...]:
    rows = []
    for setting, changes in _settings().items():
        for label, method in COMPARED.items():
            own = dict(method)
            if "training.sampled" in changes and own["method.name"] == "enccluster":
                own["method.average"] = "plain"  # all have as many samples
            if label == "EncCluster without filter":
                paper = printed(table.replace("3", "4", 1), label, setting)
            else:
                paper = printed(table, f"{label}, {setting}", "accuracy")
            rows.append(Row(f"{label}, {setting}", {**changes, **own}, paper))
    return tuple(rows)


def _table5() -> tuple[Row, ...]:
    return tuple(
        Row(f"{label}, {model}", {**COMPARED[label], "model.name": model},
            printed("EncCluster table 5", model, label))
        for model in ("resnet20", "convmixer", "mobilenet", "convnext")
        for label in (FEDAVG, "EncCluster")
    )  # fmt: skip


ENCCLUSTER: Mapping[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "enccluster-cifar10",
            "EncCluster: CIFAR-10, ResNet-20, N = 10, κ = 128 unless said",
            _images(10, 2500, 20),
            _filters(),
        ),
        Experiment(
            "enccluster-mnist",
            "EncCluster: MNIST, LeNet-5, N = 10, κ = 128 unless said (of no paper)",
            _images(10, 500, 10)
            | {
                "data.name": "mnist",
                "model.name": "lenet5",
                "training.learning_rate": 0.02,
                "training.path": "auto",
                "training.evaluate_every": 1,
            },
            _filters(),
        ),
        Experiment(
            "enccluster-table3",
            "EncCluster tables 3 and 4: CIFAR-10, ResNet-20, N = 30, κ = 128",
            _images(30, 800, 20),
            _table3("EncCluster table 3"),
        ),
        Experiment(
            CIFAR100,
            "EncCluster tables 3 and 4: CIFAR-100, ResNet-20, N = 30, κ = 128",
            _images(30, 800, 20) | {"data.name": "cifar100", "model.classes": 100},
            _table3("EncCluster table 3, CIFAR-100"),
        ),
        Experiment(
            "enccluster-table5",
            "EncCluster table 5: CIFAR-10, N = 10, κ = 128, models in small sizes",
            _images(10, 2500, 20),
            _table5(),
        ),
    )
}


def adapted(experiment: Experiment, *, quick: bool = False, path: str | None = None) -> Experiment:
    """The same with the user's data, or on few samples in runs of their own: a try, whose figures
    say little."""
    if (path is None) == (experiment.name == CIFAR100):
        expected = (
            "the folder of your own CIFAR-100" if path is None else f"none: only {CIFAR100} has it"
        )
        raise InvalidSetting("--path", path, expected)
    base = dict(experiment.base)
    if path is not None:
        base["data.path"] = path
    if not quick:
        return replace(experiment, base=base)
    few = {"data.samples": 8, "data.test_samples": 100, "training.rounds": 2}
    rows = tuple(row for row in experiment.rows if "κ = 512" not in row.label)
    return replace(experiment, name=f"{experiment.name}-quick", base=base | few, rows=rows)


def reference(label: str, rows: Sequence[Row]) -> str:
    """Whose accuracy and bytes a row is held against: FedAvg's in the same setting.

    >>> reference("EncCluster, IID, ρ = 1", [Row("FedAvg, IID, ρ = 1"), Row("FedAvg, x")])
    'FedAvg, IID, ρ = 1'
    """
    setting = label.partition(", ")[2]
    beside = f"{FEDAVG}, {setting}"
    return beside if any(row.label == beside for row in rows) else FEDAVG


def table(experiment: Experiment, runs: Mapping[str, Sequence[Run]]) -> Table:
    """Accuracy, the difference to FedAvg over the same rounds and seeds, and bytes beside its."""
    shown = Table(
        "", "ours, %", "less FedAvg", "paper", "a client sends", "× FedAvg", "rounds", "minutes",
        title=experiment.title,
    )  # fmt: skip
    for row in experiment.rows:
        if row.label not in runs:
            continue
        own = [RunOutcome.of(run) for run in runs[row.label]]
        beside = reference(row.label, experiment.rows)
        # Of the seeds that both have.
        pairs = [
            (one, RunOutcome.of(other))
            for one, other in zip(own, runs.get(beside, ()), strict=False)
        ]
        less = [100 * (one.accuracy - other.accuracy) for one, other in pairs]
        times = [one.sent / other.sent for one, other in pairs]
        shown.add_row(
            row.label,
            f"{100 * np.mean([one.accuracy for one in own]):.2f}",
            NOTHING if not less or beside == row.label else f"{np.mean(less):+.2f}",
            row.paper,
            f"{np.mean([one.sent for one in own]):,.0f} B",
            f"{np.mean(times):.4f}" if times else NOTHING,
            str(len(runs[row.label][0].rounds())),
            f"{np.mean([_minutes(run) for run in runs[row.label]]):.1f}",
        )
    return shown


def _minutes(run: Run) -> float:
    return sum(float(line["seconds"]) for line in run.rounds()) / 60
