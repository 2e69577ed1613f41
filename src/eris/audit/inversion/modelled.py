"""What a defence made of a gradient, made of the trial gradient too, before both are compared.

An attacker knows the defence: it is part of what is agreed. How far a client was clipped, or how
much it pruned, it reads off what it observed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Modelled = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Trial gradients (B, n) as the defence would have sent them, from these, what was observed, and
the weights of coordinates (1 where they are compared)."""


def untouched(trial: Tensor, observed: Tensor, weights: Tensor) -> Tensor:
    """Nothing to do: unbiased quantisers, and noise, leave a gradient what it is on average."""
    return trial


def clipped(trial: Tensor, observed: Tensor, weights: Tensor) -> Tensor:
    """No longer than what was observed, on what is compared.

    A client's gradient that was clipped is its direction at the bound's length; so is its part on
    any coordinates, at another length.

    >>> ones = torch.ones(1, 4)
    >>> clipped(6 * ones, 2 * ones, ones).tolist(), clipped(ones, 2 * ones, ones).tolist()
    ([[2.0, 2.0, 2.0, 2.0]], [[1.0, 1.0, 1.0, 1.0]])
    """
    return _cut(trial, weights, (weights * observed.square()).sum(1))


def noisy(trial: Tensor, observed: Tensor, weights: Tensor) -> Tensor:
    """Clipped, and the noise that came after is no part of the length.

    Its deviation is estimated by the median size of what was observed (0.6745 σ of normal numbers):
    most coordinates of a gradient are far below its largest, so noise that matters is most of them.

    >>> observed = torch.cat([torch.tensor([10.0]), torch.tensor([-1.0, 1.0]).repeat(49)])[None]
    >>> far = 100 * torch.eye(1, 99)
    >>> 0 < noisy(far, observed, torch.ones(1, 99))[0, 0] < 10
    tensor(True)
    """
    sizes = torch.where(weights > 0, observed.abs(), torch.nan)
    variance = (sizes.nanmedian(1).values / 0.6745).square()
    total = (weights * observed.square()).sum(1)
    # Never less than a hundredth: an estimate may take all there is for noise.
    return _cut(trial, weights, torch.maximum(total - variance * weights.sum(1), total / 100))


def pruned(trial: Tensor, observed: Tensor, weights: Tensor) -> Tensor:
    """Zero where the observation is: which coordinates a client dropped can be seen.

    >>> pruned(torch.ones(1, 3), torch.tensor([[0.0, 5.0, 0.0]]), torch.ones(1, 3)).tolist()
    [[0.0, 1.0, 0.0]]
    """
    return trial * (observed != 0)


def largest(trial: Tensor, observed: Tensor, weights: Tensor) -> Tensor:
    """Its own largest values, as many as the observation has.

    >>> trial, observed = torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[0.0, 5.0, 0.0]])
    >>> largest(trial, observed, torch.ones(1, 3)).tolist()
    [[3.0, 0.0, 0.0]]
    """
    sizes = trial.detach().abs() * weights
    count = (observed != 0).sum(1, keepdim=True)
    least = sizes.sort(dim=1, descending=True).values.gather(1, count - 1)
    return trial * (sizes >= least)


DEFENCES: Mapping[str, Modelled] = {
    "none": untouched,
    "quantised": untouched,
    "clipped": clipped,
    "noisy": noisy,
    "pruned": pruned,
    "top-k": largest,
}
"""By what the defence does. Masks need no line: what was not seen is not compared."""


def _cut(trial: Tensor, weights: Tensor, longest: Tensor) -> Tensor:
    squares = (weights * trial.square()).sum(1).clamp(min=1e-30)
    return trial * (longest / squares).sqrt().clamp(max=1.0)[:, None]
