"""Images with labels, and the four IDX files that MNIST and its drop-in replacements come as."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import DataUnavailable
from eris.data.cache import Location, fetch_command, listed
from eris.data.idx import MalformedData, encode_idx, read_idx

TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
TEST_LABELS = "t10k-labels-idx1-ubyte"
IDX_FILES = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)
SIDE = 28

_CLASSES = 10


@dataclass(frozen=True, eq=False)
class ImageData:
    """Images and their labels, split as published; the arrays are read-only unsigned bytes.

    Grey images are (count, height, width), coloured ones (count, channel, height, width).
    ``source`` says where the bytes came from, with a checksum, to be printed with every result.
    """

    name: str
    source: str
    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]


def load_idx_images(name: str, path: Location, cache: Location) -> ImageData:
    """A data set of four IDX files from the user's folder ``path``, else from the cache."""
    if path is None:
        cached = listed(name, IDX_FILES, cache=cache)
        found, source = {file: cached.folder / file for file in IDX_FILES}, cached.source
    else:
        found = {file: _locate(name, Path(path), file) for file in IDX_FILES}
    arrays = {
        file: read_idx(place, dimensions=3 if "images" in file else 1)
        for file, place in found.items()
    }
    if path is not None:
        source = f"folder {Path(path)} (contents sha256 {_digest(arrays)})"
    _check(arrays, found)
    return ImageData(name, source, *(arrays[file] for file in IDX_FILES))


def _locate(name: str, folder: Path, file: str) -> Path:
    # Some copies are named train-images.idx3-ubyte; the bytes are the same.
    dotted = file.replace("-idx", ".idx")
    for candidate in (file, f"{file}.gz", dotted, f"{dotted}.gz"):
        if (folder / candidate).is_file():
            return folder / candidate
    raise DataUnavailable(
        f"{folder} has neither {file} nor {file}.gz; expected the four IDX files of {name} "
        f"({', '.join(IDX_FILES)}); or run `{fetch_command(name)}` and leave `path` out"
    )


def _digest(arrays: Mapping[str, NDArray[np.uint8]]) -> str:
    # Of the unpacked files in a fixed order, so a .gz copy and a plain one agree.
    whole = hashlib.sha256()
    for name in IDX_FILES:
        whole.update(encode_idx(arrays[name]))
    return whole.hexdigest()


def _check(arrays: Mapping[str, NDArray[np.uint8]], found: Mapping[str, Path]) -> None:
    for images, labels in ((TRAIN_IMAGES, TRAIN_LABELS), (TEST_IMAGES, TEST_LABELS)):
        count, *size = arrays[images].shape
        if count == 0:
            raise MalformedData(found[images], "holds no images")
        if size != [SIDE, SIDE]:
            raise MalformedData(found[images], f"has images of {size}; expected 28 × 28 pixels")
        if len(arrays[labels]) != count:
            raise MalformedData(
                found[labels], f"has {len(arrays[labels])} labels; {images} has {count} images"
            )
        if arrays[labels].max() >= _CLASSES:
            raise MalformedData(
                found[labels], f"has the label {arrays[labels].max()}; expected 0 to 9"
            )
