"""Optimisers at the client against ``torch.optim``, and FedProx against its own objective."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.training.torch import TorchTrainer, flatten, unflatten
from eris.training.vectorised import TorchPopulation
from training.small import RATE, network, some_data, start, trainer

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS: list[dict[str, Any]] = [
    {"optimiser": "sgd", "weight_decay": 0.3},
    {"optimiser": "sgd", "weight_decay": 0.3, "momentum": 0.9},
    {"optimiser": "adam"},
    {"optimiser": "adam", "weight_decay": 0.3, "betas": (0.8, 0.95), "eps": 1e-3},
    {"optimiser": "adamw", "weight_decay": 0.3},
    {"optimiser": "adamw", "betas": (0.0, 0.5), "eps": 1e-3},
]


def torchs(model: nn.Module, settings: dict[str, Any]) -> torch.optim.Optimizer:
    rest = {name: value for name, value in settings.items() if name != "optimiser"}
    classes: dict[str, Any] = {
        "sgd": torch.optim.SGD,
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
    }
    if settings["optimiser"] == "adamw":
        rest.setdefault("weight_decay", 0.0)  # PyTorch's default is another
    optimiser: torch.optim.Optimizer = classes[settings["optimiser"]](
        model.parameters(), lr=RATE, **rest
    )
    return optimiser


def central(settings: dict[str, Any], steps: int) -> tuple[list[Vector], torch.optim.Optimizer]:
    """The models that PyTorch's optimiser visits on the same data."""
    model = network()
    unflatten(start(), model)
    optimiser, (inputs, targets) = torchs(model, settings), some_data()
    visited = []
    for _ in range(steps):
        optimiser.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        visited.append(flatten(model))
    return visited, optimiser


def rounds(client: TorchTrainer, count: int) -> list[Vector]:
    """The models after each round, when the server steps by the client's rate."""
    model, visited = start(), []
    for round in range(count):
        model = model - np.float32(RATE) * client.update(model, round).vector
        visited.append(model)
    return visited


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize(("count", "steps"), [(12, 1), (3, 4)])
def test_kept_moments_make_rounds_one_central_run(
    settings: dict[str, Any], count: int, steps: int
) -> None:
    expected, _ = central(settings, count * steps)
    found = rounds(trainer(steps=steps, **settings), count)
    for round, model in enumerate(found):
        np.testing.assert_allclose(model, expected[(round + 1) * steps - 1], rtol=0, atol=5e-6)


@pytest.mark.parametrize("settings", SETTINGS[2:], ids=str)
def test_after_one_step_the_moments_are_torchs_bit_for_bit(settings: dict[str, Any]) -> None:
    _, optimiser = central(settings, 1)
    client = trainer(**settings)
    client.update(start(), round=0)
    states = list(optimiser.state.values())
    for ours, theirs in (("first_moment", "exp_avg"), ("second_moment", "exp_avg_sq")):
        joined = np.concatenate([state[theirs].numpy().ravel() for state in states])
        assert np.array_equal(client.state()[ours], joined)
    assert client.state()["moment_steps"].tolist() == [1]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_moments_that_are_not_kept_start_anew(settings: dict[str, Any]) -> None:
    client = trainer(steps=3, keep_momentum=False, **settings)
    for round in range(3):
        fresh = trainer(steps=3, **settings).update(start(), round).vector
        assert np.array_equal(client.update(start(), round).vector, fresh)
        assert client.state() == {}
    kept = trainer(steps=3, **settings)
    kept.update(start(), 0)
    if kept.state():
        assert not np.array_equal(kept.update(start(), 1).vector, fresh)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_saved_state_continues_where_it_stopped(settings: dict[str, Any]) -> None:
    client, later = trainer(steps=2, **settings), trainer(steps=2, **settings)
    client.update(start(), round=0)
    later.restore(client.state())
    for round in (1, 2):
        expected = client.update(start(), round).vector
        assert np.array_equal(later.update(start(), round).vector, expected)


def test_half_a_state_is_refused() -> None:
    client = trainer(optimiser="adam")
    client.update(start(), round=0)
    state = client.state()
    del state["second_moment"]
    with pytest.raises(InvalidSetting, match=r"without \['second_moment'\]"):
        trainer(optimiser="adam").restore(state)
    with pytest.raises(InvalidSetting, match="keep_momentum False"):
        trainer(optimiser="adam", keep_momentum=False).restore(client.state())


def test_a_small_rate_does_not_cost_digits_under_adam() -> None:
    # The first direction of Adam is g/(|g| + ε), whatever the rate is.
    update = trainer(optimiser="adam", learning_rate=1e-7).update(start(), round=0).vector
    gradient = trainer().update(start(), round=0).vector
    np.testing.assert_allclose(update, gradient / (np.abs(gradient) + 1e-8), rtol=1e-5)


def proximal_run(mu: float, steps: int, momentum: float) -> Vector:
    """FedProx as published: SGD on the loss + μ/2·‖y − x‖², by autograd and torch.optim."""
    model = network()
    unflatten(start(), model)
    anchors = [parameter.detach().clone() for parameter in model.parameters()]
    optimiser, (inputs, targets) = (
        torch.optim.SGD(model.parameters(), lr=RATE, momentum=momentum),
        some_data(),
    )
    for _ in range(steps):
        optimiser.zero_grad()
        loss = functional.cross_entropy(model(inputs), targets)
        for parameter, anchor in zip(model.parameters(), anchors, strict=True):
            loss = loss + mu / 2 * (parameter - anchor).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return flatten(model)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fedprox_is_sgd_on_the_proximal_objective(momentum: float) -> None:
    client = trainer(steps=6, proximal=2.0, momentum=momentum)
    update = client.update(start(), round=0).vector
    end = proximal_run(2.0, 6, momentum)
    np.testing.assert_allclose(start() - np.float32(RATE) * update, end, rtol=0, atol=1e-6)
    assert not np.allclose(end, proximal_run(0.0, 6, momentum), rtol=0, atol=1e-2)


def test_fedprox_leaves_the_first_step_alone() -> None:
    assert np.array_equal(
        trainer(proximal=5.0).update(start(), 0).vector, trainer().update(start(), 0).vector
    )


class Spare(nn.Module):
    """One layer is used by every batch, one by batches larger than ``least``, one never."""

    def __init__(self, least: int) -> None:
        super().__init__()
        self.used, self.often, self.never = nn.Linear(6, 3), nn.Linear(6, 3), nn.Linear(6, 3)
        self.least = least

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.used(x)
        return out + self.often(x) if len(x) > self.least else out


DECAYING = [
    {"optimiser": "sgd", "momentum": 0.9, "weight_decay": 0.5},
    {"optimiser": "adam", "weight_decay": 0.5},
    {"optimiser": "adamw", "weight_decay": 0.5},
]


@pytest.mark.parametrize(
    ("settings", "least"), [*((settings, 0) for settings in DECAYING), (DECAYING[0], 3)], ids=str
)
def test_unused_parameters_are_left_alone_as_in_torch(settings: dict[str, Any], least: int) -> None:
    """In batches of 4 and 3 one layer is skipped in all steps and, if ``least`` is 3, one in some.

    (Adam's correction for a moment's start counts the client's steps, torch's a parameter's own.)
    """
    torch.manual_seed(0)
    model, inputs, targets = Spare(least), torch.randn(7, 6), torch.randint(0, 3, (7,))
    twin = copy.deepcopy(model)
    optimiser, stream = torchs(twin, settings), Stream(0, "batches", round=1)
    for epoch in range(3):
        order = torch.from_numpy(np.argsort(stream.words(7 * epoch, 7), kind="stable"))
        for batch in (order[:4], order[4:]):
            optimiser.zero_grad()
            loss = functional.cross_entropy(twin(inputs[batch]), targets[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    before, after = flatten(model), flatten(twin)
    given = {"learning_rate": RATE, "batch_size": 4, "epochs": 3, **settings}
    updates = [TorchTrainer(model, inputs, targets, **given).update(before, 1)]
    if not least:
        both = TorchPopulation(model, inputs, targets, [np.arange(7)], path="fast", **given)
        updates += both.updates([0], before, 1)
    for update in updates:
        assert np.all(update.vector[-21:] == 0)
        np.testing.assert_allclose(before - RATE * update.vector, after, atol=2e-6)
