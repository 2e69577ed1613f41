"""What a client would have sent, had it trained on given samples: differentiable in the samples.

A client that makes several steps of plain gradient descent on all its samples is unrolled: its
update is the sum of the gradients along its way, (model before − model after)/λ.

Many clients that start from one model are simulated in one pass (``torch.func.vmap``). A model that
does not allow it is simulated client by client.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from eris.core.errors import InvalidSetting
from eris.training.flat import FlatParameters, joined
from eris.training.gradients import Loss

_TINY, _WAYS = 1e-6, 4

Views = dict[str, Tensor]
"""Parameters by name."""


@dataclass(eq=False)
class Simulation:
    """Clients that start from ``position`` and make ``steps`` steps with all of their samples."""

    flat: FlatParameters
    loss: Loss
    position: Tensor
    steps: int = 1
    learning_rate: float = 1.0
    together: bool = True
    """Whether clients are simulated in one pass; false once the model has refused it."""
    _views: Views = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._views = {name: view.detach() for name, view in self.flat.views(self.position).items()}

    @property
    def module(self) -> nn.Module:
        """The architecture."""
        return self.flat.module

    def outputs(self, inputs: Tensor) -> Tensor:
        """The model's outputs at the start."""
        found: Tensor = functional_call(self.module, self._views, (inputs,))
        return found

    def updates(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One row a client, of its samples ``inputs[client]`` with ``targets[client]``."""
        if self.together and len(inputs) > 1:
            try:
                found: Tensor = vmap(self._functional)(inputs, targets)
                return found
            except RuntimeError:
                # vmap's refusals have no class of their own. If the model is at fault and not
                # vmap, the loop meets the same error and lets it through.
                self.together = False
        return torch.stack([self._plain(*pair) for pair in zip(inputs, targets, strict=True)])

    def _functional(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One client as vmap takes it."""

        def objective(views: Views) -> Tensor:
            return self.loss(functional_call(self.module, views, (inputs,)), targets)

        return self._descended(grad(objective), self._views)

    def _plain(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One client by plain differentiation, which is faster for a single one."""

        def gradient(views: Views) -> Views:
            loss = self.loss(functional_call(self.module, views, (inputs,)), targets)
            pieces = torch.autograd.grad(
                loss, list(views.values()), create_graph=True, materialize_grads=True
            )
            return dict(zip(views, pieces, strict=True))

        start = {name: view.clone().requires_grad_() for name, view in self._views.items()}
        return self._descended(gradient, start)

    def _descended(self, gradient: Callable[[Views], Views], views: Views) -> Tensor:
        """The sum of the gradients along a client's way."""
        total = pieces = gradient(views)
        for _ in range(1, self.steps):
            views = {name: view - self.learning_rate * pieces[name] for name, view in views.items()}
            pieces = gradient(views)
            total = {name: piece + pieces[name] for name, piece in total.items()}
        return joined(list(total.values()))

    def check_twice(self, shape: tuple[int, ...], samples: int) -> None:
        """Refuse a model that torch differentiates once only, also where it would not say so.

        A layer without a second derivative can drop out of it silently. So the slope of an
        update's length along one direction is held against what a tiny step there gives, in
        float64, where steps are too small to cross a kink.
        """
        exact = copy.copy(self)
        exact._views = {name: view.double() for name, view in self._views.items()}
        generator = torch.Generator().manual_seed(0)
        size = (1 + _WAYS, samples, *shape)
        at, *ways = torch.randn(size, generator=generator, dtype=torch.float64)
        at.requires_grad_()

        def length(place: Tensor) -> Tensor:
            return exact._plain(place, targets).square().sum()

        try:
            targets = self.outputs(at.float()).detach().argmin(-1)
            (slope,) = torch.autograd.grad(length(at), at)
            steps = [(length(at + _TINY * way) - length(at - _TINY * way)).detach() for way in ways]
        except (RuntimeError, ValueError, IndexError, TypeError):
            return  # what takes no float64 or other targets is refused, if at all, when it is used
        for way, step in zip(ways, steps, strict=True):
            off = float(step / (2 * _TINY) - (slope * way).sum())
            if abs(off) > 0.05 * float(slope.norm() * way.norm()):
                raise self._refused("a slope is not what a small step gives")

    def _refused(self, reason: str) -> InvalidSetting:
        return InvalidSetting(
            "model to invert", type(self.module).__name__,
            "one that torch can differentiate twice; replace the layer with a gradient of its own "
            f"by plain operations ({reason})",
        )  # fmt: skip
