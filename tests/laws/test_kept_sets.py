"""Laws of kept sets: whoever asks, the same coordinates are kept, and as many as were asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from eris.core.compress import RandK, RandP
from eris.core.masks import KeptSet, exactly_kept, fraction_kept
from eris.core.shards import (
    ContiguousPlan,
    InterleavedPlan,
    RandomPlan,
    ShardPlan,
    WeightedPlan,
)
from eris.core.streams import Stream
from support.compressors import SIGMAS


def members(kept: KeptSet) -> NDArray[np.bool_]:
    """Kept or not, for every coordinate, read from the bits without the package's help."""
    bits = np.unpackbits(kept.bits.astype("<u8").view(np.uint8), bitorder="little")
    assert not bits[kept.n :].any(), "a coordinate beyond n is kept"
    return bits[: kept.n].astype(np.bool_)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(1, 3000),
    st.floats(1e-3, 1),
    st.integers(0, 2**64 - 1),
    st.lists(st.integers(0, 2999), max_size=60),
)
def test_a_coordinate_is_kept_or_not_whoever_asks(
    n: int, fraction: float, seed: int, some: list[int]
) -> None:
    stream = Stream(seed, "mask", 4)
    for kept in (
        fraction_kept(n, fraction, stream),
        exactly_kept(n, max(1, int(fraction * n)), stream),
    ):
        whole = members(kept)
        assert kept.count == whole.sum()
        asked = np.array([i for i in some if i < n], np.int64)
        positions = kept.among(asked)
        assert positions.tolist() == [j for j, i in enumerate(asked.tolist()) if whole[i]]
        assert np.array_equal(kept.among(np.arange(n)), np.flatnonzero(whole))


@pytest.mark.parametrize(
    "plan", [RandomPlan(7), RandomPlan(1), ContiguousPlan(3), WeightedPlan((1, 2, 3))]
)
def test_the_plan_does_not_change_the_kept_set(plan: ShardPlan) -> None:
    n = 5000
    kept, shard_map = RandP(0.1).kept(n, Stream(1, "mask")), plan.at(n)
    found = []
    for shard in range(shard_map.shards):
        inside = shard_map.coordinates(shard)
        found.append(inside[kept.among(inside)])
    assert np.array_equal(np.sort(np.concatenate(found)), np.flatnonzero(members(kept)))


@pytest.mark.parametrize("n", [8, 5000, 7 * 512, 64 * 512])
@pytest.mark.parametrize("fraction", [2.0**-32, 0.1, 1.0])
@pytest.mark.parametrize(
    "plan",
    [
        RandomPlan(7), RandomPlan(1), RandomPlan(8), InterleavedPlan(3, rotate=2),
        ContiguousPlan(3), ContiguousPlan(2, rotate=1), WeightedPlan((1, 2, 3)),
    ],
)  # fmt: skip
def test_shard_after_shard_keeps_what_its_coordinates_say(
    plan: ShardPlan, fraction: float, n: int
) -> None:
    kept, shard_map = RandP(fraction).kept(n, Stream(1, "mask")), plan.at(n, seed=3, round=5)
    inside = np.concatenate([shard_map.coordinates(shard) for shard in range(shard_map.shards)])
    places, coordinates = shard_map.kept(kept.bits)
    assert np.array_equal(places, np.flatnonzero(members(kept)[inside]))
    assert np.array_equal(coordinates, inside[places])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 2000), st.integers(1, 2000), st.floats(0.001, 1), st.integers(0, 99))
def test_a_longer_vector_keeps_the_same_beginning(
    n: int, more: int, fraction: float, round: int
) -> None:
    stream = Stream(6, "mask", round)
    short, long = RandP(fraction).kept(n, stream), RandP(fraction).kept(n + more, stream)
    assert np.array_equal(members(long)[:n], members(short))
    assert short.scale == long.scale


def test_a_kept_set_is_what_its_words_say() -> None:
    stream, n = Stream(8, "mask", 2), 10_000
    words = stream.words(0, n).astype(np.int64)
    for fraction in (0.3, 1 / 3, 0.5, 0.999):
        threshold = round(fraction * 2**32)
        kept = fraction_kept(n, fraction, stream)
        assert np.array_equal(members(kept), words < threshold)
        assert kept.scale == 2**32 / threshold
    # Exactly at the edge: the word below the threshold is kept, the word at it is not.
    edge = int(words[17])
    assert not members(fraction_kept(n, edge / 2**32, stream))[17]
    assert members(fraction_kept(n, (edge + 1) / 2**32, stream))[17]


def test_kept_sets_of_everything_and_of_almost_nothing() -> None:
    everything = RandP(1.0).kept(1000, Stream(1, "mask"))
    assert members(everything).all()
    assert (everything.count, everything.scale) == (1000, 1.0)
    nothing = RandP(2.0**-32).kept(1000, Stream(1, "mask"))
    assert (nothing.count, nothing.scale) == (0, 2.0**32)
    assert nothing.among(np.arange(1000)).tolist() == []
    almost = RandP(1 - 2.0**-53).kept(1000, Stream(1, "mask"))
    assert (almost.count, almost.scale) == (1000, 1.0)


def test_the_share_kept_is_the_share_asked_for() -> None:
    n = 1_000_000
    for fraction in (0.5, 0.033, 0.001):
        kept = RandP(fraction).kept(n, Stream(2, "mask"))
        assert abs(kept.count - fraction * n) < SIGMAS * math.sqrt(n * fraction * (1 - fraction))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 3000), st.floats(0, 1), st.integers(0, 2**64 - 1))
def test_exactly_k_are_kept_those_of_the_smallest_words(n: int, share: float, seed: int) -> None:
    count, stream = 1 + round(share * (n - 1)), Stream(seed, "mask", 1)
    kept = RandK(count).kept(n, stream)
    expected = np.zeros(n, np.bool_)
    expected[np.argsort(stream.words(0, n), kind="stable")[:count]] = True
    assert kept.count == count
    assert kept.scale == n / count
    assert np.array_equal(members(kept), expected)


def tied(words: NDArray[np.uint32], times: int) -> list[int]:
    """The words that occur so many times."""
    ordered = np.sort(words)
    same = ordered[times - 1 :] == ordered[: len(words) - times + 1]
    return [int(word) for word in np.unique(ordered[times - 1 :][same])]


def test_of_equal_words_the_lower_coordinate_is_kept() -> None:
    n, stream = 300_000, Stream(3, "mask")
    words = stream.words(0, n)
    ties = tied(words, 2)
    assert len(ties) >= 3, "no two words are equal; the test needs some"
    order = np.argsort(words, kind="stable")
    for word in ties:
        below = int((words < word).sum())
        for count in (below, below + 1, below + 2):
            expected = np.zeros(n, np.bool_)
            expected[order[:count]] = True
            kept = exactly_kept(n, count, stream)
            assert kept.count == count
            assert np.array_equal(members(kept), expected)


def test_of_three_equal_words_the_first_or_the_first_two_are_kept() -> None:
    n, stream = 6_000_000, Stream(8, "mask")
    words = stream.words(0, n)
    triples = tied(words, 3)
    assert triples, "no three words are equal; the test needs them"
    places = np.flatnonzero(words == triples[0])
    below = int((words < triples[0]).sum())
    for more in (1, 2, 3):
        kept = exactly_kept(n, below + more, stream)
        assert kept.count == below + more
        assert kept.among(places).tolist() == list(range(more))
