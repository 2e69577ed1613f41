"""Generators: principal components in closed form, and a decoder that learns from few pictures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from eris.audit.inversion.generator import (
    Decoder,
    Encoder,
    PrincipalComponents,
    generator,
    train,
    variational,
)
from eris.audit.inversion.trained import PriorRecipe
from eris.audit.similarity import Lpips
from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.data import load_mnist
from eris.data.weights import MODEL
from eris.models.seeding import seeded
from support.lpips import stand_in


@pytest.fixture(scope="module")
def lpips(tmp_path_factory: pytest.TempPathFactory) -> Lpips:
    """The metric's shape, with random features."""
    folder = tmp_path_factory.mktemp("lpips")
    (folder / MODEL).write_bytes(stand_in())
    return Lpips(folder)


def quiet(share: float) -> None:
    """Tell nobody."""


def digits(count: int) -> Tensor:
    images = load_mnist().test_images[:count].astype(np.float32) / 255
    return torch.from_numpy(images)[:, None]


def test_components_are_those_of_the_covariance() -> None:
    images = digits(300)[..., ::4, ::4].contiguous()
    prior = PrincipalComponents.of(images, 5)
    flat = images.flatten(1).double().numpy()
    values, vectors = np.linalg.eigh(np.cov(flat.T))
    for place, move in enumerate(prior.moves.numpy(), 1):
        assert np.linalg.norm(move) ** 2 == pytest.approx(values[-place], rel=1e-4)
        along = abs(move @ vectors[:, -place]) / np.linalg.norm(move)
        assert along == pytest.approx(1, abs=1e-4)


def test_codes_of_the_data_are_standard_and_lead_back() -> None:
    images = digits(300)
    prior = PrincipalComponents.of(images, 20)
    codes = prior.project(images)
    assert codes.mean(0).abs().max() < 1e-4
    torch.testing.assert_close(codes.var(0), torch.ones(20), atol=1e-3, rtol=0)
    torch.testing.assert_close(prior.project(prior(codes)), codes, atol=1e-3, rtol=0)


def test_all_components_leave_nothing_out() -> None:
    images = digits(40)[..., ::4, ::4].contiguous()
    prior = PrincipalComponents.of(images, 39)
    torch.testing.assert_close(prior(prior.project(images)), images, atol=1e-4, rtol=0)


def recipe(**changes: Any) -> PriorRecipe:
    numbers = {"colours": 1, "height": 14, "width": 14, "latents": 2, "mirrored": 0}
    return replace(PriorRecipe("ggl", "mnist", "test", numbers, 5, 32, 5e-3), **changes)


def small(count: int) -> Tensor:
    return digits(count)[..., ::2, ::2].contiguous()


def test_training_lowers_the_error_of_pictures_not_trained_on(lpips: Lpips) -> None:
    told: list[float] = []
    eight = recipe(architecture={**recipe().architecture, "latents": 8})
    trained = train(eight, small(1500), lpips, told.append)
    figures = trained.figures
    assert figures["held-out images"] == 150
    assert figures["MSE"] < 0.95 * figures["MSE of principal components"]
    assert figures["LPIPS"] < 0.9 * figures["LPIPS of principal components"]
    assert told[-1] == 1
    made = generator(eight, trained)(torch.zeros(3, 8))
    assert made.shape == (3, 1, 14, 14)


def test_the_same_seed_trains_the_same_generator(lpips: Lpips) -> None:
    made = []
    for seed in (0, 0, 1):
        short = recipe(epochs=1, seed=seed, architecture={**recipe().architecture, "mirrored": 1})
        made.append(generator(short, train(short, small(40), lpips, quiet))(torch.ones(1, 2)))
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 19, 11)])
def test_pictures_of_any_size_are_decoded(shape: tuple[int, ...]) -> None:
    decoder = seeded(lambda: Decoder(shape, 4), 0)
    decoder.mean.zero_()
    decoder.moves.zero_()
    assert decoder(torch.ones(2, 4)).shape == (2, *shape)


def test_the_bound_is_that_of_a_normal_likelihood() -> None:
    """Held against torch's own distributions, with the variance that is most likely."""
    images = small(8)
    components = PrincipalComponents.of(images, 3)
    encoder = seeded(lambda: Encoder(components), 1)
    decoder = seeded(lambda: Decoder(components.shape, 3), 1)
    decoder.mean.copy_(components.mean)
    decoder.moves.copy_(components.moves)
    noise = torch.from_numpy(Stream(0, "test").normal(0, 24).astype(np.float32)).reshape(8, 3)
    with torch.no_grad():
        mean, logarithm = encoder(images)
        deviation = (logarithm / 2).exp()
        again, found = variational(encoder, decoder, images, noise)
        torch.testing.assert_close(again, decoder(mean + deviation * noise))
        likely: Any = torch.distributions.Normal(again, (again - images).square().mean().sqrt())
        code = torch.distributions.Normal(mean, deviation)
        standard = torch.distributions.Normal(torch.zeros(3), torch.ones(3))
        apart = torch.distributions.kl_divergence(code, standard).sum()
        bound = apart - likely.log_prob(images).sum()
    constant = 0.5 * (1 + np.log(2 * np.pi))
    assert float(found) + constant == pytest.approx(float(bound) / images.numel(), rel=1e-4)


def test_what_a_generator_cannot_be_made_of_is_refused(lpips: Lpips) -> None:
    with pytest.raises(InvalidSetting, match=r"latents is 41; expected from 1 to 40"):
        PrincipalComponents.of(digits(40), 41)
    with pytest.raises(InvalidSetting, match=r"pixels is 'from 0 to 2'; expected from 0 to 1"):
        PrincipalComponents.of(2 * digits(4), 1)
    with pytest.raises(InvalidSetting, match=r"shape of the pictures is \(28, 28\)"):
        train(recipe(), digits(1)[0, 0], lpips, quiet)
    with pytest.raises(InvalidSetting, match=r"shape of a picture is .*as the recipe has it"):
        train(recipe(), digits(20), lpips, quiet)
    with pytest.raises(InvalidSetting, match="use principal components"):
        Decoder((1, 4, 4), 2)
