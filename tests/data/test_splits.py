"""Hold-out and canaries: nothing lost, nothing doubled, and coins that are fair and independent."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.core.errors import InvalidSetting
from eris.data.partition import Partition, iid
from eris.data.splits import canaries, holdout, samples_to_deal

SEEDS = st.integers(0, 2**64 - 1)
SHARES = st.integers(0, 99).map(lambda percent: percent / 100)
SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=6)


def parts_of(sizes: list[int]) -> Partition:
    return np.split(np.arange(100, 100 + sum(sizes)), np.cumsum(sizes)[:-1])


@settings(derandomize=True)
@given(SIZES, SHARES, SEEDS)
def test_each_client_holds_out_its_share(sizes: list[int], share: float, seed: int) -> None:
    partition = parts_of(sizes)
    split = holdout(partition, share, seed)
    for part, train, held in zip(partition, split.train, split.held_out, strict=True):
        assert len(held) == round(share * 100) * len(part) // 100
        assert len(train) >= 1
        assert sorted([*train, *held]) == part.tolist()


@settings(derandomize=True)
@given(SIZES, SHARES, SEEDS)
def test_every_sample_is_trained_on_unless_it_is_a_canary_that_is_out(
    sizes: list[int], share: float, seed: int
) -> None:
    partition = parts_of(sizes)
    split = canaries(partition, share, seed)
    for client, part in enumerate(partition):
        chosen = split.canaries[client]
        assert len(chosen) == len(split.included[client]) == round(share * 100) * len(part) // 100
        inside, outside = split.inside(client), split.outside(client)
        assert sorted([*inside, *outside]) == chosen.tolist()
        assert set(chosen) <= set(part)
        assert split.train[client].tolist() == [i for i in part if i not in outside]
        assert len(split.train[client]) >= 1


def test_a_client_s_canaries_do_not_depend_on_the_other_clients() -> None:
    one = canaries([np.arange(20), np.arange(20, 30)], 0.5, seed=4)
    other = canaries([np.arange(6), np.arange(20, 30)], 0.5, seed=4)
    assert np.array_equal(one.canaries[1], other.canaries[1])
    assert np.array_equal(one.included[1], other.included[1])


def coins(
    draws: int, clients: int = 2, samples: int = 12
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Whether each canary is in, for many seeds: (seed, client × canary)."""
    partition = iid(clients * samples, clients, None, seed=0)
    return np.array([np.concatenate(canaries(partition, 0.5, s).included) for s in range(draws)])


def test_the_coins_are_fair_and_independent_of_each_other() -> None:
    draws = 4000
    tossed = coins(draws)
    # Each on its own: Binomial(4000, 1/2), five standard deviations.
    assert np.abs(tossed.sum(axis=0) - draws / 2).max() < 5 * math.sqrt(draws / 4)
    # In pairs, within a client and between clients: correlations of a few 1/√draws.
    correlations = np.corrcoef(tossed.T) - np.eye(tossed.shape[1])
    assert np.abs(correlations).max() < 5 / math.sqrt(draws)
    # All together: the number that are in is Binomial(12, 1/2), and not always half of them.
    inside = tossed.sum(axis=1)
    expected = np.array([draws * math.comb(12, k) / 2**12 for k in range(13)])
    seen = np.bincount(inside, minlength=13)
    common = expected > 20
    chi_squared = ((seen - expected)[common] ** 2 / expected[common]).sum()
    assert chi_squared < 35  # 9 classes: exceeded less than once in 10,000 times


def test_every_sample_is_as_likely_a_canary_as_any_other_and_its_coin_knows_nothing_of_it() -> None:
    draws = 4000
    chosen, inside = np.zeros(8), np.zeros(8)
    for seed in range(draws):
        split = canaries([np.arange(8)], 0.5, seed)
        chosen[split.canaries[0]] += 1
        inside[split.inside(0)] += 1
    assert np.abs(chosen - draws / 2).max() < 5 * math.sqrt(draws / 4)
    assert np.abs(inside - draws / 4).max() < 5 * math.sqrt(draws * 3 / 16)


def test_every_sample_is_as_likely_held_out_as_any_other() -> None:
    draws = 4000
    held = np.zeros(10)
    for seed in range(draws):
        held[holdout([np.arange(10)], 0.3, seed).held_out[0]] += 1
    assert np.abs(held - 0.3 * draws).max() < 5 * math.sqrt(draws * 0.3 * 0.7)


@settings(derandomize=True)
@given(st.integers(1, 200), SHARES, SHARES)
def test_samples_to_deal_is_the_least_that_trains_on_enough(
    trained: int, held_out: float, canary_share: float
) -> None:
    def mean_trained(dealt: int) -> float:
        split = holdout([np.arange(dealt)], held_out, 0)
        chosen = canaries(split.train, canary_share, 0).canaries[0]
        return len(split.train[0]) - len(chosen) / 2

    dealt = samples_to_deal(trained, held_out=held_out, canary_share=canary_share)
    assert mean_trained(dealt) >= trained
    assert dealt == trained or mean_trained(dealt - 1) < trained


def test_the_splits_are_the_same_on_every_machine() -> None:
    # Recorded once; a change here changes every published number that names a seed.
    partition = [np.arange(8), np.arange(8, 18)]
    split = canaries(partition, 0.5, seed=7)
    assert [c.tolist() for c in split.canaries] == [[0, 1, 5, 6], [10, 12, 14, 15, 16]]
    assert [c.tolist() for c in split.included] == [
        [False, True, False, True],
        [False, True, True, False, False],
    ]
    assert [c.tolist() for c in holdout(partition, 0.3, seed=7).held_out] == [[0, 1], [11, 15, 16]]


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5, math.nan])
def test_a_share_that_leaves_nothing_is_refused(share: float) -> None:
    for split in (holdout, canaries):
        with pytest.raises(InvalidSetting, match=r"share is .*; expected a number in \[0, 1\)"):
            split([np.arange(4)], share, 0)


def test_an_empty_client_is_named() -> None:
    for split in (holdout, canaries):
        with pytest.raises(InvalidSetting, match="samples of client 1 is 0; expected at least 1"):
            split([np.arange(4), np.arange(0)], 0.5, 0)
    with pytest.raises(InvalidSetting, match="trained is 0; expected at least 1"):
        samples_to_deal(0)
