"""MNIST: 60,000 + 10,000 handwritten digits of 28 × 28 grey pixels.

Reads the four IDX files the data set is published as, from the cache or from the user's own
folder, and turns the packages that carry it in other shapes into those files.
"""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from eris.data.cache import Location
from eris.data.idx import MalformedData, encode_idx
from eris.data.images import (
    SIDE,
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    ImageData,
    load_idx_images,
)


def load_mnist(path: Location = None, *, cache: Location = None) -> ImageData:
    """MNIST from the user's folder ``path`` (IDX files, plain or ``.gz``), else from the cache.

    A folder may hold fewer images than the whole data set. The cached files are checked against
    their recorded sha256 each time, so a damaged cache is an error and never a worse model.
    """
    return load_idx_images("mnist", path, cache)


def from_csv(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """The four IDX files from two CSV members: a header line, then a label and 784 pixels a row."""
    files: dict[str, bytes] = {}
    for member, data in members.items():
        training = "train" in member.rsplit("/", 1)[-1]
        table = _table(member, data)
        images = np.ascontiguousarray(table[:, 1:]).reshape(-1, SIDE, SIDE)
        files[TRAIN_IMAGES if training else TEST_IMAGES] = encode_idx(images)
        files[TRAIN_LABELS if training else TEST_LABELS] = encode_idx(table[:, 0])
    return files


def _table(member: str, data: bytes) -> NDArray[np.uint8]:
    columns = 1 + SIDE * SIDE
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
