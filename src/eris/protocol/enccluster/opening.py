"""An owner's half: sums of ciphertexts, one for each coordinate, opened by the key of their set.

Two paths give the same integers. The full one adds N points a coordinate and takes a logarithm of
each. The short one uses that a client's ciphertexts lie under one pad: differences of centroids
are logarithms that need no key, and one sum is left to open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import ErisError, RefusedContribution
from eris.protocol.enccluster.group import (
    POINT_BYTES,
    Element,
    MaybeInfinite,
    RefusedPoint,
    added,
    negated,
    parsed,
    times_public,
)
from eris.protocol.enccluster.labels import ONE_POINT, BookLabel, point
from eris.protocol.enccluster.logarithms import Integers, LogarithmTable, is_logarithm

_AT_ONCE = 1 << 14
"""Coordinates whose points are in memory at a time."""


class NoLogarithm(ErisError, OverflowError):
    """An opened point has no logarithm in range: a wrong key, or a value that is too large.

    Nothing is clipped and nothing wraps: the segment is not opened.
    """

    def __init__(
        self, label: BookLabel, what: str, bound: int,
        coordinate: int | None = None, client: int | None = None,
    ) -> None:  # fmt: skip
        self.label, self.coordinate, self.client = label, coordinate, client
        where = f"round {label.round}, shard {label.shard}, segment {label.segment}"
        super().__init__(f"{where}, book {label.book}, {what}: no logarithm within ±{bound}")


@dataclass(frozen=True, eq=False)
class ReceivedBook:
    """One client's codebook as it arrived: its ciphertexts, and which of them a coordinate has."""

    client: int
    weight: int
    """y"""
    points: tuple[Element, ...]
    mapping: NDArray[np.uint32]

    @classmethod
    def read(
        cls, client: int, data: bytes, clusters: int, mapping: NDArray[np.uint32], weight: int = 1
    ) -> ReceivedBook:
        """Ciphertexts from their bytes; what is none is refused in its sender's name."""
        if len(data) != POINT_BYTES * clusters:
            reason = f"{len(data)} bytes of ciphertexts; expected {clusters} of {POINT_BYTES}"
            raise RefusedContribution(client, reason)
        points = []
        for j in range(clusters):
            try:
                points.append(parsed(data[POINT_BYTES * j : POINT_BYTES * (j + 1)]))
            except RefusedPoint as refused:
                raise RefusedContribution(client, f"ciphertext {j}: {refused}") from None
        beyond = np.flatnonzero(mapping >= clusters)
        if len(beyond):
            at = int(beyond[0])
            reason = f"coordinate {at} is in cluster {mapping[at]} of {clusters}"
            raise RefusedContribution(client, reason)
        return cls(client, weight, tuple(points), mapping)

    @classmethod
    def read_each(cls, client: int, data: bytes, size: int, weight: int = 1) -> ReceivedBook:
        """DeTrust-FL's: a ciphertext a coordinate."""
        return cls.read(client, data, size, np.arange(size, dtype=np.uint32), weight)

    def weighted(self) -> list[MaybeInfinite]:
        """y·C, in the order of the clusters."""
        if self.weight == 1:
            return list(self.points)
        return [times_public(self.weight, one) for one in self.points]


def open_fully(
    books: Sequence[ReceivedBook], key: Sequence[int], label: BookLabel,
    table: LogarithmTable, bound: int,
) -> Integers:  # fmt: skip
    """Σ y·m of every coordinate, each by a sum of points and a logarithm."""
    size = _size(books)
    choices = [book.weighted() for book in books]
    lock = _lock(key, label)
    choices[0] = [added([one, lock]) for one in choices[0]]
    out = np.empty(size, np.int64)
    for start in range(0, size, _AT_ONCE):
        columns = [
            [choice[j] for j in book.mapping[start : start + _AT_ONCE].tolist()]
            for book, choice in zip(books, choices, strict=True)
        ]
        sums = [added(row) for row in zip(*columns, strict=True)]
        out[start : start + len(sums)] = _opened(sums, start, label, table, bound)
    return out


def open_by_differences(
    books: Sequence[ReceivedBook], key: Sequence[int], label: BookLabel,
    table: LogarithmTable, bound: int,
) -> Integers:  # fmt: skip
    """The same integers by N·(κ − 1) + 1 logarithms; names a client whose centroids are off."""
    size = _size(books)
    bases = [times_public(book.weight, book.points[0]) for book in books]
    total = np.full(size, _opened([added([*bases, _lock(key, label)])], None, label, table, bound))
    for book in books:
        off = negated(book.points[0])
        # A centroid lies within ±bound, so two are at most twice that apart.
        differences, found = table.find([added([one, off]) for one in book.points], 2 * bound)
        if not found.all():
            cluster = int(np.flatnonzero(~found)[0])
            at = np.flatnonzero(book.mapping == cluster)
            what = f"client {book.client}, cluster {cluster} less its first"
            first = int(at[0]) if len(at) else None
            raise NoLogarithm(label, what, 2 * bound, first, book.client)
        total += book.weight * differences[book.mapping]
    beyond = np.flatnonzero(np.abs(total) > bound)
    if len(beyond):
        raise NoLogarithm(label, f"coordinate {beyond[0]}", bound, int(beyond[0]))
    return total


def open_each(
    books: Sequence[ReceivedBook], key: Sequence[int], label: BookLabel,
    table: LogarithmTable, bound: int,
) -> Integers:  # fmt: skip
    """DeTrust-FL's sums: every coordinate has points of its own, so there is no short path."""
    size = _size(books)
    choices = [book.weighted() for book in books]
    out = np.empty(size, np.int64)
    for start in range(0, size, _AT_ONCE):
        sums = [
            added([*(choice[t] for choice in choices), _lock(key, label, t)])
            for t in range(start, min(size, start + _AT_ONCE))
        ]
        out[start : start + len(sums)] = _opened(sums, start, label, table, bound)
    return out


def _lock(key: Sequence[int], label: BookLabel, coordinate: int = ONE_POINT) -> MaybeInfinite:
    """−Σ dk_a·U_a: added to a sum of ciphertexts, it leaves the sum of messages."""
    parts = [times_public(-k, point(label.encoded, a, coordinate)) for a, k in enumerate(key)]
    return added(parts)


def _opened(
    sums: Sequence[MaybeInfinite], start: int | None, label: BookLabel,
    table: LogarithmTable, bound: int,
) -> Integers:  # fmt: skip
    values, found = table.find(sums, bound)
    # By a prefix alone a wrong key could be taken for right: the first is compared in full.
    if not start and len(sums) and found[0]:
        found[0] = is_logarithm(int(values[0]), sums[0])
    missing = np.flatnonzero(~found)
    if len(missing):
        if start is None:
            raise NoLogarithm(label, "the sum of first clusters", bound)
        at = start + int(missing[0])
        raise NoLogarithm(label, f"coordinate {at}", bound, at)
    return values


def _size(books: Sequence[ReceivedBook]) -> int:
    if not books:
        raise RefusedContribution("nobody", "there is nothing to open")
    size = len(books[0].mapping)
    for book in books:
        if len(book.mapping) != size:
            reason = f"{len(book.mapping)} coordinates; expected {size}"
            raise RefusedContribution(book.client, reason)
    return size
