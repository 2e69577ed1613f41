"""Trial gradients in the basis that masks act in: it is public, so an attacker turns too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from eris.core.vectors import Vector


class OrthogonalBasis(Protocol):
    """An orthogonal map of vectors to the places that travel, and its transpose."""

    def enter(self, vector: Vector) -> Vector:
        """R·x."""

    def leave(self, vector: Vector) -> Vector:
        """Rᵀ·y."""


def entered(rows: Tensor, basis: OrthogonalBasis) -> Tensor:
    """R·x of every row, differentiable.

    >>> from eris.core.rotation import Rotation
    >>> class Turned:
    ...     turn = Rotation(1000, seed=7)
    ...     enter, leave = turn.forward, turn.back
    >>> x = torch.ones(2, 1000, requires_grad=True)
    >>> y = entered(x, Turned())
    >>> (slope,) = torch.autograd.grad(0.5 * y.square().sum(), x)
    >>> tuple(y.shape), torch.allclose(slope, x, atol=1e-5)  # RᵀR = 1
    ((2, 1024), True)
    """
    made: Tensor = _Entered.apply(rows, basis)  # type: ignore[no-untyped-call]
    return made


def left(rows: Tensor, basis: OrthogonalBasis) -> Tensor:
    """Rᵀ·y of every row."""
    return _each(rows, basis.leave)


class _Entered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, basis: OrthogonalBasis) -> Tensor:
        ctx.basis = basis
        return _each(rows, basis.enter)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, None]:
        return left(slopes, ctx.basis), None


def _each(rows: Tensor, turn: Callable[[Vector], Vector]) -> Tensor:
    return torch.from_numpy(np.stack([turn(row) for row in rows.detach().contiguous().numpy()]))
