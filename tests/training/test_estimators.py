"""SVRG and SAGA: unbiased over all batches, no variance at the optimum, equal to a slow run."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.training.estimators import GradientEstimator, Plain, Saga, Svrg
from eris.training.flat import FlatParameters
from eris.training.gradients import ClientGradients
from eris.training.memory import Memory
from eris.training.torch import TorchTrainer
from training.small import (
    by_autograd,
    line,
    line_gradients,
    line_optimum,
    network,
    regression,
    some_data,
    start,
    trainer,
)

pytestmark = pytest.mark.usefixtures("one_thread")

SAMPLES = 4


def tiny_client() -> ClientGradients:
    return ClientGradients(FlatParameters(network()), *some_data(SAMPLES), functional.cross_entropy)


def moved(seed: int) -> Tensor:
    """A model away from where the estimator began."""
    generator = torch.Generator().manual_seed(seed)
    return torch.from_numpy(start()) + 0.3 * torch.randn(83, generator=generator)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("estimator", [Plain(), Svrg(refresh=3), Saga()], ids=str)
def test_the_mean_over_all_batches_is_the_full_gradient(
    estimator: GradientEstimator, size: int
) -> None:
    client, memory = tiny_client(), Memory()
    estimator.begin(torch.from_numpy(start()), 0, client, memory)
    for seed in (1, 2):  # so that SAGA's rows belong to several models
        estimator.estimate(moved(seed), torch.tensor([seed]), client, memory)
    here, estimates = moved(3), []
    for batch in itertools.combinations(range(SAMPLES), size):
        lent = {name: value.clone() for name, value in memory.items()}
        estimates.append(estimator.estimate(here, torch.tensor(batch), client, lent)[0].numpy())
    full = by_autograd(here.numpy(), *some_data(SAMPLES))
    np.testing.assert_allclose(np.mean(estimates, axis=0), full, rtol=0, atol=2e-7)
    if size < SAMPLES:
        assert np.abs(estimates[0] - full).max() > 1e-3  # a single one is not


@pytest.mark.parametrize("estimator", [Svrg(refresh=1), Saga()], ids=str)
def test_at_the_optimum_nothing_is_left_of_the_variance(estimator: GradientEstimator) -> None:
    data = regression()
    client = ClientGradients(FlatParameters(line()), *data, functional.mse_loss)
    optimum, memory = torch.from_numpy(line_optimum(*data)), Memory()
    estimator.begin(optimum, 0, client, memory)
    for sample in range(SAMPLES):
        chosen = torch.tensor([sample])
        plain, _ = Plain().estimate(optimum, chosen, client, {})
        reduced, _ = estimator.estimate(optimum, chosen, client, memory)
        assert float(reduced.norm()) < 1e-5 < 1e-2 < float(plain.norm())


def distance(estimator: str) -> float:
    data = regression()
    settings: dict[str, Any] = {"batch_size": 1, "epochs": 5, "estimator": estimator}
    client = TorchTrainer(line(), *data, loss=functional.mse_loss, learning_rate=0.05, **settings)
    model = np.zeros(3, np.float32)
    for round in range(40):
        model = model - np.float32(0.05) * client.update(model, round).vector
    return float(np.abs(model - line_optimum(*data)).max())


def test_single_samples_reach_the_optimum_only_with_variance_reduction() -> None:
    assert distance("svrg") < 1e-5
    assert distance("saga") < 1e-5
    assert distance("sgd") > 1e-2


def slow_svrg(models: list[Vector], refresh: int, data: tuple[Tensor, Tensor]) -> list[Vector]:
    snapshot, taken, updates = models[0], -refresh, []
    for round, model in enumerate(models):
        if round >= taken + refresh:
            snapshot, taken = model, round
        total, y = np.zeros(3), model.astype(np.float64)
        full = line_gradients(snapshot, *data).mean(axis=0)
        for batch in batches(round):
            here = line_gradients(y.astype(np.float32), *data)[batch].mean(axis=0)
            there = line_gradients(snapshot, *data)[batch].mean(axis=0)
            total += here - there + full
            y -= 0.05 * (here - there + full)
        updates.append(total.astype(np.float32))
    return updates


def slow_saga(models: list[Vector], data: tuple[Tensor, Tensor]) -> list[Vector]:
    table, updates = line_gradients(models[0], *data).astype(np.float64), []
    for round, model in enumerate(models):
        total, y = np.zeros(3), model.astype(np.float64)
        for batch in batches(round):
            new = line_gradients(y.astype(np.float32), *data)[batch]
            direction = new.mean(axis=0) - table[batch].mean(axis=0) + table.mean(axis=0)
            table[batch] = new
            total += direction
            y -= 0.05 * direction
        updates.append(total.astype(np.float32))
    return updates


def batches(round: int) -> list[list[int]]:
    orders = Stream(0, "batches", round=round).permutations(2, 5).tolist()
    return [order[begin : begin + 2] for order in orders for begin in (0, 2, 4)]


def some_models(count: int) -> list[Vector]:
    return [np.array([0.3 * r, -0.1 * r, 0.5], np.float32) for r in range(count)]


@pytest.mark.parametrize("refresh", [1, 2, 3])
def test_svrg_is_the_slow_one(refresh: int) -> None:
    data = regression(5)
    client = TorchTrainer(
        line(),
        *data,
        loss=functional.mse_loss,
        learning_rate=0.05,
        batch_size=2,
        epochs=2,
        estimator="svrg",
        refresh=refresh,
    )
    models = some_models(5)
    for round, expected in enumerate(slow_svrg(models, refresh, data)):
        found = client.update(models[round], round).vector
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_saga_is_the_slow_one() -> None:
    data = regression(5)
    client = TorchTrainer(
        line(),
        *data,
        loss=functional.mse_loss,
        learning_rate=0.05,
        batch_size=2,
        epochs=2,
        estimator="saga",
    )
    models = some_models(4)
    for round, expected in enumerate(slow_saga(models, data)):
        found = client.update(models[round], round).vector
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("estimator", ["svrg", "saga"])
def test_on_all_the_data_it_is_the_gradient(estimator: str) -> None:
    update = trainer(estimator=estimator).update(start(), round=0)
    np.testing.assert_allclose(update.vector, by_autograd(start(), *some_data()), atol=1e-7)


@pytest.mark.parametrize("settings", [{"estimator": "svrg", "refresh": 3}, {"estimator": "saga"}])
def test_a_saved_state_continues_where_it_stopped(settings: dict[str, Any]) -> None:
    settings |= {"batch_size": 5, "epochs": 2, "momentum": 0.9}
    client, later = trainer(**settings), trainer(**settings)
    assert client.state() == {}
    client.update(start(), round=4)
    later.restore(client.state())
    later.update(start(), round=5)
    later.restore(client.state())  # the state given must not have been written into
    for round in (5, 6, 7):
        expected = client.update(moved(round).numpy(), round).vector
        assert np.array_equal(later.update(moved(round).numpy(), round).vector, expected)


def test_the_state_names_and_sizes() -> None:
    client = trainer(estimator="svrg", refresh=2)
    for round, taken in ((3, 3), (4, 3), (5, 5), (9, 9), (0, 0)):
        client.update(start(), round)
        assert client.state()["snapshot_round"].tolist() == [taken]
    table = trainer(estimator="saga")
    table.update(start(), round=0)
    assert table.state()["gradient_table"].shape == (12 * 83,)
    with pytest.raises(InvalidSetting, match=r"gradient_table .* expected float32 \(996,\)"):
        table.restore({"gradient_table": start()})


@pytest.mark.parametrize("estimator", ["svrg", "saga"])
def test_what_makes_a_gradient_more_than_a_function_of_the_model_is_refused(estimator: str) -> None:
    with pytest.raises(InvalidSetting, match=r"dropout of layer 2 is 0.5; expected no dropout"):
        trainer(network(dropout=0.5), estimator=estimator)
    normed = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))
    with pytest.raises(InvalidSetting, match="layer is '1'; expected one that treats every sample"):
        trainer(normed, estimator=estimator, running_statistics="local")
