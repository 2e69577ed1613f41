"""Shard plans: which coordinate belongs to which of A disjoint shards (spec of FSA, step 2).

A *plan* is a frozen dataclass of settings; :meth:`ShardPlan.at` resolves it for a model of n
coordinates, a seed and a round into a :class:`ShardMap`, a pure function that every node evaluates
alike. A map never holds an array of n entries. It cuts the coordinates into blocks of a few
hundred and arranges each block by one of a few short tables, so that a vector is split and
reassembled by streaming, a block in the cache at a time, at any n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from eris.core import kernels
from eris.core.errors import InvalidSetting
from eris.core.streams import Stream

Vector = NDArray[np.float32]
Indices = NDArray[np.int64]

BLOCK = 512
"""Coordinates in a block: a block and its tables stay in the first-level cache."""
TABLE_ENTRIES = 16 * BLOCK
SMALLEST_SHARE = Fraction(1, 1 << 16)
"""A weighted shard below this share would need tables as long as the model."""
LARGEST_SEGMENT = 1 << 18
SMALLEST_SEGMENT = 1 << 14


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
    cumulative: NDArray[np.int64]
    blocks: int
    tables: NDArray[np.unsignedinteger] | None
    arrangement: Stream

    @cached_property
    def _quotients(self) -> NDArray[np.int64]:
        return self.cumulative // self.blocks

    @cached_property
    def _remainders(self) -> NDArray[np.int64]:
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

    def move(
        self,
        vector: Vector,
        pieces: Vector,
        ranges: Sequence[tuple[int, int, int]],
        at: Sequence[int],
        *,
        outward: bool,
    ) -> None:
        """Copy each range (shard, low, high) between the model's vector and ``pieces[at:]``."""
        busy = [(r, where) for r, where in zip(ranges, at, strict=True) if r[1] < r[2]]
        if not busy:
            return
        part = vector[self.origin : self.origin + self.length]
        if self.tables is None:
            for (shard, low, high), where in busy:
                start = int(self.cumulative[shard])
                inside, piece = part[start + low : start + high], pieces[where : where + high - low]
                if outward:
                    piece[:] = inside
                else:
                    inside[:] = piece
            return
        source, target = (part, pieces) if outward else (pieces, part)
        shards, low, high = np.array([r for r, _ in busy], np.int64).T.copy()
        offsets = np.array([where for _, where in busy], np.int64)
        first = min(map(self._block_of, shards.tolist(), low.tolist()))
        stop = max(map(self._block_of, shards.tolist(), (high - 1).tolist())) + 1
        whole = self._whole(shards, low, high)
        if whole:
            kernels.move_whole_blocks(
                source, target, outward, self._quotients, self.tables,
                self._rows(whole.start, whole.stop), whole.start, shards, low, offsets,
                1 if len(busy) <= 16 else 32,
            )  # fmt: skip
        for begin, end in ((first, whole.start), (whole.stop, stop)) if whole else ((first, stop),):
            if begin < end:
                kernels.move_blocks(
                    source, target, outward, self._quotients, self._remainders, self.blocks,
                    self.tables, self._rows(begin, end), begin, shards, low, high, offsets,
                )  # fmt: skip

    def coordinates(self, shard: int, low: int, high: int) -> NDArray[np.int64]:
        """Global coordinates of the shard's coordinates low … high in this stratum."""
        if self.tables is None:
            start = self.origin + int(self.cumulative[shard])
            return np.arange(start + low, start + high, dtype=np.int64)
        out = np.empty(high - low, np.int64)
        if low < high:
            first, stop = self._block_of(shard, low), self._block_of(shard, high - 1) + 1
            kernels.coordinates_of_blocks(
                out, self.origin, self._quotients, self._remainders, self.blocks,
                self.tables, self._rows(first, stop), first, shard, low, high,
            )  # fmt: skip
        return out


@dataclass(frozen=True)
class ShardMap:
    """A plan resolved for one model size, seed and round.

    Shards are numbered from 0, and so are the coordinates inside a shard ("shard-local").

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

    def _check(self, vector: Vector) -> None:
        if vector.shape != (self.n,) or vector.dtype != np.float32:
            found = f"{vector.dtype} array of shape {vector.shape}"
            raise InvalidSetting("vector", found, f"{self.n} float32 values")

    def _move(
        self, vector: Vector, pieces: Vector, ranges: Sequence[tuple[int, int, int]], outward: bool
    ) -> None:
        """Move whole ranges, laid one behind the other in ``pieces``, stratum by stratum."""
        self._check(vector)
        lengths = [high - low for _, low, high in ranges]
        starts = np.concatenate(([0], np.cumsum(lengths))).tolist()
        before = [0] * len(ranges)
        for stratum in self.strata:
            inside, at = [], []
            for j, (shard, low, high) in enumerate(ranges):
                size = stratum.size(shard)
                cut = (min(max(low - before[j], 0), size), min(max(high - before[j], 0), size))
                inside.append((shard, *cut))
                at.append(starts[j] + max(0, before[j] - low))
                before[j] += size
            stratum.move(vector, pieces, inside, at, outward=outward)

    def _range(self, shard: int, start: int, stop: int | None) -> tuple[int, int, int]:
        label, size = self._label(shard), self.size(shard)
        stop = size if stop is None else stop
        if not 0 <= start <= stop <= size:
            raise InvalidSetting("piece", (start, stop), f"a range in shard {shard} (0 to {size})")
        return label, start, stop

    def gather(self, vector: Vector, shard: int, start: int = 0, stop: int | None = None) -> Vector:
        """Coordinates start … stop of one shard, cut out of the whole vector."""
        label, start, stop = self._range(shard, start, stop)
        piece = np.empty(stop - start, np.float32)
        self._move(vector, piece, [(label, start, stop)], True)
        return piece

    def scatter(self, vector: Vector, values: Vector, shard: int, start: int = 0) -> None:
        """Write ``values`` back to coordinates start … of one shard of ``vector``."""
        label, start, stop = self._range(shard, start, start + len(values))
        self._move(vector, np.ascontiguousarray(values), [(label, start, stop)], False)

    def coordinates(self, shard: int, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """Where coordinates start … stop of one shard lie in the whole vector."""
        label, start, stop = self._range(shard, start, stop)
        parts, before = [], 0
        for stratum in self.strata:
            size = stratum.size(label)
            low, high = (min(max(edge - before, 0), size) for edge in (start, stop))
            parts.append(stratum.coordinates(label, low, high))
            before += size
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def split(self, vector: Vector, start: int = 0, stop: int | None = None) -> list[Vector]:
        """Every shard of the vector in one pass, or of every shard the piece start … stop.

        Taking one piece of all shards after another streams through a vector of any size.
        """
        ranges = self._stripe(start, stop)
        pieces = np.empty(sum(high - low for _, low, high in ranges), np.float32)
        self._move(vector, pieces, ranges, True)
        return self._cut(pieces, ranges)

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
        ranges = []
        for shard, piece in enumerate(shards):
            begin = min(start, self.size(shard))
            ranges.append(self._range(shard, begin, begin + len(piece)))
        base = shards[0].base
        pieces = base if base is not None and self._is_cut(base, shards) else np.concatenate(shards)
        self._move(into, pieces, ranges, False)
        return into

    def _stripe(self, start: int, stop: int | None) -> list[tuple[int, int, int]]:
        if start < 0 or (stop is not None and stop < start):
            raise InvalidSetting("piece", (start, stop), "0 ≤ start ≤ stop")
        sizes = [self.size(shard) for shard in range(self.shards)]
        return [
            (self._label(a), min(start, size), size if stop is None else min(stop, size))
            for a, size in enumerate(sizes)
        ]

    @staticmethod
    def _cut(pieces: Vector, ranges: Sequence[tuple[int, int, int]]) -> list[Vector]:
        ends = np.cumsum([high - low for _, low, high in ranges]).tolist()
        return [pieces[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    @staticmethod
    def _is_cut(base: object, shards: Sequence[Vector]) -> bool:
        """Whether the pieces are views that tile one buffer in order (as split returns them)."""
        if not isinstance(base, np.ndarray) or base.ndim != 1 or base.dtype != np.float32:
            return False
        at = base.__array_interface__["data"][0]
        for piece in shards:
            inside = piece.base is base and piece.flags.c_contiguous
            if not inside or piece.__array_interface__["data"][0] != at:
                return False
            at += piece.nbytes
        return bool(at == base.__array_interface__["data"][0] + base.nbytes)


class ShardPlan(Protocol):
    """Settings from which every node derives the same :class:`ShardMap`."""

    @property
    def shards(self) -> int:
        """Number of shards A."""
        ...

    @property
    def rotate(self) -> int:
        """Shards are drawn anew every that many rounds; 0: never."""
        ...

    def at(self, n: int, seed: int = 0, round: int = 0) -> ShardMap:
        """The map for a model of n coordinates in a round."""
        ...


def _check_plan(n: int, shards: int, rotate: int) -> None:
    if n < 1:
        raise InvalidSetting("n", n, "at least 1 coordinate")
    if not 1 <= shards <= n:
        raise InvalidSetting("shards", shards, f"1 to n = {n}: every shard holds a coordinate")
    if rotate < 0:
        raise InvalidSetting("rotate", rotate, "0 (never) or a number of rounds")


def _turns(rotate: int, round: int) -> int:
    return round // rotate if rotate else 0


def _narrow(table: NDArray[np.int64]) -> NDArray[np.unsignedinteger]:
    return table.astype(np.uint16 if table.shape[1] <= 1 << 16 else np.uint32)


def _equal_strata(n: int, shards: int, orders: Stream | None, rows: Stream) -> tuple[Stratum, ...]:
    """Blocks of whole groups of A coordinates, one of each shard in every group, and a tail.

    In a group the shards stand in an order drawn from ``orders`` (or in their natural order), so
    any 2A − 1 neighbouring coordinates meet every shard: every layer spreads over all of them.
    """
    groups = max(1, BLOCK // shards)
    block = groups * shards
    blocks, rest = divmod(n, block)
    variants = max(1, TABLE_ENTRIES // block) if orders is not None else 1
    if orders is None:
        order = np.tile(np.arange(shards), (variants * groups + 1, 1))
    else:
        order = orders.permutations(variants * groups + 1, shards)
    strata = []
    if blocks:
        place = order[:-1].reshape(variants, groups, shards) + (np.arange(groups)[:, None] * shards)
        table = place.transpose(0, 2, 1).reshape(variants, block)
        cumulative = np.arange(shards + 1, dtype=np.int64) * (groups * blocks)
        strata.append(Stratum(0, cumulative, blocks, _narrow(table), rows))
    if rest:
        # Whole groups as before; of the last, unfinished one the first shards of a fresh order.
        whole, left = divmod(rest, shards)
        owner = np.concatenate(
            [np.argsort(order[:whole], axis=1).ravel(), np.argsort(order[-1])[:left]]
        )
        table = np.argsort(owner, kind="stable")[None, :]
        sizes = np.bincount(owner, minlength=shards)
        cumulative = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        strata.append(Stratum(blocks * block, cumulative, 1, _narrow(table), rows))
    return tuple(strata)


@dataclass(frozen=True)
class RandomPlan:
    """Balanced random assignment: sizes differ by at most 1, every layer meets every shard.

    ``rotate`` draws a new assignment every that many rounds; 0 keeps one for the whole training.
    """

    shards: int
    rotate: int = 0
    kind: ClassVar[str] = "random"

    def at(self, n: int, seed: int = 0, round: int = 0) -> ShardMap:
        """The map for a model of n coordinates in a round."""
        _check_plan(n, self.shards, self.rotate)
        turn = _turns(self.rotate, round)
        orders = Stream(seed, "shard-orders", turn)
        rows = Stream(seed, "shard-rows", turn)
        return ShardMap(n, self.shards, _equal_strata(n, self.shards, orders, rows))


@dataclass(frozen=True)
class InterleavedPlan:
    """Coordinate i belongs to shard i mod A."""

    shards: int
    rotate: int = 0
    kind: ClassVar[str] = "interleaved"

    def at(self, n: int, seed: int = 0, round: int = 0) -> ShardMap:
        """The map for a model of n coordinates in a round."""
        _check_plan(n, self.shards, self.rotate)
        turn = _turns(self.rotate, round) % self.shards
        strata = _equal_strata(n, self.shards, None, Stream(seed, "shard-rows"))
        return ShardMap(n, self.shards, strata, turn)


@dataclass(frozen=True)
class ContiguousPlan:
    """Blocks of neighbouring coordinates.

    A shard can then be a whole layer, which tells its aggregator far more than the same number of
    scattered coordinates (Shatter, appendix C). Kept for comparison.
    """

    shards: int
    rotate: int = 0
    kind: ClassVar[str] = "contiguous"

    def at(self, n: int, seed: int = 0, round: int = 0) -> ShardMap:
        """The map for a model of n coordinates in a round."""
        _check_plan(n, self.shards, self.rotate)
        turn = _turns(self.rotate, round) % self.shards
        edges = [n * a // self.shards for a in range(self.shards + 1)]
        stratum = Stratum(0, np.array(edges, np.int64), 1, None, Stream(seed, "shard-rows"))
        return ShardMap(n, self.shards, (stratum,), turn)


@dataclass(frozen=True)
class WeightedPlan:
    """Random assignment with sizes in proportion to ``weights`` (say, bandwidths).

    Leakage is then governed by the largest shard.

    >>> shard_map = WeightedPlan((1, 2, 1)).at(10)
    >>> [shard_map.size(a) for a in range(3)]
    [3, 5, 2]
    """

    weights: tuple[float, ...]
    rotate: int = 0
    kind: ClassVar[str] = "weighted"

    @property
    def shards(self) -> int:
        """Number of shards A."""
        return len(self.weights)

    def at(self, n: int, seed: int = 0, round: int = 0) -> ShardMap:
        """The map for a model of n coordinates in a round."""
        _check_plan(n, self.shards, self.rotate)
        sizes = largest_remainder(n, self.weights)
        for shard, size in enumerate(sizes):
            if size == 0 or Fraction(size, n) < SMALLEST_SHARE:
                raise InvalidSetting(
                    f"weights[{shard}]",
                    self.weights[shard],
                    f"a share of at least one coordinate and 1/{1 / SMALLEST_SHARE} of n = {n}",
                )
        turn = _turns(self.rotate, round)
        # One block more than the smallest shard has coordinates would need a negative quota.
        blocks = max(1, min(n // BLOCK, min(sizes)))
        longest = -(-n // blocks)
        variants = max(1, min(255, TABLE_ENTRIES // longest))
        # Blocks are `longest` or one shorter; the last slot maps to the last place so that a table
        # serves both lengths.
        inner = Stream(seed, "shard-orders", turn).permutations(variants, longest - 1)
        table = np.concatenate([inner, np.full((variants, 1), longest - 1)], axis=1)
        cumulative = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        rows = Stream(seed, "shard-rows", turn)
        return ShardMap(n, self.shards, (Stratum(0, cumulative, blocks, _narrow(table), rows),))


def largest_remainder(n: int, weights: Sequence[float]) -> list[int]:
    """n split in proportion to ``weights``: floors, then one more to the largest remainders.

    Computed in exact fractions, ties to the lower index, so that all platforms agree.

    >>> largest_remainder(7, [1, 1, 1])
    [3, 2, 2]
    """
    for index, weight in enumerate(weights):
        if not 0 < weight < float("inf"):
            raise InvalidSetting(f"weights[{index}]", weight, "a positive finite number")
    exact = [Fraction(weight) for weight in weights]
    total = sum(exact)
    quotas = [n * weight / total for weight in exact]
    sizes = [int(quota) for quota in quotas]
    order = sorted(range(len(sizes)), key=lambda a: (sizes[a] - quotas[a], a))
    for a in order[: n - sum(sizes)]:
        sizes[a] += 1
    return sizes


def segment_length(shard_size: int, largest: int | None = None) -> int:
    """Coordinates in a segment of a shard: the unit that is sent, combined, published and named.

    By default 2¹⁸, but at most a sixteenth of a large shard, so that what remains to be fanned out
    when the last contribution arrives is small; a shard up to 2¹⁴ is one segment.

    >>> segment_length(1_000), segment_length(1 << 20), segment_length(1 << 30)
    (1000, 65536, 262144)
    """
    if largest is not None:
        if largest < 1:
            raise InvalidSetting("segment size", largest, "at least 1 coordinate")
        return min(largest, shard_size)
    sixteenth = max(SMALLEST_SEGMENT, -(-shard_size // 16))
    return min(shard_size, LARGEST_SEGMENT, sixteenth)
