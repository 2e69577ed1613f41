"""Cosine, "inverting gradients" (Geiping, Bauermeister, Dröge and Moeller, 2020).

1 − cos(g′, g) + α·TV becomes small by Adam on the sign of its gradient; after every step the image
is put back into its box. The step is 0.1, a tenth of that after 3/8, 5/8 and 7/8 of the iterations.
The best iterate is kept. Labels are read off as iDLG does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.optim.lr_scheduler import MultiStepLR

from eris.audit.inversion.adam import walk
from eris.audit.inversion.labels import candidates
from eris.audit.inversion.matching import Matching, angular
from eris.audit.inversion.search import Attempt, SearchBudget, Tell
from eris.core.errors import InvalidSetting, require


@dataclass(frozen=True)
class Cosine:
    """``total_variation`` is α: 0.01 for small networks, 0.2 for large ones."""

    name: ClassVar[str] = "cosine"
    usual: ClassVar[SearchBudget] = SearchBudget(1000, restarts=1)
    total_variation: float = 0.01
    step: float = 0.1

    def __post_init__(self) -> None:
        for name in ("total_variation", "step"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "a number from 0 up")

    def labels(self, matching: Matching) -> list[Tensor]:
        """Read from the update."""
        return candidates(matching)

    def attempt(
        self, matching: Matching, labels: Tensor | None, start: Tensor, iterations: int, tell: Tell
    ) -> Attempt:
        """Adam from the middle of the box, as wide around it as its pixels."""
        assert labels is not None
        low, high = torch.as_tensor(matching.low), torch.as_tensor(matching.high)
        width = high - low
        # In units of the box, so that α and the step mean the same whatever the pixels' scale.
        at = (0.5 + 0.25 * start).clamp(0, 1).requires_grad_()
        marks = [iterations * eighths // 8 for eighths in (3, 5, 7)]

        def slopes() -> tuple[Tensor, Tensor]:
            loss, (slope,) = matching.gradients(
                low + width * at, labels, angular, [at],
                lambda: self.total_variation * total_variation(at),
            )  # fmt: skip
            return loss, slope.sign()

        best, least = walk(
            at, self.step, lambda adam: MultiStepLR(adam, marks, gamma=0.1), slopes, iterations,
            tell, boxed=True,
        )  # fmt: skip
        return Attempt(low + width * best, labels, least)

    def solved(self, matching: Matching, loss: Tensor) -> Tensor:
        """A loss with a prior in it has no end: every start is made."""
        return torch.zeros(len(loss), dtype=torch.bool)


def total_variation(images: Tensor) -> Tensor:
    """The mean step between neighbouring pixels, across and down, of each target's images.

    >>> total_variation(torch.tensor([[[[[0.0, 1.0], [0.0, 1.0]]]]])).tolist()
    [1.0]
    """
    if images.dim() != 5:
        found = tuple(images.shape[2:])
        raise InvalidSetting("shape of a sample", found, "(channels, height, width), an image")
    across = (images[..., 1:] - images[..., :-1]).abs().mean(dim=(1, 2, 3, 4))
    down = (images[..., 1:, :] - images[..., :-1, :]).abs().mean(dim=(1, 2, 3, 4))
    return across + down
