"""MovieLens-100K: 100,000 ratings of 1,682 films by 943 people.

Harper and Konstan, "The MovieLens datasets: history and context" (2015). Kept and read as the
published ``u.data``: user, film, rating (1 to 5) and time in seconds, separated by tabs, unordered.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import DataUnavailable
from eris.data.cache import Location, fetch_command, listed, sha256_of
from eris.data.idx import MalformedData

FILE = "u.data"

_HEADER = b"user_id:token\titem_id:token\trating:float\ttimestamp:float\n"


@dataclass(frozen=True, eq=False)
class RatingData:
    """Who rated what, how, and when: four read-only arrays of one length, in published order.

    Users and items have the numbers they were published with, from 1. ``source`` says where the
    bytes came from, with a checksum, to be printed with every result.
    """

    name: str
    source: str
    users: NDArray[np.int64]
    items: NDArray[np.int64]
    ratings: NDArray[np.uint8]
    timestamps: NDArray[np.int64]


def load_movielens(path: Location = None, *, cache: Location = None) -> RatingData:
    """MovieLens-100K from the user's ``path`` (``u.data`` or its folder), else from the cache."""
    if path is None:
        cached = listed("movielens-100k", [FILE], cache=cache)
        file, source = cached.folder / FILE, cached.source
    else:
        file = Path(path) / FILE if Path(path).is_dir() else Path(path)
        if not file.is_file():
            raise DataUnavailable(
                f"{file} is not there; expected the {FILE} of MovieLens-100K; or run "
                f"`{fetch_command('movielens-100k')}` and leave `path` out"
            )
        source = f"file {file} (sha256 {sha256_of(file)})"
    table = decode_ratings(file.read_bytes(), where=file)
    users, items, ratings, timestamps = (np.ascontiguousarray(column) for column in table.T)
    found = RatingData("movielens-100k", source, users, items, ratings.astype(np.uint8), timestamps)
    for array in (found.users, found.items, found.ratings, found.timestamps):
        array.setflags(write=False)
    return found


def decode_ratings(data: bytes, *, where: object = FILE) -> NDArray[np.int64]:
    r"""The rows (user, item, rating, timestamp) in ``data``; ``where`` is for an error.

    >>> decode_ratings(b"196\t242\t3\t881250949\n").tolist()
    [[196, 242, 3, 881250949]]
    """
    if not data.strip():
        raise MalformedData(where, "holds no ratings")
    try:
        table = np.loadtxt(io.BytesIO(data), np.int64, delimiter="\t", ndmin=2, encoding="ascii")
    except ValueError as broken:  # it names the row
        raise MalformedData(where, str(broken)) from broken
    if table.shape[1] != 4:
        raise MalformedData(
            where, f"has {table.shape[1]} columns; expected user, item, rating and timestamp"
        )
    if wrong := np.flatnonzero((table[:, 2] < 1) | (table[:, 2] > 5)).tolist():
        raise MalformedData(
            where, f"row {wrong[0] + 1} has the rating {table[wrong[0], 2]}; expected 1 to 5"
        )
    return table


def from_inter(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """``u.data`` from the same rows under a header line that names and types the columns."""
    ((member, data),) = members.items()
    if not data.startswith(_HEADER):
        start = data.split(b"\n", 1)[0][:80]
        raise MalformedData(member, f"begins with {start!r}; expected {_HEADER!r}")
    rows = data[len(_HEADER) :]
    decode_ratings(rows, where=member)
    return {FILE: rows}
