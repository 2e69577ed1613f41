"""Accuracy against ε: noise that clients share, noise of each alone, and none, on MNIST.

``eris reproduce shared-noise``. 50 clients, 160 rounds, FedAvgM; a row's rate is the best of a few
on 5,000 training images that no client has, with seed 0, and the same for all seeds. Every training
is kept when it is done, so a campaign that was stopped goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from eris.core.errors import InvalidSetting, one_of
from eris.experiments.audits.programs import asked, told
from eris.experiments.figures import NOTHING, figure, percent, say
from eris.experiments.runs.noised import (
    CLIENTS,
    COLLUDERS,
    ROUNDS,
    VALIDATION,
    Noise,
    NoisedTraining,
    mnist,
    network,
    rate_for,
    trained,
)
from eris.experiments.runs.progress import NOTE, bar
from eris.experiments.runs.store import runs_root
from eris.files import SHARED
from eris.files import replace as replace_file
from eris.training.flat import parameter_count

FOLDER = "shared-noise"
ROWS: tuple[tuple[Noise, float], ...] = (
    ("none", 8), ("clipped", 8),
    ("shared", 8), ("shared", 2), ("shared", 1),
    ("local", 8), ("local", 2), ("local", 1),
)  # fmt: skip
WALKS = {"softmax": (3.0, 6.0, 12.0), "lenet5": (10.0, 20.0, 40.0)}
"""How far noise alone may move a model, of which one is chosen."""
STEPS = {
    ("softmax", "none"): (0.003, 0.01, 0.03), ("softmax", "clipped"): (0.2, 0.4, 0.8),
    ("lenet5", "none"): (0.01, 0.03, 0.1), ("lenet5", "clipped"): (0.32, 0.64, 1.28),
}  # fmt: skip
"""The same without noise: rates."""
PRINTED: Mapping[tuple[str, int], Mapping[tuple[str, float], str]] = {
    ("softmax", 16): {
        ("none", 8): "87.1, 86.4, 87.5",
        ("shared", 8): "84.2, 84.3, 84.9",
        ("shared", 2): "77.6, 75.0, 76.4",
        ("shared", 1): "70.9, 68.7, 68.9",
        ("local", 8): "68.2, 66.6, 66.2",
        ("local", 2): "32.3, 37.1, 34.0",
        ("local", 1): "17.3, 22.2, 19.8",
    },
    ("softmax", 64): {
        ("none", 8): "90.1, 90.2, 89.9",
        ("shared", 8): "89.1, 89.3, 89.1",
        ("shared", 2): "87.3, 87.5, 86.9",
        ("shared", 1): "85.4, 85.0, 84.5",
        ("local", 8): "84.8, 84.5, 83.9",
        ("local", 2): "72.7, 71.5, 70.9",
        ("local", 1): "56.2, 57.6, 55.0",
    },
    ("lenet5", 64): {
        ("clipped", 8): "92.9",
        ("shared", 8): "88.7",
        ("shared", 2): "84.4",
        ("shared", 1): "80.4",
        ("local", 8): "79.9",
    },
}
"""Of the prototype that the design was measured with, seeds 0, 1, 2 or 0: another implementation,
Gaussian noise added to the sum; softmax regression with its rates chosen on the test images."""


@dataclass(frozen=True)
class NoiseCell:
    """What the rows of one table have in common."""

    model: str
    samples: int
    dsc: bool

    @property
    def label(self) -> str:
        """Its name on the command line."""
        return f"{self.model}-{self.samples}{'-dsc' if self.dsc else ''}"


CELLS = tuple(
    NoiseCell(model, samples, dsc)
    for model, samples in (
        ("softmax", 16),
        ("softmax", 64),
        ("lenet5", 64),
        ("lenet5", 16),
        ("softmax", 500),
        ("lenet5", 500),
    )
    for dsc in (False, True)
)


@dataclass(frozen=True)
class NoiseCampaign:
    """Which cells, by label (all: none said), and whose seed."""

    only: str = ""
    seed: int = 0
    runs: str = ""

    def __post_init__(self) -> None:
        if not self.cells:
            labels = [cell.label for cell in CELLS]
            raise InvalidSetting("only", self.only, one_of(labels, self.only))

    @property
    def cells(self) -> list[NoiseCell]:
        """What is trained."""
        return [cell for cell in CELLS if self.only in ("", cell.label)]

    def path(self, training: NoisedTraining) -> Path:
        """Where a training's figures are kept, beside those of its cell, a line each."""
        cell = NoiseCell(training.model, training.samples, training.dsc)
        root = runs_root(Path(self.runs) if self.runs else None)
        return root / FOLDER / f"{cell.label}.jsonl"


Tell = Callable[[str, float], None]


def row(campaign: NoiseCampaign, cell: NoiseCell, noise: Noise, epsilon: float, tell: Tell) -> Any:
    """The trainings of a row: those its rate was chosen by, and the one that counts."""
    plain = NoisedTraining(cell.model, cell.samples, noise, epsilon, cell.dsc, 1.0)
    if noise in ("none", "clipped"):
        rates: tuple[float, ...] = STEPS[cell.model, noise]
    else:
        n = parameter_count(network(cell.model, 0))
        rates = tuple(rate_for(plain, n, walk) for walk in WALKS[cell.model])
    tried = [kept(campaign, replace(plain, rate=rate), tell) for rate in rates]
    best = max(tried, key=lambda one: float(one["validation"]))
    chosen = replace(plain, rate=best["training"]["rate"], seed=campaign.seed)
    return {"tried": tried, "chosen": kept(campaign, chosen, tell)}


def kept(campaign: NoiseCampaign, training: NoisedTraining, tell: Tell) -> dict[str, Any]:
    """The figures of a training, made unless they are there."""
    path = campaign.path(training)
    known = path.read_text(encoding="utf-8") if path.is_file() else ""
    found: dict[str, Any]
    for found in map(json.loads, known.splitlines()):
        if found["training"] == asdict(training):
            return found
    label = f"{training.model} {training.samples} {training.noise} {training.epsilon:g}"
    found = trained(training, lambda share: tell(label, share))
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, [f"{known}{json.dumps(found)}\n".encode()], SHARED)
    return found


def shown_as(cell: NoiseCell, seed: int, rows: Sequence[tuple[Noise, float, Any]]) -> Table:
    """A table: ours beside the prototype's."""
    middle = "λ·C: validation, test after all rounds"
    title = f"{cell.label}, seed {seed}: accuracy in %"
    table = Table("noise", "ε", "std/C in a sum", middle, "80", "120", "160", "‖x‖",
                  "prototype", title=title)  # fmt: skip
    for noise, epsilon, found in rows:
        chosen = found["chosen"]
        test = list(chosen["test"].values())
        table.add_row(
            noise,
            NOTHING if noise in ("none", "clipped") else f"{epsilon:g}",
            figure(chosen["noise of a sum in clips"], ".2f"),
            "; ".join(_tried(one) for one in found["tried"]),
            *map(percent, test),
            figure(chosen["norm"], ".1f"),
            NOTHING if cell.dsc else PRINTED.get((cell.model, cell.samples), {})
            .get((noise, epsilon), NOTHING),
        )  # fmt: skip
    return table


def _tried(one: Mapping[str, Any]) -> str:
    last = list(one["test"].values())[-1]
    return f"{one['training']['rate']:g}: {percent(one['validation'])}, {percent(last)}"


def main(given: list[str] | None = None) -> None:
    """Print the tables."""
    campaign = asked(NoiseCampaign, __name__, __doc__, ("only", "seed", "runs"), given)
    say(f"{mnist()[0]}; {CLIENTS} clients, {ROUNDS} rounds, {COLLUDERS} colluder, min_included "
        f"{CLIENTS}, δ = 1e-5, {VALIDATION} images to choose rates, 10,000 to test; "
        f"{asdict(campaign)}")  # fmt: skip
    for cell in campaign.cells:
        with bar(Console(stderr=True), NOTE) as progress:
            task = progress.add_task(cell.label, total=1000, note="")

            def tell(label: str, share: float) -> None:
                progress.update(task, completed=round(1000 * share), note=label)  # noqa: B023

            rows = [(noise, eps, row(campaign, cell, noise, eps, tell)) for noise, eps in ROWS]
        figures = [{"noise": noise, "epsilon": eps, **found} for noise, eps, found in rows]
        told(shown_as(cell, campaign.seed, rows), 180, {"cell": asdict(cell), "rows": figures})


if __name__ == "__main__":
    main()
