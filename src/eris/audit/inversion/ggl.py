"""GGL, "generative gradient leakage" (Li, Zhang, Liu and Liu, 2022): the pictures of a generator.

Not pixels are searched but a generator's codes, by Adam or by CMA-ES, which needs no slopes:
‖T(g′) − g‖²/‖g‖² plus how far the code's numbers are from N(0, 1), as the divergence of the normal
distribution with their mean and variance. T is what the defence makes of a gradient
(:mod:`~eris.audit.inversion.modelled`). Labels are read off as iDLG does. What comes out always
looks like a picture, whatever went in: only the control says how much of it was in the update.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.optim.lr_scheduler import CosineAnnealingLR

from eris.audit.inversion.adam import walk
from eris.audit.inversion.generator import Generator, generator
from eris.audit.inversion.labels import candidates
from eris.audit.inversion.matching import Matching, squared
from eris.audit.inversion.modelled import DEFENCES
from eris.audit.inversion.search import Attempt, SearchBudget, Tell
from eris.audit.inversion.trained import PriorRecipe, TrainedPrior
from eris.core.errors import InvalidSetting, library, one_of, require
from eris.core.streams import Stream

By = Literal["adam", "cma-es"]


@dataclass(frozen=True)
class Ggl:
    """``generator`` makes pictures of codes; there is no attack without one. ``by`` is how codes
    are searched, ``defence`` what is known to have been done to updates.

    ``divergence`` weighs the codes' distance from N(0, 1) against the relative error of the
    gradient. ``step`` is Adam's, 0.1, or the first deviation of CMA-ES, 0.5, unless another is
    given.
    """

    name: ClassVar[str] = "ggl"
    usual: ClassVar[SearchBudget] = SearchBudget(300, restarts=1)
    generator: Generator | None = None
    by: By = "adam"
    defence: str = "none"
    divergence: float = 0.01
    step: float | None = None

    def __post_init__(self) -> None:
        require(self.by in get_args(By), "by", self.by, one_of(get_args(By), self.by))
        known = one_of(DEFENCES, self.defence)
        require(self.defence in DEFENCES, "defence", self.defence, known)
        require(self.divergence >= 0, "divergence", self.divergence, "a number from 0 up")
        require(self.step is None or self.step > 0, "step", self.step, "a number above 0")

    def labels(self, matching: Matching) -> list[Tensor]:
        """Read from the update."""
        return candidates(matching)

    def attempt(
        self, matching: Matching, labels: Tensor | None, start: Tensor, iterations: int, tell: Tell
    ) -> Attempt:
        """Search codes from the first numbers of ``start``, as many as the generator takes."""
        assert labels is not None
        self._check(matching)
        codes = start.flatten(2)[..., : self._generator.latents].clone()
        found = self._adam if self.by == "adam" else self._evolved
        codes, least = found(matching, labels, codes, iterations, tell)
        with torch.no_grad():
            return Attempt(self._inputs(matching, codes), labels, least)

    def solved(self, matching: Matching, loss: Tensor) -> Tensor:
        """A loss with a prior in it has no end: every start is made."""
        return torch.zeros(len(loss), dtype=torch.bool)

    @property
    def _generator(self) -> Generator:
        if self.generator is None:
            expected = (
                "a generator: `eris train-prior ggl DATA` trains one for mnist, cifar10 and faces; "
                "for other data call `invert` with `Ggl(generator=…)`, of principal components "
                "(`PrincipalComponents.of`) or of your own"
            )
            raise InvalidSetting("prior of ggl", None, expected)
        return self.generator

    def _check(self, matching: Matching) -> None:
        shape, latents = tuple(self._generator.shape), self._generator.latents
        if shape != matching.shape:
            expected = f"{matching.shape}, as the model's samples: train or bring another"
            raise InvalidSetting("shape of the generator's pictures", shape, expected)
        if not 1 <= latents <= math.prod(shape):
            expected = f"from 1 to {math.prod(shape):,}, the numbers of a picture"
            raise InvalidSetting("latents of the generator", latents, expected)

    def _inputs(self, matching: Matching, codes: Tensor) -> Tensor:
        """What the model is given: the generator's pictures, in the box of the samples."""
        pictures = self._generator(codes.flatten(0, 1)).reshape(*codes.shape[:2], *matching.shape)
        low, high = torch.as_tensor(matching.low), torch.as_tensor(matching.high)
        return low + (high - low) * pictures

    def _distance(self, found: Tensor, observed: Tensor, weights: Tensor) -> Tensor:
        trial = DEFENCES[self.defence](found, observed, weights)
        return squared(trial, observed, weights) / observed.square().sum(1)

    def _adam(
        self, matching: Matching, labels: Tensor, codes: Tensor, iterations: int, tell: Tell
    ) -> tuple[Tensor, Tensor]:
        at = codes.requires_grad_()

        def slopes() -> tuple[Tensor, Tensor]:
            loss, (slope,) = matching.gradients(
                self._inputs(matching, at), labels, self._distance, [at],
                lambda: self.divergence * divergence(at),
            )  # fmt: skip
            return loss, slope

        return walk(
            at, self.step or 0.1, lambda adam: CosineAnnealingLR(adam, iterations), slopes,
            iterations, tell,
        )  # fmt: skip

    def _evolved(
        self, matching: Matching, labels: Tensor, codes: Tensor, iterations: int, tell: Tell
    ) -> tuple[Tensor, Tensor]:
        """Every target has an evolution of its own; what they ask for is evaluated together."""
        evolutions = [_evolution(row.flatten(), self.step or 0.5) for row in codes]
        for done in range(1, iterations + 1):
            asked = [evolution.ask() for evolution in evolutions]
            size = len(asked[0])
            tried = torch.from_numpy(np.array(asked)).float().reshape(-1, *codes.shape[1:])
            rows = torch.arange(len(codes)).repeat_interleave(size)
            with torch.no_grad():
                inputs = self._inputs(matching, tried)
            loss = matching.rows(rows).distances(inputs, labels[rows], self._distance)
            loss = (loss + self.divergence * divergence(tried)).reshape(-1, size)
            for evolution, some, its in zip(evolutions, asked, loss, strict=True):
                evolution.tell(some, its.double().tolist())
            tell(done / iterations)
        best = np.array([evolution.result.xbest for evolution in evolutions])
        least = torch.tensor([evolution.result.fbest for evolution in evolutions])
        return torch.from_numpy(best).float().reshape(codes.shape), least


def armed(recipe: PriorRecipe, trained: TrainedPrior) -> Ggl:
    """The attack with a trained generator."""
    return Ggl(generator(recipe, trained))


def divergence(codes: Tensor) -> Tensor:
    """KL(N(m, v) ‖ N(0, 1)) with the mean and the variance of each code's numbers; the mean over a
    target's samples.

    >>> round(float(divergence(torch.tensor([[[-1.0, 1.0]]]))), 6)
    0.0
    >>> round(float(divergence(torch.tensor([[[1.0, 3.0]]]))), 6)
    2.0
    """
    mean, variance = codes.mean(-1), codes.var(-1, unbiased=False).clamp(min=1e-12)
    return ((mean.square() + variance - 1 - variance.log()) / 2).mean(1)


def _evolution(start: Tensor, step: float) -> Any:
    """CMA-ES from a place; what it draws follows from that, and not from numpy's global state."""
    cma = library("cma", "cma", "audit")
    place = start.numpy().astype(np.float64)
    name = int.from_bytes(hashlib.sha256(place.tobytes()).digest()[:8], "little")
    stream, drawn = Stream(name, "ggl evolution"), 0

    def normal(*shape: int) -> Any:
        nonlocal drawn
        found = stream.normal(drawn, math.prod(shape)).reshape(shape)
        drawn += found.size
        return found

    quiet = {"verbose": -9, "seed": math.nan, "randn": normal}
    return cma.CMAEvolutionStrategy(place, step, quiet)
