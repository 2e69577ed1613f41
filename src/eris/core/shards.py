"""Shard plans: which coordinate belongs to which of A disjoint shards (spec of FSA, step 2).

A *plan* is a frozen dataclass of settings; :meth:`ShardPlan.at` resolves it for a model of n
coordinates, a seed and a round into a :class:`~eris.core.shardmap.ShardMap`, a pure function that
every node evaluates alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting, require
from eris.core.shardmap import ShardMap, Stratum
from eris.core.streams import Stream

BLOCK = 512
"""Coordinates in a block: a block and its tables stay in the first-level cache."""
TABLE_ENTRIES = 16 * BLOCK
SMALLEST_SHARE = Fraction(1, 1 << 16)
"""A weighted shard below this share would need tables as long as the model."""
LARGEST_SEGMENT = 1 << 18
SMALLEST_SEGMENT = 1 << 14


class ShardPlan:
    """Settings from which every node derives the same :class:`ShardMap`.

    ``shards`` is A; ``rotate`` draws them anew every that many rounds, 0: never.
    """

    shards: int
    rotate: int
    kind: ClassVar[str]

    def at(self, n: int, seed: int = 0, round: int = 0) -> ShardMap:
        """The map for a model of n coordinates in a round."""
        require(n >= 1, "n", n, "at least 1 coordinate")
        expected = f"1 to n = {n}: every shard holds a coordinate"
        require(1 <= self.shards <= n, "shards", self.shards, expected)
        require(self.rotate >= 0, "rotate", self.rotate, "0 (never) or a number of rounds")
        return self._drawn(n, seed, round // self.rotate if self.rotate else 0)

    def _drawn(self, n: int, seed: int, turn: int) -> ShardMap:
        raise AssertionError("every plan says how its map is drawn after so many turns")


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
class _EqualPlan(ShardPlan):
    shards: int
    rotate: int = 0


@dataclass(frozen=True)
class RandomPlan(_EqualPlan):
    """Balanced random assignment: sizes differ by at most 1, every layer meets every shard."""

    kind: ClassVar[str] = "random"

    def _drawn(self, n: int, seed: int, turn: int) -> ShardMap:
        orders = Stream(seed, "shard-orders", turn)
        rows = Stream(seed, "shard-rows", turn)
        return ShardMap(n, self.shards, _equal_strata(n, self.shards, orders, rows))


@dataclass(frozen=True)
class InterleavedPlan(_EqualPlan):
    """Coordinate i belongs to shard i mod A."""

    kind: ClassVar[str] = "interleaved"

    def _drawn(self, n: int, seed: int, turn: int) -> ShardMap:
        strata = _equal_strata(n, self.shards, None, Stream(seed, "shard-rows"))
        return ShardMap(n, self.shards, strata, turn % self.shards)


@dataclass(frozen=True)
class ContiguousPlan(_EqualPlan):
    """Blocks of neighbouring coordinates.

    A shard can then be a whole layer, which tells its aggregator far more than the same number of
    scattered coordinates (Shatter, appendix C). Kept for comparison.
    """

    kind: ClassVar[str] = "contiguous"

    def _drawn(self, n: int, seed: int, turn: int) -> ShardMap:
        edges = [n * a // self.shards for a in range(self.shards + 1)]
        stratum = Stratum(0, np.array(edges, np.int64), 1, None, Stream(seed, "shard-rows"))
        return ShardMap(n, self.shards, (stratum,), turn % self.shards)


@dataclass(frozen=True)
class WeightedPlan(ShardPlan):
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
    def shards(self) -> int:  # type: ignore[override]
        """Number of shards A."""
        return len(self.weights)

    def _drawn(self, n: int, seed: int, turn: int) -> ShardMap:
        sizes = largest_remainder(n, self.weights)
        for shard, size in enumerate(sizes):
            if size == 0 or Fraction(size, n) < SMALLEST_SHARE:
                raise InvalidSetting(
                    f"weights[{shard}]",
                    self.weights[shard],
                    f"a share of at least one coordinate and 1/{1 / SMALLEST_SHARE} of n = {n}",
                )
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


PLANS: Mapping[str, type[_EqualPlan]] = {
    plan.kind: plan for plan in (RandomPlan, InterleavedPlan, ContiguousPlan)
}
"""Plans of equal shards, by the names that recipes have for them."""


def largest_remainder(n: int, weights: Sequence[float]) -> list[int]:
    """n split in proportion to ``weights``: floors, then one more to the largest remainders.

    Computed in exact fractions, ties to the lower index, so that all platforms agree.

    >>> largest_remainder(7, [1, 1, 1])
    [3, 2, 2]
    """
    for index, weight in enumerate(weights):
        require(0 < weight < float("inf"), f"weights[{index}]", weight, "a positive finite number")
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
        require(largest >= 1, "segment size", largest, "at least 1 coordinate")
        return min(largest, shard_size)
    sixteenth = max(SMALLEST_SEGMENT, -(-shard_size // 16))
    return min(shard_size, LARGEST_SEGMENT, sixteenth)
