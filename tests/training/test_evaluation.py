"""The error of ratings against NumPy, and the module that was lent is left as it was."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.models.factorisation import (
    MatrixFactorisation,
    matrix_factorisation,
    mean_squared_error,
)
from eris.training.torch import TorchTrainer, evaluate_ratings, flatten, unflatten

pytestmark = pytest.mark.usefixtures("one_thread")

PAIRS = torch.tensor([[0, 0], [0, 1], [1, 2], [2, 0], [2, 2], [2, 1], [1, 1]])
RATINGS = torch.tensor([5, 3, 1, 4, 2, 5, 3], dtype=torch.uint8)


def factors(seed: int = 0) -> MatrixFactorisation:
    return matrix_factorisation(users=3, items=3, dimensions=2, seed=seed)


def by_numpy(vector: Vector) -> float:
    """The order of the flat model: p, q, b, c and the offset come as the module lists them."""
    model = factors()
    unflatten(vector, model)
    pieces = {name: value.detach().numpy() for name, value in model.named_parameters()}
    p, q = pieces["user_factors.weight"], pieces["item_factors.weight"]
    b, c = pieces["user_biases.weight"][:, 0], pieces["item_biases.weight"][:, 0]
    table = pieces["offset"] + b[:, None] + c[None, :] + p @ q.T
    users, items = PAIRS.numpy().T
    return float(np.sqrt(np.mean((table[users, items] - RATINGS.numpy()) ** 2)))


@pytest.mark.parametrize("batch_size", [1, 3, 7, 100])
def test_the_error_is_numpys_whatever_the_batches(batch_size: int) -> None:
    vector = flatten(factors(1))
    found = evaluate_ratings(factors(), vector, PAIRS, RATINGS, batch_size=batch_size)
    assert found["rmse"] == pytest.approx(by_numpy(vector), rel=1e-6)
    assert found["samples"] == 7


def test_perfect_ratings_have_no_error() -> None:
    vector = flatten(factors(1))
    model = factors()
    unflatten(vector, model)
    assert evaluate_ratings(model, vector, PAIRS, model(PAIRS).detach())["rmse"] == 0


def test_the_module_is_left_as_it_was() -> None:
    model = factors()
    before, mode = flatten(model), model.training
    evaluate_ratings(model, flatten(factors(1)), PAIRS, RATINGS)
    assert np.array_equal(flatten(model), before)
    assert model.training is mode
    with pytest.raises(InvalidSetting):
        evaluate_ratings(model, before[1:], PAIRS, RATINGS)
    with pytest.raises(IndexError):
        evaluate_ratings(model, flatten(factors(1)), PAIRS + 5, RATINGS)
    assert np.array_equal(flatten(model), before)


def test_training_lowers_the_error() -> None:
    client = TorchTrainer(
        factors(), PAIRS, RATINGS, loss=mean_squared_error, learning_rate=0.1, steps=200
    )
    vector = flatten(factors())
    trained = vector - np.float32(0.1) * client.update(vector, round=0).vector
    first = evaluate_ratings(factors(), vector, PAIRS, RATINGS)["rmse"]
    assert evaluate_ratings(factors(), trained, PAIRS, RATINGS)["rmse"] < 0.1 * first


def test_data_that_does_not_fit_is_refused() -> None:
    model, vector = factors(), flatten(factors())
    with pytest.raises(InvalidSetting, match=r"shape of the ratings is \(7, 1\); expected \(7,\)"):
        evaluate_ratings(model, vector, PAIRS, RATINGS[:, None])
    with pytest.raises(InvalidSetting, match="targets is '6 long'; expected 7, one per input"):
        evaluate_ratings(model, vector, PAIRS, RATINGS[1:])
    with pytest.raises(InvalidSetting, match="at least one sample"):
        evaluate_ratings(model, vector, PAIRS[:0], RATINGS[:0])
    with pytest.raises(InvalidSetting, match="batch_size is 0"):
        evaluate_ratings(model, vector, PAIRS, RATINGS, batch_size=0)


def test_dropout_is_off() -> None:
    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.drop = factors(), nn.Dropout(0.5)

        def forward(self, pairs: Tensor) -> Tensor:
            dropped: Tensor = self.drop(self.inner(pairs))
            return dropped

    vector = flatten(factors(1))
    found = evaluate_ratings(Dropping(), vector, PAIRS, RATINGS)
    assert found == evaluate_ratings(factors(), vector, PAIRS, RATINGS)
