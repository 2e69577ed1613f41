"""L-BFGS for many independent problems at once: one evaluation moves every one of them a step.

The problems share nothing but the evaluation: each has its own history, step and end. The
two-loop recursion (Nocedal and Wright, algorithm 7.4) runs over all of them together. A step that
does not lower a problem's loss enough (Armijo) is halved and tried again in the next evaluation,
while the others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Evaluate = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Losses (B,) and gradients (B, N) of some problems, from their numbers (B,) and places (B, N)."""

_ARMIJO = 1e-4
_CURVATURE = 1e-10
_SMALLEST_STEP = 2.0**-20


@dataclass(frozen=True)
class BatchedLbfgs:
    """When to stop, and how much to remember.

    A problem is over once its loss is below ``tolerance`` (one number a problem), once no step
    lowers it, or once ``patience`` evaluations together have lowered it by less than a hundredth.

    >>> wide = torch.tensor([1.0, 10.0])
    >>> def evaluate(numbers: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    ...     return (wide * places**2).sum(1), 2 * wide * places
    >>> places, losses = BatchedLbfgs(50).minimise(evaluate, torch.ones(3, 2), torch.zeros(3))
    >>> bool((losses < 1e-9).all())
    True
    """

    evaluations: int
    history: int = 50
    patience: int = 100

    def minimise(
        self,
        evaluate: Evaluate,
        start: Tensor,
        tolerance: Tensor,
        tell: Callable[[int], None] = lambda done: None,
    ) -> tuple[Tensor, Tensor]:
        """Where each problem ended, and its loss there; ``tell`` hears of every evaluation."""
        at, losses = start.clone(), torch.full((len(start),), torch.inf)
        state = _State(start, torch.arange(len(start)), self.history)
        for done in range(1, self.evaluations + 1):
            state.take(*evaluate(state.numbers, state.trial))
            over = (state.loss <= tolerance[state.numbers]) | state.stuck
            if done % self.patience == 0:
                over |= state.idle()
            if over.any():
                at[state.numbers], losses[state.numbers] = state.at, state.loss
                state.drop(over)
            tell(done)
            if not len(state.numbers):
                break
            state.aim()
        at[state.numbers], losses[state.numbers] = state.at, state.loss
        return at, losses


class _State:
    """The problems that are not over: where each stands, and where it is tried next."""

    def __init__(self, start: Tensor, numbers: Tensor, history: int) -> None:
        count, size = start.shape
        self.numbers, self.at, self.trial = numbers, start.clone(), start.clone()
        self.loss = torch.full((count,), torch.inf)
        self.stuck = torch.zeros(count, dtype=torch.bool)
        self._gradient, self._direction = torch.zeros_like(start), torch.zeros_like(start)
        self._slope, self._step = torch.zeros(count), torch.ones(count)
        self._scale = torch.zeros(count)  # of the first guess at the inverse Hessian; 0: none yet
        self._before = self.loss.clone()
        # A problem that did not move writes zeros, which change nothing in the recursion.
        self._moves = torch.zeros(history, count, size)
        self._turns = torch.zeros(history, count, size)
        self._weights = torch.zeros(history, count)
        self._slot = 0

    def take(self, loss: Tensor, gradient: Tensor) -> None:
        """The losses and gradients at the trial places: go there, or try half of the way."""
        bound = self.loss + _ARMIJO * self._step * self._slope
        good = (loss <= bound) & gradient.isfinite().all(1)
        move = torch.where(good[:, None], self.trial - self.at, 0.0)
        turn = torch.where(good[:, None], gradient - self._gradient, 0.0)
        along = (move * turn).sum(1)
        curved = along > _CURVATURE * turn.square().sum(1).clamp(min=1e-30)
        first = self.loss.isinf()  # nothing to compare with
        kept = curved & ~first
        self._moves[self._slot] = torch.where(kept[:, None], move, 0.0)
        self._turns[self._slot] = torch.where(kept[:, None], turn, 0.0)
        self._weights[self._slot] = torch.where(kept, 1 / along, 0.0)
        self._scale = torch.where(kept, along / turn.square().sum(1), self._scale)
        self._slot = (self._slot + 1) % len(self._moves)
        self.at = torch.where(good[:, None], self.trial, self.at)
        self._gradient = torch.where(good[:, None], gradient, self._gradient)
        self.loss = torch.where(good, loss, self.loss)
        self._step = torch.where(good, 1.0, self._step / 2)
        self._good = good
        self.stuck = (self._step < _SMALLEST_STEP) | self.loss.isinf()

    def aim(self) -> None:
        """Choose the next trial places."""
        ahead = self._towards()
        slope = (ahead * self._gradient).sum(1)
        # What does not lead downwards is replaced by the gradient, a short way.
        length = self._gradient.abs().sum(1).clamp(min=1e-30)
        plain = ~(slope < 0) | (self._scale == 0)
        ahead = torch.where(plain[:, None], -self._gradient / length.clamp(min=1)[:, None], ahead)
        slope = torch.where(plain, (ahead * self._gradient).sum(1), slope)
        self._direction = torch.where(self._good[:, None], ahead, self._direction)
        self._slope = torch.where(self._good, slope, self._slope)
        self.trial = self.at + self._step[:, None] * self._direction

    def _towards(self) -> Tensor:
        """The two-loop recursion: minus the guessed inverse Hessian times the gradient."""
        q, slots = self._gradient.clone(), len(self._moves)
        newest_first = [(self._slot - 1 - back) % slots for back in range(slots)]
        shares = []
        for slot in newest_first:
            share = self._weights[slot] * (self._moves[slot] * q).sum(1)
            q.addcmul_(share[:, None], self._turns[slot], value=-1)
            shares.append(share)
        q *= self._scale[:, None]
        for slot, share in zip(reversed(newest_first), reversed(shares), strict=True):
            back = self._weights[slot] * (self._turns[slot] * q).sum(1)
            q.addcmul_((share - back)[:, None], self._moves[slot])
        return -q

    def idle(self) -> Tensor:
        """Which have not come lower by a hundredth since this was asked last."""
        found = self.loss > 0.99 * self._before
        self._before = self.loss.clone()
        return found

    def drop(self, over: Tensor) -> None:
        """Forget the problems that are over."""
        left = ~over
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                history = name in ("_moves", "_turns", "_weights")
                setattr(self, name, value[:, left] if history else value[left])
