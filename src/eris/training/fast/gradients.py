"""The gradients of many clients' mean losses from one pass, at one model or at one model each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from eris.training.fast.calls import Calls, NotTogether
from eris.training.fast.groups import Group
from eris.training.fast.shared import SharedCalls, shared_gradients
from eris.training.fast.stacked import StackedCalls, stacked_gradients
from eris.training.flat import FlatParameters
from eris.training.gradients import Loss, mean_loss


class Found(NamedTuple):
    """Every client's flat gradient and its mean loss, and where parameters lie that had no use."""

    gradients: list[Tensor]
    losses: list[float]
    unused: list[slice]


@dataclass(frozen=True)
class GroupGradients:
    """A module (its parameters are neither read nor written) and a loss.

    ``labels`` says that all targets are class numbers, none of them one to be ignored: then the
    cross-entropy of all clients is computed at once. Any other loss is called once a client.
    """

    flat: FlatParameters
    loss: Loss
    labels: bool = False

    def shared(self, position: Tensor, inputs: Tensor, targets: Tensor, group: Group) -> Found:
        """All clients at the flat model ``position``."""
        with torch.enable_grad():
            values = [view.detach().requires_grad_() for view in self.flat.views(position).values()]
            calls = SharedCalls(self.flat.parameters, values, group)
            losses = self._losses(calls, inputs, targets)
            shapes = [value.shape for value in values]
            rows, used = shared_gradients(calls.uses, losses.sum(), group, shapes)
            return Found(rows, losses.tolist(), self.flat.unused([one or None for one in used]))

    def stacked(self, positions: Tensor, inputs: Tensor, targets: Tensor, group: Group) -> Found:
        """Client k at the flat model ``positions[k]``."""
        with torch.enable_grad():
            pairs = zip(self.flat.places, self.flat.parameters, strict=True)
            stacks = [
                positions[:, place].detach().view(len(positions), *of.shape).requires_grad_()
                for place, of in pairs
            ]
            calls = StackedCalls(self.flat.parameters, stacks, group)
            losses = self._losses(calls, inputs, targets)
            found = torch.autograd.grad(losses.sum(), stacks, allow_unused=True)
            rows = stacked_gradients(stacks, found)
            return Found(rows, losses.tolist(), self.flat.unused(found))

    def _losses(self, calls: Calls, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of every client."""
        device = self.flat.device
        with calls:
            outputs = self.flat.module(inputs.to(device))
        if not isinstance(outputs, Tensor) or outputs.shape[:1] != inputs.shape[:1]:
            raise NotTogether("the model's output is not one row a sample")
        targets = targets.to(device)
        if self.labels and self.loss is functional.cross_entropy:
            each = functional.cross_entropy(outputs, targets, reduction="none")
            if each.dim() == 1:
                return calls.group.sums(each * calls.group.weights().to(device))
        batches = zip(calls.group.split(outputs), calls.group.split(targets), strict=True)
        return torch.stack([mean_loss(self.loss, *batch) for batch in batches])


def class_numbers(targets: Tensor) -> bool:
    """Whether all targets are class numbers; −100 marks what the cross-entropy leaves out.

    >>> class_numbers(torch.tensor([0, 3])), class_numbers(torch.tensor([0, -100]))
    (True, False)
    """
    return targets.dim() == 1 and targets.dtype == torch.int64 and bool((targets >= 0).all())
