"""Networks that attacks bring along: what trains each kind, on whose data, and where it is kept.

The attacker's own data is the test part of a data set: clients hold training samples alone, so no
network has seen a sample that it is shown on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from eris.audit.inversion import enhancement, generator, ggl, inversion
from eris.audit.inversion.search import Inversion, Tell
from eris.audit.inversion.trained import PriorRecipe, TrainedPrior, load
from eris.audit.similarity import Lpips
from eris.core.errors import InvalidSetting, one_of
from eris.data import ImageData, cache_root
from eris.data import load as load_data
from eris.data.lpips import load_lpips


@dataclass(frozen=True)
class PriorKind:
    """What an attack's network is made by.

    ``recipes`` are by data set. ``train`` is given the attacker's images (count, channels, height,
    width) with pixels in [0, 1]; ``armed`` makes the attack from what was trained.
    """

    recipes: Mapping[str, PriorRecipe]
    train: Callable[[PriorRecipe, Tensor, Lpips, Tell], TrainedPrior]
    armed: Callable[[PriorRecipe, TrainedPrior], Inversion]


PRIORS: Mapping[str, PriorKind] = {
    "rog": PriorKind(
        enhancement.RECIPES,
        enhancement.train,
        enhancement.armed,
    ),
    "ggl": PriorKind(
        generator.RECIPES,
        generator.train,
        ggl.armed,
    ),
}
"""By the attack's name."""


def recipe_of(kind: str, data: str) -> PriorRecipe:
    """The recipe of a kind's network for a data set."""
    if kind not in PRIORS:
        raise InvalidSetting("kind of network", kind, one_of(PRIORS, kind))
    recipes = PRIORS[kind].recipes
    if data not in recipes:
        raise InvalidSetting(f"data set for {kind}", data, one_of(recipes, data))
    return recipes[data]


def images_of(data: str) -> tuple[Tensor, str]:
    """The attacker's images of a data set, and where they come from."""
    found = load_data(data)
    if not isinstance(found, ImageData):
        raise InvalidSetting("data set", data, "one of images")
    pixels = found.test_images.astype(np.float32) / 255
    shape = pixels.shape if pixels.ndim == 4 else (len(pixels), 1, *pixels.shape[1:])
    return torch.from_numpy(pixels.reshape(shape)), found.source


def trained(recipe: PriorRecipe, tell: Tell = lambda share: None) -> TrainedPrior:
    """Train the network of a recipe on the attacker's images."""
    images, source = images_of(recipe.data)
    lpips = Lpips(load_lpips().folder)
    return replace(PRIORS[recipe.kind].train(recipe, images, lpips, tell), source=source)


def armed(name: str, data: str | None) -> Inversion:
    """An attack as it is for a data set: with the network trained for it, where it has one.

    For data that no network is trained on, a user's own, it goes without.
    """
    kind = PRIORS.get(name)
    if kind is None or data is None or data not in kind.recipes:
        return inversion(name)
    recipe = kind.recipes[data]
    return kind.armed(recipe, load(recipe, cache_root()))
