"""Guesses by thirds against plain loops, and what the pooled measure says when nothing leaks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

from eris.audit.one_run import bound
from eris.audit.statistics import client_thirds, clopper_pearson, pooled, thirds
from eris.core.errors import InvalidSetting


def slow_thirds(scores: Sequence[float]) -> list[int]:
    order = sorted(range(len(scores)), key=lambda i: (scores[i], i))
    third = len(scores) // 3
    guesses = [0] * len(scores)
    for rank, i in enumerate(order):
        guesses[i] = -1 if rank < third else 1 if rank >= len(scores) - third else 0
    return guesses


@pytest.mark.parametrize("canaries", [0, 1, 2, 3, 4, 5, 6, 20])
def test_thirds_are_those_of_plain_loops_ties_included(canaries: int) -> None:
    scores = np.random.default_rng(canaries).integers(0, 4, (3, 5, canaries)).astype(np.float64)
    found = thirds(scores)
    assert found.dtype == np.int8
    for row, guesses in zip(scores.reshape(15, -1), found.reshape(15, -1), strict=True):
        assert guesses.tolist() == slow_thirds(row.tolist())


def test_infinite_scores_have_their_place() -> None:
    assert thirds([np.inf, 0.0, -np.inf]).tolist() == [1, 0, -1]


def test_each_client_guesses_by_its_own_thirds() -> None:
    rng = np.random.default_rng(3)
    client = rng.permutation(np.repeat([9, 2, 40, 5, 6, -1], [1, 2, 3, 7, 7, 8]))
    scores = rng.integers(0, 5, (2, 4, len(client))).astype(np.float64)
    found = client_thirds(scores, client)
    for row, guesses in zip(scores.reshape(8, -1), found.reshape(8, -1), strict=True):
        for whose in np.unique(client):
            own = client == whose
            assert guesses[own].tolist() == slow_thirds(row[own].tolist())
    assert not found[..., (client == 9) | (client == 2)].any()


@pytest.mark.parametrize("right", [0, 1, 7, 12])
def test_intervals_are_those_of_scipy(right: int) -> None:
    expected = stats.binomtest(right, 12).proportion_ci(0.9, "exact")
    found = clopper_pearson(right, 12, 0.1)
    assert found == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_without_signal_the_pooled_interval_covers_one_half() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(1000):
        found = pooled(rng.random(120), rng.random(120) < 0.5)
        covered += found.low <= 0.5 <= found.high
    assert 930 <= covered < 1000


def test_without_signal_the_intervals_of_all_rounds_cover_one_half_together() -> None:
    rng = np.random.default_rng(2)
    together = single = 0
    for _ in range(200):
        scores, included = rng.random((20, 90)), rng.random(90) < 0.5
        widened = [pooled(row, included, looks=20) for row in scores]
        together += all(one.low <= 0.5 <= one.high for one in widened)
        alone = [pooled(row, included) for row in scores]
        single += all(one.low <= 0.5 <= one.high for one in alone)
    assert together >= 0.93 * 200
    assert single < 0.8 * 200


def test_perfect_scores_are_all_right_and_reach_the_ceiling() -> None:
    included = np.random.default_rng(4).random(300) < 0.5
    found = pooled(included.astype(np.float64), included)
    assert (found.accuracy, found.right, found.guesses) == (1.0, 200, 200)
    assert found.high == 1.0
    assert found.low > 0.98
    leaked = bound(found.canaries, found.guesses, found.right)
    assert leaked.epsilon == leaked.ceiling > 4
    assert pooled(-included.astype(np.float64), included).accuracy == 0.0


def test_rounds_are_judged_one_by_one() -> None:
    rng = np.random.default_rng(5)
    scores, included = rng.random((4, 31)), rng.random(31) < 0.5
    found = [pooled(row, included, looks=4) for row in scores]
    for row, one in zip(scores, found, strict=True):
        pairs = list(zip(slow_thirds(row.tolist()), included.tolist(), strict=True))
        assert one.guesses == sum(guess != 0 for guess, _ in pairs) == 20
        assert one.right == sum(guess == (1 if truth else -1) for guess, truth in pairs)
    assert json.loads(json.dumps(asdict(found[0]))) == asdict(found[0])


def test_scores_that_are_not_numbers_are_refused_by_place() -> None:
    scores = np.zeros((2, 9))
    scores[1, 4] = np.nan
    client, included = np.arange(9) // 3, np.arange(9) % 2 == 0
    for refused in (
        lambda: thirds(scores),
        lambda: client_thirds(scores, client),
        lambda: pooled(scores, included),
    ):
        with pytest.raises(InvalidSetting, match=r"scores\[1, 4\] is nan"):
            refused()


def test_arrays_that_do_not_fit_are_refused() -> None:
    included = np.ones(9, np.bool_)
    with pytest.raises(InvalidSetting, match="each of 9 canaries"):
        client_thirds(np.zeros(9), np.zeros(8, np.int64))
    with pytest.raises(InvalidSetting, match="client is 'float64"):
        client_thirds(np.zeros(9), np.zeros(9))
    with pytest.raises(InvalidSetting, match="each of 8 canaries"):
        pooled(np.zeros(8), included)
    with pytest.raises(InvalidSetting, match="included is 'int64"):
        pooled(np.zeros(9), included.astype(np.int64))
    with pytest.raises(InvalidSetting, match="scores is"):
        pooled(np.zeros((2, 9)), included)
    with pytest.raises(InvalidSetting, match="scores is"):
        thirds(1.0)
    with pytest.raises(InvalidSetting, match="canaries is 2; expected at least 3"):
        pooled(np.zeros(2), included[:2])
    with pytest.raises(InvalidSetting, match="confidence is"):
        pooled(np.zeros(9), included, confidence=1.0)
    with pytest.raises(InvalidSetting, match="looks is"):
        pooled(np.zeros(9), included, looks=0)
    with pytest.raises(InvalidSetting, match="guesses is 0"):
        clopper_pearson(0, 0)
    with pytest.raises(InvalidSetting, match="right is 4"):
        clopper_pearson(4, 3)
