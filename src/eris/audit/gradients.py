"""What an attacker computes with the model: gradients and losses of single samples at any model.

It has the architecture, the loss and its candidates; the flat models come from what it observed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import vmap

from eris.core.vectors import Vector
from eris.training.fast.gradients import GroupGradients, class_numbers
from eris.training.fast.groups import Group
from eris.training.fast.probe import probe
from eris.training.flat import FlatParameters
from eris.training.given import check_data
from eris.training.gradients import ClientGradients, Loss
from eris.training.options import RunningStatistics

BLOCK_BYTES = 24 << 20
"""Gradients that are held at a time: few enough to stay near the processor."""
LOSSES_AT_ONCE = 256


class SampleModel:
    """A model, a loss and samples. The module is copied, and used in evaluation mode.

    >>> import torch
    >>> from torch.nn import functional
    >>> some = SampleModel(nn.Linear(2, 2), functional.cross_entropy, torch.eye(2), torch.arange(2))
    >>> some.losses(np.zeros(6, np.float32)).round(3)
    array([0.693, 0.693])
    >>> [row.round(1).tolist() for _, row in some.gradients(np.zeros(6, np.float32))][0]
    [-0.5, 0.0, 0.5, 0.0, -0.5, 0.5]
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        inputs: Tensor,
        targets: Tensor,
        *,
        running_statistics: RunningStatistics = "refuse",
    ) -> None:
        check_data(inputs, targets)
        self.flat = FlatParameters(copy.deepcopy(module), running_statistics)
        self.flat.module.eval()
        self.loss, self.inputs, self.targets = loss, inputs, targets
        self._each = ClientGradients(self.flat, inputs, targets, loss)

    def __len__(self) -> int:
        return len(self.inputs)

    @cached_property
    def _together(self) -> GroupGradients | None:
        """How gradients of single samples come from one pass; None where the model forbids it."""
        gradients = GroupGradients(self.flat, self.loss, class_numbers(self.targets))
        if len(self) < 5:
            return None
        few = [(self.inputs[a:b], self.targets[a:b]) for a, b in ((0, 2), (2, 5))]
        found = probe(gradients, few[0], few[1])
        self.flat.module.eval()
        return gradients if found.obstacle is None else None

    def gradients(
        self, model: Vector, places: NDArray[np.int64] | None = None
    ) -> Iterator[tuple[int, Vector]]:
        """(place, gradient of its loss) of the samples at these places (all by default)."""
        position = self.flat.checked(model)
        numbers = np.arange(len(self)) if places is None else places
        together = self._together
        self.flat.write(position)
        behind = (0, len(self.flat) - self.flat.trained)  # averaged statistics have no gradient
        block = max(1, BLOCK_BYTES // (4 * len(self.flat)))
        for start in range(0, len(numbers), block):
            chosen = numbers[start : start + block]
            taken = torch.from_numpy(chosen)
            if together is None:
                rows, _ = self._each.each(position, taken)
                found = list(rows)
            else:
                data = self.inputs[taken], self.targets[taken]
                found = together.shared(position, *data, Group((1,) * len(chosen))).gradients
            for place, row in zip(chosen.tolist(), found, strict=True):
                yield place, np.pad(row.detach().cpu().numpy(), behind)

    def losses(self, model: Vector, places: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """The loss of every sample at these places (all by default)."""
        self.flat.write(self.flat.checked(model))
        numbers = np.arange(len(self)) if places is None else places
        found = []
        with torch.no_grad():
            for start in range(0, len(numbers), LOSSES_AT_ONCE):
                taken = torch.from_numpy(numbers[start : start + LOSSES_AT_ONCE])
                outputs = self.flat.module(self.inputs[taken].to(self.flat.device))
                targets = self.targets[taken].to(self.flat.device)
                found.append(self._losses(outputs, targets).double().cpu().numpy())
        return np.concatenate(found)

    def _losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss is a batch's mean: that of a batch of one is a sample's."""

        def single(output: Tensor, target: Tensor) -> Tensor:
            return self.loss(output.unsqueeze(0), target.unsqueeze(0))

        try:
            found: Tensor = vmap(single)(outputs, targets)
        except RuntimeError:  # vmap's refusals have no class of their own
            pairs = zip(outputs, targets, strict=True)
            found = torch.stack([single(output, target) for output, target in pairs])
        return found
