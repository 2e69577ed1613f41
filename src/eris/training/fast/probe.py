"""Whether a model can be trained for many clients in one pass, found by trying it on few samples.

The gradients of two clients, taken together, must be those that each gives alone. That finds what
the rules for single layers cannot see: a model in which the samples of a batch meet (a mean over
the batch, say). Draws from PyTorch's random state are found by looking at that state.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from eris.training.fast.calls import NotTogether
from eris.training.fast.gradients import GroupGradients
from eris.training.fast.groups import Group
from eris.training.gradients import ClientGradients

AGREEMENT = 1e-3
"""The largest relative difference between the gradients; rounding makes about 10⁻⁶."""


@dataclass(frozen=True)
class Probe:
    """What was found: an obstacle, or how much memory a sample's activations take."""

    obstacle: str | None
    activation_bytes: int = 0


def probe(
    gradients: GroupGradients, first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]
) -> Probe:
    """Try the inputs and targets of two clients, a few samples each."""
    module, position = gradients.flat.module, gradients.flat.read()
    group = Group((len(first[0]), len(second[0])))
    inputs, targets = (torch.cat(pair) for pair in zip(first, second, strict=True))
    before = torch.random.get_rng_state()
    training = module.training
    module.train()
    try:
        saved = _Saved()
        with torch.autograd.graph.saved_tensors_hooks(saved.note, lambda tensor: tensor):
            shared = gradients.shared(position, inputs, targets, group).gradients
        own = position.expand(2, -1).contiguous()
        stacked = gradients.stacked(own, inputs, targets, group).gradients
        if not torch.equal(before, torch.random.get_rng_state()):
            return Probe("the model draws random numbers (dropout, say), each client its own")
        alone = [
            ClientGradients(gradients.flat, *batch, gradients.loss).mean(position, None)[0]
            for batch in (first, second)
        ]
    except NotTogether as reason:
        return Probe(str(reason))
    finally:
        torch.random.set_rng_state(before)
        module.train(training)
    for rows in (shared, stacked):
        for row, expected in zip(rows, alone, strict=True):
            if not float((row - expected).norm()) <= AGREEMENT * float(expected.norm()):
                return Probe("the samples of a batch meet in the model")
    return Probe(None, saved.total // group.samples)


class _Saved:
    """Bytes that the forward pass keeps for the backward pass."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def note(self, tensor: Tensor) -> Tensor:
        self._seen[tensor.untyped_storage().data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    @property
    def total(self) -> int:
        return sum(self._seen.values())
