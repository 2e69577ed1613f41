"""LeNet-5: its size, and that its weights depend on the seed alone."""

from __future__ import annotations

import pytest
import torch

from eris.core.errors import InvalidSetting
from eris.models.lenet import LeNet5, lenet5, lenet5_colour


def test_it_has_the_papers_size() -> None:
    model = lenet5(0)
    assert sum(parameter.numel() for parameter in model.parameters()) == 61_706
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_in_colour_it_takes_the_images_of_cifar10() -> None:
    model = lenet5_colour(0)
    assert sum(parameter.numel() for parameter in model.parameters()) == 62_006
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_the_layers_are_6_16_120_84_10() -> None:
    widths = [parameter.shape[0] for parameter in lenet5(0).parameters() if parameter.dim() > 1]
    assert widths == [6, 16, 120, 84, 10]


def test_the_seed_decides_the_weights() -> None:
    first, again, other = lenet5(3), lenet5(3), lenet5(4)
    for a, b, c in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_the_weights_are_pytorchs_own_for_that_seed() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        usual = LeNet5()
    for ours, theirs in zip(lenet5(11).parameters(), usual.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_global_random_state_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    lenet5(0)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(InvalidSetting, match="seed"):
        lenet5(seed)
