"""A simulated client sends what a real one would, one by one and all at once."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.inversion.simulation import Simulation
from eris.models.lenet import lenet5
from eris.training.flat import FlatParameters


def samples(clients: int, each: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(clients, each, 1, 28, 28, generator=generator)
    return inputs, torch.randint(10, (clients, each), generator=generator)


def simulated(module: nn.Module, steps: int, rate: float = 0.1) -> Simulation:
    flat = FlatParameters(module)
    return Simulation(flat, functional.cross_entropy, flat.read(), steps, rate)


def descended(module: nn.Module, inputs: Tensor, targets: Tensor, steps: int) -> Tensor:
    """The slow oracle: torch's own SGD."""
    client = copy.deepcopy(module)
    before = nn.utils.parameters_to_vector(client.parameters()).detach()
    optimiser = torch.optim.SGD(client.parameters(), lr=0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        functional.cross_entropy(client(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return (before - nn.utils.parameters_to_vector(client.parameters()).detach()) / 0.1


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("together", [False, True])
def test_an_update_is_that_of_a_client(steps: int, together: bool) -> None:
    module = lenet5(seed=0)
    inputs, targets = samples(2, 2)
    simulation = simulated(module, steps)
    simulation.together = together
    found = simulation.updates(inputs, targets)
    assert simulation.together is together
    for row, data, labels in zip(found, inputs, targets, strict=True):
        expected = descended(module, data, labels, steps)
        torch.testing.assert_close(row.detach(), expected, rtol=1e-3, atol=2e-5)


def test_slopes_by_the_samples_are_the_same_both_ways() -> None:
    inputs, targets = samples(2, 1)
    found = []
    for together in (False, True):
        simulation = simulated(lenet5(seed=0), 2)
        simulation.together = together
        at = inputs.clone().requires_grad_()
        updates = simulation.updates(at, targets)
        found.append(torch.autograd.grad(updates.square().sum(), at)[0])
    assert found[0].abs().max() > 0
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-5)


class Branching(nn.Module):
    """Looks at its values, which vmap does not allow."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.layer(inputs if inputs.sum() > 0 else -inputs)
        return found


def test_a_model_that_forbids_one_pass_is_simulated_one_by_one() -> None:
    module = Branching()
    inputs = torch.tensor([[[1.0, 2.0, 3.0, 4.0]], [[-1.0, 0.0, -2.0, 1.0]]])
    targets = torch.tensor([[0], [2]])
    simulation = simulated(module, 1)
    found = simulation.updates(inputs, targets)
    assert not simulation.together
    for row, data, labels in zip(found, inputs, targets, strict=True):
        torch.testing.assert_close(row, descended(module, data, labels, 1), rtol=1e-4, atol=1e-5)
