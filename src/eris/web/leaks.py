"""What an audit found, as blocks: who guessed how well, round by round, and what was promised."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eris.experiments.audits.report import MEANINGS, STRONGEST
from eris.experiments.runs.checkpoint import RunDamaged
from eris.web.blocks import Block, Curves, Listing, Pictures, Range, Ranges, Series

AUDIT, PICTURES = "audit.json", "audit"
MOST_PICTURES = 600_000
"""Bytes of pictures that a page takes in."""
MOST_LINES = 8
MEMBERSHIP = ("run", "about", "findings", "everyone", "exposed", "accounted", "scores")
"""What an audit says beside the tables of further attacks."""
CHANCE = ("chance", 0.5)
FINAL = "final model"
Figures = Mapping[str, Any]


def read(folder: Path) -> Figures | None:
    """The figures of a run's audit; None if it has none."""
    path = folder / AUDIT
    if not path.is_file():
        return None
    try:
        found = dict(json.loads(path.read_text(encoding="utf-8")))
        if "scores" in found:  # of candidates of whom nothing is known, so nobody guessed
            found.setdefault("findings", [])
        _ = [(one["observer"], one["score"], one["roc"]["auc"]) for one in found["findings"]]
        return found
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
    made: list[Block] = [_guesses(best)] if best else []
    if rounds := _by_round(audit["findings"]):
        made.append(rounds)
    if best:
        made.append(_table(audit["findings"]))
    if (exposed := audit.get("exposed")) and "measured" in exposed[0]:
        made.append(_bounds(exposed))
    made += [_further(name, rows) for name, rows in audit.items()
             if name not in MEMBERSHIP and isinstance(rows, list) and rows]  # fmt: skip
    if pictures := _pictures(folder / PICTURES):
        made.append(pictures)
    return made


def _guesses(best: Mapping[str, Figures]) -> Ranges:
    ranges = [
        Range(name, one["roc"]["auc"], one["roc"]["low"], one["roc"]["high"])
        for name, one in best.items()
    ]
    return Ranges(
        "How well each observer tells members from others",
        "Area under the ROC curve of the observer's strongest score, with its interval; 0.5 is "
        "guessing, 1 is knowing.",
        x="AUC", ranges=ranges, levels=[CHANCE],
    )  # fmt: skip


def _by_round(findings: Sequence[Figures]) -> Curves | None:
    """The papers' measure over rounds: of each observer the score that was right most often, and of
    many observers those with the best round; more lines than colours are no picture."""
    found: dict[str, tuple[float, list[float]]] = {}
    for one in findings:
        shares = (one.get("paper") or {}).get("by_round") or ()
        if len(shares) > 1 and max(shares) > found.get(one["observer"], (0.0, []))[0]:
            found[one["observer"]] = max(shares), list(shares)
    if not found:
        return None
    names = sorted(found, key=lambda name: -found[name][0])[:MOST_LINES]
    series = [Series(name, list(enumerate(found[name][1], 1))) for name in found if name in names]
    which = f" The {MOST_LINES} observers with the best round." if len(found) > MOST_LINES else ""
    return Curves(
        "Right guesses round by round",
        "The papers' measure: thirds of each client's canaries, mean over clients, of the score "
        f"with the best round; under chance that is well above one half.{which}",
        x="round", y="share right", series=series, levels=[CHANCE],
    )  # fmt: skip


def _further(name: str, rows: Sequence[Figures]) -> Listing:
    """The table of an attack other than membership, as it reports it."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return Listing(name[:1].upper() + name[1:], columns=columns,
                   rows=[tuple(row.get(key) for key in columns) for row in rows])  # fmt: skip


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
    found, left, room = [], [], MOST_PICTURES
    for path in sorted(folder.glob("*.png")) if folder.is_dir() else []:
        if path.stat().st_size > room:
            left.append(path.name)
            continue
        room -= path.stat().st_size
        data = base64.b64encode(path.read_bytes()).decode()
        found.append((path.stem, f"data:image/png;base64,{data}"))
    note = f"Too large for this page, in {folder.name}/: {', '.join(left)}." if left else ""
    return Pictures("Pictures of the audit", note, images=found) if found or left else None


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)
