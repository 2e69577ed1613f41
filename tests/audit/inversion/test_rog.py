"""ROG: a small picture that explains an update, and the network that enhances it.

The figures in full: ``python -m eris.experiments.audits.inversions --only rog``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.inversion import Rog, SearchBudget, enhancement, invert
from eris.audit.inversion.enhancement import EnhancementNetwork, degraded
from eris.audit.inversion.rog import enlarged
from eris.audit.inversion.trained import PriorRecipe, split, store
from eris.audit.similarity import Lpips
from eris.core.errors import DataUnavailable, InvalidSetting
from eris.core.streams import Stream
from eris.data import load_mnist
from eris.data.weights import MODEL
from eris.experiments.audits import inversions, priors
from eris.experiments.audits.inversions import InversionRow, Inversions, Victims
from support.lpips import stand_in, use_stand_in

BUDGET = SearchBudget(100)


def errors(found: Tensor, images: Tensor) -> list[float]:
    return [float(one) for one in (found[:, 0] - images).square().mean(dim=(1, 2, 3))]


@pytest.fixture(scope="module")
def lpips(tmp_path_factory: pytest.TempPathFactory) -> Lpips:
    """The metric's shape, with random features."""
    folder = tmp_path_factory.mktemp("lpips")
    (folder / MODEL).write_bytes(stand_in())
    return Lpips(folder)


# -- the search -------------------------------------------------------------------------------


@pytest.mark.slow  # CIFAR-10
@pytest.mark.parametrize("share", [1.0, 0.125])
def test_what_is_found_is_far_nearer_than_what_random_numbers_give(share: float) -> None:
    victims = Victims.of("rog", 2, seed=0)
    row = InversionRow("rog", share, factor=2)
    told: list[float] = []
    found = victims.inverted(row, BUDGET, 0, told.append)
    assert found.labels[:, 0].tolist() == victims.labels.tolist()
    assert max(errors(found.inputs, victims.images)) < 0.5 * min(
        errors(found.control, victims.images)
    )
    assert 0 <= float(found.inputs.min()) < float(found.inputs.max()) <= 1
    assert told == sorted(told)


@pytest.mark.slow  # CIFAR-10
def test_taking_the_unseen_for_zeros_finds_less() -> None:
    victims = Victims.of("rog", 2, seed=0)
    aware, oblivious = (
        victims.inverted(InversionRow("rog", 0.125, mode, factor=4), BUDGET, 0, lambda share: None)
        for mode in ("mask-aware", "oblivious")
    )
    assert max(errors(aware.inputs, victims.images)) < min(errors(oblivious.inputs, victims.images))


def linear_client(image: Tensor) -> tuple[nn.Module, Tensor]:
    """A model whose update tells its sample, and the update."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(image.numel(), 10))
    loss = functional.cross_entropy(model(image[None]), torch.tensor([3]))
    pieces = torch.autograd.grad(loss, list(model.parameters()))
    return model, torch.cat([piece.flatten() for piece in pieces])


def test_a_picture_of_few_pixels_is_found_exactly() -> None:
    small = torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    image = enlarged(0.2 + 0.6 * small, 8, 8)[0]
    model, update = linear_client(image)
    found = invert(
        model, functional.cross_entropy, update, shape=image.shape, attack=Rog(factor=2),
        budget=SearchBudget(400),
    )  # fmt: skip
    assert errors(found.inputs, image[None])[0] < 1e-4
    assert errors(found.control, image[None])[0] > 0.02


def test_the_network_sees_all_that_is_found_and_the_control_too() -> None:
    model, update = linear_client(torch.full((1, 8, 8), 0.5))
    shown: list[Tensor] = []

    class Spy(nn.Module):
        def forward(self, pictures: Tensor) -> Tensor:
            shown.append(pictures)
            return torch.full_like(pictures, 0.25)

    found = invert(
        model, functional.cross_entropy, 4 * update, shape=(1, 8, 8), attack=Rog(Spy()),
        box=(-1.0, 3.0), budget=SearchBudget(2),
    )  # fmt: skip
    assert [tuple(each.shape) for each in shown] == [(2, 1, 8, 8)]
    assert 0 <= float(shown[0].min()) < float(shown[0].max()) <= 1
    for made in (found.inputs, found.control):
        torch.testing.assert_close(made, torch.zeros(1, 1, 1, 8, 8))  # a quarter of the box


def test_bad_input_says_what_to_do() -> None:
    model, update = linear_client(torch.full((1, 8, 8), 0.5))

    def refused(expected: str, attack: Rog, shape: tuple[int, ...] = (1, 8, 8)) -> None:
        with pytest.raises(InvalidSetting, match=expected):
            invert(model, functional.cross_entropy, update, shape=shape, attack=attack,
                   budget=SearchBudget(1))  # fmt: skip

    refused(r"samples is \(1, 8, 8\); expected pictures that the enhancement network takes",
            Rog(EnhancementNetwork(3, 4, 4, 1)))  # fmt: skip
    refused(r"expected \(channels, height, width\), an image", Rog(), (64,))
    with pytest.raises(InvalidSetting, match="factor is 0; expected at least 1"):
        Rog(factor=0)


# -- the network ------------------------------------------------------------------------------

USUAL = enhancement.RECIPES["mnist"]
FEW = {**USUAL.architecture, "channels": 8, "deep": 8, "blocks": 1}
TINY = replace(USUAL, architecture=FEW, epochs=6, learning_rate=5e-3)


def digits(count: int) -> Tensor:
    pixels = load_mnist().test_images[:count].astype(np.float32) / 255
    return torch.from_numpy(pixels)[:, None]


def test_a_tiny_network_improves_pictures_that_it_has_not_seen(lpips: Lpips) -> None:
    told: list[float] = []
    made = enhancement.train(TINY, digits(500), lpips, told.append)
    assert made.figures["held-out images"] == 50
    assert made.figures["MSE"] < 0.8 * made.figures["MSE before enhancement"]
    assert (told[-1], told == sorted(told)) == (1.0, True)
    # And it is the network that the attack is armed with.
    attack = enhancement.armed(TINY, made)
    assert attack.enhance is not None
    assert attack.factor == TINY.architecture["factor"]
    held_out = split(digits(500))[1]
    again = enhancement.judged(attack.enhance, TINY, held_out, lpips)
    assert again == pytest.approx(made.figures, rel=1e-3)


def test_a_stand_in_is_noisy_as_it_is_told_and_has_the_right_size() -> None:
    grey = torch.full((64, 1, 28, 30), 0.5)
    quiet = replace(TINY, architecture={**TINY.architecture, "noise": 0.0})
    stream = Stream(0, "stand-in")
    torch.testing.assert_close(degraded(grey, quiet, stream), grey, atol=1e-5, rtol=0)
    noisy = degraded(grey, TINY, stream)
    assert noisy.shape == grey.shape
    by_picture = noisy.std(dim=(1, 2, 3))
    assert by_picture.min() < 0.05  # of one that was drawn with little
    assert by_picture.max() > 0.2


@pytest.mark.parametrize("size", [(28, 28), (32, 32), (7, 9)])
def test_pictures_of_any_size_keep_it(size: tuple[int, int]) -> None:
    assert EnhancementNetwork(1, 4, 4, 1)(torch.rand(2, 1, *size)).shape == (2, 1, *size)


def test_lpips_is_differentiable_where_a_pixel_has_no_feature(lpips: Lpips) -> None:
    black = torch.zeros(1, 3, 32, 32, requires_grad=True)
    (slope,) = torch.autograd.grad(lpips.distance(torch.ones(1, 3, 32, 32), black).sum(), black)
    assert torch.isfinite(slope).all()
    assert slope.abs().max() > 0


# -- arming -----------------------------------------------------------------------------------


def test_an_attack_is_armed_by_what_the_cache_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lpips: Lpips
) -> None:
    recipe: PriorRecipe = replace(TINY, epochs=1)
    kind = replace(priors.PRIORS["rog"], recipes={"mnist": recipe})
    monkeypatch.setattr(priors, "PRIORS", {"rog": kind})
    monkeypatch.setattr(priors, "cache_root", lambda: tmp_path)
    with pytest.raises(DataUnavailable, match="run `eris train-prior rog mnist`"):
        priors.armed("rog", "mnist")
    store(recipe, enhancement.train(recipe, digits(40), lpips, lambda share: None), tmp_path)
    armed = priors.armed("rog", "mnist")
    assert isinstance(armed, Rog)
    assert isinstance(armed.enhance, EnhancementNetwork)
    for name, data in (("rog", "digits"), ("rog", None), ("cosine", "mnist")):
        plain = priors.armed(name, data)  # on data that no network is trained for, and for others
        assert (plain.name, getattr(plain, "enhance", None)) == (name, None)


def test_a_campaign_misses_its_network_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(priors, "cache_root", lambda: tmp_path)
    use_stand_in(monkeypatch, tmp_path / "lpips", inversions)
    begun: list[str] = []
    with pytest.raises(DataUnavailable, match="run `eris train-prior rog cifar10`"):
        next(inversions.rows(Inversions(only="rog"), lambda name, share: begun.append(name)))
    assert begun == []
