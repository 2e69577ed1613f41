"""Plans and sizes to draw from, and what a shard map amounts to when it is listed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from eris.core.shardmap import ShardMap
from eris.core.shards import ContiguousPlan, InterleavedPlan, RandomPlan, ShardPlan, WeightedPlan

Indices = NDArray[np.int64]
EQUAL_PLANS = (RandomPlan, InterleavedPlan, ContiguousPlan)
MOST_SHARDS = 5_000
"""Listing every shard costs Python time for each; more shards have a test of their own."""

law = settings(max_examples=60, deadline=None, derandomize=True)


@st.composite
def sizes(draw: st.DrawFn, largest: int = 10**6) -> tuple[int, int]:
    """(n, A) with both spread evenly over their orders of magnitude."""
    n = round(math.exp(draw(st.floats(0, math.log(largest)))))
    shards = round(math.exp(draw(st.floats(0, math.log(min(n, MOST_SHARDS))))))
    return n, min(n, shards)


@st.composite
def plans(draw: st.DrawFn, largest: int = 100_000) -> tuple[ShardPlan, int]:
    """A plan of any kind and a model size it accepts."""
    n, shards = draw(sizes(largest))
    rotate = draw(st.integers(0, 3))
    kind = draw(st.sampled_from((*EQUAL_PLANS, WeightedPlan)))
    if kind is not WeightedPlan:
        return kind(shards, rotate), n
    shards = min(shards, 40)
    weights = tuple(draw(st.floats(0.5, 20)) for _ in range(shards))
    return WeightedPlan(weights, rotate), max(n, 50 * shards)


SEEDS = st.integers(0, 2**64 - 1)
ROUNDS = st.integers(0, 1000)


def coordinates(shard_map: ShardMap) -> list[Indices]:
    return [shard_map.coordinates(shard) for shard in range(shard_map.shards)]


def distinct(n: int) -> NDArray[np.float32]:
    """n different values: their bits count."""
    return np.arange(n, dtype=np.uint32).view(np.float32)


def same_bits(left: NDArray[np.float32], right: NDArray[np.float32]) -> bool:
    return np.array_equal(left.view(np.uint32), right.view(np.uint32))


def assert_partition(n: int, parts: Sequence[Indices]) -> None:
    everything = np.concatenate(parts)
    assert len(everything) == n
    assert np.bincount(everything, minlength=n).tolist() == [1] * n
