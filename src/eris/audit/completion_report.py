"""What the completion attack found, as tables: by layer, by client, and of what was published."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eris.audit.completion import CompletedLayer
from eris.audit.layers import LinearLayer
from eris.audit.low_rank import Choice, Matrix
from eris.audit.roc import roc
from eris.theory.completion import completes

RECOVERED = 30.0
"""Decibels from which an image counts as recovered."""


@dataclass(frozen=True, eq=False)
class LayerFinding:
    """What one observer made of one layer of one client."""

    observer: str
    client: int
    rounds: int
    layer: LinearLayer
    tried: tuple[int, ...]
    found: CompletedLayer
    recovered: tuple[float, ...] = ()
    """Decibels of the best recovered input for every candidate that was trained on."""
    scores: Matrix = field(default_factory=lambda: np.zeros(0), repr=False)
    truth: Choice = field(default_factory=lambda: np.zeros(0, np.bool_), repr=False)
    """The span test on the client's candidates, and which of them were trained on."""

    def row(self) -> dict[str, Any]:
        """As a row of a table."""
        return {
            "observer": self.observer,
            "client": self.client,
            "rounds": self.rounds,
            "layer": self.layer.name,
            "seen %": 100 * self.found.visible,
            "samples": f"{self.found.samples} of {self.tried[0]}",
            "outcome": self.found.why or "certified",
            "residual": None if np.isnan(self.found.residual) else self.found.residual,
            "columns %": 100 * float(self.found.columns.mean()),
            **images_shown(self.recovered),
            "AUC": area(self.scores, self.truth),
        }


@dataclass(frozen=True, eq=False)
class CompletionReport:
    """What was completed, and what the span test says of what was published."""

    layers: tuple[LayerFinding, ...] = ()
    means: tuple[Mapping[str, Any], ...] = ()
    refused: str = ""

    def figures(self) -> dict[str, list[dict[str, Any]]]:
        """A line an observer and layer, then a line a client, then the published means."""
        if self.refused:
            return {"completion": [{"not tried": self.refused}]}
        tables = {
            "completion": self._summary(),
            "completion, by client": [one.row() for one in self.layers],
            "published means": [dict(row) for row in self.means],
        }
        return {name: rows for name, rows in tables.items() if rows}

    def _summary(self) -> list[dict[str, Any]]:
        groups: dict[tuple[str, str, bool], list[LayerFinding]] = defaultdict(list)
        for one in self.layers:
            groups[one.observer, one.layer.name, one.rounds > 1].append(one)
        rows = []
        for (observer, name, _), some in groups.items():
            why, layer = Counter(one.found.why for one in some), some[0].layer
            rows.append(
                {
                    "observer": observer,
                    "layer": f"{name}, {layer.shape[0]} × {layer.shape[1]}",
                    "rounds": max(one.rounds for one in some),
                    "certified": f"{why['']} of {len(some)}",
                    "count": why["count"],
                    "stuck": why["stuck"],
                    "columns %": 100 * float(np.mean([one.found.columns.mean() for one in some])),
                    "counting": _counted(some),
                    **images_shown([decibels for one in some for decibels in one.recovered]),
                    "AUC": area(
                        np.concatenate([one.scores for one in some]),
                        np.concatenate([one.truth for one in some]),
                    ),
                }
            )
        return rows


def _counted(some: Sequence[LayerFinding]) -> str:
    """What the planner says, with all columns varying."""
    first = some[0]
    rounds = first.rounds if first.layer.takes_samples else 1
    share = first.found.visible
    if not share:
        return "no"
    return completes(*first.layer.shape, 1, share, first.tried[0], rounds=rounds)


def images_shown(recovered: Sequence[float]) -> dict[str, Any]:
    """How many inputs count as recovered, and the median of their decibels."""
    over = sum(one > RECOVERED for one in recovered)
    return {
        f"> {RECOVERED:.0f} dB": f"{over} of {len(recovered)}" if recovered else None,
        "dB": float(np.median(recovered)) if recovered else None,
    }


def area(scores: Matrix, truth: Choice) -> float | None:
    """The area under the ROC curve; None where all are in or all are out."""
    return float(roc(scores, truth).auc) if truth.any() and not truth.all() else None
