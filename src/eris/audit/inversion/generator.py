"""Generators: what an attacker knows about pictures before it has seen any of a client's.

A generator turns standard normal numbers (a *code*) into pictures. Two are built here from pictures
of the attacker's own: principal components, in closed form, and the decoder of a variational
autoencoder (Kingma and Welling, 2014). The latter begins as the former and is trained from there,
for minutes on a core are few. Its squared error is weighed against the codes' divergence from
N(0, 1) by the variance that fits best ("σ-VAE": Rybkin, Daniilidis and Levine, 2021), so there is
no weight to tune; LPIPS is added, for that is what reconstructions are judged by.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.inversion.search import Tell
from eris.audit.inversion.trained import PriorRecipe, TrainedPrior, split
from eris.audit.similarity import Lpips
from eris.core.errors import InvalidSetting, library, require
from eris.core.streams import Stream
from eris.models.seeding import seeded, without_weights

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
        >>> [[round(x, 3) for x in row] for row in prior(prior.project(images)).flatten(1).tolist()]
        [[0.0, 0.2], [1.0, 0.2]]
        """
        checked(images)
        pixels = images[0].numel()
        most = min(len(images), pixels)
        require(1 <= latents <= most, "latents", latents, f"from 1 to {most}, what the data has")
        decomposition = library("sklearn.decomposition", "scikit-learn", "audit")
        fit = decomposition.PCA(
            latents, svd_solver="covariance_eigh" if len(images) > pixels else "full"
        )
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


def _recipe(
    data: str, shape: tuple[int, ...], latents: int, epochs: int, batch: int = 64,
    *, mirrored: bool = True,
) -> PriorRecipe:  # fmt: skip
    size = dict(zip(("colours", "height", "width"), shape, strict=True))
    numbers = {**size, "latents": latents, "mirrored": int(mirrored)}
    return PriorRecipe("ggl", data, "test", numbers, epochs, batch, 2e-3)


RECIPES: Mapping[str, PriorRecipe] = {
    recipe.data: recipe
    for recipe in (
        _recipe("mnist", (1, 28, 28), 64, 12, mirrored=False),
        _recipe("cifar10", (3, 32, 32), 128, 12),
        _recipe("faces", (1, 32, 32), 48, 200, 16),
    )
}
"""By data set; faces are few. Mirrored pictures are as good as others, but for digits."""


def train(recipe: PriorRecipe, images: Tensor, lpips: Lpips, tell: Tell) -> TrainedPrior:
    """Train a decoder on all pictures but the last tenth, by which it is judged."""
    checked(images)
    expected = tuple(recipe.architecture[name] for name in ("colours", "height", "width"))
    found = tuple(images.shape[1:])
    require(found == expected, "shape of a picture", found, f"{expected}, as the recipe has it")
    trained_on, judged_by = split(images)
    components = PrincipalComponents.of(trained_on, int(recipe.architecture["latents"]))
    encoder = seeded(lambda: Encoder(components), recipe.seed)
    decoder = seeded(lambda: _built(recipe), recipe.seed)
    with torch.no_grad():
        decoder.mean.copy_(components.mean)
        decoder.moves.copy_(components.moves)
        for layer in (encoder.last, decoder.last):  # at first the convolutions add nothing
            for parameter in layer.parameters():
                parameter.zero_()
    weights = [*encoder.parameters(), *decoder.parameters()]
    steps = recipe.epochs * -(-len(trained_on) // recipe.batch)
    adam = torch.optim.Adam(weights, recipe.learning_rate)
    decay = torch.optim.lr_scheduler.OneCycleLR(adam, recipe.learning_rate, total_steps=steps)
    for done, (batch, noise) in enumerate(_batches(trained_on, recipe), 1):
        again, bound = variational(encoder, decoder, batch, noise)
        loss = bound + lpips.distance(batch, again).mean()
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(weights, 1.0)
        adam.step()
        decay.step()
        tell(done / steps)
    with torch.no_grad():
        before = components(components.project(judged_by))
        after = torch.cat([decoder(encoder(some)[0]) for some in torch.split(judged_by, 256)])
        figures = {"held-out images": float(len(judged_by))}
        for name, made in ((" of principal components", before), ("", after)):
            figures[f"MSE{name}"] = float(functional.mse_loss(made.clamp(0, 1), judged_by))
            figures[f"LPIPS{name}"] = float(lpips.distance(judged_by, made.clamp(0, 1)).mean())
    return TrainedPrior(decoder.state_dict(), figures)


def generator(recipe: PriorRecipe, trained: TrainedPrior) -> Decoder:
    """A trained decoder, ready for use."""
    decoder = without_weights(lambda: _built(recipe))
    decoder.load_state_dict(dict(trained.tensors))
    return decoder.eval().requires_grad_(False)


def _built(recipe: PriorRecipe) -> Decoder:
    colours, height, width, latents = (
        int(recipe.architecture[name]) for name in ("colours", "height", "width", "latents")
    )
    return Decoder((colours, height, width), latents)


def variational(
    encoder: Encoder, decoder: Decoder, pictures: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Pictures coded and decoded, and the negative evidence bound a pixel, of the variance that
    fits them best."""
    mean, logarithm = encoder(pictures)
    again = decoder(mean + (logarithm / 2).exp() * noise)
    divergence = (mean.square() + logarithm.exp() - 1 - logarithm).sum(1).mean() / 2
    fit = functional.mse_loss(again, pictures).log() / 2
    return again, fit + divergence / pictures[0].numel()


def _batches(images: Tensor, recipe: PriorRecipe) -> Iterator[tuple[Tensor, Tensor]]:
    """Pictures in another order every epoch, with noise for their codes."""
    latents = int(recipe.architecture["latents"])
    for epoch in range(recipe.epochs):
        draw = Stream(recipe.seed, "generator order", round=epoch)
        order = torch.from_numpy(draw.permutations(1, len(images))[0])
        turned = Stream(recipe.seed, "generator mirrors", round=epoch).uniform(0, len(images))
        coins = torch.from_numpy(turned < 0.5 * recipe.architecture["mirrored"])
        codes = Stream(recipe.seed, "generator noise", round=epoch)
        drawn = codes.normal(0, len(images) * latents).astype(np.float32)
        noises = torch.split(torch.from_numpy(drawn).reshape(-1, latents), recipe.batch)
        for chosen, noise in zip(torch.split(order, recipe.batch), noises, strict=True):
            batch = images[chosen]
            yield torch.where(coins[chosen, None, None, None], batch.flip(-1), batch), noise
