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
from eris.training.augmentation import augmentation
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
        altered = [augmentation(self.options, len(m.part), m.client, round) for m in order]
        steps, positions = self._steps(order[0]), None
        if steps > 1 or not shared:
            positions = torch.stack([member.start for member in order])
        for step in range(steps):
            active = sum(self._steps(member) > step for member in order)
            chosen = [
                member.part if (places := next(batch)) is None else member.part[places]
                for member, batch in zip(order[:active], batches, strict=False)
            ]
            group = Group(tuple(len(one) for one in chosen))
            numbers = torch.from_numpy(np.concatenate(chosen))
            inputs, targets = self.inputs[numbers], self.targets[numbers]
            if self.options.augment != "none":
                pieces = zip(altered, group.split(inputs), strict=False)
                inputs = torch.cat([one(step, piece) for one, piece in pieces if one is not None])
            if step == 0 and shared:
                found = self.gradients.shared(order[0].start, inputs, targets, group)
            else:
                assert positions is not None
                found = self.gradients.stacked(positions[:active], inputs, targets, group)
            self._step(order[:active], positions, found)

    def _steps(self, member: Trainee) -> int:
        return self.options.local_steps(len(member.part))

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
