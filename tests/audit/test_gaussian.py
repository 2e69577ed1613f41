"""Histograms, the normality check and the two readings of the Gaussian constants."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from eris.audit.gaussian import (
    DRAWS,
    Capacity,
    WeightHistogram,
    _drawn,
    capacity,
    capacity_paper,
    guessed_information,
    information_bound,
)
from eris.core.errors import InvalidSetting, MissingExtra
from eris.core.streams import Stream
from eris.theory.leakage import (
    coalition_share,
    gaussian_capacity_from_snr,
    leakage_bound,
)

Array = NDArray[np.float64]


def weight_statistics(updates: Iterable[ArrayLike]) -> WeightHistogram:
    """The histogram of one vector a round."""
    histogram = WeightHistogram()
    for round, vector in enumerate(updates):
        histogram.add(round, vector)
    return histogram


def normal(count: int, seed: int = 1) -> Array:
    return Stream(seed, "test-gaussian").normal(0, count)


def laplace(count: int, seed: int = 1) -> Array:
    uniform = Stream(seed, "test-laplace").uniform(0, count) - 0.5
    return np.asarray(-np.sign(uniform) * np.log1p(-2 * np.abs(uniform)))


def gradient_like(count: int, seed: int = 1) -> Array:
    """Half exact zeros, the rest of scales that differ over decades, as layers' gradients do."""
    scales = 10.0 ** (-3 * Stream(seed, "test-scales").uniform(0, count))
    alive = Stream(seed, "test-alive").uniform(0, count) < 0.5
    return np.asarray(1e-3 * normal(count, seed) * scales * alive)


# Histograms and the check


def test_moments_are_those_of_all_coordinates() -> None:
    vector = (0.03 * laplace(150_000) + 0.01).astype(np.float32)  # more than two pieces
    found = WeightHistogram().add(4, vector)
    exact = vector.astype(np.float64)
    centred = (exact - exact.mean()) / exact.std()
    assert (found.round, found.count) == (4, 150_000)
    assert found.mean == pytest.approx(exact.mean(), rel=1e-12)
    assert found.deviation == pytest.approx(exact.std(), rel=1e-12)
    assert found.skewness == pytest.approx((centred**3).mean(), abs=1e-9)
    assert found.excess_kurtosis == pytest.approx((centred**4).mean() - 3, rel=1e-9)
    assert found.excess_kurtosis == pytest.approx(3, abs=0.3)


@pytest.mark.parametrize("size", [300, DRAWS, 12_000, 62_000])
def test_gaussians_pass_at_the_stated_level(size: int) -> None:
    vectors = (1e-3 * normal(size, seed) + 2e-3 for seed in range(60))
    histogram = weight_statistics(vectors)
    assert histogram.rejected <= 0.07


@pytest.mark.parametrize("size", [DRAWS + 1, 4 * DRAWS - 1, 4 * DRAWS, 500_000])
def test_no_coordinate_is_drawn_twice(size: int) -> None:
    """Repeats look like structure: the check would reject too often."""
    drawn = _drawn(0, np.arange(size, dtype=np.float32), seed=3)
    assert np.unique(drawn).size == drawn.size == DRAWS
    assert drawn.mean() == pytest.approx(size / 2, rel=0.03)


@pytest.mark.parametrize("draw", [laplace, gradient_like])
@pytest.mark.parametrize("scale", [1.0, 1e-90])
def test_heavy_tails_are_no_gaussians(draw: object, scale: float) -> None:
    assert callable(draw)
    histogram = weight_statistics([scale * draw(20_000, seed) for seed in range(5)])
    assert histogram.rejected == 1
    assert all(found.p_value < 1e-6 for found in histogram.statistics)
    assert all(
        found.distance > 0.04 and found.excess_kurtosis > 2 for found in histogram.statistics
    )


def test_a_gaussians_skewness_and_kurtosis_do_not_make_one() -> None:
    """Three points with a Gaussian's first five moments, which K² takes for one."""
    points = np.repeat(np.array([-1.0, 0, 0, 0, 0, 1]), 2000)
    found = WeightHistogram().add(0, points)
    assert found.p_value > 0.1
    assert found.excess_kurtosis == pytest.approx(0)
    assert not found.gaussian


def test_the_distance_is_that_of_kolmogorov() -> None:
    """Two spikes at ±1: the fitted normal has 16 % and 84 % there, the spikes 0, 50 and 100 %."""
    found = WeightHistogram().add(0, np.repeat([-1.0, 1.0], 500))
    assert found.distance == pytest.approx(0.8413 - 0.5, abs=1e-3)
    assert not found.gaussian


def test_a_vector_of_one_value_is_no_gaussian() -> None:
    for value in (0.0, 0.1):
        found = WeightHistogram().add(0, np.full(70_000, value, np.float32))
        assert (found.deviation, found.p_value, found.distance) == (0.0, 0.0, 0.5)
    lone = np.zeros(100_000)
    lone[17] = 1.0  # which no draw meets
    assert not WeightHistogram().add(0, lone).gaussian


def test_the_first_round_decides_the_bins_and_every_value_inside_is_counted() -> None:
    first: NDArray[Any] = 1e-3 * normal(100_000)
    wider: NDArray[Any] = normal(100_000).astype(np.float32)
    histogram = WeightHistogram()
    for round, vector in ((3, first), (9, wider)):
        histogram.add(round, vector)
    edges = histogram.edges
    assert edges[-1] == -edges[0] == pytest.approx(6e-3, rel=0.01)
    for row, vector in enumerate((first, wider)):
        inside = vector[np.abs(vector) <= edges[-1]].astype(np.float64)
        expected = np.bincount(np.digitize(inside, edges) - 1, minlength=120)
        assert histogram.counts[row].tolist() == expected.tolist()
    assert histogram.counts.sum(axis=1).tolist()[0] == 100_000
    assert histogram.counts.sum(axis=1).tolist()[1] < 1000
    assert [found.round for found in histogram.statistics] == [3, 9]
    assert weight_statistics([np.zeros(50)]).edges[-1] == 1.0


def test_the_same_seed_draws_the_same_coordinates() -> None:
    vector = normal(30_000)
    first, again = (WeightHistogram(seed=5).add(2, vector) for _ in range(2))
    other = WeightHistogram(seed=6).add(2, vector)
    assert first == again
    assert other.p_value != first.p_value
    assert other.deviation == first.deviation


def test_vectors_that_make_no_histogram_are_refused() -> None:
    histogram = WeightHistogram()
    with pytest.raises(InvalidSetting, match="at least one vector"):
        _ = histogram.edges
    with pytest.raises(InvalidSetting, match="at least one vector"):
        _ = histogram.rejected
    for bad in (np.zeros((4, 30)), np.zeros(19), np.zeros(30, np.int64), ["a"] * 30):
        with pytest.raises(InvalidSetting, match=r"vector of round 3 is .* at least 20"):
            histogram.add(3, bad)
    with pytest.raises(InvalidSetting, match="vector of round 8 is 'not finite'"):
        histogram.add(8, np.append(normal(30), np.nan))
    assert histogram.counts.shape == (0, 120)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(MissingExtra, match=r"eris-fl\[audit\]"):
        WeightHistogram().add(0, normal(100))


# Capacity


def channel(signal: Array, noise: float, seed: int = 7) -> Array:
    """What arrives: a client's part of the update and noise that it added."""
    return signal + noise * normal(signal.size, seed).reshape(signal.shape)


@pytest.mark.parametrize(("snr", "noise"), [(0.1, 0.2), (1.0, 3.0), (20.0, 1e-3)])
def test_capacity_is_the_mutual_information_of_a_gaussian_channel(snr: float, noise: float) -> None:
    data = noise * math.sqrt(snr) * normal(200_000).reshape(400, 500)
    seen = channel(data, noise)
    found = capacity(seen, noise=noise)
    # Independently of any formula for Gaussian entropies: the mean of ln p(x|d)/p(x) over draws.
    total = noise**2 * (1 + snr)
    given = -0.5 * ((seen - data) / noise) ** 2 - math.log(noise)
    measured = float((given + 0.5 * seen**2 / total + 0.5 * math.log(total)).mean())
    assert found.nats == pytest.approx(measured, abs=0.01)
    assert found.nats == pytest.approx(gaussian_capacity_from_snr(snr), abs=0.01)
    assert found.variance == pytest.approx(total, rel=0.02)
    assert found.conditional_variance == pytest.approx(noise**2)


def test_with_gaussian_noise_the_bound_needs_no_gaussian_data() -> None:
    """Data ±a in Gaussian noise tell less than the capacity says, and never more than ln 2."""
    for size in (0.5, 1.0, 3.0):
        data = size * np.where(Stream(2, "test-signs").uniform(0, 200_000) < 0.5, -1.0, 1.0)
        seen = channel(data, 1.0)
        both = np.logaddexp(-0.5 * (seen - size) ** 2, -0.5 * (seen + size) ** 2) - math.log(2)
        measured = float((-0.5 * (seen - data) ** 2 - both).mean())
        assert measured < min(math.log(2), capacity(seen.reshape(400, 500), noise=1.0).nats)


def test_without_noise_nothing_is_bounded() -> None:
    seen = normal(2000).reshape(20, 100)
    found = capacity(seen)
    assert found.nats == math.inf
    assert found.conditional_variance == 0
    assert information_bound([5, 5], [found, found]) == math.inf
    assert information_bound([0, 0], [found, found]) == 0
    assert capacity(np.ones((5, 30))).nats == 0, "equal updates tell nothing"


def test_the_mean_over_coordinates_counts() -> None:
    seen = channel(np.zeros((500, 40)), 1.0)
    seen[:, 11] += 3 * normal(500, 3)
    assert 0 < capacity(seen, noise=1.0).nats < 0.2
    assert capacity(0.5 * seen[:, :10], noise=1.0).nats == 0


def test_the_papers_reading_does_not_see_what_clients_give_away() -> None:
    """Clients whose weights are wholly their own, and clients who share theirs, look alike."""
    own = 0.1 * normal(50 * 2000).reshape(50, 2000)
    shared = np.repeat(own[:1], 50, axis=0) + 1e-6 * normal(50 * 2000, 2).reshape(50, 2000)
    told = [capacity(weights, noise=1e-3).nats for weights in (own, shared)]
    read = [capacity_paper(weights) for weights in (own, shared)]
    assert told[0] > 4
    assert told[1] == 0
    assert all(found.nats < 1e-3 for found in read)
    assert math.sqrt(read[0].conditional_variance) == pytest.approx(0.1, rel=0.02)
    # What it does see: clients whose mean weight differs.
    apart = own + 0.1 * normal(50, 3)[:, None]
    assert capacity_paper(apart).nats == pytest.approx(0.5 * math.log(2), abs=0.1)
    assert capacity_paper(np.ones((3, 4))).nats == 0


def test_updates_that_give_no_variance_are_refused() -> None:
    seen = normal(60).reshape(3, 20)
    for bad in (seen[:1], seen[0], np.zeros((3, 0))):
        with pytest.raises(InvalidSetting, match="shape of the updates"):
            capacity(bad)
        with pytest.raises(InvalidSetting, match="shape of the updates"):
            capacity_paper(bad)
    with pytest.raises(InvalidSetting, match="updates is 'not finite'"):
        capacity(np.where(seen == seen[1, 1], np.inf, seen))
    with pytest.raises(InvalidSetting, match="numbers in equal rows"):
        capacity([[1.0], [1.0, 2.0]])
    with pytest.raises(InvalidSetting, match="noise is -1"):
        capacity(seen, noise=-1)


# The bound


@pytest.mark.parametrize("aggregators", [1, 10, 50])
def test_the_bound_agrees_with_the_theorem(aggregators: int) -> None:
    coordinates, kept, rounds = 100_000, 0.05, 20
    measured = capacity(normal(3000).reshape(30, 100), noise=0.5)
    expected = leakage_bound(
        coordinates=coordinates,
        rounds=rounds,
        kept_fraction=kept,
        share=coalition_share(aggregators),
        capacity=measured.nats,
    )
    seen = round(coordinates * kept / aggregators)
    found = information_bound([seen] * rounds, [measured] * rounds)
    assert found == pytest.approx(expected.nats, rel=1e-12)


def test_rounds_have_their_own_counts_and_capacities() -> None:
    one = Capacity(2.0, 1.0, nats=0.5)
    two = dataclasses.replace(one, nats=0.25)
    never = dataclasses.replace(one, nats=math.inf)
    assert information_bound([10, 30], [one, one]) == 20
    assert information_bound([10, 30], [one, two]) == 12.5
    assert information_bound([10, 0, 30], [one, never, two]) == 12.5
    assert information_bound([], []) == 0


def test_an_attack_shows_no_more_than_the_bound() -> None:
    """One coin a client, sent in Gaussian noise and guessed by its sign."""
    coins = Stream(4, "test-coins").uniform(0, 40_000) < 0.5
    seen = channel(np.where(coins, 0.4, -0.4), 1.0)
    right = int(np.count_nonzero((seen > 0) == coins))
    bound = information_bound([coins.size], [capacity(seen[:, None], noise=1.0)])
    assert 0.5 * bound < guessed_information(right, coins.size) < bound
    assert bound < coins.size * math.log(2)


def test_information_of_guesses() -> None:
    assert guessed_information(10, 10) == pytest.approx(10 * math.log(2))
    assert (
        guessed_information(3, 10) == guessed_information(5, 10) == guessed_information(0, 0) == 0
    )
    assert guessed_information(6, 10) < guessed_information(7, 10)
    with pytest.raises(InvalidSetting, match="right is 11"):
        guessed_information(11, 10)
    with pytest.raises(InvalidSetting, match="guesses is -1"):
        guessed_information(0, -1)
