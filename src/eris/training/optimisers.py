"""From gradient to direction: the optimiser at the client, with the arithmetic of ``torch.optim``.

A step is y ← y − λ·d with the direction d returned here, so the pseudo-gradient (x − x_k)/λ of a
round is the sum of its directions:

    SGD     b ← μ·b + g (the first b is g),  d = b               g includes weight_decay·y
    Adam    m ← β₁m + (1−β₁)g,  v ← β₂v + (1−β₂)g²,  d = m̂/(√v̂ + ε)      as above
    AdamW   the same on the bare gradient,  d = m̂/(√v̂ + ε) + weight_decay·y

with m̂ = m/(1 − β₁ᵗ), v̂ = v/(1 − β₂ᵗ) (Kingma and Ba, 2015; Loshchilov and Hutter, 2019). Settings
are frozen; what is remembered is a ``Memory`` that goes in and is updated in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from eris.training.memory import Memory
from eris.training.options import LocalTraining

_MOST_STEPS = 1 << 24  # what float32 counts exactly; 1 − βᵗ has long been 1 by then


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent, with momentum unless it is 0."""

    momentum: float
    weight_decay: float

    def lengths(self, parameters: int) -> dict[str, int]:
        """What is remembered between steps, by name and length: the momentum, if there is any."""
        return {"momentum": parameters} if self.momentum else {}

    def direction(self, gradient: Tensor, position: Tensor, memory: Memory) -> Tensor:
        """The gradient, or the momentum after it; valid until the next call."""
        if self.weight_decay:
            gradient = gradient.add(position, alpha=self.weight_decay)
        if self.momentum == 0:
            return gradient
        if "momentum" not in memory:
            memory["momentum"] = gradient
        else:
            memory["momentum"].mul_(self.momentum).add_(gradient)
        return memory["momentum"]


@dataclass(frozen=True)
class Adam:
    """Adam, or AdamW where the weight decay is ``decoupled`` from the moments."""

    betas: tuple[float, float]
    eps: float
    weight_decay: float
    decoupled: bool

    def lengths(self, parameters: int) -> dict[str, int]:
        """Both moments and the number of steps they have seen."""
        return {"first_moment": parameters, "second_moment": parameters, "moment_steps": 1}

    def direction(self, gradient: Tensor, position: Tensor, memory: Memory) -> Tensor:
        """The first moment over the root of the second, both corrected for their start at 0."""
        if self.weight_decay and not self.decoupled:
            gradient = gradient.add(position, alpha=self.weight_decay)
        if not memory:
            for name, length in self.lengths(len(gradient)).items():
                memory[name] = gradient.new_zeros(length)
        first, second = memory["first_moment"], memory["second_moment"]
        memory["moment_steps"].add_(1).clamp_(max=_MOST_STEPS)
        count, (beta1, beta2) = int(memory["moment_steps"]), self.betas
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = second.sqrt().div_((1 - beta2**count) ** 0.5).add_(self.eps)
        direction = first.div(root).div_(1 - beta1**count)
        if self.weight_decay and self.decoupled:
            direction.add_(position, alpha=self.weight_decay)
        return direction


OptimiserRule = Sgd | Adam
"""An optimiser's settings and its arithmetic."""


def step_direction(
    rule: OptimiserRule,
    gradient: Tensor,
    position: Tensor,
    memory: Memory,
    unused: Sequence[slice],
) -> Tensor:
    """The rule's direction, without the parameters that a step does not use, as in ``torch.optim``.

    Such a parameter gets no weight decay, does not coast on, and keeps its momentum and moments.
    """
    if not unused:
        return rule.direction(gradient, position, memory)
    before = {name: value.clone() for name, value in memory.items()}
    direction = rule.direction(gradient, position, memory).clone()
    for place in unused:
        direction[place] = 0
        for name, value in memory.items():
            if len(value) == len(direction):
                value[place] = before[name][place] if name in before else 0
    return direction


def optimiser_rule(options: LocalTraining) -> OptimiserRule:
    """The rule that the options name.

    >>> optimiser_rule(LocalTraining(learning_rate=0.1, momentum=0.9))
    Sgd(momentum=0.9, weight_decay=0.0)
    """
    if options.optimiser == "sgd":
        return Sgd(options.momentum, options.weight_decay)
    return Adam(options.betas, options.eps, options.weight_decay, options.optimiser == "adamw")
