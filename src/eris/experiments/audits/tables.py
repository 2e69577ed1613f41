"""The papers' membership experiments by name: what is audited, what the paper reports.

Every row is a recipe that is trained and audited round by round; its outcome is kept as JSON, so a
table that was stopped goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rich.table import Table

from eris.experiments.audits.auditing import AuditOptions, Tell, audit_live
from eris.experiments.audits.report import write
from eris.experiments.figures import figure, panels, percent, saved
from eris.experiments.runs.assembly import assemble
from eris.experiments.runs.checkpoint import RunDamaged
from eris.experiments.runs.printed import COMPARED, quoted
from eris.experiments.runs.reproduce import Experiment, Row, images

FOLDER = "audits"


@dataclass(frozen=True)
class AuditRow(Row):
    """One audited run of a table; ``paper`` is the accuracy of membership inference it reports."""

    observers: tuple[str, ...] = ()
    at: float | None = None
    """Where on a curve the row lies."""


@dataclass(frozen=True)
class AuditTable(Experiment):
    """Rows that differ from one base recipe."""

    rows: tuple[AuditRow, ...]
    every: int = 1

    reading: ClassVar[str] = "Membership accuracy in %: chance is 50."

    def path(self, root: Path, row: AuditRow, seed: int) -> Path:
        """Where a row's outcome is kept."""
        return root / FOLDER / f"{self.run_name(row, seed)}.json"

    def shown(self, outcomes: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
        """Ours beside the paper's, for people."""
        return shown(self, outcomes)


CANARIES = {"data.held_out": 0.3, "data.canaries": 0.5}
"""As in the papers, 30 % are held out, and half of the rest are canaries."""


def _images(data: str, samples: int, rounds: int) -> dict[str, Any]:
    return images(data, rounds, samples) | CANARIES


def _eris(**settings: Any) -> dict[str, Any]:
    return {"method.name": "eris", **{f"method.{key}": value for key, value in settings.items()}}


COALITION = "coalition:25"
SHARDED = ("aggregator", "member", COALITION, "final-model")


def _rows(table: str, column: str, labels: Iterable[str]) -> tuple[AuditRow, ...]:
    """Methods of a table of ERIS, with the membership accuracy that it prints."""
    return tuple(
        AuditRow(
            label,
            COMPARED[label],
            quoted(label, table, f"membership, {column}"),
            SHARDED if label.startswith("ERIS") else (),
        )
        for label in labels
    )


CORE = ("FedAvg", "ERIS", "ERIS + DSC 3.3 %", "ERIS + DSC 3.3 %, paper mode")
NOISY = ("FedAvg-LDP ε 10", "FedAvg-LDP ε 1")
RIVALS = (*NOISY, "SoteriaFL ε 10", "PriPrune 0.01", "PriPrune 0.05", "PriPrune 0.1",
          "Shatter, k = 8, r = 4")  # fmt: skip
BIASED = {"training.epochs": 2, "training.batch_size": 64}
SWEEP_ROUNDS = 40
_SWEEP = _images("mnist", 16, SWEEP_ROUNDS)

AUDITS: Mapping[str, AuditTable] = {
    table.name: table
    for table in (
        AuditTable(
            "audit-mnist",
            "ERIS table 12: MNIST, LeNet-5, 16 samples a client, IID, unbiased",
            _images("mnist", 16, 160),
            _rows("ERIS table 12", "16 samples", CORE + RIVALS),
            every=4,
        ),
        AuditTable(
            "audit-mnist-64",
            "ERIS table 13: MNIST, LeNet-5, 64 samples a client, IID, unbiased",
            _images("mnist", 64, 120),
            _rows("ERIS table 13", "64 samples", CORE),
            every=6,
        ),
        AuditTable(
            "audit-mnist-4",
            "ERIS table 12: MNIST, LeNet-5, 4 samples a client, IID (canaries pooled)",
            _images("mnist", 4, 120),
            _rows("ERIS table 12", "4 samples", CORE),
            every=4,
        ),
        AuditTable(
            "audit-mnist-dirichlet",
            "ERIS table 14 (the paper's figures are means over its sizes, 4 to 128): MNIST, 16 "
            "samples a client, Dirichlet 0.2",
            _images("mnist", 16, 120) | {"data.partition": "dirichlet", "data.alpha": 0.2},
            _rows("ERIS table 14", "MNIST", CORE),
            every=4,
        ),
        AuditTable(
            "audit-mnist-biased",
            "ERIS table 15 (the paper's figures are means over its sizes, 4 to 128): MNIST, 16 "
            "samples a client, 2 local epochs",
            _images("mnist", 16, 120) | BIASED,
            _rows("ERIS table 15", "MNIST", CORE + NOISY),
            every=4,
        ),
        AuditTable(
            "audit-cifar10",
            "ERIS table 10: CIFAR-10, ResNet-9, 16 samples a client, unbiased (ours after 12 "
            "rounds, still at chance; the paper's after 80 to 140)",
            _images("cifar10", 16, 12) | {"model.name": "resnet9"},
            _rows("ERIS table 10", "16 samples",
                  ("FedAvg", "ERIS", "ERIS + DSC 5 %", "ERIS + DSC 0.6 %, paper mode")),
            every=4,
        ),
        AuditTable(
            "audit-imdb",
            "ERIS table 8: IMDB, MiniLM (the paper: DistilBERT), 16 samples a client (ours after 4 "
            "rounds; the paper's after 14 to 22)",
            {
                "data.name": "imdb", "data.clients": 25, "data.samples": 16,
                "data.test_samples": 500, "model.length": 64, "training.rounds": 4,
                "training.optimiser": "adamw", "training.learning_rate": 5e-5, **CANARIES,
            },
            _rows("ERIS table 8", "16 samples", ("FedAvg", "ERIS", "ERIS + DSC 5 %")),
            every=2,
        ),
        AuditTable(
            "audit-aggregators",
            "ERIS figure 2, left: leakage against the number of aggregators (MNIST, 16 samples)",
            _SWEEP,
            tuple(
                AuditRow(f"A = {count}", _eris(aggregators=count), at=count,
                         observers=("aggregator", "member", "final-model"))
                for count in (1, 2, 5, 10, 25, 50)
            ),
            every=4,
            curve="aggregators",
        ),
        AuditTable(
            "audit-compression",
            "ERIS figure 2, right: leakage against ω = 1/p − 1 with 50 aggregators",
            _SWEEP,
            tuple(
                AuditRow(f"p = {kept:g}", _eris(kept_fraction=kept), at=1 / kept - 1,
                         observers=("aggregator", "member", "final-model"))
                for kept in (0.5, 0.2, 0.1, 0.05, 0.01)
            ),
            every=2,
            curve="ω",
        ),
        AuditTable(
            "audit-collusion",
            "ERIS figure 6: leakage against colluding clients of 50",
            _SWEEP,
            tuple(
                AuditRow(f"{label}, {count} collude", COMPARED[label], at=count,
                         observers=(f"coalition:{count}",))
                for label in ("ERIS", "ERIS + DSC 3.3 %")
                for count in (1, 5, 10, 25, 40)
            ),
            every=8,
            curve="colluders",
        ),
        AuditTable(
            "audit-layouts",
            "Layouts of shards: contiguous against random, static against rotating (A = 50)",
            _SWEEP,
            (
                AuditRow("random, static", _eris()),
                AuditRow("interleaved, static", _eris(plan="interleaved")),
                AuditRow("contiguous, static", _eris(plan="contiguous")),
                AuditRow("random, new every 10 rounds", _eris(rotate=10)),
                AuditRow("random, new every round", _eris(rotate=1)),
            ),
            every=4,
        ),
    )
}  # fmt: skip


def audited(
    table: AuditTable,
    seeds: Sequence[int],
    root: Path,
    progress: Callable[[str], Tell] | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Train and audit what is not there yet; the outcomes of every row."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in table.rows:
        for seed in seeds:
            path = table.path(root, row, seed)
            if not path.is_file():
                told = None if progress is None else progress(f"{row.label}, {seed}")
                options = AuditOptions(row.observers, every=table.every, seed=seed)
                outcome = audit_live(assemble(table.recipe(row, seed)), options, told)
                write({"table": table.name, "row": row.label, **outcome.to_json()}, path)
            found.setdefault(row.label, []).append(_outcome(path))
    return found


def _outcome(path: Path) -> dict[str, Any]:
    """What was kept of a row."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not {"about", "findings", "everyone"} <= found.keys():
            raise ValueError("its figures are missing")
    except (ValueError, AttributeError) as broken:
        remedy = "remove it, and the same command makes it again"
        raise RunDamaged(path, f"is damaged ({broken})", remedy) from broken
    return found


def line(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The figures of one row, means over seeds; None where there is no such observer."""
    each = [_figures(outcome) for outcome in outcomes]
    there = {name: [one[name] for one in each if one[name] is not None] for name in each[0]}
    return {name: float(np.mean(values)) if values else None for name, values in there.items()}


def _figures(outcome: Mapping[str, Any]) -> dict[str, Any]:
    """What a line shows of one outcome, by the headings of its columns."""

    def found(observer: str, score: str) -> Mapping[str, Any]:
        return next((one for one in outcome["findings"] if one["score"] == score
                     and one["observer"].startswith(observer)), {})  # fmt: skip

    watching = ("aggregator", "server", "coalition", "neighbour")
    names = [one["observer"] for one in outcome["findings"]]
    first = next((name for name in names if name.startswith(watching)), "nobody")
    whole = [one for one in outcome["everyone"] if one["score"] == "paper"]
    everyone = whole[0] if whole else {}
    joint, main = found(first, "joint"), found(first, "paper") or found(first, "aligned")
    bound = (joint or main).get("bound") or {}
    return {
        "test": outcome["about"].get("metrics", {}).get("accuracy"),
        "loss": _measure(found(first, "loss"), "accuracy"),
        "one": _measure(main, "accuracy"),
        "null": _measure(main, "null_mean"),
        "mean": _of_all(everyone, "mean"),
        "worst": _of_all(everyone, "worst"),
        "member": _measure(found("member", "paper"), "accuracy"),
        "final": _measure(found("final", "loss"), "accuracy"),
        "joint": joint.get("pooled", {}).get("accuracy"),
        "joint AUC": joint.get("roc", {}).get("auc"),
        "member AUC": found("member", "joint").get("roc", {}).get("auc"),
        "ε ≥": bound.get("epsilon"),
        "of": bound.get("ceiling"),
        "ε ≤": (outcome.get("accounted") or {}).get("epsilon"),
    }


def _of_all(everyone: Mapping[str, Any], what: str) -> float | None:
    measure = everyone.get(what)
    return measure["accuracy"] if measure else everyone.get(f"{what}_pooled")


def _measure(found: Mapping[str, Any], what: str) -> float | None:
    """The paper's measure or, where clients have too few canaries, accuracy over all of them."""
    if not found:
        return None
    if found["paper"] is None:
        return float(found["pooled"]["accuracy"]) if what == "accuracy" else 0.5
    return float(found["paper"][what])


FORMS = {"joint AUC": ".3f", "member AUC": ".3f", "ε ≥": ".2f", "of": ".2f", "ε ≤": ".2f"}
"""How figures are written that are no shares."""


def shown(table: AuditTable, outcomes: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """Ours beside the paper's: membership accuracy in percent, areas under curves, bounds on ε."""
    drawn = Table(
        "", "test", "paper", "loss", "one", "null", "mean", "worst", "member", "final",
        "joint", "joint AUC", "member AUC", "ε ≥", "of", "ε ≤",
        title=table.title,
    )  # fmt: skip
    for row in table.rows:
        if row.label in outcomes:
            test, *others = (
                figure(value, FORMS[name]) if name in FORMS else percent(value)
                for name, value in line(outcomes[row.label]).items()
            )
            drawn.add_row(row.label, test, row.paper, *others)
    return drawn


def draw(
    table: AuditTable, outcomes: Mapping[str, Sequence[Mapping[str, Any]]], path: Path
) -> None:
    """The curve of a table whose rows vary one thing."""
    rows = [row for row in table.rows if row.label in outcomes and row.at is not None]
    series = sorted({row.label.rpartition(",")[0] for row in rows})
    picture, (axis,) = panels(1, 7, 4.5)
    for name in series:
        mine = [row for row in rows if row.label.rpartition(",")[0] == name]
        places = [row.at for row in mine if row.at is not None]
        lines = [line(outcomes[row.label]) for row in mine]
        prefix = f"{name}: " if name else ""
        for what, label, style in (
            ("joint", "joint regression", "o-"),
            ("one", "gradient alignment", "s--"),
            ("loss", "loss of the completed model", "^--"),
            ("null", "its null", ":"),
        ):
            values = [np.nan if v is None else 100 * v for v in (one[what] for one in lines)]
            axis.plot(places, values, style, label=prefix + label)
    axis.axhline(50, color="grey", linewidth=0.8)
    axis.set(xlabel=table.curve, ylabel="membership accuracy, %", ylim=(45, 101))
    if table.curve in ("aggregators", "ω"):
        axis.set_xscale("log")
    axis.legend(fontsize="small")
    axis.set_title(table.title, fontsize="small")
    saved(picture, path)
