"""Many starts for many targets: what an inversion is, and the loop that all of them share.

All targets are attacked at once, in blocks; then those that are not solved start again elsewhere.
Which attempt is best is decided by the attacker's own loss. Beside every target goes its control:
the same attack on a random vector of the same length on the same coordinates. What it comes up
with is what the attack sees where there is nothing to see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from eris.audit.inversion.matching import Matching
from eris.core.errors import require
from eris.core.streams import Stream

Tell = Callable[[float], None]
"""Told of the share of the work that is done."""


@dataclass(frozen=True)
class SearchBudget:
    """How much an attacker spends: iterations of each start, and starts of each target.

    ``at_once`` targets are attacked in one pass; 1 is one after another.
    """

    iterations: int
    restarts: int = 1
    at_once: int = 32

    def __post_init__(self) -> None:
        for name in ("iterations", "restarts", "at_once"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")


@dataclass(frozen=True, eq=False)
class Attempt:
    """What one start led to: samples (B, samples, …), their labels, and the loss (B,)."""

    inputs: Tensor
    labels: Tensor
    loss: Tensor


class Inversion(Protocol):
    """One attack; a file of its own."""

    name: ClassVar[str]
    usual: ClassVar[SearchBudget]

    def labels(self, matching: Matching) -> list[Tensor] | None:
        """Of each target, the labels to try (ways, samples); None: they are searched for too."""

    def attempt(
        self, matching: Matching, labels: Tensor | None, start: Tensor, iterations: int, tell: Tell
    ) -> Attempt:
        """Search from ``start``, standard normal numbers in the shape of the samples."""

    def solved(self, matching: Matching, loss: Tensor) -> Tensor:
        """Which targets need no other start."""


@dataclass(frozen=True, eq=False)
class Inverted:
    """The best that was found for every target, and for its control."""

    inputs: Tensor
    labels: Tensor
    loss: Tensor
    starts: Tensor
    """How many starts were made."""
    control: Tensor
    """What the same attack makes of random numbers, one start each."""


def search(
    attack: Inversion,
    matching: Matching,
    budget: SearchBudget | None = None,
    *,
    labels: Tensor | None = None,
    seed: int = 0,
    tell: Tell = lambda share: None,
) -> Inverted:
    """Attack all targets; ``labels`` (targets, samples) are those of an attacker who knows them."""
    budget = budget or attack.usual
    matching.simulation.check_twice(matching.shape, matching.samples)
    count = len(matching)
    both = matching.with_rows(
        torch.cat([matching.values, _random(matching, seed)]), matching.seen.repeat(2, 1)
    )
    told = None if labels is None else [row[None] for row in labels.repeat(2, 1)]
    ways = told or attack.labels(both)
    best: dict[int, Attempt] = {}
    starts = torch.zeros(2 * count, dtype=torch.int64)
    waiting = torch.arange(2 * count)
    for number in range(budget.restarts):
        tried = waiting if ways is None else torch.cat([n.repeat(len(ways[n])) for n in waiting])
        chosen = None if ways is None else torch.cat([ways[int(n)] for n in waiting])
        blocks = torch.split(tried, budget.at_once)
        for place, block in enumerate(blocks):
            before = (number + place / len(blocks)) / budget.restarts
            width = 1 / len(blocks) / budget.restarts
            given = None
            if chosen is not None:
                given = chosen[place * budget.at_once :][: len(block)]
            found = attack.attempt(
                both.rows(block), given, _start(both, block, number, seed), budget.iterations,
                lambda share, at=before, by=width: tell(at + share * by),  # type: ignore[misc]
            )  # fmt: skip
            _keep_best(best, block, found)
        starts[waiting] += 1
        loss = torch.stack([best[int(n)].loss for n in waiting])
        solved = attack.solved(both.rows(waiting), loss)
        waiting = waiting[~solved & (waiting < count)]
        if not len(waiting):
            break
    tell(1.0)
    inputs = torch.stack([best[n].inputs for n in range(2 * count)])
    return Inverted(
        inputs[:count],
        torch.stack([best[n].labels for n in range(count)]),
        torch.stack([best[n].loss for n in range(count)]),
        starts[:count],
        inputs[count:],
    )


def _keep_best(best: dict[int, Attempt], block: Tensor, found: Attempt) -> None:
    for row, target in enumerate(block.tolist()):
        if target not in best or found.loss[row] < best[target].loss:
            best[target] = Attempt(found.inputs[row], found.labels[row], found.loss[row])


def _start(matching: Matching, block: Tensor, number: int, seed: int) -> Tensor:
    """Where each target starts; a target and its control, and all labels, start alike."""
    shape = (matching.samples, *matching.shape)
    size = int(np.prod(shape))
    half = len(matching) // 2
    rows = {
        target: Stream(seed, "inversion start", round=number, client=target).normal(0, size)
        for target in {n % half for n in block.tolist()}
    }
    drawn = np.stack([rows[n % half] for n in block.tolist()]).astype(np.float32)
    return torch.from_numpy(drawn).reshape(-1, *shape)


def _random(matching: Matching, seed: int) -> Tensor:
    """Random updates, as long as the true ones where those were seen, and 0 elsewhere."""
    size = matching.values.shape[1]
    drawn = np.stack([
        Stream(seed, "inversion control", client=target).normal(0, size)
        for target in range(len(matching))
    ]).astype(np.float32)  # fmt: skip
    rows = torch.from_numpy(drawn) * matching.seen
    scale = matching.norms / rows.square().sum(1).clamp(min=1e-30)
    return rows * scale.sqrt()[:, None]
