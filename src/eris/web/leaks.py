"""What an audit found, as blocks: who guessed how well, round by round, and what was promised."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eris.experiments.audits.report import MEANINGS, STRONGEST
from eris.experiments.runs.checkpoint import RunDamaged
from eris.web.blocks import Block, Curves, Listing, Pictures, Series, Spot, Spots

AUDIT, PICTURES = "audit.json", "audit"
MOST_PICTURES = 600_000
"""Bytes of pictures that a page takes in."""
CHANCE = ("chance", 0.5)
FINAL = "final model"
Figures = Mapping[str, Any]


def read(folder: Path) -> Figures | None:
    """The figures of a run's audit; None if it has none."""
    path = folder / AUDIT
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        _ = [(one["observer"], one["score"], one["roc"]["auc"]) for one in found["findings"]]
        return dict(found)
    except (ValueError, LookupError, TypeError) as broken:
        remedy = f"audit the run again: `eris audit {folder.name}`"
        raise RunDamaged(path, f"is no audit's ({broken!r})", remedy) from broken


def strongest(audit: Figures) -> dict[str, Figures]:
    """What speaks for each observer: its strongest score, chosen before any truth is looked at."""
    by_observer: dict[str, dict[str, Figures]] = {}
    for one in audit["findings"]:
        by_observer.setdefault(one["observer"], {})[one["score"]] = one
    return {
        observer: next((found[s] for s in STRONGEST if s in found), next(iter(found.values())))
        for observer, found in by_observer.items()
    }


def worst(audit: Figures) -> Figures | None:
    """Of the observers of messages, the one that guessed best."""
    found = [one for name, one in strongest(audit).items() if name != FINAL]
    return max(found, key=lambda one: one["roc"]["auc"], default=None)


def blocks(folder: Path, audit: Figures) -> list[Block]:
    """The audit of one run."""
    best = strongest(audit)
    made: list[Block] = [_guesses(best)]
    if rounds := _by_round(best):
        made.append(rounds)
    made.append(_table(audit["findings"]))
    if exposed := audit.get("exposed"):
        made.append(_bounds(exposed))
    if pictures := _pictures(folder / PICTURES):
        made.append(pictures)
    return made


def _guesses(best: Mapping[str, Figures]) -> Spots:
    marks = [
        Spot(name, number, one["roc"]["auc"], one["roc"]["low"], one["roc"]["high"])
        for number, (name, one) in enumerate(best.items(), 1)
    ]
    return Spots(
        "How well each observer tells members from others",
        "Area under the ROC curve of the observer's strongest score, with its 95 % interval; 0.5 "
        "is guessing, 1 is knowing.",
        x="observer", y="AUC", marks=marks, levels=[CHANCE],
    )  # fmt: skip


def _by_round(best: Mapping[str, Figures]) -> Curves | None:
    series = [
        Series(name, list(enumerate(one["paper"]["by_round"], 1)))
        for name, one in best.items()
        if one.get("paper") and len(one["paper"].get("by_round", ())) > 1
    ]
    if not series:
        return None
    return Curves(
        "Right guesses round by round",
        "The papers' measure: thirds of each client's canaries, mean over clients. Under chance "
        "its best round is well above one half.",
        x="round", y="share right", series=series, levels=[CHANCE],
    )  # fmt: skip


def _table(findings: Sequence[Figures]) -> Listing:
    columns = ("observer", "score", "coordinates seen", "best round, %", "permuted, 95 %", "p",
               "right of all, %", "AUC", "ε ≥", "at most")  # fmt: skip
    rows = []
    for one in findings:
        paper, bound = one.get("paper") or {}, one.get("bound") or {}
        rows.append(
            (one["observer"], MEANINGS.get(one["score"], one["score"]), one.get("visible"),
             _percent(paper.get("accuracy")), _percent(paper.get("null_q95")),
             paper.get("p_value"), _percent((one.get("pooled") or {}).get("accuracy")),
             one["roc"]["auc"], bound.get("epsilon"), bound.get("ceiling"))
        )  # fmt: skip
    note = (
        "Permuted: what the measure gives when membership is drawn at random (95 % of draws are "
        "below). ε ≥: the run is not (ε, δ)-private for less, with 95 % confidence; at most: what "
        "perfect guesses would have shown."
    )
    return Listing("Every observer and score", note, columns=columns, rows=rows)


def _bounds(exposed: Sequence[Figures]) -> Listing:
    columns = ("observer", "coordinates a round", "bound as ERIS F.1 reads it, nats",
               "bound given the data, nats", "measured, nats", "all there is, nats")  # fmt: skip
    keys = ("observer", "coordinates", "paper", "honest", "measured", "ceiling")
    rows = [tuple(one.get(key) for key in keys) for one in exposed]
    note = "A dash: no such bound holds. What is measured above a bound refutes its reading."
    return Listing("Bound and measurement", note, columns=columns, rows=rows)


def _pictures(folder: Path) -> Pictures | None:
    found, left = [], MOST_PICTURES
    for path in sorted(folder.glob("*.png")) if folder.is_dir() else []:
        left -= path.stat().st_size
        if left < 0:
            break
        data = base64.b64encode(path.read_bytes()).decode()
        found.append((path.stem, f"data:image/png;base64,{data}"))
    return Pictures("Pictures of the audit", images=found) if found else None


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)
