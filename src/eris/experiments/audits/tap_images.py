"""Images out of what was heard of a client: the FLIP paper's second experiment, by DLG.

In FLIP the tap has an increment, and its own estimate of the model that it began at; where models
travel (FLOP) it has two of them, under NbAFL with noise. DLG is the audit's
(:mod:`eris.audit.inversion`), for as many batches of the clients' size as make the images asked
for, each from a start of its own. It is told the increment divided by −λ and by the local steps:
the mean gradient, if steps were gradients. Then the model that the tap had is asked about the
images, as the paper does.

The images behind an increment are thousands, so each reconstruction is compared with the one of
the client's images that it is closest to. Beside it stand two controls: what DLG makes of random
numbers, and of the exact gradients of single images.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from eris.audit import similarity
from eris.audit.inversion import Inverted, SearchBudget, invert
from eris.audit.inversion.judging import pictures
from eris.audit.similarity import Pictures
from eris.core.vectors import Vector
from eris.experiments.audits.grids import drawn
from eris.experiments.audits.tap_training import TAPPED, Setting, Taped, TapExperiment
from eris.experiments.runs.assembly import Assembly
from eris.training.evaluation import evaluate
from eris.training.flat import joined, unflatten

FLIP, FLOP, NBAFL = "FLIP", "FLOP", "NbAFL"
CONTROL, SINGLE = "random numbers", "one image's gradient"
SINGLES = 8
"""Images whose gradients DLG is given, each alone and exactly: what it can do at its best."""


@dataclass(frozen=True, eq=False)
class Attacker:
    """``model`` is what it takes for the client's model before ``increment`` was added to it."""

    name: str
    model: Vector
    increment: Vector


def attackers(estimate: Vector, plain: Taped, noisy: Taped) -> tuple[Attacker, ...]:
    """Who heard the last round; ``estimate`` is FLIP's tap before it."""
    clear, blurred = plain.client[-2:], noisy.client[-2:]
    return (
        Attacker(FLIP, estimate, plain.increments[-1]),
        Attacker(FLOP, clear[0], clear[1] - clear[0]),
        Attacker(NBAFL, blurred[0], blurred[1] - blurred[0]),
    )


@dataclass(frozen=True, eq=False)
class TappedImages:
    """The tapped client's images and labels, and between what ends their pixels lie."""

    inputs: Tensor
    labels: Tensor

    @classmethod
    def of(cls, assembly: Assembly) -> TappedImages:
        """As it trained on them."""
        data, part = assembly.samples, assembly.samples.parts[TAPPED]
        return cls(torch.from_numpy(data.inputs[part]), torch.from_numpy(data.targets[part]))

    def pictures(self, inputs: Tensor) -> Pictures:
        """Inputs as pictures."""
        ends = self.inputs.amin((0, 2, 3), True)[0], self.inputs.amax((0, 2, 3), True)[0]
        return pictures(inputs, *ends)

    @cached_property
    def originals(self) -> Pictures:
        """All of its images."""
        return self.pictures(self.inputs)

    def closest(self, found: Pictures) -> Tensor:
        """The places of its images that these are closest to."""
        rows, own = (torch.from_numpy(some).flatten(1) for some in (found, self.originals))
        return torch.cdist(rows, own).argmin(1)


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """What one attacker came to, beside what it would have made of random numbers."""

    attacker: Attacker
    inputs: Tensor
    labels: Tensor
    control: Tensor


def rebuilt(
    attacker: Attacker, assembly: Assembly, setting: Setting, settings: TapExperiment
) -> Rebuilt:
    """Images and labels by DLG."""
    batch = min(setting.batch_size, settings.samples, settings.images)
    steps = setting.epochs * math.ceil(settings.samples / setting.batch_size)
    gradient = attacker.increment / np.float32(-settings.learning_rate * steps)
    heard = dict.fromkeys(range(settings.images // batch), gradient)
    made = _dlg(attacker.model, heard, batch, assembly, settings)
    inputs, control = (one.flatten(0, 1) for one in (made.inputs, made.control))
    return Rebuilt(attacker, inputs, made.labels.flatten(), control)


def singles(
    model: Vector, client: TappedImages, assembly: Assembly, settings: TapExperiment
) -> Tensor:
    """What DLG makes of the gradients of the client's first images, one by one."""
    unflatten(model, assembly.module)
    parameters, gradients = list(assembly.module.parameters()), {}
    for number, (image, label) in enumerate(zip(client.inputs, client.labels, strict=True)):
        if number == SINGLES:
            break
        loss = functional.cross_entropy(assembly.module(image[None]), label[None])
        gradients[number] = joined(torch.autograd.grad(loss, parameters)).numpy()
    return _dlg(model, gradients, 1, assembly, settings).inputs[:, 0]


def _dlg(
    model: Vector,
    gradients: Mapping[int, Vector],
    samples: int,
    assembly: Assembly,
    settings: TapExperiment,
) -> Inverted:
    unflatten(model, assembly.module)
    return invert(
        assembly.module, functional.cross_entropy, gradients, samples=samples, attack="dlg",
        shape=assembly.samples.inputs.shape[1:], budget=SearchBudget(settings.iterations),
        seed=settings.seed,
    )  # fmt: skip


def figures(
    found: Sequence[Rebuilt], alone: Tensor, client: TappedImages, assembly: Assembly
) -> dict[str, Any]:
    """Figures 2 and 3: accuracy on the images, and how alike they are to the client's.

    ``alone`` are those of single gradients, which are compared with their own originals.
    """
    shown = {one.attacker.name: client.pictures(one.inputs) for one in found}
    result: dict[str, Any] = {}
    for one in found:
        images, model = shown[one.attacker.name], one.attacker.model
        closest = client.closest(images)
        asked = {"accuracy, DLG's labels": one.labels,
                 "accuracy, labels of the closest": client.labels[closest]}  # fmt: skip
        result[one.attacker.name] = {
            name: evaluate(assembly.module, model, one.inputs, labels)["accuracy"]
            for name, labels in asked.items()
        } | _alike(client.originals[closest.numpy()], images)
    result[CONTROL] = _closest(client, client.pictures(found[0].control))
    result[SINGLE] = _alike(client.originals[: len(alone)], client.pictures(alone))
    apart = 255**2 * similarity.mse(shown[FLIP], shown[NBAFL]).mean()
    alike = similarity.ssim(shown[FLIP], shown[NBAFL]).mean()
    return result | {"images": len(shown[FLIP]), "apart": float(apart), "alike": float(alike)}


def _closest(client: TappedImages, found: Pictures) -> dict[str, float]:
    return _alike(client.originals[client.closest(found).numpy()], found)


def _alike(originals: Pictures, found: Pictures) -> dict[str, float]:
    return {
        "SSIM": float(np.median(similarity.ssim(originals, found))),
        "PSNR": float(np.median(similarity.psnr(originals, found))),
    }


def picture(found: Sequence[Rebuilt], alone: Tensor, client: TappedImages, path: Path) -> Path:
    """Figure 3: each attacker's images below the client's that they are closest to; at the end the
    images of single gradients below their own."""
    lines: list[tuple[str, Pictures]] = []
    for name, inputs in (*((one.attacker.name, one.inputs) for one in found),
                         (CONTROL, found[0].control)):  # fmt: skip
        some = client.pictures(inputs)
        own = client.originals[client.closest(some).numpy()]
        about = f"{name}, SSIM {_alike(own, some)['SSIM']:.3f}"
        lines += [("closest original", own), (about, some)]
    own, some = client.originals[: len(alone)], client.pictures(alone)
    lines += [("original", own), (f"{SINGLE}, {_alike(own, some)['SSIM']:.3f}", some)]
    return drawn(lines, path)
