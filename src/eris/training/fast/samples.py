"""Gradients of single samples at one model, from one forward and one backward pass.

As for clients (:mod:`eris.training.fast.shared`), with two things besides. No sample may meet
another, whatever its values: so every function that a model calls must be known to treat rows one
by one, and a model that calls any other is not taken. And the gradients of a whole pass would be
larger than a cache, so they are handed out in blocks of a few rows, in memory that is used again;
or as what they are products of, where nobody needs them written out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional

from eris.core.exact_clip import Products
from eris.training.fast.calls import DESCRIPTIONS, Calls, Function, Norm, NotTogether, Window
from eris.training.fast.groups import Group
from eris.training.fast.stretches import lay_stretches, spread_out
from eris.training.flat import FlatParameters
from eris.training.gradients import Loss

BLOCK = 8
"""Rows of a block."""
HELD = 1 << 18
"""Numbers, about, that a block of products holds."""

APART: frozenset[object] = frozenset(
    {functional.max_pool2d, torch.flatten, Tensor.flatten}
    | {getattr(owner, name) for owner in (functional, torch, Tensor) for name in ("relu", "tanh")}
    | {owner.sigmoid for owner in (functional, torch, Tensor)}
)
"""Functions without parameters that treat rows one by one, if what comes out has as many rows."""


class Part(NamedTuple):
    """Some samples' gradients of one parameter: ``left`` ⊗ ``entered`` of each, or ``left``."""

    place: slice
    left: Tensor
    entered: Tensor | None = None


class Layer(NamedTuple):
    """One use of parameters in the pass."""

    edge: GradientEdge
    """Where in the backward pass the gradient that is needed arrives."""
    numbers: int
    """How many the parts hold of a sample, beside what entered the layer."""
    parts: Callable[[Tensor, slice], list[Part]]
    """Those of some samples, given what arrived."""


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

    def _noted(
        self, left: Tensor, trained: list[int], held: int,
        parts: Callable[[Tensor, slice], list[Part]],
    ) -> Tensor:  # fmt: skip
        if not self._unused.issuperset(trained):
            raise NotTogether("a parameter is used more than once")
        self._unused.difference_update(trained)
        self.layers.append(Layer(get_gradient_edge(left), held, parts))
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
        entered = input.detach()

        def parts(gradient: Tensor, some: slice) -> list[Part]:
            left, found = gradient[some], []
            if at_w is not None:
                found.append(Part(at_w, left, entered[some]))
            if at_b is not None:
                found.append(Part(at_b, left))
            return found

        trained = trained_w + trained_b
        return self._noted(functional.linear(input, w, b), trained, len(trained) * len(w), parts)

    def convolution(
        self, func: Function, input: Tensor, weight: Tensor, bias: Tensor | None, window: Window
    ) -> Tensor:
        """The gradient of a kernel: what left each window times what entered it, summed."""
        if input.dim() != 4 or window[3] != 1 or any(apart != 1 for apart in window[2]):
            raise NotTogether("a convolution is not a plain one of images")
        (w, at_w, trained_w), (b, at_b, trained_b) = self._value(weight), self._value(bias)
        assert w is not None
        (above, aside), entered = window[1], input.detach()
        padded = functional.pad(entered, (aside, aside, above, above)).contiguous()

        def parts(gradient: Tensor, some: slice) -> list[Part]:
            left, found = gradient[some].contiguous(), []
            if at_w is not None:
                found.append(Part(at_w, _kernels(left, padded[some], w.shape, window)))
            if at_b is not None:
                found.append(Part(at_b, left.sum((2, 3))))
            return found

        held = w.numel() + len(w)
        return self._noted(func(input, w, b, *window), trained_w + trained_b, held, parts)

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


def _kernels(left: Tensor, padded: Tensor, shape: torch.Size, window: Window) -> Tensor:
    """The gradient of a kernel for each sample: what left each window times what entered it.

    Between two rows of windows lie places from which nothing left. With them in between, what a
    place of the kernel meets is one stretch of the image and is copied as such. The copies are of a
    block at a time, which a cache holds, in memory that is used again.
    """
    (down, across), width = window[0], padded.shape[3]
    stretch = (left.shape[2] - 1) * down * width + (left.shape[3] - 1) * across + 1
    found = left.new_empty(len(left), len(left[0]), shape[1:].numel())
    met = left.new_empty(BLOCK, found.shape[2], stretch)
    spread = left.new_zeros(BLOCK, found.shape[1], stretch)
    for first in range(0, len(left), BLOCK):
        some = slice(first, min(first + BLOCK, len(left)))
        of_left, of_met = spread[: some.stop - first], met[: some.stop - first]
        spread_out(of_left.numpy(), left[some].numpy(), down * width, across)
        images = padded[some].flatten(2).numpy()
        lay_stretches(of_met.numpy(), images, shape[2], shape[3], width)
        torch.bmm(of_left, of_met.transpose(1, 2), out=found[some])
    return found.flatten(1)


class SampleGradients:
    """The gradients of all samples of a pass at a flat model.

    Raises :class:`NotTogether` if the model or the loss is not taken, which never depends on
    values.
    """

    def __init__(
        self, flat: FlatParameters, loss: Loss, position: Tensor, inputs: Tensor, targets: Tensor
    ) -> None:
        if loss is not functional.cross_entropy or flat.device.type != "cpu":
            raise NotTogether("the loss is not a cross-entropy, or not on a CPU")
        if len(flat) != flat.trained:
            raise NotTogether("running statistics travel")
        self._count, self._n = len(inputs), len(flat)
        with torch.enable_grad():
            calls = SampleCalls(flat, position, len(inputs))
            with calls:
                outputs = flat.module(inputs)
            if not isinstance(outputs, Tensor) or outputs.dim() != 2:
                raise NotTogether("the model's output is not one row of logits a sample")
            calls.check_all_used()
            losses = functional.cross_entropy(outputs, targets, reduction="none")
            self._layers = calls.layers
            self._arrived = torch.autograd.grad(losses.sum(), [one.edge for one in calls.layers])

    def rows(self) -> Iterator[Tensor]:
        """One row a sample, in blocks; each block is written over by the next."""
        memory = torch.zeros(min(BLOCK, self._count), self._n)
        for first in range(0, self._count, BLOCK):
            some = slice(first, min(first + BLOCK, self._count))
            rows = memory[: some.stop - first]
            for place, left, entered in self._parts(some):
                if entered is None:
                    rows[:, place] = left
                else:
                    out = rows[:, place].view(len(rows), left.shape[1], entered.shape[1])
                    torch.mul(left.unsqueeze(2), entered.unsqueeze(1), out=out)
            yield rows

    def products(self, held: int) -> Iterator[Products]:
        """The same of the first ``held`` samples, not written out.

        What is computed is of all, empty ones too: no shape of it may depend on who is there.
        """
        size = max(BLOCK, HELD // sum(layer.numbers for layer in self._layers))
        for first in range(0, self._count, size):
            some = slice(first, min(first + size, self._count))
            lefts, entereds, layout = [], [torch.zeros(some.stop - first, 0)], []
            of_left = of_entered = 0
            for place, left, entered in sorted(self._parts(some), key=_place):
                width = 1 if entered is None else entered.shape[1]
                if entered is not None and width == 1:
                    left = left * entered
                elif entered is not None:
                    entereds.append(entered)
                lefts.append(left)
                layout.append((place.start, left.shape[1], width, of_left, of_entered))
                of_left += left.shape[1]
                of_entered += width if width > 1 else 0
            there = max(0, held - first)
            yield Products(
                torch.cat(lefts, 1)[:there].numpy(),
                torch.cat(entereds, 1)[:there].numpy(),
                np.array(layout),
            )

    def _parts(self, some: slice) -> Iterator[Part]:
        for layer, gradient in zip(self._layers, self._arrived, strict=True):
            yield from layer.parts(gradient, some)


def _place(part: Part) -> int:
    start: int = part.place.start
    return start
