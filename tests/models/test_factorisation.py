"""Matrix factorisation: its size, its formula, and that it learns ratings."""

from __future__ import annotations

import pytest
import torch

from eris.core.errors import InvalidSetting
from eris.models.factorisation import matrix_factorisation, mean_squared_error


def size(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_sizes_with_and_without_biases() -> None:
    assert size(matrix_factorisation(943, 1682, 20, 0)) == (943 + 1682) * 21 + 1
    # Shatter's table 1.
    assert size(matrix_factorisation(610, 9724, 20, 0, biases=False)) == 206_680


def test_a_rating_is_offset_and_biases_and_product() -> None:
    model = matrix_factorisation(3, 5, 4, 1, offset=2.5)
    with torch.no_grad():
        model.user_biases.weight.copy_(torch.tensor([[1.0], [2.0], [3.0]]))
        model.item_biases.weight.copy_(torch.arange(5.0).reshape(5, 1) / 10)
        rating = model(torch.tensor([[2, 4], [0, 1]]))
        product = model.user_factors.weight[2] @ model.item_factors.weight[4]
    assert rating.shape == (2,)
    assert float(rating[0]) == pytest.approx(2.5 + 3.0 + 0.4 + float(product), abs=1e-6)


def test_it_starts_near_the_middle_of_the_scale() -> None:
    model = matrix_factorisation(50, 60, 20, 0)
    pairs = torch.cartesian_prod(torch.arange(50), torch.arange(60))
    assert float((model(pairs).detach() - 3).abs().max()) < 1
    plain = matrix_factorisation(50, 60, 20, 0, biases=False)
    assert torch.equal(plain.user_factors.weight, model.user_factors.weight)
    assert float(plain(pairs).detach().abs().max()) < 1


def test_users_and_items_without_ratings_have_gradient_zero() -> None:
    model = matrix_factorisation(4, 6, 3, 0)
    loss = mean_squared_error(model(torch.tensor([[1, 2], [1, 5]])), torch.tensor([5, 1]))
    users, items = torch.autograd.grad(loss, [model.user_factors.weight, model.item_factors.weight])
    assert users.any(dim=1).tolist() == [False, True, False, False]
    assert items.any(dim=1).tolist() == [False, False, True, False, False, True]


def test_the_loss_is_the_mean_squared_error_of_any_number_type() -> None:
    predicted = torch.tensor([1.0, 4.0])
    for kind in (torch.uint8, torch.int64, torch.float32, torch.float64):
        assert float(mean_squared_error(predicted, torch.tensor([3, 4], dtype=kind))) == 2.0


def test_ratings_that_would_be_broadcast_are_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"shape of the ratings is \(2, 1\)"):
        mean_squared_error(torch.zeros(2), torch.zeros(2, 1))


@pytest.mark.parametrize(
    "pairs", [torch.zeros(3, 2), torch.zeros(3, 3, dtype=torch.int64), torch.tensor([1, 2])]
)
def test_what_is_no_list_of_pairs_is_refused(pairs: torch.Tensor) -> None:
    with pytest.raises(InvalidSetting, match=r"integers \(N, 2\)"):
        matrix_factorisation(3, 3, 2, 0)(pairs)


@pytest.mark.parametrize(
    ("sizes", "name"), [((0, 1, 1), "users"), ((1, 0, 1), "items"), ((1, 1, 0), "dimensions")]
)
def test_empty_matrices_are_refused(sizes: tuple[int, int, int], name: str) -> None:
    with pytest.raises(InvalidSetting, match=name):
        matrix_factorisation(*sizes, 0)
