"""The PyTorch trainer against autograd, torch.optim.SGD, and itself run again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.training.torch import (
    TorchTrainer,
    evaluate,
    flatten,
    normalise,
    parameter_count,
    single_threaded,
    torch_clients,
    unflatten,
)
from eris.training.trainer import Trainer
from training.small import RATE, by_autograd, network, some_data, start, trainer

pytestmark = pytest.mark.usefixtures("one_thread")


def by_optimizer(parameters: Vector, steps: int, momentum: float) -> list[Vector]:
    """The models that torch.optim.SGD visits when it trains centrally on the same data."""
    model = network()
    unflatten(parameters, model)
    inputs, targets = some_data()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=momentum)
    visited = []
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        visited.append(flatten(model))
    return visited


def test_it_is_a_trainer() -> None:
    checked: Trainer = trainer()
    assert checked.update(start(), round=0).vector.dtype == np.float32


def test_one_step_is_the_gradient_exactly() -> None:
    update = trainer().update(start(), round=0)
    assert np.array_equal(update.vector, by_autograd(start(), *some_data()))
    assert (update.samples, update.steps) == (12, 1)
    assert update.vector.flags.c_contiguous


def test_the_loss_reported_is_that_of_the_model_received() -> None:
    update = trainer().update(start(), round=0)
    expected = evaluate(network(), start(), *some_data())["loss"]
    assert update.metrics["loss"] == pytest.approx(expected, rel=1e-6)


def test_momentum_stays_with_the_client_across_rounds() -> None:
    client, model = trainer(momentum=0.9), start()
    for expected in by_optimizer(start(), steps=20, momentum=0.9):
        model = model - np.float32(RATE) * client.update(model, round=0).vector
        np.testing.assert_allclose(model, expected, rtol=0, atol=2e-6)


def test_momentum_averages_gradients_of_whatever_models_arrive() -> None:
    client, data = trainer(momentum=0.9), some_data()
    first, second = start(), flatten(network(6))
    client.update(first, round=0)
    expected = 0.9 * by_autograd(first, *data) + by_autograd(second, *data)
    np.testing.assert_allclose(client.update(second, round=1).vector, expected, atol=1e-7)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_several_steps_give_the_pseudo_gradient(momentum: float) -> None:
    update = trainer(steps=5, momentum=momentum).update(start(), round=0)
    end = by_optimizer(start(), steps=5, momentum=momentum)[-1]
    np.testing.assert_allclose(update.vector, (start() - end) / RATE, atol=1e-5)
    assert update.steps == 5


def test_a_small_rate_does_not_cost_digits() -> None:
    # (x − x_k)/λ by subtraction would keep about three digits of these gradients.
    update = trainer(learning_rate=1e-6, steps=2).update(start(), round=0)
    np.testing.assert_allclose(
        update.vector, 2 * by_autograd(start(), *some_data()), rtol=1e-3, atol=1e-6
    )


@pytest.mark.parametrize(("batch_size", "steps"), [(5, 6), (12, 2), (100, 2), (None, 2)])
def test_epochs_set_the_number_of_steps(batch_size: int | None, steps: int) -> None:
    update = trainer(batch_size=batch_size, epochs=2).update(start(), round=0)
    assert update.steps == steps


def test_an_epoch_visits_every_sample_once() -> None:
    seen: list[Tensor] = []

    def spying_loss(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.append(targets)
        return outputs.sum()

    inputs = torch.randn(10, 6, generator=torch.Generator().manual_seed(0))
    client = TorchTrainer(
        network(),
        inputs,
        torch.arange(10),
        learning_rate=RATE,
        batch_size=4,
        epochs=2,
        loss=spying_loss,
    )
    seen.clear()  # what the loss was tried on
    client.update(start(), round=0)
    assert [len(batch) for batch in seen] == [4, 4, 2, 4, 4, 2]
    epochs = [torch.cat(seen[:3]).tolist(), torch.cat(seen[3:]).tolist()]
    assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * 2
    assert epochs[0] != epochs[1]
    # Recorded once: the order is part of what a seed means, on every machine.
    assert epochs[0] == [7, 4, 6, 8, 1, 0, 9, 5, 2, 3]
    assert epochs == Stream(0, "batches").permutations(2, 10).tolist()


def test_the_same_round_again_gives_the_same_bits() -> None:
    settings: dict[str, Any] = {"batch_size": 4, "epochs": 2, "seed": 3, "client": 5}
    one, other = trainer(**settings), trainer(**settings)
    torch.rand(7)  # whatever else draws from the global generator does not matter
    other.update(start(), round=8)  # nor which rounds came before, without momentum
    assert np.array_equal(
        one.update(start(), round=9).vector, other.update(start(), round=9).vector
    )


@pytest.mark.parametrize("change", [{"seed": 4}, {"client": 1}, {"round": 1}])
def test_batches_differ_by_seed_client_and_round(change: dict[str, int]) -> None:
    settings: dict[str, Any] = {"batch_size": 4, "seed": 3, "client": 0}
    base = trainer(**settings).update(start(), round=0)
    round = change.get("round", 0)
    other = trainer(**settings | {k: v for k, v in change.items() if k != "round"})
    assert not np.array_equal(base.vector, other.update(start(), round).vector)


def test_dropout_draws_from_the_clients_own_stream() -> None:
    before = torch.random.get_rng_state()
    updates = []
    for seed, client, round in ((0, 0, 0), (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)):
        lent = trainer(network(dropout=0.5), seed=seed, client=client)
        updates.append(lent.update(start(), round).vector)
    assert np.array_equal(updates[0], updates[1])
    assert not any(np.array_equal(updates[0], other) for other in updates[2:])
    assert torch.equal(before, torch.random.get_rng_state())


def test_clients_that_share_a_module_do_not_disturb_each_other() -> None:
    inputs, targets = some_data(12)
    parts = [np.array([0, 1, 2, 3]), np.array([7, 5]), np.array([11, 4, 6])]
    shared = torch_clients(
        network(), inputs, targets, parts, learning_rate=RATE, momentum=0.9, steps=2
    )
    alone = [
        TorchTrainer(
            network(9),
            inputs[torch.from_numpy(part)],
            targets[torch.from_numpy(part)],
            learning_rate=RATE,
            momentum=0.9,
            steps=2,
            client=number,
        )
        for number, part in enumerate(parts)
    ]
    for round in range(3):
        together = [client.update(start(), round) for client in shared]
        for update, client in zip(together, alone, strict=True):
            expected = client.update(start(), round)
            assert np.array_equal(update.vector, expected.vector)
            assert update.samples == expected.samples


def test_an_update_is_not_changed_by_later_rounds() -> None:
    client = trainer(momentum=0.9)
    first = client.update(start(), round=0).vector
    kept = first.copy()
    client.update(start(), round=1)
    assert np.array_equal(first, kept)


def test_the_parameters_given_are_not_changed_and_may_be_read_only() -> None:
    given = start()
    given.flags.writeable = False
    trainer(steps=3, momentum=0.9).update(given, round=0)
    assert np.array_equal(given, start())


def test_training_works_where_gradients_are_off() -> None:
    with torch.no_grad():
        update = trainer().update(start(), round=0)
    assert np.array_equal(update.vector, by_autograd(start(), *some_data()))


def test_a_parameter_the_loss_does_not_reach_has_gradient_zero() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(6, 3), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            used: Tensor = self.used(x)
            return used

    model = Idle()
    update = trainer(model).update(flatten(model), round=0)
    assert np.count_nonzero(update.vector[:21]) == 21
    assert not update.vector[21:].any()


def test_a_saved_state_continues_where_it_stopped() -> None:
    client = trainer(momentum=0.9)
    assert client.state() == {}
    client.update(start(), round=0)
    state = client.state()
    later = trainer(momentum=0.9)
    later.restore(state)
    expected = client.update(start(), round=1).vector  # must not reach into the saved state
    assert np.array_equal(later.update(start(), round=1).vector, expected)
    again = trainer(momentum=0.9)
    again.restore(state)
    assert np.array_equal(again.update(start(), round=1).vector, expected)
    later.restore({})
    assert np.array_equal(
        later.update(start(), round=0).vector, trainer().update(start(), 0).vector
    )


def test_a_state_of_another_trainer_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"\(83,\)"):
        trainer(momentum=0.9).restore({"momentum": np.zeros(3, dtype=np.float32)})
    with pytest.raises(InvalidSetting, match="a state saved at momentum 0"):
        trainer().restore({"momentum": start()})
    with pytest.raises(InvalidSetting, match="adam"):
        trainer(momentum=0.9).restore({"adam": start()})


def test_flatten_and_unflatten_are_inverse() -> None:
    model, vector = network(), np.arange(83, dtype=np.float32)
    unflatten(vector, model)
    assert np.array_equal(flatten(model), vector)
    assert parameter_count(model) == 83
    first = next(model.parameters())
    assert torch.equal(first.detach(), torch.arange(48.0).reshape(8, 6))


def test_the_flat_vector_is_a_copy() -> None:
    model = nn.Linear(2, 2, bias=False)
    vector = flatten(model)
    vector[:] = 7
    assert not (flatten(model) == 7).any()
    unflatten(vector, model)
    vector[:] = 8
    assert (flatten(model) == 7).all()


def test_frozen_parameters_do_not_travel() -> None:
    model = network()
    for parameter in list(model.parameters())[:2]:
        parameter.requires_grad_(False)
    assert parameter_count(model) == 27 == len(flatten(model))
    assert len(trainer(model).update(flatten(model), round=0).vector) == 27


@pytest.mark.parametrize("count", [0, 82, 84])
def test_a_vector_of_another_model_is_refused_with_both_numbers(count: int) -> None:
    vector = np.zeros(count, dtype=np.float32)
    for call in (
        lambda: unflatten(vector, network()),
        lambda: trainer().update(vector, round=0),
        lambda: evaluate(network(), vector, *some_data()),
    ):
        with pytest.raises(InvalidSetting, match=rf"\({count},\); expected \(83,\)"):
            call()


def test_a_vector_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="'float64'; expected float32"):
        unflatten(np.zeros(83), network())  # type: ignore[arg-type]


def test_running_statistics_are_refused_unless_asked_for() -> None:
    model = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))
    for call in (lambda: flatten(model), lambda: trainer(model)):
        with pytest.raises(InvalidSetting, match=r"'1.running_mean'; expected no running stat"):
            call()
    assert len(flatten(model, running_statistics="ignore")) == 27
    trainer(model, running_statistics="ignore")
    flatten(nn.Sequential(nn.Linear(6, 3), nn.GroupNorm(1, 3)))


def test_models_of_other_types_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="float64; expected float32 throughout"):
        flatten(network().double())
    with pytest.raises(InvalidSetting, match="at least one trainable parameter"):
        flatten(nn.Tanh())


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"momentum": 1.0}, r"momentum is 1.0; expected a number in \[0, 1\)"),
        ({"steps": 0}, "steps is 0; expected at least 1"),
        ({"batch_size": 0}, "batch_size is 0; expected at least 1"),
        ({"epochs": 0}, "epochs is 0; expected at least 1"),
        ({"epochs": 2, "steps": 3}, "steps is 3; expected nothing beside epochs=2"),
        ({"client": -1}, "stream client is -1; expected an integer from 0"),
        ({"seed": 2**64}, "stream seed is 18446744073709551616; expected an integer from 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidSetting, match=complaint):
        trainer(**settings)


def test_data_that_does_not_fit_is_refused() -> None:
    inputs, targets = some_data()
    with pytest.raises(InvalidSetting, match="targets is '11 long'; expected 12, one per input"):
        TorchTrainer(network(), inputs, targets[1:], learning_rate=RATE)
    with pytest.raises(InvalidSetting, match="at least one sample"):
        TorchTrainer(network(), inputs[:0], targets[:0], learning_rate=RATE)


def test_evaluation_does_not_depend_on_the_batches() -> None:
    inputs, targets = some_data(50)
    model = network()
    unflatten(start(), model)
    with torch.no_grad():
        logits = model(inputs)
    for batch_size in (1, 7, 50, 1000):
        result = evaluate(network(), start(), inputs, targets, batch_size=batch_size)
        assert result["loss"] == pytest.approx(
            float(functional.cross_entropy(logits, targets)), rel=1e-5
        )
        assert result["accuracy"] == int((logits.argmax(1) == targets).sum()) / 50
        assert result["samples"] == 50


def test_evaluation_is_without_dropout_and_leaves_the_mode_as_it_was() -> None:
    model = network(dropout=0.5)
    assert model.training
    assert evaluate(model, start(), *some_data()) == evaluate(network(), start(), *some_data())
    assert model.training


def test_normalise_standardises_and_adds_the_channel() -> None:
    images = np.array([[[0, 255], [51, 102]]], dtype=np.uint8)
    images.flags.writeable = False  # as the loaders give them
    result = normalise(images)
    assert result.shape == (1, 1, 2, 2)
    assert result.dtype == torch.float32
    expected = (np.array([0, 1, 0.2, 0.4]) - 0.1307) / 0.3081
    np.testing.assert_allclose(result.numpy().ravel(), expected, rtol=1e-6)
    np.testing.assert_allclose(normalise(images, 0.5, 0.5).numpy().ravel()[:2], [-1, 1])


def test_normalise_takes_colour_images_as_cifar_10_has_them() -> None:
    images = np.zeros((2, 3, 4, 5), np.uint8)
    images[:, 1] = 255
    result = normalise(images)
    assert result.shape == (2, 3, 4, 5)
    expected = [-0.4914 / 0.2470, (1 - 0.4822) / 0.2435, -0.4465 / 0.2616]
    np.testing.assert_allclose(result[1, :, 2, 3].numpy(), expected, rtol=1e-5)
    own = normalise(images, (0.5, 0.5, 0.0), 0.5)
    np.testing.assert_allclose(own[0, :, 0, 0].numpy(), [-1, 1, 0])


@pytest.mark.parametrize("images", [np.zeros((2, 3, 3)), np.zeros((2, 3), dtype=np.uint8)])
def test_normalise_refuses_what_is_no_image_of_bytes(images: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"uint8 of shape \(N, H, W\) or \(N, ch"):
        normalise(images)


def test_normalise_asks_for_the_numbers_of_other_channels() -> None:
    with pytest.raises(InvalidSetting, match=r"one number, or one for each of 2 channels"):
        normalise(np.zeros((1, 2, 3, 3), np.uint8))
    with pytest.raises(InvalidSetting, match=r"std is .*one number, or one for each of 3"):
        normalise(np.zeros((1, 3, 3, 3), np.uint8), 0.5, (0.5, 0.5))


def test_single_threaded_puts_the_number_of_threads_back() -> None:
    torch.set_num_threads(2)
    try:
        with single_threaded():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)  # the fixture around this test restores the rest
