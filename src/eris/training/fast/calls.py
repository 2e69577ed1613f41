"""Where a model uses its parameters: every call of PyTorch's functions during a forward pass.

A model is Python code, but each operation with a parameter in it is a call that a torch function
mode sees. The layers that have a rule for many clients at once are told apart by the function they
call (so ``nn.Linear`` and ``functional.linear`` are the same), and any other use of a trainable
parameter is refused by name. Nothing is written into the module, so several threads can share it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from eris.training.fast.groups import Group
from eris.training.fast.pool import max_pool2d


class NotTogether(Exception):
    """Why a model cannot be trained for many clients in one pass."""


Parameter = int | None
"""The number of a trainable parameter; None for no parameter or a frozen one."""

Function = Callable[..., Any]
"""A function of PyTorch."""

Window = tuple[Any, ...]
"""Stride, padding and dilation of a convolution, and the number of its groups."""

Norm = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]
"""A norm of its input with a scale and a shift, or without."""

CONVOLUTIONS = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}
"""The number of dimensions of their windows."""


def _pointwise() -> set[object]:
    names = ("add", "sub", "mul", "div")
    plain = {getattr(owner, name) for owner in (torch, Tensor) for name in names}
    dunder = ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv")
    return plain | {getattr(Tensor, f"__{name}__") for name in dunder}


POINTWISE = _pointwise()
DESCRIPTIONS = {"__get__", "size", "dim", "numel", "stride", "is_floating_point", "is_contiguous"}


class Calls(TorchFunctionMode, ABC):
    """A forward pass of one group; the subclasses say what a layer computes for it.

    ``values`` stand for the trainable parameters, in their order.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], values: Sequence[Tensor], group: Group
    ) -> None:
        super().__init__()
        self._numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
        self.values, self.group = values, group

    def __torch_function__(
        self,
        func: Function,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Called by PyTorch for every function of it that is used in the pass."""
        named = dict(kwargs or {})
        if func is functional.max_pool2d:
            pooled = max_pool2d(*args, **named)
            return func(*args, **named) if pooled is None else pooled
        if func is functional.batch_norm:
            raise NotTogether("batch norm mixes the samples of a batch")
        if not self.has_parameters(args, named):
            return func(*args, **named)
        return self._with_parameters(func, args, named)

    def _with_parameters(self, func: Function, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if func is functional.linear:
            return self._linear(*args, **named)
        if func in CONVOLUTIONS:
            return self._convolution(func, *args, **named)
        if func is functional.embedding:
            return self._embedding(*args, **named)
        if func is functional.layer_norm:
            return self._layer_norm(*args, **named)
        if func is functional.group_norm:
            return self._group_norm(*args, **named)
        if func in POINTWISE and len(args) == 2:
            return self._with_expanded(func, *args, **named)
        name = getattr(func, "__name__", str(func))
        if name in DESCRIPTIONS:
            described = func(*args, **named)
            if not isinstance(described, Tensor):
                return described
        raise NotTogether(f"there is no rule for {name} of a trainable parameter")

    # -- the layers, with their arguments put in order ----------------------------------------

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        self._check_rows(input, 2)
        return self.linear(input, weight, bias)

    def _convolution(
        self,
        func: Function,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        dimensions = CONVOLUTIONS[func]
        self._check_rows(input, dimensions + 2)
        if isinstance(padding, str):
            raise NotTogether(f"a convolution has padding {padding!r} instead of numbers")
        window = [_numbers(size, dimensions) for size in (stride, padding, dilation)]
        return self.convolution(func, input, weight, bias, (*window, groups))

    def _embedding(
        self,
        input: Tensor,
        weight: Tensor,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Tensor:
        self._check_rows(input, 1)
        if max_norm is not None or scale_grad_by_freq or sparse:
            raise NotTogether("an embedding has max_norm, scale_grad_by_freq or sparse")
        if padding_idx is not None and padding_idx < 0:
            padding_idx += len(weight)
        return self.embedding(input, weight, padding_idx)

    def _layer_norm(
        self,
        input: Tensor,
        normalized_shape: Sequence[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        self._check_rows(input, 1 + len(normalized_shape))

        def apply(x: Tensor, scale: Tensor | None, shift: Tensor | None) -> Tensor:
            return functional.layer_norm(x, normalized_shape, scale, shift, eps)

        return self.norm(apply, input, weight, bias, 0)

    def _group_norm(
        self,
        input: Tensor,
        num_groups: int,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        self._check_rows(input, 2)

        def apply(x: Tensor, scale: Tensor | None, shift: Tensor | None) -> Tensor:
            return functional.group_norm(x, num_groups, scale, shift, eps)

        return self.norm(apply, input, weight, bias, input.dim() - 2)

    def _with_expanded(self, func: Function, first: Any, second: Any, **named: Any) -> Any:
        mine = [id(one) in self._numbers for one in (first, second)]
        other = second if mine[0] else first
        if all(mine) or not isinstance(other, Tensor):
            raise NotTogether(f"there is no rule for {func.__name__} of trainable parameters alone")
        self._check_rows(other, 1)
        if mine[0]:
            return func(self.aligned(first, second, 0), second, **named)
        return func(first, self.aligned(second, first, 0), **named)

    def aligned(self, parameter: Tensor, beside: Tensor, trailing: int) -> Tensor:
        """The parameter for every sample, in a shape that broadcasts beside (samples, …)."""
        if id(parameter) not in self._numbers:
            return parameter.reshape(*parameter.shape, *[1] * trailing)
        shape = (*parameter.shape, *[1] * trailing)
        if len(shape) == beside.dim() and shape[0] == 1:
            shape = shape[1:]  # broadcast along the samples by hand
        missing = beside.dim() - 1 - len(shape)
        if missing < 0:
            raise NotTogether("a trainable parameter has rows of its own for the samples")
        rows = self.expanded(parameter)
        return rows.reshape(self.group.samples, *[1] * missing, *shape)

    def _check_rows(self, input: Tensor, least: int) -> None:
        if input.dim() < least or input.shape[0] != self.group.samples:
            raise NotTogether("a layer's input does not have one row a sample")

    def has_parameters(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
        """Whether a trainable parameter is among a function's arguments."""
        return any(id(one) in self._numbers for one in _flat(args, named))

    def number(self, parameter: Tensor | None) -> Parameter:
        """The number of a trainable parameter."""
        return None if parameter is None else self._numbers.get(id(parameter))

    # -- what the subclasses say --------------------------------------------------------------

    @abstractmethod
    def linear(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """``functional.linear`` of a batch of all clients."""

    @abstractmethod
    def convolution(
        self, func: Function, input: Tensor, weight: Tensor, bias: Tensor | None, window: Window
    ) -> Tensor:
        """``func``, a convolution, of a batch of all clients."""

    @abstractmethod
    def embedding(self, input: Tensor, weight: Tensor, padding_idx: int | None) -> Tensor:
        """``functional.embedding`` of a batch of all clients."""

    @abstractmethod
    def norm(
        self, apply: Norm, input: Tensor, weight: Tensor | None, bias: Tensor | None, trailing: int
    ) -> Tensor:
        """``apply``, a norm of single samples; ``trailing`` dimensions share a scale and shift."""

    @abstractmethod
    def expanded(self, parameter: Tensor) -> Tensor:
        """A trainable parameter once for every sample, (samples, …)."""


def _flat(args: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[object]:
    for one in (*args, *named.values()):
        if isinstance(one, tuple | list):
            yield from one
        else:
            yield one


def _numbers(size: int | Sequence[int], count: int) -> list[int]:
    if isinstance(size, int):
        return [size] * count
    return list(size) if len(size) == count else [size[0]] * count
