"""ROG, "reconstruction from obfuscated gradients" (Yue et al., "Gradient obfuscation gives a false
sense of security in federated learning", 2023): a small picture, enlarged.

What is searched for is a picture with fewer pixels, uniform at the start, whose bicubic enlargement
makes Σ(g′ − g)² small; fewer unknowns need fewer coordinates. Adam takes 100 steps of 0.05, which
decay by a cosine; after each the small picture is put back into its box. A network that was trained
on such pictures (:mod:`enhancement`) then enhances what was found. Labels are read as iDLG does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import CosineAnnealingLR

from eris.audit.inversion.adam import walk
from eris.audit.inversion.labels import candidates
from eris.audit.inversion.matching import Matching, squared
from eris.audit.inversion.search import Attempt, SearchBudget, Tell
from eris.core.errors import InvalidSetting, require


@dataclass(frozen=True, eq=False)
class Rog:
    """``enhance`` takes pictures (count, channels, height, width) in [0, 1] and gives such; without
    it the enlarged picture is the result. ``factor`` is how many pixels become one, each way: 2
    below 64 pixels, else 4, unless another is given."""

    name: ClassVar[str] = "rog"
    usual: ClassVar[SearchBudget] = SearchBudget(100, restarts=1)
    enhance: nn.Module | None = None
    factor: int | None = None
    step: float = 0.05

    def __post_init__(self) -> None:
        require(self.factor is None or self.factor >= 1, "factor", self.factor, "at least 1")
        require(self.step > 0, "step", self.step, "a number above 0")

    def labels(self, matching: Matching) -> list[Tensor]:
        """Read from the update."""
        return candidates(matching)

    def attempt(
        self, matching: Matching, labels: Tensor | None, start: Tensor, iterations: int, tell: Tell
    ) -> Attempt:
        """Adam over the small picture, in units of the pixels' box."""
        assert labels is not None
        if start.dim() != 5:
            found = tuple(start.shape[2:])
            raise InvalidSetting("shape of a sample", found, "(channels, height, width), an image")
        low, high = torch.as_tensor(matching.low), torch.as_tensor(matching.high)
        height, width = start.shape[3:]
        factor = self.factor or (2 if min(height, width) < 64 else 4)
        rows, columns = -(-height // factor), -(-width // factor)
        small = torch.special.ndtr(start[..., :rows, :columns]).requires_grad_()

        def slopes() -> tuple[Tensor, Tensor]:
            loss, (slope,) = matching.gradients(
                low + (high - low) * enlarged(small, height, width), labels, squared, [small]
            )
            return loss, slope

        best, least = walk(
            small, self.step, lambda adam: CosineAnnealingLR(adam, iterations), slopes, iterations,
            tell, boxed=True,
        )  # fmt: skip
        pictures = self.enhanced(enlarged(best, height, width).clamp(0, 1))
        return Attempt(low + (high - low) * pictures, labels, least)

    @torch.no_grad()
    def enhanced(self, pictures: Tensor) -> Tensor:
        """What the network makes of pictures (targets, samples, channels, height, width)."""
        if self.enhance is None:
            return pictures
        try:
            made: Tensor = self.enhance(pictures.flatten(0, 1)).reshape(pictures.shape)
        except RuntimeError as refused:
            expected = (
                "pictures that the enhancement network takes and gives; name a network that was "
                f"trained on such, or none ({str(refused).strip().partition(chr(10))[0]})"
            )
            raise InvalidSetting("samples", tuple(pictures.shape[2:]), expected) from refused
        return made.clamp(0, 1)

    def solved(self, matching: Matching, loss: Tensor) -> Tensor:
        """A small picture cannot match exactly: every start is made."""
        return torch.zeros(len(loss), dtype=torch.bool)


def enlarged(small: Tensor, height: int, width: int) -> Tensor:
    """Small pictures (…, channels, rows, columns) by bicubic interpolation.

    >>> enlarged(torch.ones(1, 1, 1, 2, 2), 5, 4).shape
    torch.Size([1, 1, 1, 5, 4])
    """
    made = functional.interpolate(
        small.flatten(0, -4), (height, width), mode="bicubic", align_corners=False
    )
    return made.reshape(*small.shape[:-2], height, width)
