"""All data sets by name: what loads each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from eris.core.errors import InvalidSetting, one_of
from eris.data.cache import Location
from eris.data.cifar10 import load_cifar10
from eris.data.cifar100 import load_cifar100
from eris.data.digits import load_digits
from eris.data.faces import load_faces
from eris.data.fashion_mnist import load_fashion_mnist
from eris.data.images import ImageData
from eris.data.imdb import load_imdb
from eris.data.mnist import load_mnist
from eris.data.movielens import RatingData, load_movielens
from eris.data.text import TextData

Data = ImageData | TextData | RatingData
_LOADERS: Mapping[str, Callable[..., Data]] = {
    "mnist": load_mnist,
    "fashion-mnist": load_fashion_mnist,
    "cifar10": load_cifar10,
    "imdb": load_imdb,
    "faces": load_faces,
    "movielens-100k": load_movielens,
    "cifar100": load_cifar100,
}
NAMES = (*_LOADERS, "digits")
PIXELS: Mapping[str, tuple[float, tuple[float, ...], tuple[float, ...]]] = {
    "mnist": (255, (0.1307,), (0.3081,)),
    "fashion-mnist": (255, (0.2860,), (0.3530,)),
    "cifar10": (255, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": (255, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "faces": (255, (0.4415,), (0.1868,)),
    "digits": (16, (0.3054,), (0.3755,)),
}
"""The largest level, and mean and deviation of each channel of the training images divided by it
(to four digits)."""


def load(name: str, path: Location = None, *, cache: Location = None) -> Data:
    """A data set by its name, from the user's own copy at ``path`` or from the cache."""
    if name == "digits":  # comes with a library, so there is no cache to look into
        return load_digits(path)
    if name not in _LOADERS:
        raise InvalidSetting("data set", name, one_of(NAMES, name))
    return _LOADERS[name](path, cache=cache)
