"""Batch norm: every policy does what it says, and the module that was lent is left as it was."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import eris
from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.training.scaffold import ScaffoldTrainer
from eris.training.torch import (
    TorchTrainer,
    evaluate,
    flatten,
    torch_clients,
    unflatten,
    with_statistics,
)
from eris.training.vectorised import TorchPopulation
from training.small import RATE, some_data

pytestmark = pytest.mark.usefixtures("one_thread")

PARTS = [np.array([0, 1, 2, 3, 4]), np.array([7, 5, 9]), np.array([11, 10, 8, 6])]


def normed(**settings: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8, **settings), nn.Tanh(), nn.Linear(8, 3)
        )


def begin() -> Vector:
    return flatten(normed(), running_statistics="ignore")


def buffers(module: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in module.named_buffers()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def client_data(part: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[Tensor, Tensor]:
    inputs, targets = some_data()
    return inputs[torch.from_numpy(part)], targets[torch.from_numpy(part)]


def test_refusing_names_the_choices() -> None:
    with pytest.raises(
        InvalidSetting, match=r"'1.running_mean'.*'local' .*'batch' .*'ignore' "
    ) as refusal:
        TorchTrainer(normed(), *some_data(), learning_rate=RATE)
    assert "group norm" in str(refusal.value)


def test_local_statistics_are_those_of_a_client_with_a_module_of_its_own() -> None:
    settings: dict[str, Any] = {"learning_rate": RATE, "steps": 2, "momentum": 0.9}
    scratch = normed()
    shared = [
        TorchTrainer(scratch, *client_data(part), client=k, running_statistics="local", **settings)
        for k, part in enumerate(PARTS)
    ]
    modules = [normed() for _ in PARTS]
    alone = [
        TorchTrainer(module, *client_data(part), client=k, running_statistics="ignore", **settings)
        for k, (module, part) in enumerate(zip(modules, PARTS, strict=True))
    ]
    model, untouched = begin(), buffers(scratch)
    for round in range(3):
        for one, other in zip(shared, alone, strict=True):
            assert np.array_equal(
                one.update(model, round).vector, other.update(model, round).vector
            )
            assert same(buffers(scratch), untouched)  # so a client made later starts from these
    expected = [evaluate(m, model, *some_data(), running_statistics="ignore") for m in modules]
    found = [client.evaluate(model, *some_data()) for client in shared]
    assert found == expected
    assert len({result["loss"] for result in found}) == len(PARTS)
    assert same(buffers(scratch), untouched)
    for client, module in zip(shared, modules, strict=True):
        own = torch.cat([buffer.float().reshape(-1) for buffer in module.buffers()])
        assert np.array_equal(client.state()["statistics"], own.numpy())


def test_local_statistics_are_part_of_the_state() -> None:
    def client() -> TorchTrainer:
        data = client_data(PARTS[0])
        return TorchTrainer(normed(), *data, learning_rate=RATE, running_statistics="local")

    trained, later = client(), client()
    assert trained.state() == {}
    assert trained.evaluate(begin(), *some_data()) == later.evaluate(begin(), *some_data())
    assert trained.state() == {}  # looking is not training
    trained.update(begin(), round=0)
    assert set(trained.state()) == {"statistics"}
    later.restore(trained.state())
    assert trained.evaluate(begin(), *some_data()) == later.evaluate(begin(), *some_data())
    assert trained.evaluate(begin(), *some_data()) != client().evaluate(begin(), *some_data())
    with pytest.raises(InvalidSetting, match=r"statistics .* expected float32 \(17,\)"):
        later.restore({"statistics": begin()})


def test_batch_statistics_are_those_of_a_norm_that_tracks_none() -> None:
    settings: dict[str, Any] = {"learning_rate": RATE, "steps": 2, "batch_size": 3, "momentum": 0.9}
    module = normed()
    untouched = buffers(module)
    client = TorchTrainer(module, *some_data(), running_statistics="batch", **settings)
    plain = TorchTrainer(normed(track_running_stats=False), *some_data(), **settings)
    for round in range(2):
        expected = plain.update(begin(), round).vector
        assert np.array_equal(client.update(begin(), round).vector, expected)
    assert same(buffers(module), untouched)
    assert module[1].track_running_stats is True
    assert set(client.state()) == {"momentum"}
    reference = evaluate(normed(track_running_stats=False), begin(), *some_data(), batch_size=5)
    found = evaluate(module, begin(), *some_data(), batch_size=5, running_statistics="batch")
    assert found == reference
    assert client.evaluate(begin(), *some_data(), batch_size=5) == reference
    assert found != evaluate(module, begin(), *some_data(), running_statistics="ignore")
    assert same(buffers(module), untouched)


def test_batch_statistics_work_for_instance_norm() -> None:
    def images(tracked: bool) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            norm = nn.InstanceNorm2d(2, affine=True, track_running_stats=tracked)
            return nn.Sequential(nn.Conv2d(1, 2, 3), norm, nn.Flatten(), nn.Linear(8, 3))

    inputs = torch.randn(6, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    targets, module = torch.arange(6) % 3, images(tracked=True)
    untouched = buffers(module)
    vector = flatten(module, running_statistics="ignore")
    client = TorchTrainer(module, inputs, targets, learning_rate=RATE, running_statistics="batch")
    plain = TorchTrainer(images(tracked=False), inputs, targets, learning_rate=RATE)
    assert np.array_equal(client.update(vector, 0).vector, plain.update(vector, 0).vector)
    assert client.evaluate(vector, inputs, targets) == plain.evaluate(vector, inputs, targets)
    assert same(buffers(module), untouched)


def test_ignored_statistics_stay_in_the_module() -> None:
    module = normed()
    untouched = buffers(module)
    client = TorchTrainer(module, *some_data(), learning_rate=RATE, running_statistics="ignore")
    client.update(begin(), round=0)
    assert not same(buffers(module), untouched)
    assert client.state() == {}


@pytest.mark.parametrize("choice", ["local", "batch"])
def test_a_failed_round_puts_the_statistics_back(choice: Any) -> None:
    def failing(outputs: Tensor, targets: Tensor) -> Tensor:
        if outputs.requires_grad:  # not where the loss is only tried
            raise ArithmeticError("no loss today")
        return functional.cross_entropy(outputs, targets)

    module = normed()
    untouched = buffers(module)
    client = TorchTrainer(
        module, *some_data(), learning_rate=RATE, loss=failing, running_statistics=choice
    )
    with pytest.raises(ArithmeticError):
        client.update(begin(), round=0)
    assert same(buffers(module), untouched)
    assert client.state() == {}


@pytest.mark.parametrize("choice", ["local", "batch"])
def test_a_model_without_statistics_trains_as_ever(choice: Any) -> None:
    model = nn.Sequential(nn.Linear(6, 3), nn.GroupNorm(1, 3))
    client = TorchTrainer(model, *some_data(), learning_rate=RATE, running_statistics=choice)
    plain = TorchTrainer(copy.deepcopy(model), *some_data(), learning_rate=RATE)
    vector = flatten(model)
    assert np.array_equal(client.update(vector, 0).vector, plain.update(vector, 0).vector)
    assert client.state() == {}


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"only a client knows its own"):
        evaluate(normed(), begin(), *some_data(), running_statistics="local")

    class Homemade(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)
            self.register_buffer("running_mean", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layer(x)
            return y

    with pytest.raises(InvalidSetting, match="owner of running_mean is 'Homemade'; expected a"):
        TorchTrainer(Homemade(), *some_data(), learning_rate=RATE, running_statistics="batch")
    TorchTrainer(Homemade(), *some_data(), learning_rate=RATE, running_statistics="local")


def test_clients_made_together_have_statistics_of_their_own() -> None:
    clients = torch_clients(
        normed(), *some_data(), PARTS, learning_rate=RATE, running_statistics="local"
    )
    for client in clients:
        client.update(begin(), round=0)
    kept = [client.state()["statistics"] for client in clients]
    assert not np.array_equal(kept[0], kept[1])
    assert [float(own[16]) for own in kept] == [1, 1, 1]  # one batch each, not three


# -- averaged ---------------------------------------------------------------------------------


def test_one_mark_serves_flatten_clients_and_evaluate() -> None:
    model = with_statistics(normed(), "averaged")
    before = buffers(model)
    vector = flatten(model)
    statistics = np.concatenate([model[1].running_mean, model[1].running_var])
    assert np.array_equal(vector[-16:], statistics)
    assert np.array_equal(vector[:-16], begin())
    clients = torch_clients(model, *some_data(), PARTS, learning_rate=RATE, steps=2)
    rule = eris.server_rule("fedavg", learning_rate=RATE)
    federation = eris.Federation(clients, vector, eris.ERIS(aggregators=2), rule=rule)
    fit = federation.fit(2, progress=False)
    assert evaluate(model, fit.model, *some_data())["samples"] == 12
    assert same(buffers(model), before)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_the_averaged_statistics_are_the_weighted_mean_of_the_clients(momentum: Any) -> None:
    model = with_statistics(normed(momentum=momentum), "averaged")
    start = flatten(model)
    given: dict[str, Any] = {"learning_rate": RATE, "steps": 2}
    clients = torch_clients(model, *some_data(), PARTS, **given)
    rule = eris.server_rule("fedavg", learning_rate=RATE)
    federation = eris.Federation(clients, start, eris.FedAvg(), rule=rule)
    found = federation.fit(1, progress=False).model[-16:]
    ends = []
    for client, part in enumerate(PARTS):
        own = normed(momentum=momentum)
        alone = TorchTrainer(own, *client_data(part), client=client,
                             running_statistics="ignore", **given)  # fmt: skip
        alone.update(begin(), 1)
        mean, variance = own[1].running_mean, own[1].running_var
        ends.append(torch.cat([mean, variance]).numpy())
    expected = np.average(ends, axis=0, weights=[len(part) for part in PARTS])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    # A second round starts from them, and a round does not depend on who trained before.
    again = clients[1].update(start, 1).vector
    assert np.array_equal(again, clients[1].update(start, 1).vector)


def test_a_model_goes_in_and_out_as_a_state_dict() -> None:
    kept = normed()
    with torch.no_grad():
        kept[1].running_mean += 3
    model = with_statistics(normed(), "averaged")
    model.load_state_dict(kept.state_dict())
    vector = flatten(model)
    vector[-1] = -0.5  # as compression may leave a variance
    other = with_statistics(normed(), "averaged")
    unflatten(vector, other)
    for name, value in other.state_dict().items():
        if name != "1.running_var":
            assert torch.equal(value, kept.state_dict()[name])
    assert other[1].running_var.min() == 0
    assert np.isfinite(evaluate(other, vector, *some_data())["loss"])


def test_what_cannot_be_averaged_is_refused() -> None:
    marked = with_statistics(normed(), "averaged")
    plain = TorchTrainer(marked, *some_data(), learning_rate=RATE)
    with pytest.raises(InvalidSetting, match="another choice under SCAFFOLD"):
        ScaffoldTrainer(plain)
    with pytest.raises(InvalidSetting, match="running_statistics is 'mean'; expected"):
        with_statistics(normed(), "mean")  # type: ignore[arg-type]
    crowd = TorchPopulation(marked, *some_data(), PARTS, learning_rate=RATE)
    assert crowd.obstacle == "the running statistics of batch norm are averaged"
    assert len(next(crowd.updates([1], flatten(marked), 1)).vector) == len(begin()) + 16


def test_a_batch_of_one_that_cannot_be_normalised_is_named() -> None:
    model = with_statistics(normed(), "averaged")
    client = TorchTrainer(model, *some_data(), learning_rate=RATE, batch_size=11, epochs=1)
    with pytest.raises(InvalidSetting, match=r"batch is 'of 1'; expected one that Sequential"):
        client.update(flatten(model), 1)
