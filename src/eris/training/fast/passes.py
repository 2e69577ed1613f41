"""A round of several clients together: the local steps of ``TorchTrainer``, many at a time.

The arithmetic of a step (batches, optimiser, sum of directions) is that of the single trainer; only
the gradients come from one pass. Clients with fewer steps drop out as they finish.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from eris.core.vectors import Indices
from eris.training.fast.gradients import Found, GroupGradients
from eris.training.fast.groups import Group
from eris.training.memory import Memory
from eris.training.optimisers import optimiser_rule, step_direction
from eris.training.options import LocalTraining
from eris.training.trainer import LocalUpdate


@dataclass
class Trainee:
    """One client in a pass: which samples it holds, what it remembers, and how far it is."""

    client: int
    part: Indices
    memory: Memory
    start: Tensor
    total: Tensor | None = None
    losses: list[float] = field(default_factory=list)

    def update(self) -> LocalUpdate:
        """The pseudo-gradient: the sum of the directions."""
        assert self.total is not None
        return LocalUpdate(
            vector=self.total.cpu().numpy(),
            samples=len(self.part),
            steps=len(self.losses),
            metrics={"loss": sum(self.losses) / len(self.losses)},
        )


@dataclass(frozen=True)
class Passes:
    """The data of all clients, and how each of them trains."""

    gradients: GroupGradients
    inputs: Tensor
    targets: Tensor
    options: LocalTraining

    def train(self, members: Sequence[Trainee], round: int) -> None:
        """Let every member make its steps."""
        shared = all(member.start is members[0].start for member in members)
        # Most steps first, so that those still training are always the first ones; equal clients
        # side by side, so that their layers are single products.
        order = sorted(members, key=lambda member: (-self._steps(member), len(member.part)))
        batches = [self.options.batches(len(one.part), one.client, round) for one in order]
        steps, positions = self._steps(order[0]), None
        if steps > 1 or not shared:
            positions = torch.stack([member.start for member in order])
        for step in range(steps):
            active = sum(self._steps(member) > step for member in order)
            chosen = [
                member.part if (places := next(batch)) is None else member.part[places]
                for member, batch in zip(order[:active], batches, strict=False)
            ]
            if step == 0 and shared:
                found = self._found(order[0].start, chosen, shared=True)
            else:
                assert positions is not None
                found = self._found(positions[:active], chosen, shared=False)
            self._step(order[:active], positions, found)

    def _steps(self, member: Trainee) -> int:
        return self.options.local_steps(len(member.part))

    def _found(self, position: Tensor, chosen: Sequence[Indices], *, shared: bool) -> Found:
        group = Group(tuple(len(one) for one in chosen))
        numbers = torch.from_numpy(np.concatenate(chosen))
        inputs, targets = self.inputs[numbers], self.targets[numbers]
        gradients = self.gradients.shared if shared else self.gradients.stacked
        return gradients(position, inputs, targets, group)

    def _step(self, members: Sequence[Trainee], positions: Tensor | None, found: Found) -> None:
        """What ``TorchTrainer`` does with a step's gradient, for one client after another."""
        options, rule = self.options, optimiser_rule(self.options)
        each = zip(members, found.gradients, found.losses, strict=True)
        for row, (member, gradient, loss) in enumerate(each):
            position = member.start if positions is None else positions[row]
            if options.proximal and positions is not None:
                gradient = gradient + options.proximal * (position - member.start)
            direction = step_direction(rule, gradient, position, member.memory, found.unused)
            if positions is not None:
                position.sub_(direction, alpha=options.learning_rate)
            if member.total is not None:
                member.total.add_(direction)
            else:
                # The momentum goes on changing; a bare gradient is nobody else's.
                member.total = direction.clone() if member.memory else direction
            member.losses.append(loss)
