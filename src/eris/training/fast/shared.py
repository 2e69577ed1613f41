"""Gradients of many clients at one shared model from one forward and one backward pass.

The gradient of a client's loss with respect to the weights of a layer is a product of what entered
the layer and of the loss's gradient with respect to what left it, summed over the client's samples
(Goodfellow, 2015). Both are known for all samples after one pass over all of them, in which no
weight gradient is computed; what remains is one product a client and layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional

from eris.training.fast.calls import Calls, Norm, Parameter
from eris.training.fast.groups import Group, joined_rows

WINDOW_BYTES = 96 << 20
"""What the windows of single samples may take."""

Pieces = list[tuple[Parameter, Sequence[Tensor] | Tensor]]
"""Parts of gradients: the number of a parameter, and a piece for each client."""


class Use(Protocol):
    """One use of parameters in the pass."""

    @property
    def edge(self) -> GradientEdge:
        """Where in the backward pass the gradient that is needed arrives."""
        ...

    def pieces(self, gradient: Tensor, group: Group) -> Pieces:
        """The clients' gradients with respect to the parameters, from the one at the edge."""
        ...


@dataclass(frozen=True)
class LinearUse:
    """y = x·Wᵀ + b: the gradient of W is δᵀ·x, that of b is the sum of δ."""

    edge: GradientEdge
    input: Tensor
    weight: Parameter
    bias: Parameter

    def pieces(self, gradient: Tensor, group: Group) -> Pieces:
        """One batched product for each run of equal clients."""
        blocks = zip(group.sample_blocks(gradient), group.sample_blocks(self.input), strict=True)
        weights = [
            torch.bmm(left.flatten(1, -2).transpose(1, 2), entered.flatten(1, -2))
            for left, entered in blocks
        ]
        found: Pieces = [(self.weight, joined_rows(weights))]
        if self.bias is not None:
            over = tuple(range(1, gradient.dim() - 1))
            each = gradient.sum(dim=over) if over else gradient
            found.append((self.bias, group.sums(each)))
        return found


@dataclass(frozen=True)
class ConvolutionUse:
    """A convolution: its own backward pass, a client at a time (faster than grouped ones)."""

    edge: GradientEdge
    input: Tensor
    values: Tensor
    weight: Parameter
    bias: Parameter
    window: tuple[Any, ...]

    def pieces(self, gradient: Tensor, group: Group) -> Pieces:
        """Weight and bias gradient of every client's samples."""
        if self._singles(group):
            return self._of_single_samples(gradient)
        stride, padding, dilation, groups = self.window
        wanted = [False, self.weight is not None, self.bias is not None]
        found = [
            torch.ops.aten.convolution_backward(
                left,
                entered,
                self.values,
                [len(self.values)],
                stride,
                padding,
                dilation,
                False,
                [0] * len(stride),
                groups,
                wanted,
            )
            for left, entered in zip(group.split(gradient), group.split(self.input), strict=True)
        ]
        return [(self.weight, [one[1] for one in found]), (self.bias, [one[2] for one in found])]

    def _singles(self, group: Group) -> bool:
        """Whether every client has one sample, and few enough that their windows fit together."""
        if self.input.dim() != 4 or self.window[3] != 1 or group.samples != len(group):
            return False
        return 4 * self.values[0].numel() * self._places * group.samples <= WINDOW_BYTES

    @property
    def _places(self) -> int:
        """About how many places of its input a window is laid on."""
        height, width = self.input.shape[-2:]
        down, across = self.window[0]
        return (int(height) // int(down)) * (int(width) // int(across))

    def _of_single_samples(self, gradient: Tensor) -> Pieces:
        """One product for all samples, of what left each window and what entered it."""
        stride, padding, dilation, _ = self.window
        size = self.values.shape[2:]
        entered = functional.unfold(self.input, size, dilation, padding, stride)
        each = torch.bmm(gradient.flatten(2), entered.transpose(1, 2))
        weights = each.view(len(each), *self.values.shape)
        return [(self.weight, weights), (self.bias, gradient.sum(dim=(2, 3)))]


@dataclass(frozen=True)
class EmbeddingUse:
    """Rows of a table: the gradient of a row is the sum of the gradients where it was taken."""

    edge: GradientEdge
    input: Tensor
    weight: Parameter
    rows: int
    padding_idx: int | None

    def pieces(self, gradient: Tensor, group: Group) -> Pieces:
        """One sum a client; rows that a client does not use have gradient zero."""
        tables = []
        for left, taken in zip(group.split(gradient), group.split(self.input), strict=True):
            table = left.new_zeros(self.rows, left.shape[-1])
            table.index_add_(0, taken.reshape(-1), left.reshape(-1, left.shape[-1]))
            if self.padding_idx is not None:
                table[self.padding_idx] = 0
            tables.append(table)
        return [(self.weight, tables)]


@dataclass(frozen=True)
class NormUse:
    """y = s·n + b with n the norm of x: the gradient of s is the sum of δ·n, that of b of δ."""

    edge: GradientEdge
    input: Tensor
    apply: Norm
    weight: Parameter
    bias: Parameter
    over: tuple[int, ...]

    def pieces(self, gradient: Tensor, group: Group) -> Pieces:
        """Sums over the samples, and over the places that share a scale and a shift."""
        normal = self.apply(self.input, None, None)
        return [
            (self.weight, group.sums(self._summed(gradient * normal))),
            (self.bias, group.sums(self._summed(gradient))),
        ]

    def _summed(self, each: Tensor) -> Tensor:
        return each.sum(dim=self.over) if self.over else each


@dataclass(frozen=True)
class ExpandedUse:
    """A parameter that was written out once for every sample."""

    edge: GradientEdge
    parameter: Parameter

    def pieces(self, gradient: Tensor, group: Group) -> Pieces:
        """The sum over the client's samples."""
        return [(self.parameter, group.sums(gradient))]


class SharedCalls(Calls):
    """A pass in which every client has the same model; it notes what the products need."""

    def __init__(
        self, parameters: Sequence[nn.Parameter], values: Sequence[Tensor], group: Group
    ) -> None:
        super().__init__(parameters, group)
        self._values = values
        self.uses: list[Use] = []

    def _value(self, parameter: Tensor | None) -> Tensor | None:
        number = self.number(parameter)
        return parameter if number is None else self._values[number]

    def linear(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """One product for all samples."""
        left = functional.linear(input, self._value(weight), self._value(bias))  # type: ignore[arg-type]
        self.uses.append(
            LinearUse(
                get_gradient_edge(left), input.detach(), self.number(weight), self.number(bias)
            )
        )
        return left

    def convolution(
        self,
        func: Callable[..., Tensor],
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        window: tuple[Any, ...],
    ) -> Tensor:
        """One convolution of all samples."""
        values = self._value(weight)
        assert values is not None
        left = func(input, values, self._value(bias), *window)
        self.uses.append(
            ConvolutionUse(
                get_gradient_edge(left),
                input.detach(),
                values.detach(),
                self.number(weight),
                self.number(bias),
                window,
            )
        )
        return left

    def embedding(self, input: Tensor, weight: Tensor, padding_idx: int | None) -> Tensor:
        """The rows of one table for all samples."""
        left = functional.embedding(input, self._value(weight), padding_idx)  # type: ignore[arg-type]
        edge = get_gradient_edge(left)
        self.uses.append(EmbeddingUse(edge, input, self.number(weight), len(weight), padding_idx))
        return left

    def norm(
        self, apply: Norm, input: Tensor, weight: Tensor | None, bias: Tensor | None, trailing: int
    ) -> Tensor:
        """One norm of all samples."""
        left = apply(input, self._value(weight), self._value(bias))
        shared = weight if weight is not None else bias
        assert shared is not None
        own = trailing + shared.dim()
        over = (*range(1, left.dim() - own), *range(left.dim() - trailing, left.dim()))
        numbers = self.number(weight), self.number(bias)
        self.uses.append(NormUse(get_gradient_edge(left), input.detach(), apply, *numbers, over))
        return left

    def expanded(self, parameter: Tensor) -> Tensor:
        """The one value, seen from every sample."""
        value = self._value(parameter)
        assert value is not None
        rows = value.detach().expand(self.group.samples, *value.shape).requires_grad_()
        self.uses.append(ExpandedUse(get_gradient_edge(rows), self.number(parameter)))
        return rows


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
            for number, pieces in use.pieces(gradient, group):
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
