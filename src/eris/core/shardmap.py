"""A shard plan resolved: where every shard's coordinates lie, and how to move them.

A map never holds an array of n entries. It cuts the coordinates into blocks of a few hundred and
arranges each block by one of a few short tables, so that a vector is split and reassembled by
streaming, a block in the cache at a time, at any n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from eris.core.blocks import (
    coordinates_of_blocks,
    kept_of_blocks,
    list_bits,
    move_blocks,
    move_whole_blocks,
)
from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Indices, Vector

Range = tuple[int, int, int]
"""(shard, low, high): shard-local coordinates low … high of a shard."""

_Move = Callable[[Vector, Vector, bool], None]
"""One prepared copy between a vector and the pieces cut from it; or, not outward, the way back."""


@dataclass(frozen=True)
class Stratum:
    """A run of coordinates cut into blocks, each arranged by a row of ``tables``.

    Shard a holds ``cumulative[a + 1] − cumulative[a]`` of the stratum's coordinates. With
    C_a(b) = ⌊cumulative[a]·b/blocks⌋, block b covers coordinates C_A(b) … C_A(b + 1), and shard a
    has the table slots C_a(b + 1) − C_a(b) … C_{a+1}(b + 1) − C_{a+1}(b) of it: quotas that add up
    exactly in every block and over all blocks, in closed form. ``tables`` is None where the
    arrangement is the identity (contiguous shards).
    """

    origin: int
    cumulative: Indices
    blocks: int
    tables: NDArray[np.unsignedinteger] | None
    arrangement: Stream

    @cached_property
    def _quotients(self) -> Indices:
        return self.cumulative // self.blocks

    @cached_property
    def _remainders(self) -> Indices:
        return self.cumulative % self.blocks

    @property
    def length(self) -> int:
        """Coordinates in the stratum."""
        return int(self.cumulative[-1])

    def size(self, shard: int) -> int:
        """Coordinates of one shard in the stratum."""
        return int(self.cumulative[shard + 1] - self.cumulative[shard])

    def _before(self, shard: int, block: int) -> int:
        """Coordinates of ``shard`` in the blocks before ``block``."""
        left, right = int(self.cumulative[shard]), int(self.cumulative[shard + 1])
        return right * block // self.blocks - left * block // self.blocks

    def _block_of(self, shard: int, local: int) -> int:
        """The block that holds the shard's coordinate ``local``."""
        block = min(local * self.blocks // max(1, self.size(shard)), self.blocks - 1)
        while self._before(shard, block) > local:
            block -= 1
        while self._before(shard, block + 1) <= local:
            block += 1
        return block

    def _rows(self, first: int, stop: int) -> NDArray[np.uint8]:
        """The table row of each block first … stop."""
        assert self.tables is not None
        words = self.arrangement.words(first, stop - first)
        return (words % np.uint32(len(self.tables))).astype(np.uint8)

    def _whole(self, shards: Indices, low: Indices, high: Indices) -> range:
        """Blocks of equal quotas that lie inside every range."""
        if self._remainders.any():
            return range(0)
        quotas = np.maximum(1, self._quotients[shards + 1] - self._quotients[shards])
        return range(int((-(-low // quotas)).max()), int((high // quotas).min()))

    def prepare(self, ranges: Sequence[Range], at: Sequence[int]) -> list[_Move]:
        """The copies that move each range to or from ``pieces[at:]``."""
        busy = [(r, where) for r, where in zip(ranges, at, strict=True) if r[1] < r[2]]
        if not busy:
            return []
        if self.tables is None:
            return [self._slice(r, where) for r, where in busy]
        shards, low, high = np.array([r for r, _ in busy], np.int64).T.copy()
        offsets = np.array([where for _, where in busy], np.int64)
        first = min(map(self._block_of, shards.tolist(), low.tolist()))
        stop = max(map(self._block_of, shards.tolist(), (high - 1).tolist())) + 1
        whole = self._whole(shards, low, high) or range(stop, stop)
        quotas = (self._quotients, self._remainders, self.blocks)
        partly = (shards, low, high, offsets)  # also where the quotas of blocks differ
        return [
            *self._blocks(move_blocks, range(first, min(whole.start, stop)), quotas, partly),
            *self._blocks(move_whole_blocks, whole, quotas[:1], (shards, low, offsets)),
            *self._blocks(move_blocks, range(max(whole.stop, first), stop), quotas, partly),
        ]

    def _slice(self, piece: Range, where: int) -> _Move:
        shard, low, high = piece
        start = self.origin + int(self.cumulative[shard])

        def move(vector: Vector, pieces: Vector, outward: bool) -> None:
            if outward:
                pieces[where : where + high - low] = vector[start + low : start + high]
            else:
                vector[start + low : start + high] = pieces[where : where + high - low]

        return move

    def _blocks(
        self,
        kernel: Callable[..., None],
        blocks: range,
        quotas: tuple[object, ...],
        ranges: tuple[object, ...],
    ) -> list[_Move]:
        """The copy of some blocks by a kernel, if there are any."""
        if not blocks:
            return []
        rows = self._rows(blocks.start, blocks.stop)
        given = (*quotas, self.tables, rows, blocks.start, *ranges)

        def move(vector: Vector, pieces: Vector, outward: bool) -> None:
            part = vector[self.origin : self.origin + self.length]
            source, target = (part, pieces) if outward else (pieces, part)
            kernel(source, target, outward, *given)

        return [move]

    def coordinates(self, shard: int, low: int, high: int) -> Indices:
        """Global coordinates of the shard's coordinates low … high in this stratum."""
        if self.tables is None:
            start = self.origin + int(self.cumulative[shard])
            return np.arange(start + low, start + high, dtype=np.int64)
        out = np.empty(high - low, np.int64)
        if low < high:
            first, stop = self._block_of(shard, low), self._block_of(shard, high - 1) + 1
            coordinates_of_blocks(
                out, self.origin, self._quotients, self._remainders, self.blocks,
                self.tables, self._rows(first, stop), first, shard, low, high,
            )  # fmt: skip
        return out

    def kept(self, bits: NDArray[np.uint64]) -> tuple[Indices, Indices, Indices]:
        """The coordinates whose bit is set, shard after shard: where in its shard's part of this
        stratum each is, and in the whole vector; and where each shard's begin, and the end."""
        first, end = self.origin, self.origin + self.length
        count = list_bits(np.empty(0, np.int64), bits, first, end)
        coordinates = np.empty(count, np.int64)
        if self.tables is None:
            list_bits(coordinates, bits, first, end)
            begins = first + self.cumulative
            edges = np.searchsorted(coordinates, begins)
            return coordinates - np.repeat(begins[:-1], np.diff(edges)), coordinates, edges
        whose, local = np.empty(count, np.int32), np.empty(count, np.int64)
        kept_of_blocks(
            whose, local, coordinates, bits, first, self._quotients, self._remainders, self.blocks,
            self.tables, self._slots, self._rows(0, self.blocks),
        )  # fmt: skip
        shards = len(self.cumulative) - 1
        edges = np.cumsum([0, *np.bincount(whose, minlength=shards)])
        order = np.argsort(whose.astype(np.uint16) if shards < 1 << 16 else whose, kind="stable")
        return local[order], coordinates[order], edges

    @cached_property
    def _slots(self) -> NDArray[np.unsignedinteger]:
        """The tables the other way: which slot a place of a block has."""
        assert self.tables is not None
        return np.argsort(self.tables, axis=1).astype(self.tables.dtype)


@dataclass(frozen=True)
class Route:
    """The way between a vector and some pieces of its shards, worked out once.

    The pieces lie one behind the other in one buffer.
    """

    n: int
    lengths: tuple[int, ...]
    moves: tuple[_Move, ...]

    @cached_property
    def size(self) -> int:
        """Coordinates on the route."""
        return sum(self.lengths)

    @cached_property
    def _edges(self) -> list[tuple[int, int]]:
        return list(pairwise(np.cumsum([0, *self.lengths]).tolist()))

    def gather(self, vector: Vector, out: Vector | None = None) -> Vector:
        """Cut the pieces out of the vector."""
        _check("vector", vector, self.n)
        pieces = np.empty(self.size, np.float32) if out is None else out
        _check("out", pieces, self.size)
        for move in self.moves:
            move(vector, pieces, True)
        return pieces

    def scatter(self, vector: Vector, pieces: Vector) -> None:
        """Put the pieces back into the vector."""
        _check("vector", vector, self.n)
        if pieces.shape != (self.size,):
            raise InvalidSetting("pieces", pieces.shape, f"({self.size},) coordinates")
        for move in self.moves:
            move(vector, pieces, False)

    def cut(self, pieces: Vector) -> list[Vector]:
        """The single pieces, as views of their buffer."""
        return [pieces[a:b] for a, b in self._edges]


def _check(name: str, given: Vector, size: int) -> None:
    if given.shape != (size,) or given.dtype != np.float32:
        found = f"{given.dtype} array of shape {given.shape}"
        raise InvalidSetting(name, found, f"{size} float32 values")


@dataclass(frozen=True)
class ShardMap:
    """A plan resolved for one model size, seed and round.

    Shards are numbered from 0, and so are the coordinates inside a shard ("shard-local").

    >>> from eris.core.shards import RandomPlan
    >>> shard_map = RandomPlan(shards=3).at(10, seed=1)
    >>> [shard_map.size(a) for a in range(3)]
    [3, 3, 4]
    >>> update = np.arange(10, dtype=np.float32)
    >>> bool((shard_map.reassemble(shard_map.split(update)) == update).all())
    True
    """

    n: int
    shards: int
    strata: tuple[Stratum, ...]
    turn: int = 0
    """Shard labels are turned by this much (how plans without randomness rotate)."""

    def _label(self, shard: int) -> int:
        if not 0 <= shard < self.shards:
            raise InvalidSetting("shard", shard, f"a shard number from 0 to {self.shards - 1}")
        return (shard + self.turn) % self.shards

    def size(self, shard: int) -> int:
        """Coordinates in one shard."""
        label = self._label(shard)
        return sum(stratum.size(label) for stratum in self.strata)

    def _inside(self, shard: int, start: int, stop: int | None) -> tuple[int, int]:
        size = self.size(shard)
        stop = size if stop is None else stop
        if not 0 <= start <= stop <= size:
            raise InvalidSetting("piece", (start, stop), f"a range in shard {shard} (0 to {size})")
        return start, stop

    def route(self, ranges: Sequence[Range]) -> Route:
        """The way to pieces (shard, start, stop), for a caller that moves them more than once."""
        labelled = [(self._label(a), *self._inside(a, start, stop)) for a, start, stop in ranges]
        lengths = [high - low for _, low, high in labelled]
        begins = np.cumsum([0, *lengths]).tolist()
        before = [0] * len(labelled)
        moves: list[_Move] = []
        for stratum in self.strata:
            inside, at = [], []
            for j, (label, low, high) in enumerate(labelled):
                size = stratum.size(label)
                cut = (min(max(low - before[j], 0), size), min(max(high - before[j], 0), size))
                inside.append((label, *cut))
                at.append(begins[j] + max(0, before[j] - low))
                before[j] += size
            moves += stratum.prepare(inside, at)
        return Route(self.n, tuple(lengths), tuple(moves))

    def stripe(self, start: int = 0, stop: int | None = None) -> Route:
        """The way to the piece start … stop of every shard (or of what it has of that).

        One stripe after another streams through a vector of any size.
        """
        sizes = [self.size(shard) for shard in range(self.shards)]
        return self.route(
            [
                (shard, min(start, size), size if stop is None else min(stop, size))
                for shard, size in enumerate(sizes)
            ]
        )

    def gather(self, vector: Vector, shard: int, start: int = 0, stop: int | None = None) -> Vector:
        """Coordinates start … stop of one shard, cut out of the whole vector."""
        return self.route([(shard, *self._inside(shard, start, stop))]).gather(vector)

    def scatter(self, vector: Vector, values: Vector, shard: int, start: int = 0) -> None:
        """Write ``values`` back to coordinates start … of one shard of ``vector``."""
        self.route([(shard, start, start + len(values))]).scatter(vector, values)

    def coordinates(self, shard: int, start: int = 0, stop: int | None = None) -> Indices:
        """Where coordinates start … stop of one shard lie in the whole vector."""
        label, (start, stop) = self._label(shard), self._inside(shard, start, stop)
        parts, before = [], 0
        for stratum in self.strata:
            size = stratum.size(label)
            low, high = (min(max(edge - before, 0), size) for edge in (start, stop))
            parts.append(stratum.coordinates(label, low, high))
            before += size
        return np.concatenate(parts)

    def kept(self, bits: NDArray[np.uint64]) -> tuple[Indices, Indices]:
        """The coordinates whose bit is set, shard after shard: where they are in a vector whose
        shards lie one behind the other, and in the vector itself.

        >>> from eris.core.shards import InterleavedPlan
        >>> bits = np.array([0b11010], np.uint64)
        >>> [found.tolist() for found in InterleavedPlan(2).at(5, seed=0).kept(bits)]
        [[2, 3, 4], [4, 1, 3]]
        """
        begins = np.cumsum([0, *(self.size(shard) for shard in range(self.shards))])
        found = [stratum.kept(bits) for stratum in self.strata]
        places, coordinates = [], []
        for shard in range(self.shards):
            label, before = self._label(shard), int(begins[shard])
            for stratum, (local, where, edges) in zip(self.strata, found, strict=True):
                part = slice(*edges[label : label + 2].tolist())
                places.append(before + local[part])
                coordinates.append(where[part])
                before += stratum.size(label)
        return np.concatenate(places), np.concatenate(coordinates)

    def split(self, vector: Vector, start: int = 0, stop: int | None = None) -> list[Vector]:
        """Every shard of the vector in one pass, or of every shard the piece start … stop."""
        route = self.stripe(start, stop)
        return route.cut(route.gather(vector))

    def reassemble(
        self, shards: Sequence[Vector], into: Vector | None = None, start: int = 0
    ) -> Vector:
        """The vector whose shards (or their pieces from ``start`` on) are given; undoes split."""
        if len(shards) != self.shards:
            raise InvalidSetting("shards", len(shards), f"{self.shards} pieces")
        if into is None:
            given = sum(map(len, shards))
            if given != self.n:
                raise InvalidSetting("shards", f"{given} values", f"all {self.n}, or into=…")
            into = np.empty(self.n, np.float32)
        begins = [min(start, self.size(shard)) for shard in range(self.shards)]
        ranges = [(a, begins[a], begins[a] + len(piece)) for a, piece in enumerate(shards)]
        self.route(ranges).scatter(into, np.concatenate(shards))
        return into
