"""Per-sample clipping and Gaussian noise in a step: DP-SGD (Abadi et al., 2016), at the client.

A batch's gradient becomes (Σ_i clip(∇f_i, C) + N(0, σ²))/b. Norms, sum and noise are float64; a
gradient that is too long is scaled to just under C, so that adding or removing one sample moves the
sum by at most C. Only then is the result rounded to float32. (That is so for given gradients. They
are float32, and one product computes those of a whole batch, so how the *others* round depends on
the batch: some 1e-7 of their length.)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from eris.core.errors import InvalidSetting
from eris.core.noise import Draws
from eris.training.gradients import Chosen, ClientGradients, StepGradient
from eris.training.trainer import PerSampleNoise

_MARGIN = 1 - 2.0**-40  # more than float64 loses in a norm or a product
_PIECE = 1 << 24  # numbers in the per-sample gradients held at a time: 64 MiB


def noisy_steps(noise: PerSampleNoise, source: Draws, gradients: ClientGradients) -> StepGradient:
    """The noisy gradients of one client's round, with losses, which are as private as the data.

    Step s adds draws s·n to (s + 1)·n of ``source``, n being the number of parameters.
    """
    if not 0 < noise.clip < math.inf:
        raise InvalidSetting("clip", noise.clip, "a finite number above 0")
    if not 0 <= noise.sigma < math.inf:
        raise InvalidSetting("sigma", noise.sigma, "a finite number, 0 or more")

    def gradient(step: int, position: Tensor, chosen: Chosen) -> tuple[Tensor, float]:
        total, loss, count = clipped_sum(position, chosen, gradients, noise.clip)
        draws = torch.from_numpy(source.normal(step * len(total), len(total))).to(total.device)
        return total.add_(draws, alpha=noise.sigma).div_(count).float(), loss

    return gradient


def clipped_sum(
    position: Tensor, chosen: Chosen, gradients: ClientGradients, clip: float
) -> tuple[Tensor, float, int]:
    """The sum of the samples' clipped gradients in float64, their mean loss, and how many."""
    numbers = torch.arange(len(gradients)) if chosen is None else chosen
    total = torch.zeros_like(position, dtype=torch.float64)
    losses = 0.0
    size = max(1, _PIECE // len(position))
    for start in range(0, len(numbers), size):
        piece = numbers[start : start + size]
        rows, loss = gradients.each(position, piece)
        exact = rows.double()
        norms = exact.norm(dim=1)
        if not norms.isfinite().all():
            raise InvalidSetting("norm of a sample's gradient", "not finite", "a finite one")
        scales = torch.where(norms > clip, clip / norms * _MARGIN, 1.0)
        total += scales @ exact
        losses += loss * len(piece)
    return total, losses / len(numbers), len(numbers)
