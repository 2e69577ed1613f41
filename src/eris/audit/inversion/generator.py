"""Generators: what an attacker knows about pictures before it has seen any of a client's.

A generator turns standard normal numbers (a *code*) into pictures. Two are built here from pictures
of the attacker's own: principal components, in closed form, and the decoder of a variational
autoencoder (Kingma and Welling, 2014). The latter begins as the former and is trained from there,
for minutes on a core are few. Its reconstruction error is weighed against the codes' divergence
from N(0, 1) by the variance that fits best ("σ-VAE": Rybkin, Daniilidis and Levine, 2021), so there
is no weight to tune.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.core.errors import InvalidSetting, library, require
from eris.core.streams import Stream

Network = TypeVar("Network", bound=nn.Module)

_SMALLEST = 7
"""Pixels of a side at which the networks stop halving it."""
_CHANNELS = 32
"""After the first halving; every other one doubles them."""


class Generator(Protocol):
    """What :class:`~eris.audit.inversion.ggl.Ggl` searches: a network of a user's own will do."""

    @property
    def latents(self) -> int:
        """How many numbers a code has."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a picture: (channels, height, width)."""

    def __call__(self, codes: Tensor) -> Tensor:
        """Pictures (count, *shape) with pixels in [0, 1], of codes (count, latents).

        It must be differentiable, and the pictures of codes from N(0, 1) typical ones.
        """


@dataclass(frozen=True, eq=False)
class PrincipalComponents:
    """Pictures around a mean: code i moves them along component i, by its deviation.

    Pixels may leave [0, 1] a little: what is cut off would have no slope to follow back.
    """

    mean: Tensor
    moves: Tensor
    """(latents, pixels): each component, as long as the deviation along it."""
    shape: tuple[int, ...]

    @classmethod
    def of(cls, images: Tensor, latents: int) -> PrincipalComponents:
        """The largest components of some pictures (count, *shape).

        >>> images = torch.tensor([[0.0, 0.2], [1.0, 0.2]]).reshape(2, 1, 1, 2)
        >>> prior = PrincipalComponents.of(images, 1)
        >>> prior.project(images).sort(0).values.flatten().tolist() == [-(0.5**0.5), 0.5**0.5]
        True
        """
        checked(images)
        most = min(len(images), images[0].numel())
        require(1 <= latents <= most, "latents", latents, f"from 1 to {most}, what the data has")
        decomposition = library("sklearn.decomposition", "scikit-learn", "audit")
        fit = decomposition.PCA(latents, svd_solver="full" if most < 1000 else "covariance_eigh")
        fit.fit(images.flatten(1).double().numpy())
        moves = fit.components_ * np.sqrt(fit.explained_variance_)[:, None]
        return cls(
            torch.from_numpy(fit.mean_).float(),
            torch.from_numpy(moves).float(),
            tuple(images.shape[1:]),
        )

    @property
    def latents(self) -> int:
        """How many components there are."""
        return len(self.moves)

    def __call__(self, codes: Tensor) -> Tensor:
        """Pictures of codes."""
        return (self.mean + codes @ self.moves).reshape(-1, *self.shape)

    def project(self, images: Tensor) -> Tensor:
        """The codes whose pictures are nearest."""
        lengths = self.moves.square().sum(1).clamp(min=1e-30)
        codes: Tensor = (images.flatten(1) - self.mean) @ self.moves.T / lengths
        return codes


def checked(images: Tensor) -> None:
    """Refuse what is no pile of pictures with pixels in [0, 1]."""
    if images.dim() != 4 or len(images) < 2:
        expected = "(count, channels, height, width), two pictures or more"
        raise InvalidSetting("shape of the pictures", tuple(images.shape), expected)
    if not (images.isfinite().all() and images.min() >= 0 and images.max() <= 1):
        span = f"from {float(images.min()):g} to {float(images.max()):g}"
        raise InvalidSetting("pixels", span, "from 0 to 1")


class Decoder(nn.Module):
    """Codes to pictures: principal components, and what convolutions between doublings of the size
    add to them."""

    mean: Tensor
    moves: Tensor

    def __init__(self, shape: tuple[int, ...], latents: int) -> None:
        super().__init__()
        self.shape, self.latents = tuple(shape), latents
        self.register_buffer("mean", torch.empty(math.prod(shape)))
        self.register_buffer("moves", torch.empty(latents, math.prod(shape)))
        self._sizes, self._channels = sizes(self.shape)
        height, width = self._sizes[-1]
        self.first = nn.Linear(latents, self._channels[-1] * height * width)
        wide = [_CHANNELS // 2, *self._channels]
        self.layers = nn.ModuleList(
            nn.Conv2d(many, fewer, 3, padding=1) for fewer, many in reversed([*pairwise(wide)])
        )
        self.last = nn.Conv2d(wide[0], self.shape[0], 3, padding=1)

    def forward(self, codes: Tensor) -> Tensor:
        """Pictures; as with principal components, pixels may leave [0, 1] a little."""
        x = self.first(codes).reshape(len(codes), self._channels[-1], *self._sizes[-1])
        for layer, size in zip(self.layers, reversed(self._sizes[:-1]), strict=True):
            # Smooth, so that a search by gradients meets no kinks in the prior.
            x = layer(functional.interpolate(functional.silu(x), size))
        straight = PrincipalComponents(self.mean, self.moves, self.shape)(codes)
        pictures: Tensor = straight + self.last(functional.silu(x))
        return pictures


class Encoder(nn.Module):
    """Pictures to where their codes lie: means (principal components, and what convolutions add)
    and logarithms of variances."""

    def __init__(self, components: PrincipalComponents) -> None:
        super().__init__()
        self._project = components.project
        found, channels = sizes(components.shape)
        self.layers = nn.ModuleList(
            nn.Conv2d(few, many, 3, stride=2, padding=1)
            for few, many in pairwise([components.shape[0], *channels])
        )
        self.last = nn.Linear(channels[-1] * math.prod(found[-1]), 2 * components.latents)

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Of each code's number, both."""
        x = pictures
        for layer in self.layers:
            x = functional.silu(layer(x))
        mean, logarithm = self.last(x.flatten(1)).chunk(2, dim=1)
        # Narrow to begin with: what principal components say should not drown in noise.
        return self._project(pictures) + mean, (logarithm - 4).clamp(-12, 4)


def sizes(shape: tuple[int, ...]) -> tuple[list[tuple[int, int]], list[int]]:
    """The sizes of pictures inside the networks, the widest first, and the channels below it.

    >>> sizes((3, 32, 32))
    ([(32, 32), (16, 16), (8, 8), (4, 4)], [32, 64, 128])
    """
    found = [(shape[1], shape[2])]
    while max(found[-1]) > _SMALLEST:
        height, width = found[-1]
        found.append(((height + 1) // 2, (width + 1) // 2))
    if len(found) == 1:
        expected = f"a side of more than {_SMALLEST} pixels; use principal components"
        raise InvalidSetting("shape of a picture", shape, expected)
    return found, [_CHANNELS * 2**level for level in range(len(found) - 1)]


@dataclass(frozen=True)
class GeneratorTraining:
    """How a decoder is trained. ``mirrored`` pictures are as good as others: not so of digits."""

    latents: int = 128
    epochs: int = 20
    batch_size: int = 64
    learning_rate: float = 1e-3
    mirrored: bool = False
    held_out: float = 0.05
    """Share of the pictures that the error is measured on, and nothing is trained on."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("latents", "epochs", "batch_size"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        rate = self.learning_rate
        require(0 < rate < 1, "learning_rate", rate, "a number between 0 and 1")
        require(0 < self.held_out < 1, "held_out", self.held_out, "a share between 0 and 1")


@dataclass(frozen=True, eq=False)
class TrainedGenerator:
    """A decoder, and the mean squared error of pictures that it was not trained on, coded and
    decoded: after training, and before, by principal components alone."""

    decoder: Decoder
    error: float
    before: float


def train_generator(
    images: Tensor,
    settings: GeneratorTraining,
    tell: Callable[[float], None] = lambda share: None,
) -> TrainedGenerator:
    """Train a decoder on pictures (count, *shape); ``tell`` hears of the share that is done."""
    checked(images)
    count = len(images) - max(1, round(settings.held_out * len(images)))
    components = PrincipalComponents.of(images[:count], settings.latents)
    encoder = initialised(Encoder(components), settings.seed, "encoder")
    decoder = initialised(Decoder(components.shape, settings.latents), settings.seed, "decoder")
    decoder.mean.copy_(components.mean)
    decoder.moves.copy_(components.moves)
    weights = [*encoder.parameters(), *decoder.parameters()]
    steps = settings.epochs * math.ceil(count / settings.batch_size)
    adam = torch.optim.Adam(weights, settings.learning_rate)
    decay = torch.optim.lr_scheduler.OneCycleLR(adam, settings.learning_rate, steps)
    for done, (batch, noise) in enumerate(_batches(images[:count], settings), 1):
        loss = variational(encoder, decoder, batch, noise)
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        # The first steps of a likelihood whose variance is fitted can be long ones.
        nn.utils.clip_grad_norm_(weights, 1.0)
        adam.step()
        decay.step()
        tell(done / steps)
    unseen = images[count:]
    with torch.no_grad():
        again = torch.cat([decoder(encoder(some)[0]) for some in unseen.split(256)])
    return TrainedGenerator(
        decoder.eval().requires_grad_(False),
        float(functional.mse_loss(again, unseen)),
        float(functional.mse_loss(components(components.project(unseen)), unseen)),
    )


def variational(encoder: Encoder, decoder: Decoder, pictures: Tensor, noise: Tensor) -> Tensor:
    """The negative evidence bound a pixel, of the variance that fits the batch best."""
    mean, logarithm = encoder(pictures)
    again = decoder(mean + (logarithm / 2).exp() * noise)
    divergence = (mean.square() + logarithm.exp() - 1 - logarithm).sum(1).mean() / 2
    pixels = pictures[0].numel()
    return functional.mse_loss(again, pictures).log() / 2 + divergence / pixels


def initialised(network: Network, seed: int, purpose: str) -> Network:
    """Weights from a named stream (He et al., 2015), biases and the last layer's weights 0: at
    first the network adds nothing."""
    with torch.no_grad():
        for number, (name, parameter) in enumerate(network.named_parameters()):
            if parameter.dim() == 1 or name.startswith("last."):
                parameter.zero_()
                continue
            drawn = Stream(seed, f"generator {purpose}", shard=number).normal(0, parameter.numel())
            scaled = torch.from_numpy(drawn).float() * math.sqrt(2 / parameter[0].numel())
            parameter.copy_(scaled.reshape(parameter.shape))
    return network


def _batches(images: Tensor, settings: GeneratorTraining) -> Iterator[tuple[Tensor, Tensor]]:
    """Pictures in another order every epoch, with noise for their codes."""
    for epoch in range(settings.epochs):
        draw = Stream(settings.seed, "generator order", round=epoch)
        order = torch.from_numpy(draw.permutations(1, len(images))[0])
        turned = Stream(settings.seed, "generator mirrors", round=epoch).uniform(0, len(images))
        coins = torch.from_numpy(turned < 0.5) & settings.mirrored
        codes = Stream(settings.seed, "generator noise", round=epoch)
        noise = codes.normal(0, len(images) * settings.latents).astype(np.float32)
        noises = torch.from_numpy(noise).reshape(-1, settings.latents).split(settings.batch_size)
        for chosen, some in zip(order.split(settings.batch_size), noises, strict=True):
            batch = images[chosen]
            yield torch.where(coins[chosen, None, None, None], batch.flip(-1), batch), some
