"""Gradients of many clients, each at a model of its own, from one forward and one backward pass.

Every parameter is stacked, one copy a client. Linear layers become batched products, convolutions
run a client at a time, and all that lies between them (activations, pooling, norms, the loss) is
done for all clients at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from eris.training.fast.calls import Calls, Function, Norm, Window
from eris.training.fast.groups import joined_rows


class StackedCalls(Calls):
    """A pass in which client k has the parameters ``values[…][k]``."""

    def _stack(self, parameter: Tensor) -> Tensor:
        """One copy a client; a frozen parameter is the same for all."""
        number = self.number(parameter)
        if number is None:
            return parameter.expand(len(self.group), *parameter.shape)
        return self.values[number]

    def _copies(self, parameter: Tensor | None) -> Sequence[Tensor | None]:
        if parameter is None:
            return [None] * len(self.group)
        return self._stack(parameter).unbind(0)

    def linear(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """A batched product for each run of equal clients."""
        group, weights = self.group, self._stack(weight)
        shifts = [None] * len(group.runs)
        biases = shifts if bias is None else group.client_blocks(self._stack(bias).unsqueeze(2))
        blocks = zip(group.sample_blocks(input), group.client_blocks(weights), biases, strict=True)
        return joined_rows([_products(*block) for block in blocks])

    def convolution(
        self, func: Function, input: Tensor, weight: Tensor, bias: Tensor | None, window: Window
    ) -> Tensor:
        """One convolution a client."""
        batches = zip(
            self.group.split(input), self._copies(weight), self._copies(bias), strict=True
        )
        return joined_rows(
            [func(batch, kernel, shift, *window) for batch, kernel, shift in batches]
        )

    def embedding(self, input: Tensor, weight: Tensor, padding_idx: int | None) -> Tensor:
        """One table a client."""
        batches = zip(self.group.split(input), self._copies(weight), strict=True)
        return joined_rows(
            [functional.embedding(taken, table, padding_idx) for taken, table in batches]  # type: ignore[arg-type]
        )

    def norm(
        self, apply: Norm, input: Tensor, weight: Tensor | None, bias: Tensor | None, trailing: int
    ) -> Tensor:
        """The norm of all samples, then each client's scale and shift."""
        left = apply(input, None, None)
        if weight is not None:
            left = left * self.aligned(weight, left, trailing)
        return left if bias is None else left + self.aligned(bias, left, trailing)

    def expanded(self, parameter: Tensor) -> Tensor:
        """Each client's value, seen from each of its samples."""
        return self.group.spread(self._stack(parameter))


def _products(entered: Tensor, weights: Tensor, biases: Tensor | None) -> Tensor:
    """x·Wᵀ + b for each client of a run, as (W·xᵀ)ᵀ, so that W's gradient is not transposed."""
    columns = entered.flatten(1, -2).transpose(1, 2)
    if biases is None:
        left = torch.bmm(weights, columns)
    else:
        left = torch.baddbmm(biases, weights, columns)
    return left.transpose(1, 2).reshape(-1, *entered.shape[2:-1], weights.shape[1])


def stacked_gradients(stacks: Sequence[Tensor], found: Sequence[Tensor | None]) -> list[Tensor]:
    """Every client's flat gradient, from those of the stacks; a stack without one has zeros."""
    pairs = zip(stacks, found, strict=True)
    whole = [torch.zeros_like(stack) if one is None else one for stack, one in pairs]
    flat = [one.flatten(1) if one.dim() > 1 else one.unsqueeze(1) for one in whole]
    return [torch.cat([piece[client] for piece in flat]) for client in range(len(stacks[0]))]
