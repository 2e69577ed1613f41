"""Gradients of single samples at one model, from one forward and one backward pass.

As for clients (:mod:`eris.training.fast.shared`), with two things besides. No sample may meet
another, whatever its values: so every function that a model calls must be known to treat rows one
by one, and a model that calls any other is not taken. And the gradients of a whole pass would be
larger than a cache, so they are handed out in blocks of a few rows, in memory that is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional

from eris.training.fast.calls import DESCRIPTIONS, Calls, Function, Norm, NotTogether, Window
from eris.training.fast.groups import Group
from eris.training.flat import FlatParameters
from eris.training.gradients import Loss

BLOCK = 8
"""Rows of a block."""

APART: frozenset[object] = frozenset(
    {functional.max_pool2d, torch.flatten, Tensor.flatten}
    | {getattr(owner, name) for owner in (functional, torch, Tensor) for name in ("relu", "tanh")}
    | {owner.sigmoid for owner in (functional, torch, Tensor)}
)
"""Functions without parameters that treat rows one by one, if what comes out has as many rows."""

Write = Callable[[Tensor, slice, Tensor], None]
"""Writes some samples' gradients of a layer's parameters to their rows, given what arrived."""


class Layer(NamedTuple):
    """One use of parameters in the pass."""

    edge: GradientEdge
    """Where in the backward pass the gradient that is needed arrives."""
    write: Write


class SampleCalls(Calls):
    """A pass that notes, layer by layer, what single samples' gradients are made of.

    Layers are full ones and plain convolutions of images, and each parameter is used once.
    """

    def __init__(self, flat: FlatParameters, position: Tensor, rows: int) -> None:
        values = [view.detach().requires_grad_() for view in flat.views(position).values()]
        super().__init__(flat.parameters, values, Group((1,) * rows))
        self._places, self._rows = flat.places, rows
        self._unused = set(range(len(values)))
        self.layers: list[Layer] = []

    def __torch_function__(
        self, func: Function, types: object, args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Called by PyTorch for every function of it that is used in the pass."""
        name = getattr(func, "__name__", str(func))
        named = dict(kwargs or {})
        written_over = any(one is True for one in (*args, named.get("inplace")))
        known = func in APART and not written_over
        if not known and name not in DESCRIPTIONS and not self.has_parameters(args, named):
            raise NotTogether(f"{name} is not known to treat rows one by one")
        found = super().__torch_function__(func, types, args, named)
        if isinstance(found, Tensor) and (name in DESCRIPTIONS or len(found) != self._rows):
            raise NotTogether(f"what {name} gives is not one row a sample")
        return found

    def _noted(self, left: Tensor, numbers: list[int], write: Write) -> Tensor:
        if not self._unused.issuperset(numbers):
            raise NotTogether("a parameter is used more than once")
        self._unused.difference_update(numbers)
        self.layers.append(Layer(get_gradient_edge(left), write))
        return left

    def _value(self, parameter: Tensor | None) -> tuple[Tensor | None, slice | None, list[int]]:
        """Its value, its place in a row and its number, if it is trained."""
        number = self.number(parameter)
        if number is None:
            return parameter, None, []
        return self.values[number], self._places[number], [number]

    def linear(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """y = x·Wᵀ + b: the gradient of W is δ·xᵀ, that of b is δ."""
        if input.dim() != 2:
            raise NotTogether("a full layer has several rows a sample")
        (w, at_w, trained_w), (b, at_b, trained_b) = self._value(weight), self._value(bias)
        assert w is not None
        entered, shape = input.detach(), w.shape

        def write(gradient: Tensor, some: slice, rows: Tensor) -> None:
            left = gradient[some]
            if at_w is not None:
                out = rows[:, at_w].view(len(rows), *shape)
                torch.mul(left.unsqueeze(2), entered[some].unsqueeze(1), out=out)
            if at_b is not None:
                rows[:, at_b] = left

        return self._noted(functional.linear(input, w, b), trained_w + trained_b, write)

    def convolution(
        self, func: Function, input: Tensor, weight: Tensor, bias: Tensor | None, window: Window
    ) -> Tensor:
        """The gradient of a kernel: what left each window times what entered it, summed."""
        if input.dim() != 4 or window[3] != 1 or any(apart != 1 for apart in window[2]):
            raise NotTogether("a convolution is not a plain one of images")
        (w, at_w, trained_w), (b, at_b, trained_b) = self._value(weight), self._value(bias)
        assert w is not None
        windows = _windows(input.detach(), w.shape, window)

        def write(gradient: Tensor, some: slice, rows: Tensor) -> None:
            left = gradient[some].flatten(2)
            if at_w is not None:
                # Laid out for a block at a time, which a cache holds.
                entered = windows[some].reshape(len(left), -1, left.shape[2])
                rows[:, at_w] = torch.bmm(left, entered.transpose(1, 2)).flatten(1)
            if at_b is not None:
                rows[:, at_b] = left.sum(2)

        return self._noted(func(input, w, b, *window), trained_w + trained_b, write)

    def embedding(self, input: Tensor, weight: Tensor, padding_idx: int | None) -> Tensor:
        """Not taken."""
        raise NotTogether("there is no rule for an embedding of single samples")

    def norm(
        self, apply: Norm, input: Tensor, weight: Tensor | None, bias: Tensor | None, trailing: int
    ) -> Tensor:
        """Not taken."""
        raise NotTogether("there is no rule for a norm of single samples")

    def expanded(self, parameter: Tensor) -> Tensor:
        """Not taken."""
        raise NotTogether("there is no rule for a parameter outside of layers")

    def check_all_used(self) -> None:
        """Refuse a model of which some layer was not seen."""
        if self._unused:
            raise NotTogether("a parameter is used where it was not seen, or not at all")


def _windows(images: Tensor, kernels: torch.Size, window: Window) -> Tensor:
    """What each place of a kernel meets, (samples, channels, height, width, …): a view."""
    (down, across), (above, aside), _, _ = window
    padded = functional.pad(images, (aside, aside, above, above))
    found = padded.unfold(2, kernels[2], down).unfold(3, kernels[3], across)
    return found.permute(0, 1, 4, 5, 2, 3)


def sample_blocks(
    flat: FlatParameters, loss: Loss, position: Tensor, inputs: Tensor, targets: Tensor
) -> Iterator[Tensor]:
    """The gradients of all samples at a flat model, one a row, in blocks; each block is written
    over by the next. Raises :class:`NotTogether` at once if the model or the loss is not taken,
    which never depends on values."""
    if loss is not functional.cross_entropy or flat.device.type != "cpu":
        raise NotTogether("the loss is not a cross-entropy, or not on a CPU")
    if len(flat) != flat.trained:
        raise NotTogether("running statistics travel")
    with torch.enable_grad():
        calls = SampleCalls(flat, position, len(inputs))
        with calls:
            outputs = flat.module(inputs)
        if not isinstance(outputs, Tensor) or outputs.dim() != 2:
            raise NotTogether("the model's output is not one row of logits a sample")
        calls.check_all_used()
        losses = functional.cross_entropy(outputs, targets, reduction="none")
        arrived = torch.autograd.grad(losses.sum(), [layer.edge for layer in calls.layers])
    return _blocks(calls.layers, arrived, len(inputs), len(flat))


def _blocks(
    layers: list[Layer], arrived: tuple[Tensor, ...], count: int, n: int
) -> Iterator[Tensor]:
    memory = torch.zeros(min(BLOCK, count), n)
    for first in range(0, count, BLOCK):
        some = slice(first, min(first + BLOCK, count))
        rows = memory[: some.stop - first]
        for layer, gradient in zip(layers, arrived, strict=True):
            layer.write(gradient, some, rows)
        yield rows
