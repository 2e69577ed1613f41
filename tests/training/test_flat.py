"""A model that does not fit its data, or does not stay what it was, is named before it trains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.core.errors import InvalidSetting
from eris.training.flat import FlatParameters, layer_sizes
from eris.training.torch import TorchTrainer, flatten
from training.small import RATE, network, some_data, start, trainer

pytestmark = pytest.mark.usefixtures("one_thread")


class Restless(nn.Module):
    """A layer that does something to itself in a forward pass, once it is told to."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.layer, self.change, self.calls = nn.Linear(6, 3), change, 0
        self.from_call = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.from_call and self.calls >= self.from_call:
            self.change(self)
        y: Tensor = self.layer(x)
        return y


def grow(model: Restless) -> None:
    model.register_parameter(f"extra_{model.calls}", nn.Parameter(torch.zeros(2)))


def exchange(model: Restless) -> None:
    model.layer = nn.Linear(6, 3)


def reshape(model: Restless) -> None:
    model.layer.bias.data = torch.zeros(1)


def freeze(model: Restless) -> None:
    model.layer.bias.requires_grad_(False)


CHANGES = [
    (grow, r"trainable parameters of Restless is '3 of them'; expected 2, as at the start"),
    (exchange, r"'layer.weight \(3, 6\)'; expected layer.weight \(3, 6\), the same parameter"),
    (reshape, r"'layer.bias \(1,\)'; expected layer.bias \(3,\)"),
    (freeze, r"is '1 of them'; expected 2"),
]


@pytest.mark.parametrize(("change", "complaint"), CHANGES)
def test_a_model_that_changes_in_its_forward_pass_is_refused_at_once(
    change: Any, complaint: str
) -> None:
    model = Restless(change)
    model.from_call = 1
    with pytest.raises(InvalidSetting, match=complaint):
        TorchTrainer(model, *some_data(), learning_rate=RATE)


@pytest.mark.parametrize(("change", "complaint"), CHANGES)
def test_a_model_changed_between_rounds_is_refused_before_training(
    change: Any, complaint: str
) -> None:
    model = Restless(change)
    vector = flatten(model)
    client = TorchTrainer(model, *some_data(), learning_rate=RATE)
    client.update(vector, round=0)
    change(model)
    calls = model.calls
    with pytest.raises(InvalidSetting, match=complaint):
        client.update(vector, round=1)
    assert model.calls == calls


@pytest.mark.parametrize("change", [grow, exchange])
def test_a_model_that_changes_while_it_trains_sends_nothing(change: Any) -> None:
    model = Restless(change)
    client = TorchTrainer(model, *some_data(), learning_rate=RATE, steps=4)
    vector, model.from_call = flatten(model), 5  # the trial run was the first
    with pytest.raises(InvalidSetting, match="trainable parameters of Restless"):
        client.update(vector, round=0)


def test_a_lazy_model_is_refused_until_it_knows_its_shapes() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    with pytest.raises(
        InvalidSetting, match=r"shape of Sequential's 0.weight is 'not known yet'.*call the model"
    ):
        TorchTrainer(model, *some_data(), learning_rate=RATE)
    model(some_data()[0])
    client = TorchTrainer(model, *some_data(), learning_rate=RATE)
    assert len(client.update(flatten(model), round=0).vector) == 21


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        (
            torch.zeros(12, 5),
            r"'torch.float32 \(2, 5\)'; expected inputs that Sequential takes; it",
        ),
        (torch.zeros(12, 6, dtype=torch.int64), r"'torch.int64 \(2, 6\)'; expected inputs that"),
    ],
)
def test_data_of_another_shape_is_refused_before_training(inputs: Tensor, complaint: str) -> None:
    with pytest.raises(InvalidSetting, match=complaint):
        TorchTrainer(network(), inputs, some_data()[1], learning_rate=RATE)


def test_a_shared_module_is_tried_once_and_left_as_it_was() -> None:
    model = Restless(grow)
    before, random = flatten(model), torch.random.get_rng_state()
    model.eval()
    for client in range(5):
        TorchTrainer(model, *some_data(), learning_rate=RATE, client=client)
    assert model.calls == 1
    assert not model.training
    assert np.array_equal(flatten(model), before)
    assert torch.equal(torch.random.get_rng_state(), random)


def test_a_loss_that_is_no_single_number_is_refused() -> None:
    def each(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets, reduction="none")

    with pytest.raises(InvalidSetting, match=r"shape of the loss is \(2,\); expected \(\)"):
        trainer(loss=each).update(start(), round=0)


def test_views_are_the_parameters_by_name() -> None:
    model = network()
    flat = FlatParameters(model)
    views = flat.views(torch.from_numpy(flatten(model)))
    for name, parameter in model.named_parameters():
        assert torch.equal(views[name], parameter)
    assert len(flat) == 83


def test_a_layer_is_a_module_with_its_own_parameters_and_statistics_are_the_last() -> None:
    block = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3, bias=False))
    module = nn.Sequential(block, nn.Flatten(), nn.Linear(6, 3))
    module[2].bias.requires_grad_(False)
    assert layer_sizes(module, running_statistics="averaged") == (40, 8, 72, 18, 8)
    assert sum(layer_sizes(module, running_statistics="averaged")) == len(
        flatten(module, running_statistics="averaged")
    )
    assert layer_sizes(module, running_statistics="local") == (40, 8, 72, 18)
