"""Fashion-MNIST: 60,000 + 10,000 grey pictures of clothes, in the files and sizes of MNIST.

Xiao, Rasul and Vollgraf, "Fashion-MNIST: a novel image dataset for benchmarking machine learning
algorithms" (2017). Labels: T-shirt, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag,
ankle boot.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping

from eris.data.cache import Location
from eris.data.idx import whole_gzip
from eris.data.images import ImageData, load_idx_images


def load_fashion_mnist(path: Location = None, *, cache: Location = None) -> ImageData:
    """Fashion-MNIST from the user's folder ``path`` (IDX files, plain or ``.gz``), else cached."""
    return load_idx_images("fashion-mnist", path, cache)


def from_gzipped_idx(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """The four IDX files from their gzipped forms."""
    files: dict[str, bytes] = {}
    for member, data in members.items():
        with whole_gzip(member):
            files[member.rsplit("/", 1)[-1].removesuffix(".gz")] = gzip.decompress(data)
    return files
