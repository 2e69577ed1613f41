"""Clipping, noise, and the accountant against reference values, sampling and exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eris.core.errors import InvalidSetting
from eris.core.noise import PrivacyClaim, clip, epsilon, gaussian, secret_seed, sigma_for
from eris.core.streams import Stream
from eris.core.vectors import Vector

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
VECTORS = arrays(np.float32, st.integers(0, 40), elements=FINITE)
BOUNDS = st.floats(1e-44, 1e30)


def exact_norm(vector: Vector) -> float:
    # The square of a float32 is exact in float64, and fsum rounds once.
    return math.sqrt(math.fsum(float(value) ** 2 for value in vector))


def within(vector: Vector, bound: float) -> bool:
    """Whether the norm is at most the bound, in rational numbers."""
    return sum(Fraction(float(value)) ** 2 for value in vector) <= Fraction(bound) ** 2


def gaussian_claim(sigma: float, rounds: int = 1, sensitivity: float = 1.0) -> PrivacyClaim:
    return PrivacyClaim("gaussian", sensitivity, sigma, rounds)


# Clipping


@settings(derandomize=True)
@given(VECTORS, BOUNDS)
def test_a_clipped_vector_is_never_longer_than_the_bound(vector: Vector, bound: float) -> None:
    clipped, norm = clip(vector, bound)
    assert clipped.dtype == np.float32
    # A vector that was not scaled is as long as float64 measured it, to its last place.
    assert within(clipped, bound if norm > bound else bound * (1 + 1e-15))
    assert norm == pytest.approx(exact_norm(vector), rel=1e-14)


@settings(derandomize=True)
@given(VECTORS, BOUNDS)
def test_clipping_again_changes_nothing(vector: Vector, bound: float) -> None:
    once, _ = clip(vector, bound)
    twice, norm = clip(once, bound)
    assert norm <= bound
    assert once.tobytes() == twice.tobytes()


@settings(derandomize=True)
@given(VECTORS, st.floats(1 + 1e-12, 1e6))
def test_a_vector_within_the_bound_keeps_its_bits(vector: Vector, room: float) -> None:
    before = vector.tobytes()
    clipped, norm = clip(vector, max(exact_norm(vector) * room, 1e-300))
    assert clipped.tobytes() == before == vector.tobytes()
    assert clipped is not vector
    assert norm == pytest.approx(exact_norm(vector), rel=1e-14)


@settings(derandomize=True)
@given(VECTORS, BOUNDS)
def test_clipping_keeps_the_direction(vector: Vector, bound: float) -> None:
    clipped, norm = clip(vector, bound)
    scale = min(1.0, bound / norm) if norm else 1.0
    wanted = vector.astype(np.float64) * scale
    assert (np.abs(clipped) <= np.abs(wanted) * (1 + 1e-15)).all()
    # One float32 step towards zero at most, as far down as float32 goes.
    assert (np.abs(clipped - wanted) <= np.maximum(np.abs(wanted) * 2.0**-23, 2.0**-149)).all()


def test_the_bound_is_nearly_reached_by_long_vectors() -> None:
    vector = Stream(3, "test").normal(0, 200_000).astype(np.float32)  # more than one piece
    clipped, norm = clip(vector, 1.0)
    assert norm == pytest.approx(exact_norm(vector), rel=1e-14)
    assert 1 - 1e-7 < exact_norm(clipped) <= 1


def test_vectors_that_rounding_to_nearest_would_leave_too_long() -> None:
    # 0.1f > 0.1, so scaling (1, 0) to 0.1 in float32 would exceed it.
    assert float(np.float32(0.1)) > 0.1
    assert clip(np.array([1, 0], np.float32), 0.1)[0][0] == np.nextafter(np.float32(0.1), 0)
    # The float64 next to √3 is below it, so (1, 1, 1) would be longer than that.
    twos = np.full(3, 2, np.float32)
    assert not within(np.ones(3, np.float32), math.sqrt(3))
    assert within(clip(twos, math.sqrt(3))[0], math.sqrt(3))


def test_a_vector_as_long_as_the_bound_stays() -> None:
    assert clip(np.array([3, 4], np.float32), 5.0)[0].tolist() == [3, 4]


def test_the_largest_vectors_do_not_overflow() -> None:
    largest = np.full(1000, np.finfo(np.float32).max)
    clipped, norm = clip(largest, 1.0)
    assert norm == pytest.approx(float(largest[0]) * math.sqrt(1000))
    assert exact_norm(clipped) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_vectors_that_are_not_finite_are_refused(bad: float) -> None:
    vector = np.array([1, bad, 2], np.float32)
    with pytest.raises(InvalidSetting, match="finite coordinates only"):
        clip(vector, 1.0)
    with pytest.raises(InvalidSetting, match="vector plus noise is 'not finite'"):
        gaussian(vector, 1.0, Stream(1, "noise"))


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, math.nan])
def test_a_bound_that_bounds_nothing_is_refused(bound: float) -> None:
    with pytest.raises(InvalidSetting, match="bound is"):
        clip(np.ones(2, np.float32), bound)


@pytest.mark.parametrize("vector", [np.ones(3), np.ones((2, 2), np.float32)])
def test_only_flat_float32_vectors_are_taken(vector: Any) -> None:
    with pytest.raises(InvalidSetting, match="a flat float32 vector"):
        clip(vector, 1.0)
    with pytest.raises(InvalidSetting, match="a flat float32 vector"):
        gaussian(vector, 1.0, Stream(1, "noise"))


# Noise


def test_the_noise_is_that_of_the_stream_added_in_float64() -> None:
    stream = Stream(5, "noise", round=2, client=9)
    vector = Stream(6, "test").normal(0, 150_000).astype(np.float32)  # more than one piece
    before = vector.copy()
    noisy = gaussian(vector, 0.3, stream)
    expected = (vector.astype(np.float64) + 0.3 * stream.normal(0, len(vector))).astype(np.float32)
    assert noisy.tobytes() == expected.tobytes()
    assert noisy.tobytes() == gaussian(vector, 0.3, stream).tobytes()
    assert np.array_equal(vector, before)


@pytest.mark.parametrize("change", [{"seed": 6}, {"purpose": "x"}, {"round": 1}, {"client": 1}])
def test_another_stream_gives_other_noise(change: dict[str, Any]) -> None:
    zero = np.zeros(100, np.float32)
    name: dict[str, Any] = {"seed": 5, "purpose": "noise"}
    one, other = gaussian(zero, 1.0, Stream(**name)), gaussian(zero, 1.0, Stream(**name | change))
    assert not (one == other).any()


def test_the_noise_has_the_distribution_it_claims() -> None:
    count, sigma, offset = 200_000, 2.5, np.float32(7)
    noise = gaussian(np.full(count, offset), sigma, Stream(11, "noise")).astype(np.float64) - 7
    # Five standard errors each; the fourth moment of a standard normal has variance 96.
    scaled = noise / sigma
    assert abs(scaled.mean()) < 5 / math.sqrt(count)
    assert abs((scaled**2).mean() - 1) < 5 * math.sqrt(2 / count)
    assert abs((scaled**4).mean() - 3) < 5 * math.sqrt(96 / count)
    # Kolmogorov and Smirnov: P(√n·D > 2.2) ≈ 2·exp(−2·2.2²) ≈ 1e-4.
    expected = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in np.sort(scaled)])
    steps = np.arange(count + 1) / count
    distance = max((steps[1:] - expected).max(), (expected - steps[:-1]).max())
    assert math.sqrt(count) * distance < 2.2


def test_noise_on_neighbouring_coordinates_is_uncorrelated() -> None:
    count = 200_000
    noise = gaussian(np.zeros(count, np.float32), 1.0, Stream(12, "noise")).astype(np.float64)
    for lag in (1, 2, 64, 256):
        assert abs((noise[:-lag] * noise[lag:]).mean()) < 5 / math.sqrt(count)


def test_without_noise_and_without_coordinates() -> None:
    vector = np.arange(4, dtype=np.float32)
    assert np.array_equal(gaussian(vector, 0.0, Stream(1, "noise")), vector)
    assert gaussian(vector[:0], 1.0, Stream(1, "noise")).shape == (0,)
    assert clip(vector[:0], 1.0)[1] == 0


@pytest.mark.parametrize("sigma", [-1.0, math.inf, math.nan])
def test_sigma_must_be_a_number(sigma: float) -> None:
    with pytest.raises(InvalidSetting, match="sigma is"):
        gaussian(np.ones(2, np.float32), sigma, Stream(1, "noise"))
    with pytest.raises(InvalidSetting, match="sigma is"):
        gaussian_claim(sigma)


def test_noise_that_float32_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="values that float32 can hold"):
        gaussian(np.zeros(100, np.float32), 1e39, Stream(1, "noise"))


def test_secret_seeds_are_seeds_and_differ() -> None:
    seeds = {secret_seed() for _ in range(100)}
    assert len(seeds) == 100
    assert all(Stream(seed, "noise").seed < 2**64 for seed in seeds)


# The accountant


def test_epsilon_agrees_with_the_privacy_loss_distribution() -> None:
    # dp-accounting, σ = 10, T = 100, δ = 1e-5: PLD 4.377178 (a discretised upper bound), RDP
    # 4.728507 (a looser one).
    exact = epsilon(gaussian_claim(sigma=10, rounds=100), delta=1e-5)
    assert exact == pytest.approx(4.377178, abs=1e-5)
    assert exact < 4.728507


@pytest.mark.parametrize(
    ("mu", "delta", "expected"),
    [
        # The definition solved in 80-digit arithmetic.
        (1.0, 1e-5, 4.3771780956812246277),
        (0.1, 1e-5, 0.34066936468432641075),
        (1e-3, 1e-5, 0.001938724969860109964),
        (1e-5, 1e-7, 0.000019383599937973681066),
        (1e-6, 1e-9, 2.7178059287972227844e-6),
        (3.0, 0.5, 3.5292757809317399027),
        (10.0, 1e-5, 91.817289624663744685),
        (30.0, 1e-300, 1560.7617052318867942),
        (100.0, 1e-9, 5598.8095714730251791),
        (1000.0, 1e-5, 504263.89292065408002),
    ],
)
def test_epsilon_is_exact_from_tiny_to_huge(mu: float, delta: float, expected: float) -> None:
    assert epsilon(gaussian_claim(sigma=1 / mu), delta) == pytest.approx(expected, rel=2e-10, abs=0)


def by_definition(eps: float, mu: float) -> float:
    def phi(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    return phi(mu / 2 - eps / mu) - math.exp(eps) * phi(-mu / 2 - eps / mu)


@settings(derandomize=True)
@given(st.floats(0.05, 8), st.floats(1e-8, 0.5))
def test_epsilon_solves_the_analytic_equation(mu: float, delta: float) -> None:
    solution = epsilon(gaussian_claim(sigma=1 / mu), delta)
    if solution == 0:
        assert by_definition(0, mu) <= delta
    else:
        assert by_definition(solution, mu) == pytest.approx(delta, rel=1e-5)


def test_delta_is_the_tail_of_the_privacy_loss_over_all_rounds() -> None:
    # Run the mechanism itself: three releases of Δ or of 0, and the likelihood ratio of what was
    # seen. δ(ε) = P(loss > ε) − e^ε·Q(loss > ε), where P released Δ and Q released 0.
    sensitivity, sigma, rounds, draws, eps = 1.5, 2.0, 3, 1_000_000, 1.2
    claim = gaussian_claim(sigma, rounds, sensitivity)
    tails = []
    for client, truth in enumerate((sensitivity, 0.0)):
        loss = np.zeros(draws)
        for round in range(rounds):
            seen = truth + sigma * Stream(13, "test", round, client).normal(0, draws)
            loss += (seen**2 - (seen - sensitivity) ** 2) / (2 * sigma**2)
        tails.append(float((loss > eps).mean()))
    delta = tails[0] - math.exp(eps) * tails[1]
    error = math.sqrt((tails[0] + math.exp(2 * eps) * tails[1]) / draws)
    assert 5 * error < 0.05 * delta  # sharp enough to notice a factor
    assert epsilon(claim, delta + 5 * error) < eps < epsilon(claim, delta - 5 * error)


CLAIM: dict[str, Any] = {"sensitivity": 1.0, "sigma": 4.0, "rounds": 10}


@pytest.mark.parametrize(
    ("name", "rising"),
    [
        ("sensitivity", [0.01, 0.1, 0.5, 1, 2, 10, 1000]),
        ("sigma", [1e4, 100, 10, 4, 1, 0.1, 1e-3, 0]),
        ("rounds", [0, 1, 2, 10, 11, 1000, 10**9]),
    ],
)
def test_epsilon_grows_with_what_gives_more_away(name: str, rising: list[float]) -> None:
    found = [epsilon(PrivacyClaim("gaussian", **CLAIM | {name: v}), 1e-5) for v in rising]
    assert found == sorted(found)
    assert len(set(found[1:])) == len(found) - 1


def test_epsilon_falls_as_delta_grows() -> None:
    found = [epsilon(gaussian_claim(4, 10), d) for d in (1e-300, 1e-20, 1e-5, 1e-4, 0.1, 0.2)]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == len(found)


def test_the_ends_of_the_scale() -> None:
    assert epsilon(gaussian_claim(sigma=0), 1e-5) == math.inf
    assert epsilon(gaussian_claim(sigma=1, rounds=0), 1e-5) == 0
    assert epsilon(gaussian_claim(sigma=1e6), 1e-5) == 0  # δ alone covers it
    assert epsilon(gaussian_claim(sigma=1e-200), 1e-5) == math.inf  # beyond float64


def test_rounds_are_one_gaussian() -> None:
    assert epsilon(gaussian_claim(6, 9), 1e-6) == epsilon(gaussian_claim(2, 1), 1e-6)
    assert epsilon(gaussian_claim(6, 9, 3.0), 1e-6) == epsilon(gaussian_claim(2, 9), 1e-6)


@pytest.mark.parametrize(
    ("claim", "complaint"),
    [
        (PrivacyClaim("laplace", 1.0, 1.0, 1), "mechanism is 'laplace'.*all this accountant knows"),
        (PrivacyClaim("Gaussian", 1.0, 1.0, 1), "mechanism is 'Gaussian'"),
        (PrivacyClaim("gaussian", 1.0, 1.0, 1000, 0.01), "sampling_rate is 0.01.*does not know"),
    ],
)
def test_the_accountant_refuses_what_it_does_not_know(claim: PrivacyClaim, complaint: str) -> None:
    with pytest.raises(InvalidSetting, match=complaint):
        epsilon(claim, 1e-5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"sensitivity": 0.0},
        {"sensitivity": math.inf},
        {"sensitivity": math.nan},
        {"rounds": -1},
        {"rounds": 1.5},
        {"rounds": math.inf},
        {"rounds": math.nan},
        {"sampling_rate": 0.0},
        {"sampling_rate": 1.1},
        {"sampling_rate": math.nan},
    ],
)
def test_claims_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match=next(iter(wrong))):
        PrivacyClaim("gaussian", **CLAIM | wrong)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_delta_must_be_a_probability_between(delta: float) -> None:
    with pytest.raises(InvalidSetting, match="delta is"):
        epsilon(gaussian_claim(1), delta)
    with pytest.raises(InvalidSetting, match="delta is"):
        sigma_for(1.0, delta, 1.0, 1)


# Calibration

BUDGETS = (
    st.floats(1e-3, 1e3),
    st.floats(1e-12, 0.1),
    st.floats(1e-3, 1e3),
    st.integers(1, 10_000),
)


@settings(derandomize=True, max_examples=50)
@given(*BUDGETS)
def test_sigma_is_the_smallest_that_keeps_the_budget(
    eps: float, delta: float, sensitivity: float, rounds: int
) -> None:
    sigma = sigma_for(eps, delta, sensitivity, rounds)
    assert epsilon(gaussian_claim(sigma, rounds, sensitivity), delta) <= eps
    assert epsilon(gaussian_claim(sigma * (1 - 1e-8), rounds, sensitivity), delta) > eps


@settings(derandomize=True, max_examples=50)
@given(*BUDGETS)
def test_sigma_grows_with_the_root_of_the_releases(
    eps: float, delta: float, sensitivity: float, releases: int
) -> None:
    together = sigma_for(eps, delta, sensitivity, releases)
    single = sigma_for(eps, delta, sensitivity, 1)
    assert together == pytest.approx(math.sqrt(releases) * single, rel=1e-8)


def test_round_trip() -> None:
    for sigma in (0.01, 0.5, 3.0, 200.0):
        spent = epsilon(gaussian_claim(sigma, rounds=50), 1e-6)
        assert sigma_for(spent, 1e-6, 1.0, 50) == pytest.approx(sigma, rel=1e-9)


def test_a_budget_per_round_is_not_the_budget_of_the_run() -> None:
    # The setting of the ERIS authors: clip 1, δ = 1e-5, one round's budget.
    sigma = sigma_for(10.0, 1e-5, 1.0, releases=1)
    assert epsilon(gaussian_claim(sigma, rounds=1), 1e-5) == pytest.approx(10)
    assert epsilon(gaussian_claim(sigma, rounds=100), 1e-5) > 200


def test_sigma_falls_as_the_budget_grows() -> None:
    assert sigma_for(1, 1e-5, 1, 10) > sigma_for(2, 1e-5, 1, 10) > sigma_for(2, 1e-4, 1, 10)
    assert sigma_for(2, 1e-4, 1, 11) > sigma_for(2, 1e-4, 1, 10)
    assert sigma_for(2, 1e-4, 1.1, 10) > sigma_for(2, 1e-4, 1, 10)
    # With ε = 0 the total variation distance erf(μ/√8) must be at most δ.
    assert math.erf(1 / sigma_for(0, 1e-3, 1, 1) / math.sqrt(8)) == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"epsilon": -1.0}, "epsilon is -1.0"),
        ({"epsilon": math.inf}, "epsilon is inf"),
        ({"sensitivity": 0.0}, "sensitivity is 0.0"),
        ({"releases": 0}, "releases is 0"),
        ({"releases": 1.5}, "releases is 1.5; expected a whole number, 1 or more"),
        ({"releases": math.inf}, "releases is inf"),
        ({"releases": math.nan}, "releases is nan"),
        ({"epsilon": 0.0, "delta": 5e-324}, "one a finite σ can meet"),
        # Δ·√T is infinite, and ∞/∞ is not a number.
        (
            {"sensitivity": 1e308, "releases": 10**6},
            r"a finite σ can meet at sensitivity 1e\+308, releases 1000000",
        ),
        ({"sensitivity": 1e308, "epsilon": 1e-9}, "one a finite σ can meet"),
    ],
)
def test_budgets_that_cannot_be_met_are_refused(change: dict[str, Any], complaint: str) -> None:
    budget: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "sensitivity": 1.0, "releases": 1}
    with pytest.raises(InvalidSetting, match=complaint):
        sigma_for(**budget | change)
