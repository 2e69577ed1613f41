"""Secure sums and shared noise under audit: ``eris reproduce audit-secure``.

MNIST, LeNet-5, 50 clients of 16 samples, every client an owner, secure sums 2 of 3, one full-batch
step a round and FedAvgM in the rule. What one owner, a plain member, and an owner with two helpers
tell of who was trained on, by the joint regression, beside what an ε allows the best attacker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from eris.core.shared_noise import NoisePlan
from eris.experiments.audits.tables import CANARIES, AuditRow, AuditTable
from eris.experiments.figures import NOTHING, percent
from eris.experiments.runs.reproduce import images
from eris.theory.shared_noise import best_auc

CLIENTS, ROUNDS, EVERY, INCLUDED, COLLUDERS = 50, 20, 2, 45, 1
OBSERVERS = {"one owner": "aggregator", "a plain member": "member", "openers": "openers"}
"""By the heading of a column."""
STEPS = {8.0: 0.35, 2.0: 0.1}
"""The server's steps by ε: noise alone then moves the model by about 7 over the run; its norm is 9
at the start."""


def _row(epsilon: float | None) -> AuditRow:
    label = "without noise" if epsilon is None else f"ε = {epsilon:g}"
    noise: dict[str, Any] = {}
    if epsilon is not None:
        noise = {
            "method.epsilon": epsilon,
            "method.clip": 0.5,
            "server.learning_rate": STEPS[epsilon],
        }
    return AuditRow(label, noise, observers=("aggregator:0", "member", "openers"), at=epsilon)


class SecureTable(AuditTable):
    """Areas under curves, by who looks."""

    reading = "Areas under ROC curves of the joint regression, with 95 % intervals: chance is 0.5."

    def shown(self, outcomes: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
        """The areas, and what an ε allows at most: to readers, and to an owner with its helpers."""
        drawn = Table(
            "", "test", *OBSERVERS, "readers at most", "openers at most", "ε of openers",
            title=self.title,
        )  # fmt: skip
        for row in self.rows:
            if row.label not in outcomes:
                continue
            found = outcomes[row.label]
            bounds = [NOTHING] * 3
            if row.at is not None:
                theirs = NoisePlan(row.at, ROUNDS, INCLUDED, COLLUDERS).epsilon_of_openers
                bounds = [f"{best_auc(row.at):.3f}", f"{best_auc(theirs):.3f}", f"{theirs:.1f}"]
            metrics = [one["about"]["metrics"]["accuracy"] for one in found]
            areas = [_area(found, observer) for observer in OBSERVERS.values()]
            drawn.add_row(row.label, percent(float(np.mean(metrics))), *areas, *bounds)
        return drawn


def _area(outcomes: Sequence[Mapping[str, Any]], observer: str) -> str:
    """The mean over seeds of an observer's area and of its interval's ends."""
    curves = [
        one["roc"]
        for outcome in outcomes
        for one in outcome["findings"]
        if one["score"] == "joint" and one["observer"].startswith(observer)
    ]
    area, low, high = (np.mean([one[end] for one in curves]) for end in ("auc", "low", "high"))
    return f"{area:.3f} ({low:.3f}–{high:.3f})"


SECURE = SecureTable(
    "audit-secure",
    f"Secure sums 2 of 3 under audit: MNIST, LeNet-5, {CLIENTS} × 16 samples, {ROUNDS} rounds",
    images("mnist", ROUNDS)
    | CANARIES
    | {
        "training.momentum": 0.0, "server.rule": "fedavgm", "server.learning_rate": 0.01,
        "method.name": "eris", "method.secure": "2of3",
    },
    (_row(None), _row(8.0), _row(2.0)),
    every=EVERY,
)  # fmt: skip
