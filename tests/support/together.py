"""Populations trained in one pass and by the plain loop, to be compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from eris.core.streams import Stream
from eris.core.vectors import Indices, Vector
from eris.models import create
from eris.models.factorisation import mean_squared_error
from eris.training.population import Population, Trainers
from eris.training.torch import flatten, torch_clients
from eris.training.trainer import LocalUpdate
from eris.training.vectorised import TorchPopulation

TOLERANCE = 1e-5
RATE = 0.05
RAGGED = [np.arange(0, 8), np.arange(8, 16), np.arange(16, 19), np.arange(19, 20),
          np.array([30, 21, 25, 22, 23])]  # fmt: skip
EVERYONE = range(len(RAGGED))
ROUNDS = 3


def draws(purpose: str, *shape: int) -> Tensor:
    count = int(np.prod(shape))
    return torch.tensor(Stream(1, purpose).normal(0, count), dtype=torch.float32).reshape(shape)


def labels(count: int, classes: int = 10) -> Tensor:
    return torch.tensor((Stream(2, "labels").uniform(0, count) * classes).astype(np.int64))


def seeded(build: Any) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model: nn.Module = build()
        return model


class Task:
    """A model with data for it."""

    def __init__(self, model: nn.Module, inputs: Tensor, targets: Tensor, **settings: Any) -> None:
        self.model, self.inputs, self.targets, self.settings = model, inputs, targets, settings
        self.start = flatten(model)

    def fast(self, parts: Sequence[Indices] = RAGGED, **settings: Any) -> TorchPopulation:
        chosen = {"path": "fast", "learning_rate": RATE, **self.settings, **settings}
        return TorchPopulation(self.model, self.inputs, self.targets, parts, **chosen)

    def loop(self, parts: Sequence[Indices] = RAGGED, **settings: Any) -> Trainers:
        chosen = {"learning_rate": RATE, **self.settings, **settings}
        return Trainers(torch_clients(self.model, self.inputs, self.targets, parts, **chosen))

    def own_models(self) -> list[Vector]:
        """A model for every client, each somewhere else near the start."""
        length = len(self.start)
        return [
            self.start + 0.01 * Stream(4, "own", client=k).normal(0, length).astype(np.float32)
            for k in EVERYONE
        ]


def lenet(**settings: Any) -> Task:
    return Task(create("lenet5", 0), draws("images", 32, 1, 28, 28), labels(32), **settings)


def resnet(name: str) -> Task:
    return Task(create(name, 0), draws("colour", 32, 3, 32, 32), labels(32))


def perceptron(**settings: Any) -> Task:
    model = seeded(lambda: nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 4)))
    return Task(model, draws("rows", 32, 12), labels(32, 4), **settings)


def factorisation() -> Task:
    model = create("matrix-factorisation", 0, users=30, items=20, dimensions=4)
    pairs = torch.stack([labels(32, 30), labels(64, 20)[32:]], dim=1)
    return Task(model, pairs, labels(96, 5)[64:] + 1, loss=mean_squared_error)


TASKS: dict[str, Callable[[], Task]] = {
    "lenet5": lenet,
    "perceptron": perceptron,
    "factorisation": factorisation,
    "resnet9": lambda: resnet("resnet9"),
    "resnet20": lambda: resnet("resnet20"),
}


def assert_close(found: LocalUpdate, expected: LocalUpdate) -> None:
    assert found.vector.dtype == np.float32
    assert found.vector.flags.c_contiguous
    assert found.vector.shape == expected.vector.shape
    scale = np.linalg.norm(expected.vector)
    assert 0 < scale < np.inf
    assert np.linalg.norm(found.vector - expected.vector) <= TOLERANCE * scale
    assert (found.samples, found.steps) == (expected.samples, expected.steps)
    assert found.metrics["loss"] == pytest.approx(expected.metrics["loss"], rel=1e-4)


def assert_alike(
    found: Population, expected: Population, models: Any, round: int, clients: Any = EVERYONE
) -> None:
    together = list(found.updates(clients, models, round))
    alone = list(expected.updates(clients, models, round))
    assert len(together) == len(clients)
    for one, other in zip(together, alone, strict=True):
        assert_close(one, other)
