"""The options as data: what they refuse, and when they allow many clients in one pass."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, asdict, fields
from typing import Any

import pytest
from torch import nn
from torch.nn import functional

from eris.core.errors import InvalidSetting
from eris.training.options import LocalTraining, TrainerSettings
from eris.training.torch import TorchTrainer
from training.small import network, some_data, trainer


def test_keywords_and_options_are_the_same() -> None:
    assert list(TrainerSettings.__annotations__) == [field.name for field in fields(LocalTraining)]


def test_a_trainer_shows_what_it_was_made_of() -> None:
    model, (inputs, targets) = network(), some_data()
    settings: dict[str, Any] = {"learning_rate": 0.3, "momentum": 0.9, "epochs": 2, "seed": 4}
    client = TorchTrainer(
        model, inputs, targets, loss=functional.multi_margin_loss, client=7, **settings
    )
    assert client.options == LocalTraining(**settings)
    assert client.model is model
    with pytest.raises(FrozenInstanceError):
        client.options.momentum = 0.5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        client.model = network()  # type: ignore[misc]
    assert asdict(client.options)["learning_rate"] == 0.3


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"optimiser": "lion"}, "optimiser is 'lion'; expected 'sgd' or 'adam' or 'adamw'"),
        ({"estimator": "sag"}, "estimator is 'sag'; expected 'sgd' or 'svrg' or 'saga'"),
        ({"running_statistics": "share"}, "running_statistics is 'share'; expected 'refuse' or"),
        ({"betas": (0.9, 1.0)}, r"betas is \(0.9, 1.0\); expected two numbers in \[0, 1\)"),
        ({"betas": (0.9,)}, "betas is"),
        ({"eps": 0.0}, "eps is 0.0"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1; expected a finite number, 0 or more"),
        ({"weight_decay": float("nan")}, "weight_decay is nan"),
        ({"proximal": float("inf")}, "proximal is inf"),
        ({"refresh": 0}, "refresh is 0; expected at least 1"),
        ({"optimiser": "adam", "momentum": 0.9}, r"whose momentum is betas\[0\]"),
    ],
)
def test_options_out_of_range_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidSetting, match=complaint):
        LocalTraining(learning_rate=0.1, **settings)


@pytest.mark.parametrize(
    ("samples", "settings", "batch", "steps"),
    [
        (10, {}, 10, 1),
        (10, {"steps": 3, "batch_size": 4}, 4, 3),
        (10, {"epochs": 2, "batch_size": 4}, 4, 6),
        (10, {"epochs": 2, "batch_size": 64}, 10, 2),
        (10, {"epochs": 3}, 10, 3),
    ],
)
def test_steps_and_batches_follow_from_the_samples(
    samples: int, settings: dict[str, Any], batch: int, steps: int
) -> None:
    options = LocalTraining(learning_rate=0.1, **settings)
    assert (options.batch(samples), options.local_steps(samples)) == (batch, steps)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"momentum": 0.9, "steps": 5},
        {"epochs": 2, "batch_size": 3},
        {"momentum": 0.9, "keep_momentum": False},
        {"optimiser": "adam", "weight_decay": 0.1},
        {"proximal": 0.1, "epochs": 1},
    ],
)
def test_a_step_of_one_gradient_has_no_obstacle(settings: dict[str, Any]) -> None:
    assert trainer(**settings).fast_path_obstacle is None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"estimator": "saga"}, "estimator='saga'"),
        ({"estimator": "svrg"}, "estimator='svrg'"),
    ],
)
def test_an_obstacle_is_named(settings: dict[str, Any], reason: str) -> None:
    obstacle = trainer(**settings).fast_path_obstacle
    assert obstacle is not None
    assert reason in obstacle


@pytest.mark.parametrize("tracked", [True, False])
def test_batch_norm_is_an_obstacle(tracked: bool) -> None:
    norm = nn.BatchNorm1d(3, track_running_stats=tracked)
    client = trainer(nn.Sequential(nn.Linear(6, 3), norm), running_statistics="batch")
    assert client.fast_path_obstacle == "layer 1 mixes the samples of a batch, as batch norm does"
