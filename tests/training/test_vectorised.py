"""Many clients in one pass against the plain loop, one ``TorchTrainer`` a client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.training.fast.passes import Passes
from eris.training.torch import single_threaded
from support.together import (
    EVERYONE,
    RAGGED,
    ROUNDS,
    TASKS,
    Task,
    assert_alike,
    draws,
    labels,
    perceptron,
    resnet,
    seeded,
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with single_threaded():
        yield


@pytest.fixture
def smooth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models without kinks.

    Where rounding carries an activation across the kink of a ReLU or of max pooling, the gradient
    jumps; that happens to the loop too, from a model that differs in the last bit.
    """
    monkeypatch.setattr(functional, "relu", lambda x, inplace=False: functional.softplus(x))
    monkeypatch.setattr(functional, "max_pool2d", lambda x, size: functional.avg_pool2d(x, size))


# -- equal to the plain loop ------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"momentum": 0.9},
        {"steps": 5},
        {"steps": 3, "batch_size": 2, "momentum": 0.5},
        {"epochs": 2, "batch_size": 3},
        {"epochs": 2, "batch_size": 3, "momentum": 0.9, "seed": 7, "threads": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("task", ["lenet5", "perceptron", "factorisation"])
@pytest.mark.usefixtures("smooth")
def test_updates_are_those_of_the_loop(task: str, settings: dict[str, Any]) -> None:
    made = TASKS[task]()
    fast = made.fast(**settings)
    loop = made.loop(**{name: value for name, value in settings.items() if name != "threads"})
    assert fast.obstacle is None
    model = made.start
    for round in range(ROUNDS):
        assert_alike(fast, loop, model, round)
        model = model - np.float32(0.01)
    assert_alike(fast, loop, made.own_models(), ROUNDS)
    assert fast.state().keys() == loop.state().keys()


@pytest.mark.parametrize("name", ["resnet9", "resnet20"])
@pytest.mark.usefixtures("smooth")
def test_updates_of_large_models_are_those_of_the_loop(name: str) -> None:
    made = TASKS[name]()
    parts = [np.arange(1), np.arange(1, 3)]
    fast, loop = (make(parts, steps=2, momentum=0.9) for make in (made.fast, made.loop))
    assert_alike(fast, loop, made.start, 0, range(2))
    assert_alike(fast, loop, made.own_models()[:2], 1, range(2))


@pytest.mark.parametrize("settings", [{}, {"steps": 5}], ids=str)
@pytest.mark.parametrize("task", ["lenet5", "resnet9"])
def test_updates_of_models_with_kinks(task: str, settings: dict[str, Any]) -> None:
    made = TASKS[task]()
    parts, tolerance = RAGGED[2:4], 1e-2 if settings else 1e-3
    fast, loop = made.fast(parts, **settings), made.loop(parts, **settings)
    updates = zip(*(one.updates([0, 1], made.start, 0) for one in (fast, loop)), strict=True)
    for found, expected in updates:
        difference = np.linalg.norm(found.vector - expected.vector)
        assert difference <= tolerance * np.linalg.norm(expected.vector)


@pytest.mark.parametrize(
    "settings",
    [
        {"weight_decay": 0.1, "steps": 3},
        {"proximal": 0.5, "steps": 3},
        {"optimiser": "adam", "steps": 3},
        {"optimiser": "adamw", "weight_decay": 0.1, "epochs": 2, "batch_size": 2},
        {"momentum": 0.9, "keep_momentum": False, "steps": 2},
        {"estimator": "saga", "batch_size": 2},
    ],
    ids=str,
)
def test_every_option_gives_what_the_loop_gives(settings: dict[str, Any]) -> None:
    task = perceptron()
    fast, loop = task.fast(path="auto", **settings), task.loop(**settings)
    for round in range(ROUNDS):
        assert_alike(fast, loop, task.start, round)
    state = loop.state()
    assert fast.state().keys() == state.keys()
    for name, value in fast.state().items():
        np.testing.assert_allclose(value, state[name], rtol=1e-3, atol=1e-6)


def test_some_clients_in_another_order() -> None:
    task = perceptron(momentum=0.9)
    fast, loop = task.fast(), task.loop()
    for round, clients in enumerate(([4, 0], [2], [3, 2, 1], [])):
        assert_alike(fast, loop, task.start, round, clients)


def test_a_client_asked_for_twice_goes_on_from_its_own_momentum() -> None:
    task = perceptron(momentum=0.9)
    assert_alike(task.fast(), task.loop(), task.start, 0, [1, 1])


# -- layers and losses ------------------------------------------------------------------------


class Shared(nn.Module):
    """A layer used twice, a frozen one, one that is not used, and shifts of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.frozen, self.idle = (nn.Linear(12, 12) for _ in range(3))
        self.frozen.weight.requires_grad_(False)
        self.scale = nn.Parameter(torch.full((12,), 1.5))
        self.shift = nn.Parameter(torch.zeros(1, 12))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu_(self.twice(x))
        x = torch.tanh(self.scale * self.frozen(x) - self.shift)
        assert self.scale.shape == (12,)
        out: Tensor = self.twice(x)[:, :4]
        return out


class Sentence(nn.Module):
    """Words (samples, time) through a table, layers that see (samples, time, width), and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 6, padding_idx=0)
        self.inner, self.norm, self.out = nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 4)

    def forward(self, words: Tensor) -> Tensor:
        out: Tensor = self.out(self.norm(functional.gelu(self.inner(self.table(words)))).mean(1))
        return out


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, stride=2, padding=1, bias=False),
        nn.GroupNorm(2, 6),
        nn.ReLU(inplace=True),
        nn.Conv2d(6, 6, (3, 2), dilation=(1, 2), padding=(2, 1), groups=3),
        nn.MaxPool2d(2),
        nn.Flatten(2),
        nn.Conv1d(6, 5, 3),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(5, 4),
    )


@pytest.mark.parametrize("settings", [{}, {"steps": 3}], ids=str)
@pytest.mark.parametrize(
    ("build", "inputs"),
    [
        (Shared, draws("rows", 32, 12)),
        (Sentence, labels(32 * 7).reshape(32, 7)),
        (convolutions, draws("two channels", 32, 2, 13, 11)),
    ],
    ids=["shared", "sentence", "convolutions"],
)
def test_layers(build: Any, inputs: Tensor, settings: dict[str, Any]) -> None:
    task = Task(seeded(build), inputs, labels(32, 4), **settings)
    fast, loop = task.fast(), task.loop()
    assert_alike(fast, loop, task.start, 0)
    assert_alike(fast, loop, task.own_models(), 1)


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets).square().mean() + outputs.abs().amax()


@pytest.mark.parametrize("loss", [squares, nn.CrossEntropyLoss(label_smoothing=0.1)])
def test_any_mean_loss_of_a_batch(loss: Any) -> None:
    task = perceptron(loss=loss)
    assert_alike(task.fast(), task.loop(), task.start, 0)


def test_targets_that_are_left_out_do_not_count() -> None:
    task = perceptron()
    task.targets[[0, 1, 9]] = -100
    assert_alike(task.fast(), task.loop(), task.start, 0)


def test_the_fast_path_is_taken_whatever_fits_into_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trained, train = [], Passes.train

    def noted(self: Passes, members: Any, *others: Any) -> None:
        trained.append(len(members))
        train(self, members, *others)

    monkeypatch.setattr(Passes, "train", noted)
    large, small = resnet("resnet9"), perceptron()
    parts = [np.arange(12), np.arange(12, 24)]
    expected = [
        (large.fast(parts, path="auto"), [1]),
        (large.fast(parts, path="auto", threads=2), [1]),
        (large.fast(parts), [1]),
        (small.fast(path="auto"), [1]),
        (small.fast(path="loop"), []),
    ]
    for clients, passed in expected:
        trained.clear()
        start = small.start if len(clients) == len(RAGGED) else large.start
        list(clients.updates([1], start, 0))
        assert trained == passed
    trained.clear()
    list(small.fast(path="auto").updates(EVERYONE, small.start, 0))
    assert sorted(trained) == [2, 3]  # two passes, for two cores
