"""Laws of shard maps: a vector survives being split at any size, and no map ever lists its
coordinates."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.core.errors import InvalidSetting
from eris.core.shards import ContiguousPlan, RandomPlan, ShardPlan, WeightedPlan, segment_length
from support.shards import SEEDS, coordinates, distinct, law, plans, same_bits

# Moving values.


@law
@given(plans(), SEEDS)
def test_a_vector_survives_being_split(plan: tuple[ShardPlan, int], seed: int) -> None:
    settings_, n = plan
    shard_map, vector = settings_.at(n, seed), distinct(n)
    shards = shard_map.split(vector)
    assert same_bits(vector, distinct(n)), "splitting changed the vector"
    for shard, inside in zip(shards, coordinates(shard_map), strict=True):
        assert shard.dtype == np.float32
        assert same_bits(shard, vector[inside])
    assert same_bits(shard_map.reassemble(shards), vector)
    assert same_bits(shard_map.reassemble([shard.copy() for shard in shards]), vector)
    into = np.zeros(n, np.float32)
    assert shard_map.reassemble(shards, into) is into
    assert same_bits(into, vector)


@law
@given(plans(20_000), SEEDS, st.data())
def test_any_piece_of_any_shard_agrees_with_the_split(
    plan: tuple[ShardPlan, int], seed: int, data: st.DataObject
) -> None:
    settings_, n = plan
    shard_map, vector = settings_.at(n, seed, round=5), distinct(n)
    shards = shard_map.split(vector)
    for _ in range(4):
        shard = data.draw(st.integers(0, shard_map.shards - 1))
        start = data.draw(st.integers(0, len(shards[shard])))
        stop = data.draw(st.integers(start, len(shards[shard])))
        piece = shards[shard][start:stop]
        inside = shard_map.coordinates(shard, start, stop)
        assert inside.dtype == np.int64
        assert np.array_equal(vector[inside].view(np.uint32), piece.view(np.uint32))
        assert same_bits(shard_map.gather(vector, shard, start, stop), piece)
        target = np.full(n, np.float32(-1))
        shard_map.scatter(target, piece, shard, start)
        expected = np.full(n, np.float32(-1))
        expected[inside] = piece
        assert same_bits(target, expected), "scatter touched another coordinate"


@law
@given(plans(20_000), SEEDS, st.data())
def test_a_route_is_its_pieces_one_behind_the_other(
    plan: tuple[ShardPlan, int], seed: int, data: st.DataObject
) -> None:
    settings_, n = plan
    shard_map = settings_.at(n, seed, round=4)
    ranges = []
    for _ in range(data.draw(st.integers(1, 6))):
        shard = data.draw(st.integers(0, shard_map.shards - 1))
        start = data.draw(st.integers(0, shard_map.size(shard)))
        ranges.append((shard, start, data.draw(st.integers(start, shard_map.size(shard)))))
    route = shard_map.route(ranges)
    inside = [shard_map.coordinates(*piece) for piece in ranges]
    assert route.lengths == tuple(map(len, inside))
    everywhere = np.concatenate(inside)
    for vector in (distinct(n), distinct(n)[::-1].copy()):  # a route serves many vectors
        pieces = route.gather(vector)
        assert same_bits(pieces, vector[everywhere])
        out = np.zeros(route.size, np.float32)
        assert route.gather(vector, out) is out
        assert same_bits(out, pieces)
        for piece, coordinates_ in zip(route.cut(pieces), inside, strict=True):
            assert same_bits(piece, vector[coordinates_])
        target, expected = np.full(n, np.float32(-1)), np.full(n, np.float32(-1))
        route.scatter(target, pieces)
        expected[everywhere] = pieces
        assert same_bits(target, expected)


@law
@given(plans(20_000), SEEDS, st.floats(0, 1))
def test_stripes_stream_to_the_same_result(
    plan: tuple[ShardPlan, int], seed: int, fraction: float
) -> None:
    settings_, n = plan
    shard_map, vector = settings_.at(n, seed, round=2), distinct(n)
    longest = max(shard_map.size(a) for a in range(shard_map.shards))
    step = max(1, -(-longest // 7), round(fraction * longest))
    whole, result = shard_map.split(vector), np.zeros(n, np.float32)
    for start in range(0, longest, step):
        stripe = shard_map.split(vector, start, start + step)
        for piece, shard in zip(stripe, whole, strict=True):
            assert same_bits(piece, shard[start : start + step])
        shard_map.reassemble(stripe, into=result, start=start)
    assert same_bits(result, vector)
    rest = shard_map.split(vector, start=longest // 2)
    assert [len(a) for a in rest] == [len(a[longest // 2 :]) for a in whole]


@pytest.mark.parametrize("plan", [RandomPlan(5), ContiguousPlan(5), WeightedPlan((1, 2, 3))])
def test_vectors_and_pieces_may_be_read_only(plan: ShardPlan) -> None:
    # As they come from a memory-mapped model or out of a decoded message.
    n = 3000
    vector = np.frombuffer(distinct(n).tobytes(), np.float32)
    shard_map = plan.at(n)
    shards = [np.frombuffer(shard.tobytes(), np.float32) for shard in shard_map.split(vector)]
    assert same_bits(shard_map.gather(vector, 1, 3, 90), shards[1][3:90])
    assert same_bits(shard_map.reassemble(shards), vector)
    result = np.zeros(n, np.float32)
    for number, shard in enumerate(shards):
        shard_map.scatter(result, shard, number)
    assert same_bits(result, vector)


def test_pieces_may_be_any_views_of_one_buffer() -> None:
    shard_map, vector = ContiguousPlan(2).at(4), np.arange(4, dtype=np.float32)
    buffer = np.array([5, 6, 7, 8], np.float32)
    assert shard_map.reassemble([buffer[:2], buffer[2:]]).tolist() == [5, 6, 7, 8]
    assert shard_map.reassemble([buffer[2:], buffer[:2]]).tolist() == [7, 8, 5, 6]
    assert shard_map.reassemble([buffer[::2], buffer[2:]]).tolist() == [5, 7, 7, 8]
    assert shard_map.reassemble([buffer[:2], vector[2:]]).tolist() == [5, 6, 2, 3]


def test_what_does_not_fit_the_map_is_refused() -> None:
    shard_map, vector = RandomPlan(3).at(10, seed=1), np.zeros(10, np.float32)
    with pytest.raises(InvalidSetting, match="shard is 3; expected a shard number from 0 to 2"):
        shard_map.coordinates(3)
    with pytest.raises(InvalidSetting, match="shard is -1"):
        shard_map.size(-1)
    with pytest.raises(InvalidSetting, match=r"vector is 'float32 array of shape \(9,\)'"):
        shard_map.split(vector[:9])
    with pytest.raises(InvalidSetting, match=r"vector is 'float64 array .* expected 10 float32"):
        shard_map.gather(vector.astype(np.float64), 0)
    for start, stop in ((2, 5), (-1, 2), (2, 1)):
        with pytest.raises(InvalidSetting, match=r"piece is \(.*in shard 0 \(0 to 3\)"):
            shard_map.coordinates(0, start, stop)
    with pytest.raises(InvalidSetting, match=r"piece is \(2, 4\).*in shard 0 \(0 to 3\)"):
        shard_map.scatter(vector, vector[:2], 0, 2)
    for piece in ((-1, None), (2, 1), (-2, -1)):
        with pytest.raises(InvalidSetting, match=r"piece is \(.*in shard 0 \(0 to 3\)"):
            shard_map.split(vector, *piece)
    route = shard_map.route([(0, 0, 2), (1, 1, 3)])
    with pytest.raises(InvalidSetting, match=r"pieces is \(5,\); expected \(4,\) coordinates"):
        route.scatter(vector, vector[:5])
    with pytest.raises(InvalidSetting, match=r"vector is 'float32 array of shape \(9,\)'"):
        route.scatter(vector[:9], vector[:4])
    with pytest.raises(InvalidSetting, match=r"vector is 'float32 array of shape \(9,\)'"):
        route.gather(vector[:9])


def test_pieces_that_do_not_make_a_vector_are_refused() -> None:
    shard_map = ContiguousPlan(2).at(4)
    with pytest.raises(InvalidSetting, match="shards is 1; expected 2 pieces"):
        shard_map.reassemble([np.zeros(4, np.float32)])
    uneven = [np.zeros(3, np.float32), np.zeros(1, np.float32)]
    with pytest.raises(InvalidSetting, match=r"piece is \(0, 3\)"):
        shard_map.reassemble(uneven)
    with pytest.raises(InvalidSetting, match=r"piece is \(1, 3\)"):
        shard_map.reassemble([np.zeros(2, np.float32)] * 2, start=1)
    short, result = [np.zeros(2, np.float32), np.zeros(1, np.float32)], np.full(4, np.float32(9))
    assert shard_map.reassemble(short, into=result).tolist() == [0, 0, 0, 9]


# Memory.


def test_a_map_of_a_large_model_lists_nothing() -> None:
    n = 1_300_000_000
    RandomPlan(8).at(10_000).coordinates(3, 5, 900)  # compiled before memory is counted
    tracemalloc.start()
    try:
        shard_map = RandomPlan(8).at(n, seed=1)
        inside = shard_map.coordinates(3, 100_000_000, 100_001_000)
        last = shard_map.coordinates(7, shard_map.size(7) - 10)
        weighted = WeightedPlan((1, 2, 3)).at(n, seed=1).coordinates(1, 10**8, 10**8 + 1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * 2**20
    assert sum(shard_map.size(shard) for shard in range(8)) == n
    assert (np.diff(inside) > 0).all()
    # The shard takes one coordinate of every group of 8.
    assert np.array_equal(inside // 8, np.arange(100_000_000, 100_001_000))
    assert n - 24 < last[-1] < n
    assert len(np.unique(weighted)) == 1000


# Segments.


@law
@given(st.integers(1, 2**33))
def test_segments_are_small_shares_of_large_shards(size: int) -> None:
    length = segment_length(size)
    assert 1 <= length <= min(size, 2**18)
    if size <= 2**14:
        assert length == size
    else:
        assert length >= 2**14
        assert length == 2**14 or length == 2**18 or -(-size // length) <= 16
    assert segment_length(size, 1000) == min(size, 1000)


def test_segments_of_nothing_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="segment size is 0; expected at least 1"):
        segment_length(10, 0)
