"""Gradients of one client's loss at any flat model: of a batch, or of every sample in it.

The gradient of a batch is that of the mean loss. The gradients of single samples are exact: each is
what a batch of that sample alone would give. They are computed together by ``torch.func.vmap`` and,
for models it cannot take (data-dependent branches, recurrent layers), one sample after another.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from eris.core.errors import InvalidSetting
from eris.training.flat import FlatParameters

Loss = Callable[[Tensor, Tensor], Tensor]
"""The mean loss of a batch from the model's output and the targets."""

Chosen = Tensor | None
"""The numbers of the samples in a batch; None is all of them, in their order."""

StepGradient = Callable[[int, Tensor, Chosen], tuple[Tensor, float]]
"""The gradient and the loss of a step, from its number, the model it starts at, and its batch."""


class ClientGradients:
    """The data of one client, and a module to take gradients with.

    The module is set to training mode by whoever uses this, and its parameters are overwritten.
    """

    def __init__(self, flat: FlatParameters, inputs: Tensor, targets: Tensor, loss: Loss) -> None:
        self.flat, self.inputs, self.targets, self.loss = flat, inputs, targets, loss
        self.unused: list[slice] = []
        """Where parameters lie that the last ``mean`` did not use; ``each`` counts all as used."""
        self.altered: Callable[[Tensor], Tensor] | None = None
        """What a batch is trained as, if not as it is."""
        self._vmapped = True  # until the model turns out not to allow it

    def __len__(self) -> int:
        return len(self.inputs)

    def mean(self, position: Tensor, chosen: Chosen) -> tuple[Tensor, float]:
        """The gradient of the chosen samples' mean loss at a flat model, and that loss."""
        self.flat.write(position)
        inputs, targets = self._batch(chosen)
        with torch.enable_grad():
            loss = mean_loss(self.loss, self._outputs(inputs), targets)
            pieces = torch.autograd.grad(loss, self.flat.parameters, allow_unused=True)
        self.unused = self.flat.unused(pieces)
        return self.flat.gradient(pieces), float(loss.detach())

    def _outputs(self, inputs: Tensor) -> Tensor:
        try:
            outputs: Tensor = self.flat.module(inputs)
        except ValueError as refusal:  # batch norm on a batch of one, say
            expected = f"one that {type(self.flat.module).__name__} takes; it says: {refusal}"
            raise InvalidSetting("batch", f"of {len(inputs)}", expected) from refusal
        return outputs

    def each(self, position: Tensor, chosen: Chosen) -> tuple[Tensor, float]:
        """The gradients of the chosen samples, one a row, and the mean of their losses."""
        found = self._each(position, chosen)
        self.unused = []
        return found

    def _each(self, position: Tensor, chosen: Chosen) -> tuple[Tensor, float]:
        if self._vmapped:
            drawn = torch.random.get_rng_state()
            try:
                return self._together(position, chosen)
            except RuntimeError:
                # vmap's refusals have no class of their own. If the model is at fault and not
                # vmap, the loop meets the same error and lets it through. What was drawn in vain
                # is put back: a client that has been here before would not draw it.
                self._vmapped = False
                torch.random.set_rng_state(drawn)
        numbers = range(len(self)) if chosen is None else chosen.tolist()
        rows = [self.mean(position, torch.tensor([number])) for number in numbers]
        losses = sum(loss for _, loss in rows)
        return torch.stack([gradient for gradient, _ in rows]), losses / len(rows)

    def _together(self, position: Tensor, chosen: Chosen) -> tuple[Tensor, float]:
        def loss(views: dict[str, Tensor], sample: Tensor, target: Tensor) -> Tensor:
            output = functional_call(self.flat.module, views, (sample.unsqueeze(0),))
            return self.loss(output, target.unsqueeze(0))

        rows = vmap(grad_and_value(loss), in_dims=(None, 0, 0), randomness="different")
        # Gradients that nobody watches: grad_and_value must not itself be under no_grad.
        with torch.enable_grad():
            pieces, losses = rows(self.flat.views(position), *self._batch(chosen))
        count = len(losses)
        flat = [pieces[name].detach().reshape(count, -1) for name in self.flat.names]
        return torch.cat(flat, dim=1), float(losses.detach().mean())

    def _batch(self, chosen: Chosen) -> tuple[Tensor, Tensor]:
        device = self.flat.device
        inputs, targets = self.inputs, self.targets
        if chosen is not None:
            inputs, targets = inputs[chosen], targets[chosen]
        if self.altered is not None:
            inputs = self.altered(inputs)
        return inputs.to(device), targets.to(device)


def mean_loss(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of a batch, which must be one number."""
    found = loss(outputs, targets)
    if found.dim() != 0:
        raise InvalidSetting("shape of the loss", tuple(found.shape), "(), a batch's mean")
    return found
