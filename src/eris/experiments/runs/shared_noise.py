"""Accuracy against ε: noise that clients share, noise of each alone, and none, on MNIST.

``eris reproduce shared-noise``. 50 clients, 160 rounds, FedAvgM. Rates are the best of three on
5,000 training images that no client has, with 64 samples a client, all coordinates and seed 0: one
for training without noise, one for clipped gradients, and for noise how far it alone shall move the
model, chosen with shared noise of ε = 2. All other rows, cells and seeds take that over; no rate is
above that of clipped gradients. Every training is kept when it is done, so a campaign that was
stopped goes on.
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
CLIPPED = 8.0
"""Of what has no noise: the ε whose grid it is on."""
ROWS: tuple[tuple[Noise, float], ...] = (
    ("none", CLIPPED), ("clipped", CLIPPED),
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
SCANNED = 64
"""Samples a client where rates are chosen."""
SCANNED_ROW: tuple[Noise, float] = ("shared", 2)
"""The noise with which it is chosen how far noise may move a model."""


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
    """Which cells, by label (all: none said), and with which seeds."""

    only: str = ""
    seeds: int = 1
    first_seed: int = 0
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
    """The trainings of a row: those its rate was chosen by, and one a seed."""
    tried = scan(campaign, cell.model, *(noise, epsilon) if quiet(noise) else SCANNED_ROW, tell)
    rate = rates(cell.model, noise, epsilon)[best(tried)]
    if not quiet(noise):
        clipped = best(scan(campaign, cell.model, "clipped", CLIPPED, tell))
        rate = min(rate * cell.samples / SCANNED, rates(cell.model, "clipped", CLIPPED)[clipped])
    plain = NoisedTraining(cell.model, cell.samples, noise, epsilon, cell.dsc, rate)
    numbers = range(campaign.first_seed, campaign.first_seed + campaign.seeds)
    chosen = [kept(campaign, replace(plain, seed=seed), tell) for seed in numbers]
    return {"tried": tried, "chosen": chosen}


def rates(model: str, noise: Noise, epsilon: float) -> tuple[float, ...]:
    """Those that are tried with 64 samples; of noise, which moves the model so far.

    >>> rates("softmax", "shared", 8)
    (0.11, 0.22, 0.44)
    """
    if quiet(noise):
        return STEPS[model, noise]
    plain = NoisedTraining(model, SCANNED, noise, epsilon, False, 1.0)
    n = parameter_count(network(model, 0))
    return tuple(rate_for(plain, n, walk) for walk in WALKS[model])


def scan(
    campaign: NoiseCampaign, model: str, noise: Noise, epsilon: float, tell: Tell
) -> list[dict[str, Any]]:
    """The trainings that a rate is chosen by."""
    plain = NoisedTraining(model, SCANNED, noise, epsilon, False, 1.0)
    tried = (replace(plain, rate=rate) for rate in rates(model, noise, epsilon))
    return [kept(campaign, one, tell) for one in tried]


def best(tried: Sequence[Mapping[str, Any]]) -> int:
    """Which has the highest accuracy on images that neither train nor test.

    >>> best([{"validation": 0.8}, {"validation": 0.9}])
    1
    """
    return max(range(len(tried)), key=lambda number: float(tried[number]["validation"]))


def quiet(noise: Noise) -> bool:
    """Whether there is none."""
    return noise in ("none", "clipped")


def kept(campaign: NoiseCampaign, training: NoisedTraining, tell: Tell) -> dict[str, Any]:
    """The figures of a training, made unless they are there."""
    path = campaign.path(training)
    found: dict[str, Any]
    for found in map(json.loads, _lines(path).splitlines()):
        if found["training"] == asdict(training):
            return found
    label = f"{training.model} {training.samples} {training.noise} {training.epsilon:g}"
    found = trained(training, lambda share: tell(label, share))
    path.parent.mkdir(parents=True, exist_ok=True)
    # Read again: another process may have added to it meanwhile.
    replace_file(path, [f"{_lines(path)}{json.dumps(found)}\n".encode()], SHARED)
    return found


def _lines(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def shown_as(cell: NoiseCell, rows: Sequence[tuple[Noise, float, Any]]) -> Table:
    """A table: ours beside the prototype's. Figures of several seeds stand beside each other."""
    scanned = f"tried ({cell.model}-{SCANNED}, seed 0; of noise, ε = 2), λ·C: validation, test"
    title = f"{cell.label}: test accuracy in % after so many rounds"
    table = Table("noise", "ε", "std/C in a sum", scanned, "λ·C", "W", "80", "120", "160",
                  "‖x‖", "prototype", title=title)  # fmt: skip
    for noise, epsilon, found in rows:
        chosen = found["chosen"]
        by_round = zip(*(one["test"].values() for one in chosen), strict=True)
        table.add_row(
            noise,
            NOTHING if quiet(noise) else f"{epsilon:g}",
            figure(chosen[0]["noise of a sum in clips"], ".2f"),
            "; ".join(_tried(one) for one in found["tried"]),
            f"{chosen[0]['training']['rate']:.2g}",
            figure(chosen[0]["walk"], ".1f"),
            *(", ".join(map(percent, seeds)) for seeds in by_round),
            ", ".join(figure(one["norm"], ".1f") for one in chosen),
            NOTHING if cell.dsc else PRINTED.get((cell.model, cell.samples), {})
            .get((noise, epsilon), NOTHING),
        )  # fmt: skip
    return table


def _tried(one: Mapping[str, Any]) -> str:
    last = list(one["test"].values())[-1]
    return f"{one['training']['rate']:g}: {percent(one['validation'])}, {percent(last)}"


def main(given: list[str] | None = None) -> None:
    """Print the tables."""
    campaign = asked(
        NoiseCampaign, __name__, __doc__, ("only", "seeds", "first_seed", "runs"), given
    )
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
        told(shown_as(cell, rows), 200, {"cell": asdict(cell), "rows": figures})


if __name__ == "__main__":
    main()
