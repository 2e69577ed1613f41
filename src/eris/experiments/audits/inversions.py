"""Reconstruction of single images: how many each inversion finds, against what it sees.

``python -m eris.experiments.audits.inversions`` prints DLG and iDLG on MNIST (three 5 × 5
convolutions of 12 channels, sigmoids, one linear layer, all weights U(−0.5, 0.5)), cosine and ROG
on CIFAR-10 (three 3 × 3 convolutions of 16, 32 and 32 channels, ReLU, one linear layer), one
gradient of one image a row, with the control on random numbers beside each. ROG needs its network
(``eris train-prior rog cifar10``); ``--only factors`` shows what it finds without one, by how small
its picture is. GGL needs its generator (``eris train-prior ggl cifar10``); ``--only components``
gives it principal components instead, of MNIST and of scikit-learn's small digits, enlarged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal, get_args

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.inversion import Ggl, Inverted, Rog, SearchBudget, invert
from eris.audit.inversion.generator import PrincipalComponents
from eris.audit.inversion.judging import Likeness, likeness, pictures
from eris.audit.inversion.matching import Mode
from eris.audit.inversion.search import Inversion
from eris.audit.similarity import Lpips, Values
from eris.core.errors import InvalidSetting, one_of
from eris.core.streams import Stream
from eris.data import ImageData, load
from eris.data.catalogue import PIXELS
from eris.data.lpips import load_lpips
from eris.experiments.audits.priors import armed
from eris.experiments.audits.programs import asked, told
from eris.experiments.figures import figure, say
from eris.experiments.runs.progress import NOTE, bar
from eris.models.seeding import seeded, seeded_generator
from eris.training.flat import parameter_count
from eris.training.torch import single_threaded

Part = str
"""Which coordinates are seen: ``random``, or the ``first`` or the ``second`` of them in a row."""


@dataclass(frozen=True)
class InversionRow:
    """One line of the table."""

    attack: str
    share: float
    mode: Mode = "mask-aware"
    part: Part = "random"
    factor: int | None = None
    """Of ROG without its network."""
    components: int | None = None
    """Of GGL without its generator: so many principal components."""
    dataset: str = ""
    """The data set of the images, if not the attack's usual one."""

    @property
    def group(self) -> str:
        """What it is run by."""
        if self.factor is not None:
            return "factors"
        if self.components is not None:
            return "components"
        return self.attack if self.part == "random" else "contiguous"

    @property
    def name(self) -> str:
        """Of the attack, with what is particular about it."""
        if self.components is not None:
            return f"{self.attack}, {self.components} components, {self.data}"
        return self.attack if self.factor is None else f"{self.attack}, 1/{self.factor}, plain"

    @property
    def data(self) -> str:
        """The data set's name."""
        return self.dataset or ("cifar10" if self.attack in ON_COLOURS else "mnist")

    def inversion(self) -> Inversion:
        """The attack, with the network that it needs."""
        if self.factor is not None:
            return Rog(factor=self.factor)
        if self.components is not None:
            return Ggl(components(self.data, self.components))
        return armed(self.attack, self.data)


ON_COLOURS = ("cosine", "rog", "ggl")
"""Attacks that are shown on CIFAR-10, the others on MNIST."""
ROWS = (
    InversionRow("dlg", 1.0),
    InversionRow("idlg", 1.0),
    InversionRow("idlg", 0.5),
    InversionRow("idlg", 0.5, "oblivious"),
    InversionRow("idlg", 0.25),
    InversionRow("idlg", 0.125),
    InversionRow("idlg", 0.05),
    InversionRow("idlg", 0.5, part="first"),
    InversionRow("idlg", 0.5, part="second"),
    InversionRow("cosine", 1.0),
    InversionRow("cosine", 0.5),
    InversionRow("cosine", 0.5, "oblivious"),
    InversionRow("cosine", 0.125),
    InversionRow("cosine", 0.02),
    InversionRow("rog", 1.0),
    *(
        InversionRow("rog", share, mode)
        for share in (0.5, 0.25, 0.125, 0.02)
        for mode in get_args(Mode)
    ),
    *(InversionRow("rog", share, factor=factor) for share in (1.0, 0.125) for factor in (2, 4)),
    InversionRow("ggl", 1.0),
    *(InversionRow("ggl", share, mode) for share in (0.5, 0.125, 0.02) for mode in get_args(Mode)),
    *(
        InversionRow("ggl", share, components=32, dataset=data)
        for data in ("mnist", "digits")
        for share in (1.0, 0.02)
    ),
)


@dataclass(frozen=True)
class Inversions:
    """How many images, and what is spent on each; ``only`` is one group of rows, or ``all``."""

    images: int = 12
    restarts: int = 4
    iterations: int = 3000
    cosine_iterations: int = 1000
    rog_iterations: int = 100
    only: str = "all"
    seed: int = 0

    def __post_init__(self) -> None:
        known = ["all", *dict.fromkeys(row.group for row in ROWS)]
        if self.only not in known:
            raise InvalidSetting("only", self.only, one_of(known, self.only))

    def runs(self, row: InversionRow) -> bool:
        """Whether a row is asked for."""
        return self.only in ("all", row.group)

    def budget(self, attack: str) -> SearchBudget:
        """Of one attack."""
        if attack == "cosine":
            return SearchBudget(self.cosine_iterations)
        if attack == "rog":
            return SearchBudget(self.rog_iterations)
        if attack == "ggl":
            return Ggl.usual
        return SearchBudget(self.iterations, self.restarts)


def sigmoid_network(seed: int, channels: int = 1, side: int = 28, classes: int = 10) -> nn.Module:
    """The network of DLG's authors, for grey images of 28 × 28: 13,426 parameters.

    >>> parameter_count(sigmoid_network(0))
    13426
    """
    layers: list[nn.Module] = []
    for before, stride in ((channels, 2), (12, 2), (12, 1)):
        layers += [nn.Conv2d(before, 12, 5, stride, padding=2), nn.Sigmoid()]
    made = nn.Sequential(*layers, nn.Flatten(), nn.Linear(12 * (side // 4) ** 2, classes))
    generator = seeded_generator(seed)
    for parameter in made.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5, generator=generator)
    return made


def relu_network(seed: int, channels: int = 3, side: int = 32, classes: int = 10) -> nn.Module:
    """A small network for colour images of 32 × 32: 34,826 parameters.

    >>> parameter_count(relu_network(0))
    34826
    """

    def build() -> nn.Sequential:
        layers: list[nn.Module] = []
        for before, wide, stride in ((channels, 16, 1), (16, 32, 2), (32, 32, 2)):
            layers += [nn.Conv2d(before, wide, 3, stride, padding=1), nn.ReLU()]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * (side // 4) ** 2, classes))

    return seeded(build, seed)


@dataclass(frozen=True, eq=False)
class Victims:
    """A model, and clients with one image each; what every one of them sends is its gradient."""

    model: nn.Module
    images: Tensor
    labels: Tensor
    updates: Tensor
    source: str

    @classmethod
    def of(cls, attack: str, count: int, seed: int, dataset: str = "") -> Victims:
        """The first training images of CIFAR-10 for some attacks, else of MNIST, or of others."""
        data = InversionRow(attack, 1.0, dataset=dataset).data
        every, classes, source = pixels(data, "train")
        chosen, labels = every[:count], classes[:count]
        model = relu_network(seed) if data == "cifar10" else sigmoid_network(seed)
        updates = []
        for image, label in zip(chosen, labels, strict=True):
            loss = functional.cross_entropy(model(image[None]), label[None])
            pieces = torch.autograd.grad(loss, list(model.parameters()))
            updates.append(torch.cat([piece.flatten() for piece in pieces]))
        return cls(model, chosen, labels, torch.stack(updates), source)

    def seen(self, share: float, part: Part, seed: int) -> Tensor:
        """Which coordinates of every update are seen."""
        count, size = self.updates.shape
        if part == "random":
            drawn = Stream(seed, "seen coordinates").uniform(0, count * size)
            return torch.from_numpy(drawn.reshape(count, size) < share)
        row = torch.arange(size) < round(share * size)
        return (row if part == "first" else row.flip(0)).repeat(count, 1)

    def inverted(
        self, row: InversionRow, budget: SearchBudget, seed: int, tell: Callable[[float], None]
    ) -> Inverted:
        """What one row's attacker finds."""
        seen = self.seen(row.share, row.part, seed)
        by_number = range(len(self.images))
        return invert(
            self.model, functional.cross_entropy, {n: self.updates[n] for n in by_number},
            mask={n: seen[n] for n in by_number}, shape=self.images.shape[1:],
            attack=row.inversion(), mode=row.mode, budget=budget, seed=seed, tell=tell,
        )  # fmt: skip


def pixels(data: str, part: Literal["train", "test"]) -> tuple[Tensor, Tensor, str]:
    """Images in [0, 1], as large as the networks take them, their labels and their source."""
    found = load(data)
    assert isinstance(found, ImageData)
    images, labels = (
        (found.train_images, found.train_labels)
        if part == "train"
        else (found.test_images, found.test_labels)
    )
    made = torch.from_numpy(images.astype(np.float32) / PIXELS[data][0])
    made = made if made.dim() == 4 else made[:, None]
    if data == "digits":
        made = functional.interpolate(made, (28, 28), mode="bilinear", align_corners=False)
    return made, torch.from_numpy(labels.astype(np.int64)), found.source


@cache
def components(data: str, count: int) -> PrincipalComponents:
    """A prior from images that no client has."""
    return PrincipalComponents.of(pixels(data, "test")[0], count)


@dataclass(frozen=True, eq=False)
class RowFigures:
    """A row with what came of it."""

    row: InversionRow
    found: Likeness
    control: Likeness
    labels: int
    starts: float
    cpu_seconds: float
    nearest: float | None = None
    """The median squared error of the nearest pictures of a prior: GGL's least."""

    def figures(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            **asdict(self.row),
            "name": self.row.name,
            "data": self.row.data,
            "images": len(self.found.mse),
            "reconstructed": self.found.reconstructed,
            "labels right": self.labels,
            "mean starts": self.starts,
            **self.found.medians(),
            **{f"control {name}": value for name, value in self.control.medians().items()},
            "mean PSNR": float(self.found.psnr.mean()),
            **_mean_and_deviation("LPIPS", self.found.lpips),
            **_mean_and_deviation("control LPIPS", self.control.lpips),
            "nearest MSE": self.nearest,
            "cpu seconds an image": self.cpu_seconds / len(self.found.mse),
        }


def _mean_and_deviation(name: str, values: Values | None) -> dict[str, float]:
    """As the papers give it."""
    if values is None:
        return {}
    return {f"mean {name}": float(values.mean()), f"deviation of {name}": float(values.std())}


def rows(settings: Inversions, tell: Callable[[str, float], None]) -> Iterator[RowFigures]:
    """All rows; ``tell`` hears of a row's name and of the share of it that is done."""
    lpips = Lpips(load_lpips().folder)
    chosen = [row for row in ROWS if settings.runs(row)]
    for row in chosen:
        row.inversion()  # a network that is not there is missed now, not after an hour
    for row in chosen:
        victims = Victims.of(row.attack, settings.images, settings.seed, row.dataset)
        spent = time.process_time()
        name = f"{row.name} {row.share:g} {row.part} {row.mode}"
        made = victims.inverted(
            row, settings.budget(row.attack), settings.seed,
            lambda share, name=name: tell(name, share),  # type: ignore[misc]
        )  # fmt: skip
        spent = time.process_time() - spent
        original = pictures(victims.images, 0.0, 1.0)
        found, control = (
            likeness(original, pictures(each[:, 0], 0.0, 1.0), lpips)
            for each in (made.inputs, made.control)
        )
        right = int((made.labels[:, 0] == victims.labels).sum())
        nearest = None
        if row.components is not None:
            prior = components(row.data, row.components)
            near = prior(prior.project(victims.images)).clamp(0, 1)
            nearest = float((near - victims.images).square().mean(dim=(1, 2, 3)).median())
        starts = float(made.starts.float().mean())
        yield RowFigures(row, found, control, right, starts, spent, nearest)


def as_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """A line a row."""
    table = Table("attack", "seen", "mode", "MSE < 1e-4", "labels", "PSNR", "SSIM", "LPIPS",
                  "mean LPIPS", "control PSNR", "control LPIPS", "starts",
                  "CPU s an image")  # fmt: skip
    for one in found:
        table.add_row(
            one["name"],
            f"{100 * one['share']:g} % {one['part']}",
            one["mode"],
            f"{one['reconstructed']} of {one['images']}",
            f"{one['labels right']} of {one['images']}",
            *(figure(one[name], ".1f") for name in ("PSNR",)),
            *(figure(one[name], ".3f") for name in ("SSIM", "LPIPS")),
            " ± ".join(figure(one.get(f"{of} LPIPS"), ".3f") for of in ("mean", "deviation of")),
            figure(one["control PSNR"], ".1f"),
            figure(one["control LPIPS"], ".3f"),
            figure(one["mean starts"], ".1f"),
            figure(one["cpu seconds an image"], ".1f"),
        )
    return table


def main(arguments: list[str] | None = None) -> int:
    """Print the figures; medians over images."""
    options = ("images", "restarts", "iterations", "cosine_iterations", "rog_iterations", "only",
               "seed")  # fmt: skip
    module = "eris.experiments.audits.inversions"
    settings = asked(Inversions, module, __doc__, options, arguments)
    say(f"settings: {asdict(settings)}")
    for row in {row.data: row for row in ROWS if settings.runs(row)}.values():
        victims = Victims.of(row.attack, 1, settings.seed, row.dataset)
        size = f"{parameter_count(victims.model):,} parameters"
        say(f"{row.data}: {victims.source}; {size}; seed {settings.seed}")
    found = []
    with bar(Console(stderr=True), NOTE) as shown, single_threaded():
        task = shown.add_task("inversions", total=1000, note="")

        def advance(name: str, share: float) -> None:
            shown.update(task, completed=round(1000 * share), note=name)

        for one in rows(settings, advance):
            found.append(one.figures())
    told(as_table(found), 150, {"settings": asdict(settings), "rows": found})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
