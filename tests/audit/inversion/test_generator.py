"""Generators: principal components in closed form, and a decoder that learns from few pictures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from eris.audit.inversion.generator import (
    Decoder,
    Encoder,
    GeneratorTraining,
    PrincipalComponents,
    initialised,
    train_generator,
    variational,
)
from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.data import load_mnist


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


def test_training_lowers_the_error_of_pictures_not_trained_on() -> None:
    settings = GeneratorTraining(latents=2, epochs=10, batch_size=16, learning_rate=5e-3)
    told: list[float] = []
    images = digits(400)[..., ::2, ::2].contiguous()
    found = train_generator(images, settings, told.append)
    assert found.error < 0.95 * found.before
    assert told[-1] == 1
    assert found.decoder(torch.zeros(3, 2)).shape == (3, 1, 14, 14)


def test_the_same_seed_trains_the_same_generator() -> None:
    images = digits(40)[..., ::2, ::2].contiguous()
    codes = torch.ones(1, 2)
    made = [
        train_generator(images, GeneratorTraining(2, 1, mirrored=True, seed=seed)).decoder(codes)
        for seed in (0, 0, 1)
    ]
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 19, 11)])
def test_a_decoder_begins_as_principal_components(shape: tuple[int, ...]) -> None:
    drawn = Stream(0, "test").uniform(0, 6 * int(np.prod(shape))).astype(np.float32)
    components = PrincipalComponents.of(torch.from_numpy(drawn).reshape(6, *shape), 4)
    decoder = initialised(Decoder(shape, 4), 0, "decoder")
    decoder.mean.copy_(components.mean)
    decoder.moves.copy_(components.moves)
    codes = torch.ones(2, 4)
    torch.testing.assert_close(decoder(codes), components(codes))


def test_the_bound_is_that_of_a_normal_likelihood() -> None:
    """Held against torch's own distributions, with the variance that is most likely."""
    images = digits(8)[..., ::2, ::2].contiguous()
    components = PrincipalComponents.of(images, 3)
    encoder = initialised(Encoder(components), 1, "encoder")
    decoder = initialised(Decoder(components.shape, 3), 1, "decoder")
    decoder.mean.copy_(components.mean)
    decoder.moves.copy_(components.moves)
    noise = torch.from_numpy(Stream(0, "test").normal(0, 24).astype(np.float32)).reshape(8, 3)
    with torch.no_grad():
        mean, logarithm = encoder(images)
        deviation = (logarithm / 2).exp()
        again = decoder(mean + deviation * noise)
        likely = torch.distributions.Normal(again, (again - images).square().mean().sqrt())
        code = torch.distributions.Normal(mean, deviation)
        standard = torch.distributions.Normal(torch.zeros(3), torch.ones(3))
        apart = torch.distributions.kl_divergence(code, standard).sum()
        bound = apart - likely.log_prob(images).sum()
        found = variational(encoder, decoder, images, noise)
    constant = 0.5 * (1 + np.log(2 * np.pi))
    assert float(found) + constant == pytest.approx(float(bound) / images.numel(), rel=1e-4)


def test_what_a_generator_cannot_be_made_of_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"latents is 41; expected from 1 to 40"):
        PrincipalComponents.of(digits(40), 41)
    with pytest.raises(InvalidSetting, match=r"pixels is 'from 0 to 2'; expected from 0 to 1"):
        PrincipalComponents.of(2 * digits(4), 1)
    with pytest.raises(InvalidSetting, match=r"shape of the pictures is \(28, 28\)"):
        train_generator(digits(1)[0, 0], GeneratorTraining())
    with pytest.raises(InvalidSetting, match="use principal components"):
        train_generator(torch.zeros(4, 1, 2, 2), GeneratorTraining())
    with pytest.raises(InvalidSetting, match="epochs is 0; expected at least 1"):
        GeneratorTraining(epochs=0)
