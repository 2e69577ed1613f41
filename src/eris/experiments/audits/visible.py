"""Reconstruction against the share of an update that is seen (ERIS figure 13).
``eris reproduce audit-visible``.

One gradient of one image, its coordinates seen at random, on MNIST, CIFAR-10 and faces: LPIPS and
PSNR of what each attack finds in both modes, and of what it finds in random numbers. iDLG attacks
the sigmoid network, cosine and ROG the ReLU network. A point is kept when it is done, so a
campaign that was stopped goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional

from eris.audit.inversion import INVERSIONS, SearchBudget, inversion, invert
from eris.audit.inversion.judging import likeness, pictures
from eris.audit.inversion.matching import Mode
from eris.audit.similarity import Lpips
from eris.core.errors import InvalidSetting, one_of
from eris.core.streams import Stream
from eris.data import ImageData, load_cifar10, load_faces, load_mnist
from eris.data.lpips import load_lpips
from eris.experiments.audits.defences import summary
from eris.experiments.audits.defended import ImageClients, as_images
from eris.experiments.audits.inversions import relu_network, sigmoid_network
from eris.experiments.audits.priors import armed
from eris.experiments.audits.programs import asked, told
from eris.experiments.audits.report import write
from eris.experiments.figures import figure, panels, saved, say
from eris.experiments.runs.progress import NOTE, bar
from eris.experiments.runs.store import runs_root
from eris.training.flat import parameter_count
from eris.training.torch import flatten, single_threaded, torch_clients

FOLDER = "visible"
SHARES = (1.0, 0.9, 0.75, 0.5, 0.25, 0.125, 0.06, 0.02)
DATA: Mapping[str, Callable[[], ImageData]] = {
    "mnist": load_mnist,
    "cifar10": load_cifar10,
    "faces": load_faces,
}
ATTACKS = ("idlg", "cosine", "rog")
BUDGETS = {"idlg": SearchBudget(500, restarts=1), "cosine": SearchBudget(100)}
"""What is spent on an image, where the usual budget would take hours for all points."""


@dataclass(frozen=True)
class Point:
    """One point of the curves."""

    data: str
    attack: str
    mode: Mode
    share: float


@dataclass(frozen=True)
class VisibleSettings:
    """Which points, and of how many images; ``all`` is every attack that is known here, or all
    data sets."""

    attack: str = "all"
    data: str = "all"
    images: int = 12
    iterations: int = 0
    seed: int = 0
    runs: str = ""
    picture: str = ""
    measured: str = ""
    """Where the points go that :mod:`eris.theory.reconstruction` is to read."""

    def __post_init__(self) -> None:
        if self.data not in (known := ["all", *DATA]):
            raise InvalidSetting("data", self.data, one_of(known, self.data))
        if self.attack != "all":
            inversion(self.attack)  # refuses the unknown
        if self.images < 2:
            raise InvalidSetting("images", self.images, "at least 2, for an interval")

    @property
    def points(self) -> list[Point]:
        """All points; where everything is seen there is one mode."""
        attacks = [name for name in ATTACKS if name in INVERSIONS]
        return [
            Point(data, attack, mode, share)
            for data in (DATA if self.data == "all" else [self.data])
            for attack in (attacks if self.attack == "all" else [self.attack])
            for mode in get_args(Mode)
            for share in SHARES
            if share < 1 or mode == "mask-aware"
        ]

    def budget(self, attack: str) -> SearchBudget | None:
        """Of one attack; None is its usual."""
        if self.iterations:
            return SearchBudget(self.iterations)
        return BUDGETS.get(attack)

    @property
    def root(self) -> Path:
        """Where points are kept."""
        return runs_root(self.runs or None) / FOLDER

    def path(self, point: Point) -> Path:
        """Where a point is kept: other settings are another file."""
        said = repr((point, self.images, self.budget(point.attack), self.seed))
        digest = hashlib.sha256(said.encode()).hexdigest()[:12]
        return self.root / f"{point.data}-{point.attack}-{point.mode}-{point.share:g}-{digest}.json"


def victims(point: Point, count: int, seed: int) -> ImageClients:
    """The first training images of a data set (faces: of as many people), and the network."""
    data = DATA[point.data]()
    every = max(1, len(data.train_images) // count) if point.data == "faces" else 1
    places = slice(0, every * count, every)
    images, labels = as_images(data.train_images[places]), data.train_labels[places]
    build = sigmoid_network if "dlg" in point.attack else relu_network
    channels, side = images.shape[1:3]
    model = build(seed, channels, side, int(data.train_labels.max()) + 1)
    return ImageClients(model, images, torch.from_numpy(labels.astype(np.int64)))


def gradients(given: ImageClients) -> dict[int, Tensor]:
    """What each of them sends, by number."""
    parts = [np.array([number]) for number in range(len(given.images))]
    trainers = torch_clients(given.model, given.images, given.labels, parts, learning_rate=1.0)
    start = flatten(given.model)
    return {
        number: torch.from_numpy(trainer.update(start.copy(), 1).vector)
        for number, trainer in enumerate(trainers)
    }


def masks(count: int, size: int, share: float, seed: int) -> dict[int, Tensor]:
    """Which coordinates are seen of each update; those of a smaller share are among them."""
    drawn = Stream(seed, "seen coordinates").uniform(0, count * size).reshape(count, size)
    return {number: torch.from_numpy(row < share) for number, row in enumerate(drawn)}


def measured(
    point: Point, settings: VisibleSettings, lpips: Lpips, tell: Callable[[float], None]
) -> dict[str, Any]:
    """A point's figures, as JSON has them."""
    given = victims(point, settings.images, settings.seed)
    updates = gradients(given)
    seen = masks(len(updates), len(updates[0]), point.share, settings.seed)
    made = invert(
        given.model, functional.cross_entropy, updates, mask=seen, shape=given.images.shape[1:],
        attack=armed(point.attack, point.data), mode=point.mode,
        budget=settings.budget(point.attack),
        seed=settings.seed, tell=tell,
    )  # fmt: skip
    original = pictures(given.images, 0.0, 1.0)
    found, control = (
        likeness(original, pictures(each[:, 0], 0.0, 1.0), lpips)
        for each in (made.inputs, made.control)
    )
    assert found.lpips is not None
    assert control.lpips is not None
    return {
        **asdict(point),
        "images": len(original),
        "reconstructed": found.reconstructed,
        "LPIPS": summary(found.lpips),
        "PSNR": summary(found.psnr),
        "control LPIPS": summary(control.lpips),
        "control PSNR": summary(control.psnr),
        "below control": summary(control.lpips - found.lpips),
        "above control": summary(found.psnr - control.psnr),
    }


def points(
    settings: VisibleSettings, tell: Callable[[str, float], None] = lambda label, share: None
) -> Iterator[dict[str, Any]]:
    """All points, those kept and those made now."""
    lpips = Lpips(load_lpips().folder)
    for point in settings.points:
        path = settings.path(point)
        if not path.is_file():
            label = f"{point.data}, {point.attack}, {point.mode}, {point.share:g}"
            write(
                measured(
                    point, settings, lpips,
                    lambda share, label=label: tell(label, share),  # type: ignore[misc]
                ),
                path,
            )  # fmt: skip
        yield json.loads(path.read_text(encoding="utf-8"))


def as_table(found: Sequence[Mapping[str, Any]], settings: VisibleSettings) -> Table:
    """A line an attack and mode, a column a share: LPIPS / PSNR, its control's in brackets."""
    shares = sorted({one["share"] for one in found}, reverse=True)
    table = Table(
        "data", "attack", "mode", *(f"{100 * share:g} %" for share in shares),
        title=f"LPIPS / PSNR (of random numbers), {settings.images} images a point",
    )  # fmt: skip
    named = {(one["data"], one["attack"], one["mode"], one["share"]): one for one in found}
    for data, attack, mode in dict.fromkeys(key[:3] for key in named):
        cells = []
        for share in shares:
            # Seen whole, both modes are the same.
            one = named.get((data, attack, mode, share)) or named[data, attack, "mask-aware", share]
            mean = {name: one[name]["mean"] for name in ("LPIPS", "PSNR", "control LPIPS",
                                                         "control PSNR")}  # fmt: skip
            cells.append(
                f"{figure(mean['LPIPS'], '.3f')} / {figure(mean['PSNR'], '.1f')} "
                f"({figure(mean['control LPIPS'], '.3f')} / {figure(mean['control PSNR'], '.1f')})"
            )
        table.add_row(data, attack, mode, *cells)
    return table


def draw(found: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """LPIPS against the share that is seen, a panel a data set; thin: random numbers."""
    names = list(dict.fromkeys(one["data"] for one in found))
    picture, axes = panels(len(names), 5 * len(names), 4.2)
    colours = {name: f"C{number}" for number, name in enumerate(ATTACKS)}
    for axis, data in zip(axes, names, strict=True):
        mine = [one for one in found if one["data"] == data]
        for attack in dict.fromkeys(one["attack"] for one in mine):
            for mode, style, dotted in (("mask-aware", "o-", ":"), ("oblivious", "s--", "-.")):
                chosen = [
                    one for one in mine
                    if one["attack"] == attack and (one["mode"] == mode or one["share"] == 1)
                ]  # fmt: skip
                chosen.sort(key=lambda one: one["share"])
                axis.errorbar(
                    [100 * one["share"] for one in chosen],
                    [one["LPIPS"]["mean"] for one in chosen],
                    [one["LPIPS"]["interval"] for one in chosen],
                    fmt=style, color=colours.get(attack), label=f"{attack}, {mode}", capsize=2,
                )  # fmt: skip
                axis.plot(
                    [100 * one["share"] for one in chosen],
                    [one["control LPIPS"]["mean"] for one in chosen], dotted,
                    color=colours.get(attack), linewidth=1,
                    label=f"{attack}, {mode}, random numbers",
                )  # fmt: skip
        axis.set(xscale="log", xlabel="coordinates seen, %", ylabel="LPIPS", title=data)
    # The first panel has all attacks; beside the last one there is room.
    handles, labels = axes[0].get_legend_handles_labels()
    axes[-1].legend(handles, labels, fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5))
    return saved(picture, path)


def as_toml(found: Sequence[Mapping[str, Any]], settings: VisibleSettings) -> str:
    """The points as :func:`eris.theory.reconstruction.measurements` reads them; seen whole, a point
    is of both modes."""
    lines = [
        "# Written by `python -m eris.experiments.audits.visible --measured FILE`, with",
        f"# {asdict(settings) | {'runs': '', 'measured': ''}}.",
    ]
    for one in found:
        for mode in get_args(Mode) if one["share"] == 1 else (one["mode"],):
            lines += [
                "",
                "[[points]]",
                *(f'{name} = "{one[name]}"' for name in ("data", "attack")),
                f'mode = "{mode}"',
                *(f"{name} = {one[name]}" for name in ("share", "images")),
                f"lpips = {one['LPIPS']['mean']:.4f}",
                f"below = {one['below control']['mean']:.4f}",
                f"interval = {one['below control']['interval']:.4f}",
            ]
    return "\n".join(lines) + "\n"


def main(given: list[str] | None = None) -> None:
    """Print the table and draw the curves."""
    names = ("attack", "data", "images", "iterations", "seed", "runs", "picture", "measured")
    settings = asked(VisibleSettings, __name__, __doc__, names, given)
    for attack, data in dict.fromkeys((point.attack, point.data) for point in settings.points):
        model = victims(Point(data, attack, "mask-aware", 1.0), 2, settings.seed).model
        budget = settings.budget(attack) or "its usual budget"
        say(f"{attack} on {DATA[data]().source}: {parameter_count(model):,} parameters, {budget}")
    say(f"{asdict(settings)}")
    with bar(Console(stderr=True), NOTE) as progress, single_threaded():
        task = progress.add_task("visible shares", total=1000, note="")

        def tell(label: str, share: float) -> None:
            progress.update(task, completed=round(1000 * share), note=label)

        found = list(points(settings, tell))
    told(as_table(found, settings), 200, {"settings": asdict(settings), "points": found})
    path = draw(
        found, Path(settings.picture) if settings.picture else settings.root / "visible.png"
    )
    say(f"Picture: {path}")
    if settings.measured:
        Path(settings.measured).write_text(as_toml(found, settings), encoding="utf-8")


if __name__ == "__main__":
    main()
