"""What people bring: arrays, data sets, loaders, modules and states; and what does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import eris
from eris.core.errors import CastWarning, InvalidSetting
from eris.training.given import as_tensors
from eris.training.torch import TorchTrainer, flatten, torch_clients
from eris.training.vectorised import TorchPopulation
from training.small import RATE, line, network, regression, some_data, start


class Pairs(Dataset[tuple[Any, int]]):
    """As people write them: a numpy row and a plain number a sample."""

    def __len__(self) -> int:
        return len(some_data()[0])

    def __getitem__(self, place: int) -> tuple[Any, int]:
        inputs, targets = some_data()
        return inputs[place].numpy(), int(targets[place])


def given() -> dict[str, tuple[Any, ...]]:
    inputs, targets = some_data()
    return {
        "arrays": (inputs.numpy(), targets.numpy()),
        "narrow labels": (inputs, targets.to(torch.int32).numpy()),
        "lists": (inputs.numpy(), targets.tolist()),
        "tensors in a data set": (TensorDataset(inputs, targets),),
        "data set": (Pairs(),),
        "loader": (DataLoader(Pairs(), batch_size=5, shuffle=True),),
    }


@pytest.mark.parametrize("kind", given())
def test_every_kind_of_data_trains_to_the_same_bits(kind: str) -> None:
    settings: Any = {"learning_rate": RATE, "epochs": 1, "batch_size": 5}
    expected = TorchTrainer(network(), *some_data(), **settings).update(start(), 1)
    if kind == "loader":
        del settings["batch_size"]  # the loader's
    update = TorchTrainer(network(), *given()[kind], **settings).update(start(), 1)
    assert update.vector.tobytes() == expected.vector.tobytes()
    assert update.steps == expected.steps == 3


def test_float64_is_cast_with_one_notice() -> None:
    inputs, targets = some_data()
    with pytest.warns(CastWarning, match="inputs are float64; they are cast") as told:
        clients = torch_clients(
            network(), inputs.double().numpy(), targets, [np.arange(6), np.arange(6, 12)],
            learning_rate=RATE,
        )  # fmt: skip
    assert len(told) == 1
    assert told[0].filename == __file__
    expected = TorchTrainer(network(), inputs[:6], targets[:6], learning_rate=RATE)
    assert (clients[0].update(start(), 1).vector == expected.update(start(), 1).vector).all()


class Ragged(Pairs):
    def __getitem__(self, place: int) -> tuple[Any, int]:
        return torch.ones(place + 1), 0


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(())


@pytest.mark.parametrize(
    ("brought", "says"),
    [
        ((Endless(),), "expected one with a length"),
        ((TensorDataset(torch.ones(3, 6)),), "expected samples that are pairs of input and target"),
        ((Pairs(), [0]), "targets is 'list'; expected nothing"),
        ((torch.ones(3, 6),), "expected one for each input, or a Dataset"),
        ((np.array(["a"]), [0]), "inputs is '<U1 of shape"),
        ((torch.ones(3, 6), [0, 1]), "targets is '2 long'; expected 3"),
        ((Ragged(),), "expected samples of one shape"),
    ],
)
def test_what_is_no_data_is_refused(brought: tuple[Any, ...], says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        as_tensors(*brought)
    assert says in str(refused.value)


def test_a_device_that_is_not_there_is_refused() -> None:
    assert TorchTrainer(network(), *some_data(), learning_rate=RATE, device="cpu").samples == 12
    with pytest.raises(
        InvalidSetting, match=r"device is 'nowhere'; expected one that this machine"
    ):
        TorchTrainer(network(), *some_data(), learning_rate=RATE, device="nowhere")


# -- the model of a federation ----------------------------------------------------------------


def test_a_federation_starts_from_whatever_the_model_is_in() -> None:
    model, parts = network(3), [np.arange(4), np.arange(4, 8), np.arange(8, 12)]
    clients = torch_clients(model, *some_data(), parts, learning_rate=RATE)
    population = TorchPopulation(model, *some_data(), parts, learning_rate=RATE)
    start = flatten(model)
    state = {**model.state_dict(), "of another": torch.ones(1)}
    for who, what in ((clients, None), (population, None), (clients, start), (clients, model),
                      (clients, state), (clients, start.astype(np.float64))):  # fmt: skip
        federation = eris.Federation(who, what)
        assert federation.initial.tobytes() == start.tobytes()
        # By default the server steps as the clients do: their models' mean.
        assert federation.rule == eris.server_rule("fedavg", learning_rate=RATE)
    with pytest.raises(InvalidSetting, match=r"state_dict is 'without 0\.weight'"):
        eris.Federation(clients, {"weight": torch.ones(1)})
    other = torch_clients(network(4), *some_data(), parts[:1], learning_rate=RATE)
    with pytest.raises(InvalidSetting, match=r"initial\(\) of client-3 is 'another model'"):
        eris.Federation([*clients, *other])


def test_the_final_state_goes_back_in() -> None:
    model, parts = network(3), [np.arange(4), np.arange(4, 8), np.arange(8, 12)]
    clients = torch_clients(model, *some_data(), parts, learning_rate=RATE)
    half = eris.Federation(clients, model).fit(2, progress=False)
    state = half.state_dict(model)
    assert flatten(model).tobytes() == flatten(network(3)).tobytes()  # as it was
    again = eris.Federation(clients, state)
    assert again.initial.tobytes() == half.model.tobytes()
    other = network(4)
    other.load_state_dict(state)
    assert flatten(other).tobytes() == half.model.tobytes()


# -- losses that do not fit -------------------------------------------------------------------


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs - targets) ** 2).mean()


def squeezing(outputs: Tensor, targets: Tensor) -> Tensor:
    return squared(outputs.squeeze(1), targets)


@pytest.mark.parametrize("loss", [functional.mse_loss, squared, nn.L1Loss(reduction="sum")])
def test_a_loss_that_would_broadcast_is_refused(loss: Any) -> None:
    inputs, targets = regression()
    TorchTrainer(line(), inputs, targets, learning_rate=RATE, loss=loss)
    with pytest.raises(InvalidSetting, match=r"targets is '\(samples,\)'; expected \(samples, 1\)"):
        TorchTrainer(line(), inputs, targets[:, 0], learning_rate=RATE, loss=loss)


def test_a_loss_that_brings_shapes_together_is_not() -> None:
    inputs, targets = regression()
    loose = TorchTrainer(line(), inputs, targets[:, 0], learning_rate=RATE, loss=squeezing)
    plain = TorchTrainer(line(), inputs, targets, learning_rate=RATE, loss=squared)
    assert (
        loose.update(flatten(line()), 1).vector == plain.update(flatten(line()), 1).vector
    ).all()
    assert loose.evaluate(flatten(line())).keys() == {"loss", "samples"}


@pytest.mark.parametrize("loss", [functional.cross_entropy, nn.CrossEntropyLoss()])
def test_one_output_under_cross_entropy_is_refused(loss: Any) -> None:
    inputs, targets = regression()
    with pytest.raises(InvalidSetting, match="binary_cross_entropy_with_logits"):
        TorchTrainer(line(), inputs, (targets[:, 0] > 0).long(), learning_rate=RATE, loss=loss)


def test_targets_that_a_loss_does_not_take_are_refused_before_training() -> None:
    inputs, targets = some_data()
    far = targets.clone()
    far[-1] = 3
    for make in (
        lambda labels: TorchTrainer(network(), inputs, labels, learning_rate=RATE),
        lambda labels: TorchPopulation(
            network(), inputs, labels, [np.arange(12)], learning_rate=RATE
        ),
    ):
        with pytest.raises(InvalidSetting, match=r"targets is 'up to 3'; expected .* from 0 to 2"):
            make(far)
        with pytest.raises(InvalidSetting, match="targets that the loss takes beside outputs"):
            make(targets.float())
