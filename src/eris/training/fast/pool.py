"""Max pooling over windows that do not overlap, several times faster than PyTorch's on a CPU.

The maximum of a window is a tournament: first among the columns of a row, then among the rows.
Each game notes whether the later one won, strictly; the gradient goes back to the winner. So of
equal values the first in reading order gets it all, which is PyTorch's rule. Output and gradient
are those of ``max_pool2d``, bit for bit, as long as the numbers are finite.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Size = int | tuple[int, ...] | list[int]


def max_pool2d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | None:
    """The pooled input, or None where this way does not apply (windows overlap, say)."""
    kernel = _pair(kernel_size)
    plain = _pair(padding) == (0, 0) and _pair(dilation) == (1, 1)
    apart = not stride or _pair(stride) == kernel
    if not (plain and apart) or ceil_mode or return_indices or input.dim() != 4:
        return None
    if input.shape[2] < kernel[0] or input.shape[3] < kernel[1] or not input.is_contiguous():
        return None
    pooled: Tensor = _Tournament.apply(input, *kernel)  # type: ignore[no-untyped-call]
    return pooled


class _Tournament(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, rows: int, columns: int) -> Tensor:
        height, width = (input.shape[2] // rows * rows, input.shape[3] // columns * columns)
        across, won_across = _play(_columns(input, height, width, columns))
        pooled, won_down = _play(_rows(across, rows))
        ctx.settings = (input.shape, rows, columns, height, width)
        ctx.save_for_backward(*won_across, *won_down)
        # A game of one (kernel 1) would hand out the input itself.
        return pooled if rows * columns > 1 else pooled.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        shape, rows, columns, height, width = ctx.settings
        won = ctx.saved_tensors
        across = gradient.new_empty((*shape[:2], height, width // columns))
        _give_back(gradient, won[columns - 1 :], _rows(across, rows))
        whole = (height, width) == tuple(shape[2:])
        back = gradient.new_empty(shape) if whole else gradient.new_zeros(shape)
        _give_back(across, won[: columns - 1], _columns(back, height, width, columns))
        return back, None, None


def _columns(images: Tensor, height: int, width: int, count: int) -> list[Tensor]:
    return [images[:, :, :height, column:width:count] for column in range(count)]


def _rows(images: Tensor, count: int) -> list[Tensor]:
    return [images[:, :, row::count] for row in range(count)]


def _play(players: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The largest of all, and for each but the first whether it beat those before it."""
    best, won = players[0], []
    for player in players[1:]:
        won.append((player > best).contiguous())
        best = torch.maximum(best, player)
    return best, won


def _give_back(gradient: Tensor, won: tuple[Tensor, ...], places: list[Tensor]) -> None:
    """Write the gradient of the largest to its place and zero to the others."""
    for beat, place in zip(reversed(won), reversed(places[1:]), strict=True):
        # Bytes of 0 and 1 become floats many times faster than truth values do.
        share = gradient * beat.view(torch.uint8).to(gradient.dtype)
        place.copy_(share)
        gradient = gradient - share
    places[0].copy_(gradient)


def _pair(size: Size) -> tuple[int, int]:
    if isinstance(size, int):
        return (size, size)
    numbers = tuple(size)
    return (numbers[0], numbers[-1])
