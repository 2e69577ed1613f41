"""Laws of shard plans: every plan is a partition into the sizes asked for, spread over the model,
that all nodes evaluate alike and that turns when it should."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eris.core.errors import InvalidSetting
from eris.core.shardmap import ShardMap
from eris.core.shards import (
    ContiguousPlan,
    InterleavedPlan,
    RandomPlan,
    ShardPlan,
    WeightedPlan,
    largest_remainder,
)
from eris.core.streams import Stream
from support.shards import (
    EQUAL_PLANS,
    ROUNDS,
    SEEDS,
    Indices,
    assert_partition,
    coordinates,
    distinct,
    law,
    plans,
    same_bits,
    sizes,
)

SCATTERING_PLANS = (RandomPlan, InterleavedPlan)


def owners(shard_map: ShardMap) -> Indices:
    """The shard of every coordinate."""
    owner = np.full(shard_map.n, -1, np.int64)
    for shard, inside in enumerate(coordinates(shard_map)):
        owner[inside] = shard
    return owner


# Partitions.


@law
@given(sizes(), SEEDS, ROUNDS, st.sampled_from(EQUAL_PLANS))
@example((1, 1), 0, 0, RandomPlan)
@example((10**6, 3), 1, 0, RandomPlan)
@example((10**6, 513), 1, 0, RandomPlan)
@example((5000, 5000), 1, 0, RandomPlan)
@example((5000, 4999), 1, 0, InterleavedPlan)
@example((512 * 7, 7), 1, 0, RandomPlan)
def test_equal_plans_are_partitions_into_sizes_that_differ_by_at_most_one(
    size: tuple[int, int],
    seed: int,
    round: int,
    kind: type[RandomPlan | InterleavedPlan | ContiguousPlan],
) -> None:
    n, shards = size
    shard_map = kind(shards, rotate=2).at(n, seed, round)
    parts = coordinates(shard_map)
    assert_partition(n, parts)
    assert [len(part) for part in parts] == [shard_map.size(a) for a in range(shards)]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("kind", EQUAL_PLANS)
@pytest.mark.parametrize(("n", "shards"), [(100_000, 100_000), (10**6, 70_001)])
def test_a_great_many_shards_are_a_partition(
    kind: type[RandomPlan | InterleavedPlan | ContiguousPlan], n: int, shards: int
) -> None:
    pieces = kind(shards).at(n, seed=3).split(distinct(n))
    assert {len(piece) for piece in pieces} == {n // shards, -(-n // shards)}
    assert_partition(n, [piece.view(np.uint32).astype(np.int64) for piece in pieces])


@pytest.mark.parametrize("kind", EQUAL_PLANS)
def test_one_coordinate_a_shard_at_a_million(
    kind: type[RandomPlan | InterleavedPlan | ContiguousPlan],
) -> None:
    n = 10**6
    shard_map = kind(n).at(n)
    some = [int(shard_map.coordinates(shard)[0]) for shard in range(0, n, 1009)]
    assert len(set(some)) == len(some)
    assert 0 <= min(some) <= max(some) < n


@law
@given(plans(), SEEDS, ROUNDS)
def test_every_plan_is_a_partition(plan: tuple[ShardPlan, int], seed: int, round: int) -> None:
    settings_, n = plan
    shard_map = settings_.at(n, seed, round)
    assert (shard_map.n, shard_map.shards) == (n, settings_.shards)
    assert_partition(n, coordinates(shard_map))


@pytest.mark.parametrize("kind", EQUAL_PLANS)
def test_more_shards_than_coordinates_are_refused(
    kind: type[RandomPlan | InterleavedPlan | ContiguousPlan],
) -> None:
    with pytest.raises(InvalidSetting, match=r"shards is 11; expected 1 to n = 10"):
        kind(11).at(10)
    with pytest.raises(InvalidSetting, match=r"shards is 0; expected 1 to n = 10"):
        kind(0).at(10)
    with pytest.raises(InvalidSetting, match=r"n is 0; expected at least 1"):
        kind(1).at(0)
    with pytest.raises(InvalidSetting, match=r"rotate is -1; expected 0 \(never\) or"):
        kind(1, rotate=-1).at(10)
    with pytest.raises(InvalidSetting, match=r"shards is 3; expected 1 to n = 2"):
        WeightedPlan((1, 1, 1)).at(2)


# Weights.


@law
@given(
    st.integers(1, 10**6),
    st.lists(st.one_of(st.floats(1e-3, 1e3), st.integers(1, 9)), min_size=1, max_size=12),
)
@example(10, [1, 2, 1])
@example(7, [1, 1, 1])
@example(10, [0.1] * 3)
def test_weighted_sizes_are_the_largest_remainder(n: int, weights: list[float]) -> None:
    # Hamilton's method in exact arithmetic, restated as what it must satisfy.
    found = largest_remainder(n, weights)
    total = sum(map(Fraction, weights))
    quotas = [n * Fraction(weight) / total for weight in weights]
    assert sum(found) == n
    extra = [size - math.floor(quota) for size, quota in zip(found, quotas, strict=True)]
    assert set(extra) <= {0, 1}
    rank = [(-(quota - math.floor(quota)), a) for a, quota in enumerate(quotas)]
    raised = sorted(rank)[: sum(extra)]
    assert sorted(a for _, a in raised) == [a for a, more in enumerate(extra) if more]


@law
@given(st.lists(st.floats(0.2, 5), min_size=1, max_size=12), st.integers(500, 50_000), SEEDS)
def test_a_weighted_plan_has_exactly_those_sizes(weights: list[float], n: int, seed: int) -> None:
    shard_map = WeightedPlan(tuple(weights)).at(n, seed)
    expected = largest_remainder(n, weights)
    assert [shard_map.size(a) for a in range(len(weights))] == expected
    assert [len(part) for part in coordinates(shard_map)] == expected


def test_weighted_shards_are_spread_over_the_whole_model() -> None:
    n, weights = 200_000, (1.0, 2.0, 5.0)
    owner = owners(WeightedPlan(weights).at(n, seed=4))
    for shard, weight in enumerate(weights):
        share = (owner == shard).reshape(100, -1).mean(axis=1)
        # 2000 coordinates each, a little less spread than independent draws would be.
        spread = math.sqrt(weight / 8 * (1 - weight / 8) / 2000)
        assert np.abs(share - weight / 8).max() < 5 * spread


@pytest.mark.parametrize(
    "weights",
    [(9999, 1, 10_000), (3000.7, 1, 1, 1.3, 2000.1, 1, 5000), (1, 20_000, 1), (5, 1, 5, 1, 40_000)],
)
def test_small_shards_between_large_ones(weights: tuple[float, ...]) -> None:
    for n in (65_536, 99_991, 200_003):
        shard_map, vector = WeightedPlan(weights).at(n, seed=2), distinct(n)
        assert_partition(n, coordinates(shard_map))
        assert same_bits(shard_map.reassemble(shard_map.split(vector)), vector)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("index", [0, 2])
def test_weights_that_mean_nothing_are_refused_by_index(bad: float, index: int) -> None:
    weights = [1.0, 2.0, 3.0]
    weights[index] = bad
    refusal = rf"weights\[{index}\] is {bad}; expected a positive finite number"
    with pytest.raises(InvalidSetting, match=refusal):
        WeightedPlan(tuple(weights)).at(100)
    with pytest.raises(InvalidSetting, match=refusal):
        largest_remainder(100, weights)


def test_weights_too_small_for_a_shard_are_refused_by_index() -> None:
    with pytest.raises(InvalidSetting, match=r"weights\[1\] is 0.001; .* of n = 100"):
        WeightedPlan((1.0, 0.001)).at(100)
    with pytest.raises(InvalidSetting, match=r"weights\[0\] is 1; .*1/65536 of n = 10000000"):
        WeightedPlan((1, 100_000)).at(10**7)
    share = WeightedPlan((1, 65_535)).at(65_536 * 4)
    assert share.size(0) == 4
    assert_partition(65_536 * 4, coordinates(share))


# Which coordinates meet which shard.


@law
@given(sizes(), SEEDS, ROUNDS, st.sampled_from(SCATTERING_PLANS))
def test_any_neighbourhood_meets_every_shard(
    size: tuple[int, int], seed: int, round: int, kind: type[RandomPlan | InterleavedPlan]
) -> None:
    n, shards = size
    window = 2 * shards - 1
    if n < window:
        return
    for inside in coordinates(kind(shards, rotate=1).at(n, seed, round)):
        # A shard is met everywhere if the gaps it leaves are shorter than the window.
        gaps = np.diff(np.concatenate(([-1], np.sort(inside), [n]))) - 1
        assert gaps.max() < window


def test_contiguous_shards_are_blocks() -> None:
    shard_map = ContiguousPlan(3).at(10)
    assert [part.tolist() for part in coordinates(shard_map)] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7, 8, 9],
    ]


@law
@given(sizes(20_000), SEEDS)
def test_interleaved_means_modulo(size: tuple[int, int], seed: int) -> None:
    n, shards = size
    owner = owners(InterleavedPlan(shards).at(n, seed))
    assert np.array_equal(owner, np.arange(n) % shards)


def test_random_plans_are_random() -> None:
    n, shards = 100_000, 8
    owner = owners(RandomPlan(shards).at(n, seed=5))
    for distance, expected in (
        (1, 1 / 64),  # a group never holds a shard twice: 1/A, where a group ends between them
        (7, 7 / 64),
        (8, 1 / 8),
        (100, 1 / 8),
        (512, 1 / 16 + 15 / 16 / 8),  # a block has the table of the next one once in 16
    ):
        assert (owner[:-distance] == owner[distance:]).mean() == pytest.approx(expected, abs=0.04)
    # Every place in a group goes to every shard about equally often.
    table = np.zeros((shards, shards), np.int64)
    np.add.at(table, (np.arange(n) % shards, owner), 1)
    # One thousand orders are drawn, each used about 12 times.
    assert np.abs(table / (n / shards**2) - 1).max() < 5 * math.sqrt((shards - 1) / 1000)


# The same map everywhere.


def oracle(n: int, shards: int, seed: int, turn: int = 0) -> list[int]:
    """The random plan in words: groups of A, each in a drawn order; 512 or so coordinates make a
    block, which draws one of a few tables of orders; the tail uses the first table's orders and,
    for its last unfinished group, an order of its own."""
    groups = max(1, 512 // shards)
    tables = max(1, 8192 // (groups * shards))
    orders = Stream(seed, "shard-orders", turn).permutations(tables * groups + 1, shards).tolist()
    blocks = n // (groups * shards)
    chosen = Stream(seed, "shard-rows", turn).words(0, blocks).tolist()
    owner = []
    for i in range(n):
        block, group, place = i // (groups * shards), i // shards % groups, i % shards
        order = orders[(chosen[block] % tables if block < blocks else 0) * groups + group]
        if i >= n - n % shards:
            order = orders[-1]
        owner.append(order.index(place))
    return owner


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.integers(1, 2500), st.integers(1, 700), SEEDS, st.integers(0, 9))
@example(2500, 1, 0, 0)
@example(2048, 8, 1, 0)
@example(1700, 600, 1, 0)
def test_the_random_plan_is_what_its_description_says(
    n: int, shards: int, seed: int, round: int
) -> None:
    shards = min(n, shards)
    shard_map = RandomPlan(shards, rotate=3).at(n, seed, round)
    expected = oracle(n, shards, seed, round // 3)
    assert owners(shard_map).tolist() == expected
    # Inside a shard, coordinates keep their order.
    assert all((np.diff(part) > 0).all() for part in coordinates(shard_map))


def test_maps_are_pinned() -> None:
    # Recorded once; a change here changes which aggregator sees what in every deployment.
    assert owners(RandomPlan(3).at(20, seed=1)).tolist() == GOLDEN_RANDOM
    weighted = WeightedPlan((1, 2, 3)).at(20, seed=1)
    assert [part.tolist() for part in coordinates(weighted)] == GOLDEN_WEIGHTED
    large = RandomPlan(7, rotate=2).at(10**6, seed=9, round=5)
    assert large.coordinates(4, 70_000, 70_006).tolist() == GOLDEN_LARGE
    large = WeightedPlan((1.5, 2, 0.7)).at(10**6, seed=9)
    assert large.coordinates(2, 70_000, 70_006).tolist() == GOLDEN_WEIGHTED_LARGE


GOLDEN_RANDOM = [1, 2, 0, 1, 0, 2, 0, 2, 1, 2, 0, 1, 0, 2, 1, 1, 2, 0, 2, 1]
GOLDEN_WEIGHTED = [[15, 2, 17], [8, 0, 3, 11, 5, 1, 4], [13, 6, 10, 14, 7, 12, 9, 18, 16, 19]]
GOLDEN_LARGE = [490004, 490010, 490020, 490022, 490033, 490038]
GOLDEN_WEIGHTED_LARGE = [420349, 419915, 420147, 420113, 420365, 420064]


@law
@given(plans(5000), SEEDS, st.integers(0, 30))
def test_equal_settings_give_equal_maps(plan: tuple[ShardPlan, int], seed: int, round: int) -> None:
    settings_, n = plan
    first, again = settings_.at(n, seed, round), settings_.at(n, seed, round)
    for left, right in zip(coordinates(first), coordinates(again), strict=True):
        assert np.array_equal(left, right)


@pytest.mark.parametrize("plan", [RandomPlan(4), WeightedPlan((1, 2, 1))])
def test_another_seed_gives_another_map(plan: ShardPlan) -> None:
    first, second = owners(plan.at(3000, seed=1)), owners(plan.at(3000, seed=2))
    assert 0.4 < (first != second).mean() < 0.9


# Rotation.


@pytest.mark.parametrize("kind", [*EQUAL_PLANS, WeightedPlan])
def test_a_map_holds_for_so_many_rounds_and_then_changes(kind: type[ShardPlan]) -> None:
    def owner(rotate: int, round: int) -> Indices:
        plan: ShardPlan
        if kind is WeightedPlan:
            plan = WeightedPlan((1, 2, 1, 1), rotate)
        else:
            plan = next(k for k in EQUAL_PLANS if k is kind)(4, rotate)
        shard_map = plan.at(2000, 7, round)
        assert_partition(2000, coordinates(shard_map))
        return owners(shard_map)

    static = owner(0, 0)
    assert np.array_equal(static, owner(0, 999))
    assert np.array_equal(static, owner(3, 0)), "the first turn is the map without rotation"
    turns = [[owner(3, 3 * turn + r) for r in range(3)] for turn in range(4)]
    for turn in turns:
        assert np.array_equal(turn[0], turn[1])
        assert np.array_equal(turn[0], turn[2])
    for before, after in pairwise(turns):
        assert (before[0] != after[0]).mean() > 0.4


@pytest.mark.parametrize("kind", [InterleavedPlan, ContiguousPlan])
def test_turning_labels_visits_every_shard(kind: type[InterleavedPlan | ContiguousPlan]) -> None:
    shards = 6
    turns = np.stack([owners(kind(shards, rotate=2).at(103, round=2 * t)) for t in range(shards)])
    for turn, owner in enumerate(turns):
        assert np.array_equal(owner, (turns[0] - turn) % shards)
    assert np.array_equal(np.sort(turns, axis=0), np.tile(np.arange(shards)[:, None], 103))
    assert np.array_equal(owners(kind(shards, rotate=2).at(103, round=2 * shards)), turns[0])
