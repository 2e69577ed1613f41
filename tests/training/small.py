"""A network small enough to check by hand, data for it, and trainers of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.core.vectors import Vector
from eris.training.torch import TorchTrainer, flatten, unflatten

RATE = 0.1


def network(seed: int = 0, dropout: float = 0.0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(6, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3, bias=True)
        )


def some_data(count: int = 12, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 6, generator=generator)
    return inputs, torch.randint(0, 3, (count,), generator=generator)


def start() -> Vector:
    return flatten(network(5))


def trainer(model: nn.Module | None = None, **settings: Any) -> TorchTrainer:
    settings.setdefault("learning_rate", RATE)
    return TorchTrainer(model or network(), *some_data(), **settings)


def by_autograd(parameters: Vector, inputs: Tensor, targets: Tensor) -> Vector:
    model = network()
    unflatten(parameters, model)
    functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
    grads = [parameter.grad for parameter in model.parameters()]
    return np.concatenate([g.numpy().ravel() for g in grads if g is not None])


def regression(count: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs (count, 2) and noisy targets (count, 1), for ``line()`` under the squared error."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 2, generator=generator)
    noise = torch.randn(count, 1, generator=generator)
    return inputs, inputs @ torch.tensor([[1.0], [-2.0]]) + 0.5 + noise


def line() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Linear(2, 1)


def line_gradients(parameters: Vector, inputs: Tensor, targets: Tensor) -> Vector:
    """By hand: the gradient of every sample's squared error at a ``line()``, one a row."""
    design = np.concatenate([inputs.numpy(), np.ones((len(inputs), 1), np.float32)], axis=1)
    error = design @ parameters - targets.numpy()[:, 0]
    return np.asarray(2 * error[:, None] * design)


def line_optimum(inputs: Tensor, targets: Tensor) -> Vector:
    """The least squares solution."""
    design = np.concatenate([inputs.numpy(), np.ones((len(inputs), 1))], axis=1, dtype=np.float64)
    solution = np.linalg.lstsq(design, targets.numpy()[:, 0].astype(np.float64), rcond=None)[0]
    return np.asarray(solution, np.float32)
