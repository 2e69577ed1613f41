"""Many problems at once are each what it would be alone, and end where scipy's L-BFGS ends."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import minimize, rosen, rosen_der
from torch import Tensor

from eris.audit.inversion.lbfgs import BatchedLbfgs

STARTS = torch.tensor([[-1.2, 1.0, 0.5], [0.3, -0.4, 2.0], [2.0, 2.0, 2.0], [0.9, 1.1, 1.0]])


def rosenbrock(numbers: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    at = places.detach().requires_grad_()
    terms = 100 * (at[:, 1:] - at[:, :-1] ** 2) ** 2 + (1 - at[:, :-1]) ** 2
    losses = terms.sum(1)
    (slopes,) = torch.autograd.grad(losses.sum(), at)
    return losses.detach(), slopes


def test_it_ends_where_scipy_ends() -> None:
    places, losses = BatchedLbfgs(500).minimise(rosenbrock, STARTS, torch.full((4,), 1e-9))
    for start, place, loss in zip(STARTS.numpy(), places.numpy(), losses, strict=True):
        expected = minimize(rosen, start, jac=rosen_der, method="L-BFGS-B").x
        np.testing.assert_allclose(place, expected, atol=1e-2)
        assert loss < 1e-5


def test_problems_do_not_feel_each_other() -> None:
    together, losses = BatchedLbfgs(40).minimise(rosenbrock, STARTS, torch.zeros(4))
    for number, start in enumerate(STARTS):
        alone, loss = BatchedLbfgs(40).minimise(rosenbrock, start[None], torch.zeros(1))
        np.testing.assert_allclose(together[number], alone[0], rtol=1e-2, atol=1e-3)
        np.testing.assert_allclose(losses[number], loss[0], rtol=0.1, atol=1e-5)


def test_the_loss_never_rises() -> None:
    lowest = [
        BatchedLbfgs(count).minimise(rosenbrock, STARTS, torch.zeros(4))[1] for count in (1, 5, 25)
    ]
    assert (lowest[1] <= lowest[0]).all()
    assert (lowest[2] <= lowest[1]).all()
    assert (lowest[2] < lowest[0]).all()


def test_one_that_is_no_number_is_given_up_and_the_others_go_on() -> None:
    asked: list[int] = []

    def evaluate(numbers: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        asked.append(len(numbers))
        broken = torch.where(numbers == 1, torch.nan, 1.0)
        return broken * places.square().sum(1), 2 * broken[:, None] * places

    places, losses = BatchedLbfgs(60).minimise(evaluate, torch.ones(3, 4), torch.full((3,), 1e-8))
    assert losses.isinf().tolist() == [False, True, False]
    np.testing.assert_array_equal(places[1], torch.ones(4))
    assert (losses[[0, 2]] <= 1e-8).all()
    assert asked[0] == 3
    assert asked[-1] <= 2


def test_what_no_longer_falls_is_ended() -> None:
    told: list[int] = []

    def flat(numbers: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Falls for ever, by less and less."""
        return 1 + torch.exp(-places[:, 0]), -torch.exp(-places)

    BatchedLbfgs(5000, patience=20).minimise(flat, torch.full((2, 1), 8.0), torch.zeros(2),
                                             told.append)  # fmt: skip
    assert told[-1] <= 40
