"""Gradients of many clients at one shared model from one forward and one backward pass.

The gradient of a client's loss with respect to the weights of a layer is a product of what entered
the layer and of the loss's gradient with respect to what left it, summed over the client's samples
(Goodfellow, 2015). Both are known for all samples after one pass over all of them, in which no
weight gradient is computed; what remains is one product a client and layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional

from eris.training.fast.calls import Calls, Function, Norm, Parameter, Window
from eris.training.fast.groups import Group, joined_rows

WINDOW_BYTES = 96 << 20
"""What the windows of single samples may take."""

Pieces = Sequence[Sequence[Tensor] | Tensor]
"""Parts of the gradients of some parameters, each a piece for every client."""


class Use(NamedTuple):
    """One use of parameters in the pass."""

    edge: GradientEdge
    """Where in the backward pass the gradient that is needed arrives."""
    parameters: list[Parameter]
    pieces: Callable[[Tensor], Pieces]
    """The clients' gradients with respect to the parameters, from the one at the edge."""


class SharedCalls(Calls):
    """A pass in which every client has the same model; it notes what the products need.

    No ``pieces`` may hold the pass itself: in a circle, activations would outlive their use.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], values: Sequence[Tensor], group: Group
    ) -> None:
        super().__init__(parameters, values, group)
        self.uses: list[Use] = []

    def _value(self, parameter: Tensor | None) -> Any:
        number = self.number(parameter)
        return parameter if number is None else self.values[number]

    def _noted(
        self, left: Tensor, parameters: Sequence[Tensor | None], pieces: Callable[[Tensor], Pieces]
    ) -> Tensor:
        numbers = [self.number(parameter) for parameter in parameters]
        self.uses.append(Use(get_gradient_edge(left), numbers, pieces))
        return left

    def linear(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """y = x·Wᵀ + b: the gradient of W is δᵀ·x, that of b is the sum of δ."""
        left = functional.linear(input, self._value(weight), self._value(bias))
        group, entered, shifted = self.group, input.detach(), self.number(bias) is not None

        def pieces(gradient: Tensor) -> Pieces:
            # One batched product for each run of equal clients.
            blocks = zip(group.sample_blocks(gradient), group.sample_blocks(entered), strict=True)
            weights = [
                torch.bmm(out.flatten(1, -2).transpose(1, 2), into.flatten(1, -2))
                for out, into in blocks
            ]
            over = range(1, gradient.dim() - 1)
            return [joined_rows(weights), group.sums(_summed(gradient, over)) if shifted else ()]

        return self._noted(left, (weight, bias), pieces)

    def convolution(
        self, func: Function, input: Tensor, weight: Tensor, bias: Tensor | None, window: Window
    ) -> Tensor:
        """A convolution: its own backward pass, a client at a time (faster than grouped ones)."""
        left = func(input, self._value(weight), self._value(bias), *window)
        group, entered, values = self.group, input.detach(), self._value(weight).detach()
        wanted = [False, self.number(weight) is not None, self.number(bias) is not None]

        def pieces(gradient: Tensor) -> Pieces:
            if _fit_together(entered, values, window, group):
                return _of_single_samples(gradient, entered, values, window)
            stride, padding, dilation, groups = window
            sizes = [len(values)], stride, padding, dilation, False, [0] * len(stride), groups
            found = [
                torch.ops.aten.convolution_backward(out, into, values, *sizes, wanted)
                for out, into in zip(group.split(gradient), group.split(entered), strict=True)
            ]
            return [[one[1] for one in found], [one[2] for one in found]]

        return self._noted(left, (weight, bias), pieces)

    def embedding(self, input: Tensor, weight: Tensor, padding_idx: int | None) -> Tensor:
        """Rows of a table: the gradient of a row is the sum of the gradients where it was taken."""
        left = functional.embedding(input, self._value(weight), padding_idx)
        group, rows = self.group, len(weight)

        def pieces(gradient: Tensor) -> Pieces:
            tables = []
            for out, taken in zip(group.split(gradient), group.split(input), strict=True):
                table = out.new_zeros(rows, out.shape[-1])
                table.index_add_(0, taken.reshape(-1), out.reshape(-1, out.shape[-1]))
                if padding_idx is not None:
                    table[padding_idx] = 0
                tables.append(table)
            return [tables]

        return self._noted(left, [weight], pieces)

    def norm(
        self, apply: Norm, input: Tensor, weight: Tensor | None, bias: Tensor | None, trailing: int
    ) -> Tensor:
        """y = s·n + b with n the norm of x: the gradient of s is the sum of δ·n, that of b of δ."""
        left = apply(input, self._value(weight), self._value(bias))
        shared = weight if weight is not None else bias
        assert shared is not None
        own = trailing + shared.dim()
        # The places that share a scale and a shift.
        over = (*range(1, left.dim() - own), *range(left.dim() - trailing, left.dim()))
        group, entered = self.group, input.detach()

        def pieces(gradient: Tensor) -> Pieces:
            products = gradient * apply(entered, None, None)
            return [group.sums(_summed(each, over)) for each in (products, gradient)]

        return self._noted(left, (weight, bias), pieces)

    def expanded(self, parameter: Tensor) -> Tensor:
        """The one value, seen from every sample: its gradient is the sum over these."""
        value = self._value(parameter)
        rows = value.detach().expand(self.group.samples, *value.shape).requires_grad_()
        group = self.group
        return self._noted(rows, [parameter], lambda gradient: [group.sums(gradient)])


def _summed(each: Tensor, over: Sequence[int]) -> Tensor:
    return each.sum(dim=tuple(over)) if over else each


def _fit_together(entered: Tensor, values: Tensor, window: Window, group: Group) -> bool:
    """Whether every client has one sample, and few enough that their windows fit together."""
    if entered.dim() != 4 or window[3] != 1 or group.samples != len(group):
        return False
    height, width = entered.shape[-2:]
    down, across = window[0]
    places = int(height // down) * int(width // across)  # about, on which a window is laid
    return 4 * values[0].numel() * places * group.samples <= WINDOW_BYTES


def _of_single_samples(gradient: Tensor, input: Tensor, values: Tensor, window: Window) -> Pieces:
    """One product for all samples, of what left each window and what entered it."""
    stride, padding, dilation, _ = window
    entered = functional.unfold(input, values.shape[2:], dilation, padding, stride)
    each = torch.bmm(gradient.flatten(2), entered.transpose(1, 2))
    return [each.view(len(each), *values.shape), gradient.sum(dim=(2, 3))]


def shared_gradients(
    uses: Sequence[Use], loss: Tensor, group: Group, shapes: Sequence[torch.Size]
) -> tuple[list[Tensor], list[bool]]:
    """Every client's flat gradient of a loss that is the sum of the clients' losses.

    And of each parameter whether the loss reaches it.
    """
    arrived = torch.autograd.grad(loss, [use.edge for use in uses], allow_unused=True)
    parts: list[list[Sequence[Tensor] | Tensor]] = [[] for _ in shapes]
    with torch.no_grad():
        for use, gradient in zip(uses, arrived, strict=True):
            if gradient is None:  # the loss does not reach this layer
                continue
            for number, pieces in zip(use.parameters, use.pieces(gradient), strict=True):
                if number is not None:
                    parts[number].append(pieces)
        used = [bool(pieces) for pieces in parts]
        if all(len(pieces) == 1 and isinstance(pieces[0], Tensor) for pieces in parts):
            # Rows of every parameter: joined in one copy instead of one a client.
            return list(torch.cat([pieces[0].flatten(1) for pieces in parts], dim=1)), used  # type: ignore[union-attr]
        return [_row(parts, shapes, client) for client in range(len(group))], used


def _row(
    parts: list[list[Sequence[Tensor] | Tensor]], shapes: Sequence[torch.Size], client: int
) -> Tensor:
    flat = []
    for pieces, shape in zip(parts, shapes, strict=True):
        if not pieces:
            flat.append(torch.zeros(shape.numel()))
            continue
        piece = pieces[0][client].reshape(-1)
        for further in pieces[1:]:  # a parameter that is used more than once
            piece = piece + further[client].reshape(-1)
        flat.append(piece)
    return torch.cat(flat)
