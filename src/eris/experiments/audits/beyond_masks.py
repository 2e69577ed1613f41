"""What masks do not prevent, and noise does: ``eris reproduce audit-choosing``.

*choosing*: an owner that leaves one client out of its next sum; *dropout*: a client that is late by
itself, and every member compares; *false-model*: one false result, after which the next mean holds
samples as they are. Digits, one full-batch step a round at rate 0.1, secure sums 2 of 3, 8 owners;
every line is of recorded messages of simulated runs, in every instance with other clients and
another model. A line is kept when it is done, so a campaign that was stopped goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from eris.core.errors import InvalidSetting, one_of
from eris.experiments.audits.choosing import DigitClients, chosen_sets, digits
from eris.experiments.audits.false_model import read_samples
from eris.experiments.audits.programs import asked, told
from eris.experiments.audits.report import write
from eris.experiments.figures import NOTHING, say
from eris.experiments.runs.progress import NOTE, bar
from eris.experiments.runs.store import runs_root
from eris.theory.shared_noise import best_auc
from eris.training.torch import single_threaded

FOLDER = "choosing"
ROUND = 20
"""The round before the one that lacks a client."""
SIZES = ((8, 16), (8, 64), (20, 8))
PROMISES = (None, 8.0, 2.0)
SETS = tuple(
    DigitClients(clients, samples, epsilon=epsilon)
    for clients, samples in SIZES
    for epsilon in PROMISES
)
FALSE = tuple(DigitClients(8, 16, 256, epsilon, rounds=160) for epsilon in PROMISES)
MEASURED: Mapping[str, tuple[tuple[DigitClients, ...], Callable[[DigitClients], Any]]] = {
    "choosing": (SETS, lambda world: chosen_sets(world, ROUND, lies=True)),
    "dropout": (SETS, lambda world: chosen_sets(world, ROUND, lies=False)),
    "false-model": (FALSE, read_samples),
}
"""By table: its lines, and what is measured in an instance."""
HEADINGS = {
    "cosine": "cosine with its update",
    "difference": "AUC, difference",
    "one_sum": "AUC, one sum",
    "coordinates": "coordinates",
    "biases": "biases in its hands",
    "own": "read from its units",
    "all": "from all units",
    "honest": "from all, nobody lies",
}
PRINTED = {
    (8, 16): "1.000, 0.54, 0.53",
    (8, 64): "0.990, 0.52, 0.51",
    (20, 8): "1.000, 0.58, 0.56",
}
"""AUC from the difference without noise, at ε = 8 and 2: the prototype that the design was measured
with, another implementation, 20 seeds."""


@dataclass(frozen=True)
class MaskSettings:
    """How much is tried; ``only`` is one table, or ``all``."""

    seed: int = 0
    instances: int = 20
    only: str = "all"
    runs: str = ""

    def __post_init__(self) -> None:
        known = ["all", *MEASURED]
        if self.only not in known:
            raise InvalidSetting("only", self.only, one_of(known, self.only))

    @property
    def tables(self) -> list[str]:
        """What is measured."""
        return [name for name in MEASURED if self.only in ("all", name)]

    def path(self, table: str, world: DigitClients) -> Path:
        """Where a line's figures are kept: other settings are another file."""
        said = repr((table, world, self.seed, self.instances, ROUND))
        digest = hashlib.sha256(said.encode()).hexdigest()[:12]
        return runs_root(Path(self.runs) if self.runs else None) / FOLDER / f"{table}-{digest}.json"


def line(
    table: str, world: DigitClients, settings: MaskSettings,
    tell: Callable[[], None] = lambda: None,
) -> dict[str, Any]:  # fmt: skip
    """The figures of a line, made unless they are there."""
    path = settings.path(table, world)
    if not path.is_file():
        spent, found = process_time(), []
        for number in range(settings.instances):
            seed = 1000 * settings.seed + number
            found.append(asdict(MEASURED[table][1](replace(world, seed=seed))))
            tell()
        figures = {name: summary([one[name] for one in found]) for name in found[0]}
        made = {"clients": asdict(world), "instances": found, "figures": figures}
        write(made | {"cpu seconds": process_time() - spent}, path)
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return kept


def summary(values: Sequence[float]) -> dict[str, float]:
    """The mean over instances, and half the width of its 95 % interval (normal).

    >>> summary([1.0, 2.0, 3.0])["mean"]
    2.0
    """
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    half = 1.96 * deviation / len(values) ** 0.5
    return {"mean": float(np.mean(values)), "interval": half}


def shown_as(table: str, lines: Sequence[Mapping[str, Any]], settings: MaskSettings) -> Table:
    """Lines for people."""
    names = list(lines[0]["figures"])
    sets = table != "false-model"
    last = ["AUC at most", "prototype: without noise, ε 8, 2"] if sets else []
    drawn = Table(
        "clients × samples", "ε", *(HEADINGS[name] for name in names), *last,
        title=f"{table}, {settings.instances} instances, seed {settings.seed}: mean ± half of its "
        "95 % interval",
    )  # fmt: skip
    for one in lines:
        world = DigitClients(**one["clients"])
        bound = NOTHING if world.epsilon is None else f"{best_auc(world.epsilon):.3f}"
        before = PRINTED[world.clients, world.samples] if world.epsilon is None else ""
        drawn.add_row(
            f"{world.clients} × {world.samples}",
            NOTHING if world.epsilon is None else f"{world.epsilon:g}",
            *(_written(one["figures"][name], ".0f" if name == "coordinates" else digit)
              for name, digit in zip(names, [".3f" if sets else ".1f"] * len(names), strict=True)),
            *([bound, before] if sets else []),
        )  # fmt: skip
    return drawn


def _written(figures: Mapping[str, float], form: str) -> str:
    mean, half = (format(figures[name], form) for name in ("mean", "interval"))
    return mean if half == format(0.0, form) else f"{mean} ± {half}"


def main(given: list[str] | None = None) -> None:
    """Print the tables."""
    names = ("seed", "instances", "only", "runs")
    settings = asked(MaskSettings, __name__, __doc__, names, given)
    say(f"{digits()[2]}; {asdict(settings)}; round {ROUND} and the next, noise for "
        f"{SETS[0].rounds} rounds; false model: noise for {FALSE[0].rounds}; clip "
        f"{SETS[0].clip:g}, one colluder")  # fmt: skip
    for name in settings.tables:
        worlds = MEASURED[name][0]
        with bar(Console(stderr=True), NOTE) as progress, single_threaded():
            task = progress.add_task(name, total=len(worlds) * settings.instances, note="")
            lines = [
                line(name, world, settings, lambda: progress.advance(task))  # noqa: B023
                for world in worlds
            ]
        told(shown_as(name, lines, settings), 170, {"table": name, "lines": lines})


if __name__ == "__main__":
    main()
