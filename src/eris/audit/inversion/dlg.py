"""DLG, "deep leakage from gradients" (Zhu, Liu and Han, 2019): samples and soft labels together.

Both start at N(0, 1), and L-BFGS makes Σ(g′ − g)² small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from eris.audit.inversion.lbfgs import BatchedLbfgs
from eris.audit.inversion.matching import Matching, squared
from eris.audit.inversion.search import Attempt, SearchBudget, Tell

SOLVED, FINEST = 1e-8, 1e-11
"""A loss below the first share of the update's squared norm is a match, which needs no other start.
The search goes on to the second, near rounding: the fewer coordinates are seen, the more of an
image a loss leaves open."""


@dataclass(frozen=True)
class Dlg:
    """The attack without label inference."""

    name: ClassVar[str] = "dlg"
    usual: ClassVar[SearchBudget] = SearchBudget(3000, restarts=4)

    def labels(self, matching: Matching) -> list[Tensor] | None:
        """None are needed."""
        return None

    def attempt(
        self, matching: Matching, labels: Tensor | None, start: Tensor, iterations: int, tell: Tell
    ) -> Attempt:
        """L-BFGS over samples and, unless labels are given, the logits of soft labels."""
        count, samples = start.shape[:2]
        size = start[0].numel()
        first = start.reshape(count, -1)
        if labels is None:
            # As random as the samples; the numbers are used once more so as to need no others.
            logits = first.repeat(1, 1 + samples * matching.classes // size)
            first = torch.cat([first, logits[:, : samples * matching.classes]], 1)

        def targets(numbers: Tensor, places: Tensor) -> Tensor:
            if labels is not None:
                return labels[numbers]
            return places[:, size:].reshape(len(places), samples, -1).softmax(-1)

        def evaluate(numbers: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
            at = places.detach().requires_grad_()
            inputs = at[:, :size].reshape(-1, *start.shape[1:])
            loss, (slope,) = matching.rows(numbers).gradients(
                inputs, targets(numbers, at), squared, [at]
            )
            return loss, slope

        places, loss = BatchedLbfgs(iterations).minimise(
            evaluate, first, FINEST * matching.norms, lambda done: tell(done / iterations)
        )
        found = places[:, :size].reshape(start.shape)
        chosen = targets(torch.arange(count), places)
        return Attempt(found, chosen if labels is not None else chosen.argmax(-1), loss)

    def solved(self, matching: Matching, loss: Tensor) -> Tensor:
        """Which losses are no more than rounding."""
        return loss <= SOLVED * matching.norms
