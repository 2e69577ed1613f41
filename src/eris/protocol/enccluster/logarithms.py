"""Logarithms of small multiples of G, by a table of the first bytes of their x-coordinates.

The table is of public numbers and is the same everywhere; it is built once and kept as bytes, whose
checksum is looked at whenever they are read. Looking up takes variable time: what is opened is
published anyway.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import ErisError, require
from eris.protocol.enccluster.group import (
    POINT_BYTES,
    MaybeInfinite,
    added,
    encoded,
    of_public,
)

REACH = 1 << 21
"""T: 2 at 20 bits of fraction."""
MOST_REACH = 1 << 28
_MAGIC = b"eris logarithms1"
_HEADER = len(_MAGIC) + 8 + 32
_STEP = 1 << 14
"""Points that are made between two reports of progress."""

Progressed = Callable[[int, int], None]
"""Told while a table is built: how many entries are done, and of how many."""
Integers = NDArray[np.int64]


class DamagedTable(ErisError):
    """Bytes that are not a table, or not the one that was written."""


@dataclass(frozen=True, eq=False)
class LogarithmTable:
    """Which k a point k·G or −k·G has, for k from 1 to ``reach``.

    >>> table = LogarithmTable.build(16)
    >>> values, found = table.find([of_public(-7), None, of_public(20)], bound=16)
    >>> values.tolist(), found.tolist()
    ([-7, 0, 0], [True, True, False])
    """

    reach: int
    prefixes: NDArray[np.uint64]
    """The first 8 bytes of x, ascending."""
    multiples: NDArray[np.uint32]
    """k of each prefix."""
    odd: NDArray[np.uint8]
    """A bit each: whether y of k·G is odd."""

    @classmethod
    def build(cls, reach: int = REACH, progress: Progressed | None = None) -> LogarithmTable:
        """Add G to itself, ``reach`` times."""
        require(1 <= reach <= MOST_REACH, "table reach", reach, f"from 1 to {MOST_REACH}")
        prefixes, odd = np.empty(reach, np.uint64), np.empty(reach, bool)
        one = of_public(1)
        at: MaybeInfinite = None
        for start in range(0, reach, _STEP):
            count, points = min(_STEP, reach - start), []
            for _ in range(count):
                at = added([at, one])
                points.append(at)
            prefixes[start : start + count], odd[start : start + count], _ = _keys(points)
            if progress is not None:
                progress(start + count, reach)
        order = np.argsort(prefixes)
        prefixes = prefixes[order]
        if (prefixes[1:] == prefixes[:-1]).any():  # with probability reach²/2^65
            raise DamagedTable("two entries have the same first 8 bytes; take another reach")
        multiples = (order + 1).astype(np.uint32)
        return cls(reach, prefixes, multiples, np.packbits(odd[order], bitorder="little"))

    def pieces(self) -> list[bytes]:
        """The table's bytes: a header with their checksum, then the columns."""
        columns = [
            self.prefixes.astype("<u8").tobytes(),
            self.multiples.astype("<u4").tobytes(),
            self.odd.tobytes(),
        ]
        size = self.reach.to_bytes(8, "little")
        return [_MAGIC + size + _checksum(size, *columns), *columns]

    @classmethod
    def of(cls, data: bytes | memoryview) -> LogarithmTable:
        """The table in bytes, which stay where they are; refused if they are damaged."""
        view = memoryview(data)
        if len(view) < _HEADER or view[: len(_MAGIC)] != _MAGIC:
            raise DamagedTable("not a table of logarithms")
        size = bytes(view[len(_MAGIC) : len(_MAGIC) + 8])
        reach = int.from_bytes(size, "little")
        if not 1 <= reach <= MOST_REACH or len(view) != _HEADER + 12 * reach + -(-reach // 8):
            raise DamagedTable(f"{len(view)} bytes for {reach} entries")
        if _checksum(size, view[_HEADER:]) != view[_HEADER - 32 : _HEADER]:
            raise DamagedTable("its checksum does not fit")
        multiples = _HEADER + 8 * reach
        return cls(
            reach,
            np.frombuffer(view, "<u8", reach, _HEADER),
            np.frombuffer(view, "<u4", reach, multiples),
            np.frombuffer(view, np.uint8, -1, multiples + 4 * reach),
        )

    def find(
        self, points: Sequence[MaybeInfinite], bound: int
    ) -> tuple[Integers, NDArray[np.bool_]]:
        """The logarithm of each point, and whether it has one of at most ``bound`` in magnitude.

        Beyond the table it goes on in giant steps of 2·reach + 1. A point that has none hits a
        prefix with a chance of reach/2^64: see :func:`is_logarithm`.
        """
        values, found = self._look_up(points)
        found &= np.abs(values) <= bound
        stride = 2 * self.reach + 1
        for direction in (1, -1):
            step = of_public(-direction * stride)
            left = np.flatnonzero(~found)
            walking = [points[at] for at in left.tolist()]
            for giant in range(1, -(-(bound - self.reach) // stride) + 1):
                walking = [added([one, step]) for one in walking]
                small, hit = self._look_up(walking)
                far = direction * giant * stride + small
                hit &= np.abs(far) <= bound
                values[left[hit]], found[left[hit]] = far[hit], True
                left = left[~hit]
                walking = [one for one, gone in zip(walking, hit, strict=True) if not gone]
        values[~found] = 0
        return values, found

    def _look_up(self, points: Sequence[MaybeInfinite]) -> tuple[Integers, NDArray[np.bool_]]:
        prefixes, odd, infinite = _keys(points)
        at = np.minimum(np.searchsorted(self.prefixes, prefixes), self.reach - 1)
        found = (self.prefixes[at] == prefixes) & ~infinite
        values = self.multiples[at].astype(np.int64)
        same = ((self.odd[at >> 3] >> (at & 7).astype(np.uint8)) & 1).astype(bool) == odd
        values = np.where(same, values, -values)
        values[~found] = 0
        return values, found | infinite


@lru_cache(2)
def built_table(reach: int) -> LogarithmTable:
    """A table that is built here and stays in memory."""
    return LogarithmTable.build(reach)


def is_logarithm(value: int, point: MaybeInfinite) -> bool:
    """Whether a point is value·G in all of its bytes, not in a prefix only."""
    expected = of_public(value)
    if expected is None or point is None:
        return expected is point
    return encoded(expected) == encoded(point)


def _keys(
    points: Sequence[MaybeInfinite],
) -> tuple[NDArray[np.uint64], NDArray[np.bool_], NDArray[np.bool_]]:
    """The first 8 bytes of x and whether y is odd; and which points are infinity."""
    nothing = bytes(POINT_BYTES)
    data = b"".join(nothing if point is None else encoded(point) for point in points)
    rows = np.frombuffer(data, np.uint8).reshape(-1, POINT_BYTES)
    prefixes = np.ascontiguousarray(rows[:, 1:9]).view(">u8").ravel().astype(np.uint64)
    return prefixes, rows[:, 0] == 3, rows[:, 0] == 0


def _checksum(*pieces: bytes | memoryview) -> bytes:
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.digest()
