"""Faces: 400 grey pictures of 40 people, ten of each, scaled down to 32 × 32 pixels.

The ORL database of faces (Samaria and Harter, AT&T Laboratories Cambridge, 1994). Kept in its
published size, 112 × 92; pixels of 32 × 32 are means over the area that they cover. A label is a
person, from 0. There is no published split: of each person the last two pictures are the test part.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from eris.core.errors import DataUnavailable
from eris.data.cache import Location, fetch_command, listed
from eris.data.idx import MalformedData, encode_idx, read_idx
from eris.data.images import ImageData

PICTURES, PEOPLE = "faces-idx3-ubyte", "people-idx1-ubyte"
FILES = (PICTURES, PEOPLE)
SIDE = 32
TEST_EACH = 2

_PUBLISHED = (92, 112)  # across, down
_HEADER = b"P5\n92 112\n255\n"


def load_faces(path: Location = None, *, cache: Location = None) -> ImageData:
    """Faces from the user's folder ``path`` (``s1/1.pgm`` and so on), else from the cache."""
    if path is None:
        cached = listed("faces", FILES, cache=cache)
        pictures = read_idx(cached.folder / PICTURES, dimensions=3)
        people = read_idx(cached.folder / PEOPLE, dimensions=1)
        source = cached.source
    else:
        pictures, people = _arrays(_own(Path(path)))
        digest = hashlib.sha256(pictures.tobytes() + people.tobytes()).hexdigest()
        source = f"folder {Path(path)} (contents sha256 {digest})"
    across, down = _PUBLISHED
    small = np.rint(_area(down) @ pictures @ _area(across).T).astype(np.uint8)
    test = _last_of_each(people)
    parts = small[~test], people[~test], small[test], people[test]
    for array in parts:
        array.setflags(write=False)
    return ImageData("faces", source, *parts)


def from_pgm(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """All pictures in one IDX file, in the order of the people, and whose each is in another."""
    pictures, people = _arrays(members.items())
    return {PICTURES: encode_idx(pictures), PEOPLE: encode_idx(people)}


def _arrays(members: Iterable[tuple[str, bytes]]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Pictures in their published size, and people from 0, both ordered by their numbers."""
    numbered = sorted((_numbers(member), member, data) for member, data in members)
    pictures = np.stack([_picture(member, data) for _, member, data in numbered])
    names = sorted({person for (person, _), _, _ in numbered})
    people = np.array([names.index(person) for (person, _), _, _ in numbered], np.uint8)
    return pictures, people


def _own(folder: Path) -> list[tuple[str, bytes]]:
    found = sorted(folder.glob("s[0-9]*/[0-9]*.pgm"))
    if not found:
        raise DataUnavailable(
            f"{folder} has no s1/1.pgm; expected a folder s1, s2 … a person, with pictures 1.pgm, "
            f"2.pgm …; or run `{fetch_command('faces')}` and leave `path` out"
        )
    return [(str(file), file.read_bytes()) for file in found]


def _numbers(member: str) -> tuple[int, int]:
    """Of the person and of the picture.

    >>> _numbers("faces/s12/3.pgm")
    (12, 3)
    """
    path = PurePosixPath(member)
    try:
        return int(path.parent.name.removeprefix("s")), int(path.stem)
    except ValueError:
        raise MalformedData(member, "is not named as s1/1.pgm is") from None


def _picture(member: str, data: bytes) -> NDArray[np.uint8]:
    try:
        with Image.open(io.BytesIO(_as_published(data)), formats=["PPM"]) as picture:
            size, mode, pixels = picture.size, picture.mode, np.asarray(picture)
    except (UnidentifiedImageError, OSError, ValueError) as broken:
        raise MalformedData(member, f"is not a whole PGM file ({broken})") from broken
    if size != _PUBLISHED or mode != "L":
        raise MalformedData(member, f"is {size[0]} × {size[1]}, {mode}; expected 92 × 112, grey")
    return pixels


def _as_published(data: bytes) -> bytes:
    """A file without the carriage returns that a transfer as text has put before its line feeds.

    152 of the package's 400 files went through one, which spoilt pixels too; the header tells
    which. In two of them one pair was there before: it is where the picture comes out smoothest.
    """
    if not data.startswith(b"P5\r\n"):
        return data
    parts = data[len(_HEADER) + _HEADER.count(b"\n") :].split(b"\r\n")
    across, down = _PUBLISHED
    whole = b"\n".join(parts)
    if len(whole) == across * down - 1:
        ways = [
            b"\n".join(parts[:place]) + b"\r\n" + b"\n".join(parts[place:])
            for place in range(1, len(parts))
        ]
        whole = min(ways, key=_roughness, default=whole)
    return _HEADER + whole


def _roughness(body: bytes) -> int:
    rows = np.frombuffer(body, np.uint8).reshape(_PUBLISHED[::-1]).astype(np.int64)
    return int(np.abs(np.diff(rows, axis=0)).sum())


def _area(size: int) -> NDArray[np.float64]:
    """How much of each of ``size`` pixels lies in each of ``SIDE`` larger ones; rows sum to 1.

    >>> (_area(112)[0, :5] * 3.5).tolist()
    [1.0, 1.0, 1.0, 0.5, 0.0]
    """
    edges = np.arange(SIDE + 1) * size / SIDE
    within = np.clip(edges[:, None] - np.arange(size), 0, 1)
    return np.diff(within, axis=0) * SIDE / size


def _last_of_each(people: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which pictures are the last two of a person.

    >>> _last_of_each(np.array([0, 0, 0, 1, 1, 1, 1])).astype(int).tolist()
    [0, 1, 1, 0, 0, 1, 1]
    """
    last = np.zeros(len(people), np.bool_)
    for person in np.unique(people):
        last[np.flatnonzero(people == person)[-TEST_EACH:]] = True
    return last
