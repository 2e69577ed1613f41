"""Per-sample clipping and noise against a loop over samples, and their privacy laws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.training import private
from eris.training.flat import FlatParameters
from eris.training.gradients import ClientGradients
from eris.training.private import clipped_sum
from eris.training.torch import TorchTrainer, flatten
from eris.training.trainer import PerSampleNoise, PrivateTrainer
from training.small import RATE, by_autograd, network, some_data, start, trainer

pytestmark = pytest.mark.usefixtures("one_thread")

NOISE = PerSampleNoise(clip=0.5, sigma=0.2, seed=77)


class Branching(nn.Module):
    """The small network with a branch on the data, which vmap does not allow."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = network(dropout=dropout)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        return y if float(x.sum()) > -1e9 else -y


def slow_step(model: Vector, batch: list[int], noise: PerSampleNoise, draws: Any) -> Any:
    inputs, targets = some_data()
    total = np.zeros(83)
    for i in batch:
        gradient = by_autograd(model, inputs[i : i + 1], targets[i : i + 1]).astype(np.float64)
        total += gradient * min(1.0, noise.clip / math.sqrt(float((gradient**2).sum())))
    return (total + noise.sigma * draws) / len(batch)


def slow_round(round: int, client: int, momentum: float) -> Vector:
    """Two passes in batches of 5 by hand."""
    noise = Stream(NOISE.seed, "noise", round=round, client=client)
    orders = Stream(0, "batches", round=round, client=client).permutations(2, 12).tolist()
    batches = [order[begin : begin + 5] for order in orders for begin in (0, 5, 10)]
    x, buffer, total = start().astype(np.float64), np.zeros(83), np.zeros(83)
    for step, batch in enumerate(batches):
        draws = noise.normal(step * 83, 83)
        buffer = momentum * buffer + slow_step(x.astype(np.float32), batch, NOISE, draws)
        x -= RATE * buffer
        total += buffer
    return total.astype(np.float32)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("model", [network, Branching])
def test_it_is_the_loop_over_samples(model: Any, momentum: float) -> None:
    client = trainer(model(), batch_size=5, epochs=2, client=3, momentum=momentum)
    found = client.private_update(start(), round=4, noise=NOISE)
    np.testing.assert_allclose(found.vector, slow_round(4, 3, momentum), rtol=0, atol=1e-5)
    assert (found.samples, found.steps) == (12, 6)
    assert found.vector.dtype == np.float32


@pytest.mark.parametrize("model", [network, Branching])
@pytest.mark.parametrize("settings", [{}, {"batch_size": 5, "epochs": 2, "momentum": 0.9}])
def test_without_clipping_and_noise_it_is_the_plain_update(
    model: Any, settings: dict[str, Any]
) -> None:
    free = PerSampleNoise(clip=1e6, sigma=0.0, seed=0)
    found = trainer(model(), **settings).private_update(start(), 2, free)
    expected = trainer(model(), **settings).update(start(), 2)
    np.testing.assert_allclose(found.vector, expected.vector, rtol=0, atol=1e-6)
    assert found.metrics["loss"] == pytest.approx(expected.metrics["loss"], rel=1e-6)


def data_of(rows: list[int], model: Any = network) -> ClientGradients:
    inputs, targets = some_data()
    flat = FlatParameters(model())
    return ClientGradients(flat, inputs[rows], targets[rows], functional.cross_entropy)


@pytest.mark.parametrize(("model", "slack"), [(network, 1e-6), (Branching, 1e-12)])
@pytest.mark.parametrize("clip", [1e-6, 0.3, 1.0, 1e3])
def test_one_sample_moves_the_sum_by_at_most_the_clip(
    clip: float, model: Any, slack: float
) -> None:
    position = torch.from_numpy(start())
    whole, _, count = clipped_sum(position, None, data_of(list(range(12)), model), clip)
    assert count == 12
    moves = []
    for left_out in range(12):
        rest = [row for row in range(12) if row != left_out]
        without, _, _ = clipped_sum(position, None, data_of(rest, model), clip)
        moves.append(float((whole - without).norm()))
        alone, _, _ = clipped_sum(position, None, data_of([left_out], model), clip)
        assert float(alone.norm()) <= clip
    assert max(moves) <= clip * (1 + slack)  # one by one, the others round alike
    if clip <= 0.3:
        assert max(moves) == pytest.approx(clip, rel=1e-6)  # and it is reached


def test_the_sum_does_not_depend_on_how_many_gradients_are_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    position, client = torch.from_numpy(start()), data_of(list(range(12)))
    whole, loss, _ = clipped_sum(position, None, client, 0.5)
    for held in (1, 5 * 83):
        monkeypatch.setattr(private, "_PIECE", held)
        pieces, same_loss, count = clipped_sum(position, None, client, 0.5)
        np.testing.assert_allclose(pieces.numpy(), whole.numpy(), rtol=0, atol=1e-7)
        assert same_loss == pytest.approx(loss)
        assert count == 12


def constant() -> tuple[TorchTrainer, Vector]:
    """A client whose gradient is the same at every model, and that gradient."""
    inputs = torch.randn(4, 500, generator=torch.Generator().manual_seed(0))
    client = TorchTrainer(
        nn.Linear(500, 20, bias=False),
        inputs,
        torch.zeros(4),
        loss=lambda outputs, targets: outputs.mean(dim=0).sum(),
        learning_rate=RATE,
        steps=3,
        client=9,
    )
    return client, np.tile(inputs.numpy().mean(axis=0), 20)


def test_the_noise_is_the_streams_and_has_its_variance() -> None:
    client, gradient = constant()
    loud = PerSampleNoise(clip=1e6, sigma=50.0, seed=5)
    found = client.private_update(np.zeros(10_000, np.float32), round=6, noise=loud).vector
    drawn = Stream(5, "noise", round=6, client=9).normal(0, 30_000).reshape(3, 10_000)
    np.testing.assert_allclose(found, 3 * gradient + 50 * drawn.sum(axis=0) / 4, rtol=0, atol=1e-4)
    spread = float(np.std(found - 3 * gradient)) * 4 / 50
    assert spread == pytest.approx(math.sqrt(3), rel=0.03)  # 4 standard errors of 10,000 draws


def test_only_the_noise_depends_on_the_noises_seed() -> None:
    silent = [
        trainer(batch_size=5, epochs=2).private_update(start(), 1, PerSampleNoise(0.5, 0.0, seed))
        for seed in (1, 2)
    ]
    assert np.array_equal(silent[0].vector, silent[1].vector)
    one, other = (
        constant()[0].private_update(np.zeros(10_000, np.float32), 1, PerSampleNoise(9, 1.0, seed))
        for seed in (1, 2)
    )
    drawn = [
        Stream(seed, "noise", round=1, client=9).normal(0, 30_000).reshape(3, -1).sum(axis=0)
        for seed in (1, 2)
    ]
    np.testing.assert_allclose(
        one.vector - other.vector, (drawn[0] - drawn[1]) / 4, rtol=0, atol=1e-5
    )


def test_a_round_again_gives_the_same_bits_and_another_does_not() -> None:
    settings: dict[str, Any] = {"batch_size": 5, "epochs": 1}
    base = trainer(**settings).private_update(start(), 1, NOISE).vector
    assert np.array_equal(trainer(**settings).private_update(start(), 1, NOISE).vector, base)
    assert not np.array_equal(trainer(**settings).private_update(start(), 2, NOISE).vector, base)
    other = trainer(client=1, **settings).private_update(start(), 1, NOISE).vector
    assert not np.array_equal(other, base)


def test_dropout_draws_from_the_clients_own_stream() -> None:
    silent = PerSampleNoise(clip=1.0, sigma=0.0, seed=0)
    before = torch.random.get_rng_state()
    found = [
        trainer(network(dropout=0.5), client=client).private_update(start(), 0, silent).vector
        for client in (0, 0, 1)
    ]
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
    assert torch.equal(before, torch.random.get_rng_state())


def test_what_vmap_drew_in_vain_is_not_missed() -> None:
    client = trainer(Branching(dropout=0.5))
    client.private_update(start(), 0, NOISE)  # knows from here on that vmap cannot do it
    fresh = trainer(Branching(dropout=0.5)).private_update(start(), 1, NOISE).vector
    assert np.array_equal(client.private_update(start(), 1, NOISE).vector, fresh)


def test_frozen_and_idle_parameters_are_as_in_the_plain_update() -> None:
    model = network()
    next(model.parameters()).requires_grad_(False)
    vector, free = flatten(model), PerSampleNoise(clip=1e6, sigma=0.0, seed=0)
    found = trainer(model).private_update(vector, 0, free).vector
    np.testing.assert_allclose(found, trainer(model).update(vector, 0).vector, rtol=0, atol=1e-6)


def test_ratings_are_protected_one_by_one() -> None:
    from eris.models.factorisation import matrix_factorisation, mean_squared_error

    model = matrix_factorisation(users=4, items=5, dimensions=2, seed=0)
    pairs = torch.tensor([[0, 1], [0, 3], [2, 1], [3, 4]])
    settings: dict[str, Any] = {"loss": mean_squared_error, "learning_rate": RATE}
    client = TorchTrainer(model, pairs, torch.tensor([5, 3, 1, 4]), **settings)
    found = client.private_update(flatten(model), 0, PerSampleNoise(1e6, 0.0, 0)).vector
    expected = client.update(flatten(model), 0).vector
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("tracked", [True, False])
def test_batch_norm_is_refused(tracked: bool) -> None:
    norm = nn.BatchNorm1d(3, track_running_stats=tracked)
    client = trainer(nn.Sequential(nn.Linear(6, 3), norm), running_statistics="batch")
    vector = flatten(client.model, running_statistics="batch")
    with pytest.raises(
        InvalidSetting, match="'1'; expected one that treats every sample by itself"
    ):
        client.private_update(vector, 0, NOISE)


@pytest.mark.parametrize(
    ("noise", "complaint"),
    [
        (PerSampleNoise(0.0, 1.0, 0), "clip is 0.0"),
        (PerSampleNoise(math.nan, 1.0, 0), "clip is nan"),
        (PerSampleNoise(1.0, -1.0, 0), "sigma is -1.0"),
        (PerSampleNoise(1.0, math.inf, 0), "sigma is inf"),
        (PerSampleNoise(1.0, 1.0, -1), "stream seed is -1"),
    ],
)
def test_noise_out_of_range_is_refused(noise: PerSampleNoise, complaint: str) -> None:
    with pytest.raises(InvalidSetting, match=complaint):
        trainer().private_update(start(), 0, noise)


def test_what_would_go_around_the_noise_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="reuse gradients without noise"):
        trainer(estimator="saga").private_update(start(), 0, NOISE)
    with pytest.raises(InvalidSetting, match="norm of a sample's gradient"):
        trainer().private_update(np.full(83, np.nan, np.float32), 0, NOISE)


def test_it_is_a_private_trainer() -> None:
    assert isinstance(trainer(), PrivateTrainer)
