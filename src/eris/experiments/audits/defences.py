"""Defences under attack, ERIS table 6 beside ours. ``eris reproduce audit-defences``.

Every line is a recorded round: 51 clients with one CIFAR-10 image each and one full-batch SGD
step, the 34,826-parameter ReLU network, and the observer that sees most. Where something is hidden
both modes are run. A line is kept when it is done, so a campaign that was stopped goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from typing import Any, get_args

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from eris.audit.inversion import inversion
from eris.audit.inversion.judging import Likeness, likeness
from eris.audit.inversion.matching import Mode
from eris.audit.inversion.recorded import Shown
from eris.audit.inversion.search import SearchBudget
from eris.audit.similarity import Lpips
from eris.core.errors import InvalidSetting, one_of
from eris.data import load_cifar10
from eris.data.lpips import load_lpips
from eris.experiments.audits.defence_lines import DEFENCES, RANDOM
from eris.experiments.audits.defended import Defence, ImageClients, as_images, attacked
from eris.experiments.audits.inversions import relu_network
from eris.experiments.audits.priors import armed
from eris.experiments.audits.programs import asked, told
from eris.experiments.audits.report import write
from eris.experiments.figures import NOTHING, figure, say
from eris.experiments.runs.progress import NOTE, bar
from eris.experiments.runs.store import runs_root
from eris.training.flat import parameter_count
from eris.training.torch import single_threaded

FOLDER = "defences"
ITERATIONS = {"cosine": 100, "ggl": 100}
"""Of an attack, where its usual budget would take hours for all lines."""
MEASURES = ("LPIPS", "SSIM", "SNR", "PSNR")


@dataclass(frozen=True)
class DefenceSettings:
    """What is attacked by what; ``only`` are lines whose label holds it."""

    attack: str = "cosine"
    images: int = 51
    iterations: int = 0
    only: str = ""
    seed: int = 0
    runs: str = ""

    def __post_init__(self) -> None:
        inversion(self.attack)  # refuses the unknown
        if self.images < 9:
            raise InvalidSetting("images", self.images, "at least 9, that gossip has neighbours")
        if not self.defences:
            labels = [defence.label for defence in DEFENCES]
            raise InvalidSetting("only", self.only, one_of(labels, self.only))

    @property
    def defences(self) -> list[Defence]:
        """The lines."""
        return [defence for defence in DEFENCES if self.only in defence.label]

    @property
    def budget(self) -> SearchBudget | None:
        """What is spent on an image; None is the attack's usual."""
        iterations = self.iterations or ITERATIONS.get(self.attack, 0)
        return SearchBudget(iterations) if iterations else None

    def path(self, defence: Defence, mode: Mode) -> Path:
        """Where a line's figures are kept: other settings are another file."""
        said = repr((defence, self.attack, self.images, self.budget, self.seed, mode))
        digest = hashlib.sha256(said.encode()).hexdigest()[:12]
        name = f"{self.attack}-{mode}-{digest}.json"
        return runs_root(Path(self.runs) if self.runs else None) / FOLDER / name


def victims(defence: Defence, settings: DefenceSettings) -> ImageClients:
    """The first training images of CIFAR-10 and the network; whole groups where means are seen."""
    data, count = load_cifar10(), settings.images + defence.extra
    if defence.together:
        count -= count % defence.together
    labels = torch.from_numpy(data.train_labels[:count].astype(np.int64))
    return ImageClients(relu_network(settings.seed), as_images(data.train_images[:count]), labels)


def summary(values: Iterable[float]) -> dict[str, float]:
    """Mean, deviation, and half the width of the mean's 95 % interval (normal).

    >>> summary([1.0, 2.0, 3.0])["mean"]
    2.0
    """
    found = np.array(list(values))
    deviation = float(found.std(ddof=1)) if len(found) > 1 else 0.0
    return {
        "mean": float(found.mean()),
        "deviation": deviation,
        "interval": 1.96 * deviation / len(found) ** 0.5,
    }


def measured(like: Likeness) -> dict[str, dict[str, float]]:
    """Every measure over the images."""
    named = dict(zip(MEASURES, (like.lpips, like.ssim, like.snr, like.psnr), strict=True))
    return {name: summary(values) for name, values in named.items() if values is not None}


def line(defence: Defence, mode: Mode, shown: Sequence[Shown], lpips: Lpips) -> dict[str, Any]:
    """The figures of a line, as JSON has them."""
    originals, found, control = (
        np.concatenate([getattr(one, name) for one in shown])
        for name in ("originals", "found", "control")
    )
    return {
        "defence": asdict(defence) | {"mechanism": str(defence.mechanism or "")},
        "how": defence.how,
        "mode": mode,
        "observer": shown[0].observer,
        "images": len(found),
        "seen": float(np.mean([one.visible for one in shown])),
        "labels right": float(np.mean([one.labels for one in shown])),
        "found": measured(likeness(originals, found, lpips)),
        "control": measured(likeness(originals, control, lpips)),
    }


def lines(
    settings: DefenceSettings, tell: Callable[[str, float], None] = lambda label, share: None
) -> list[dict[str, Any]]:
    """All lines in order, those kept and those made now; what is seen at its strongest first."""
    lpips, attack = Lpips(load_lpips().folder), armed(settings.attack, "cifar10")
    wanted: list[tuple[Defence, Mode]] = [
        (defence, mode)
        for defence in settings.defences
        for mode in get_args(Mode)
        if defence.partial or mode == "mask-aware"
    ]
    for defence, mode in sorted(wanted, key=lambda pair: pair[1]):
        path = settings.path(defence, mode)
        if not path.is_file():
            spent, label = process_time(), f"{defence.label}, {mode}"
            shown = attacked(
                defence, victims(defence, settings), attack, mode,
                settings.budget, settings.seed,
                lambda share, label=label: tell(label, share),  # type: ignore[misc]
            )  # fmt: skip
            made = line(defence, mode, shown, lpips)
            write(made | {"cpu seconds": process_time() - spent}, path)
    paths = [settings.path(defence, mode) for defence, mode in wanted]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def shown_as(found: Sequence[Mapping[str, Any]], settings: DefenceSettings) -> Table:
    """Ours beside the paper's; ± is the deviation over images, in brackets half the mean's 95 %
    interval."""
    table = Table("", "mode", "seen %", "images", *MEASURES, "control LPIPS",
                  "paper: ROG", "GGL", "how",
                  title=f"Defences under {settings.attack}; LPIPS lower is more alike")  # fmt: skip
    for one in found:
        paper = one["defence"]["paper"] or {}
        table.add_row(
            one["defence"]["label"],
            one["mode"],
            figure(100 * one["seen"], ".3g"),
            str(one["images"]),
            *(_written(one["found"], name) for name in MEASURES),
            _written(one["control"], "LPIPS"),
            paper.get("rog", NOTHING),
            paper.get("ggl", NOTHING),
            one["how"],
        )
    first = next((one for one in found if one["defence"]["label"] == "FedAvg"), None)
    if first is not None and RANDOM.paper is not None:
        table.add_row(RANDOM.label, "", "", str(first["images"]),
                      *(_written(first["control"], name) for name in MEASURES), "",
                      RANDOM.paper.rog, RANDOM.paper.ggl, "the control of FedAvg")  # fmt: skip
    return table


def _written(figures: Mapping[str, Mapping[str, float]], name: str) -> str:
    digits = ".3f" if name in ("LPIPS", "SSIM") else ".1f"
    one = figures[name]
    mean, deviation, interval = (figure(one[key], digits) for key in
                                 ("mean", "deviation", "interval"))  # fmt: skip
    return f"{mean} ± {deviation} ({interval})"


def main(given: list[str] | None = None) -> None:
    """Print the table."""
    names = ("attack", "images", "iterations", "only", "seed", "runs")
    settings = asked(DefenceSettings, __name__, __doc__, names, given)
    model = parameter_count(relu_network(settings.seed))
    say(f"{load_cifar10().source}; {model:,} parameters; {asdict(settings)}; {settings.budget}")
    with bar(Console(stderr=True), NOTE) as progress, single_threaded():
        task = progress.add_task("defences", total=1000, note="")

        def tell(label: str, share: float) -> None:
            progress.update(task, completed=round(1000 * share), note=label)

        found = lines(settings, tell)
    told(shown_as(found, settings), 200, {"settings": asdict(settings), "lines": found})


if __name__ == "__main__":
    main()
