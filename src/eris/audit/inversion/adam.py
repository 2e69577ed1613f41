"""The walk that the attacks by Adam share: all targets at once, and the best place of each."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim import Adam
from torch.optim.lr_scheduler import LRScheduler

from eris.audit.inversion.search import Tell

Slopes = Callable[[], tuple[Tensor, Tensor]]
"""The loss of every target where the walk is now, and the slope to follow from there."""


def walk(
    at: Tensor,
    step: float,
    decay: Callable[[Adam], LRScheduler],
    slopes: Slopes,
    iterations: int,
    tell: Tell,
    *,
    boxed: bool = False,
) -> tuple[Tensor, Tensor]:
    """The places with the least loss and that loss; ``boxed`` walks stay between 0 and 1.

    >>> at = torch.zeros(1, 1, requires_grad=True)
    >>> still = lambda adam: torch.optim.lr_scheduler.ConstantLR(adam, 1.0)
    >>> def slopes():
    ...     loss = (at - 0.3).square().sum(1)
    ...     return loss.detach(), torch.autograd.grad(loss.sum(), at)[0]
    >>> best, least = walk(at, 0.1, still, slopes, 50, lambda share: None)
    >>> round(float(best), 1), bool(least < 1e-3)
    (0.3, True)
    """
    adam = Adam([at], lr=step)
    slower = decay(adam)
    best, least = at.detach().clone(), torch.full((len(at),), torch.inf)
    for done in range(1, iterations + 1):
        loss, slope = slopes()
        better = loss < least
        least = torch.where(better, loss, least)
        best[better] = at.detach()[better]
        at.grad = slope
        adam.step()
        slower.step()
        if boxed:
            with torch.no_grad():
                at.clamp_(0, 1)
        tell(done / iterations)
    return best, least
