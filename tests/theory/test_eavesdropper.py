"""The eavesdropper's estimate: exact moments against Monte Carlo, and what the paper says of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting
from eris.protocol.gossip.peer import Sends
from eris.theory.eavesdropper import (
    Course,
    Estimator,
    Floats,
    Signals,
    Tap,
    best_sampling,
    errors,
    moments,
    paper_threshold,
    perfect_interception,
    protection,
    stability_threshold,
    step_17,
    theorem_1,
)

ROUNDS, N, RUNS = 12, 4, 20_000
Coins = NDArray[np.bool_]


def course(seed: int = 0, rounds: int = ROUNDS) -> Course:
    """A server that walks, and a client that answers it."""
    draw = np.random.default_rng(seed)
    server = np.cumsum(draw.normal(size=(rounds, N)), axis=0)
    return Course(server, draw.normal(size=(rounds, N)), draw.normal(size=N), draw.normal(size=N))


def drawn(tap: Tap, runs: int, rounds: int = ROUNDS, seed: int = 1) -> tuple[Coins, Coins]:
    draw = np.random.default_rng(seed)
    sampled = draw.random((runs, rounds)) < tap.sampling
    return sampled, draw.random((runs, rounds)) < tap.interception


def monte_carlo(given: Signals, tap: Tap, runs: int = RUNS) -> Floats:
    """Errors e_T (runs, n) by equations (7) and (9), word for word: a slow oracle."""
    sampled, heard = drawn(tap, runs, len(given.increments))
    error = np.tile(given.offset, (runs, 1))
    last = np.zeros_like(error)
    for t, (increment, r) in enumerate(zip(given.increments, given.mismatches, strict=True)):
        there, mu = sampled[:, t, None], heard[:, t, None]
        guess = np.where(mu, increment, tap.carry * last)
        error = error + there * (r + (1 - mu) * (increment - guess))
        last = np.where(there, guess, last)
    return error


def interval(values: Floats, width: float = 4.0) -> tuple[float, float]:
    """Four standard errors about the mean: left once in 16,000 by chance."""
    mean, half = values.mean(), width * values.std(ddof=1) / math.sqrt(len(values))
    return mean - half, mean + half


# -- trajectories -----------------------------------------------------------------------------


def test_a_model_that_is_heard_leaves_no_error_and_between_interceptions_it_grows() -> None:
    still = Course(np.cumsum(np.ones((10, N)), axis=0), np.ones((10, N)), np.zeros(N), np.zeros(N))
    heard = np.arange(10) % 4 == 0
    found = errors(still, [True] * 10, heard, carry=0.0, sends="models")
    assert (found[1:][heard] == 0).all()
    for t in np.flatnonzero(~heard):
        assert found[t + 1] > found[t]
    kept = errors(still, [True] * 10, [True] * 10, sends="increments")
    assert (kept[2:] > 0).all(), "increments leave an error though all are heard"
    assert kept[-1] == pytest.approx(N * 1.0**2)


def test_models_heard_leave_no_error_on_any_course() -> None:
    given = course(3)
    sampled, heard = drawn(Tap(0.6, 0.4), 50)
    for there, mu in zip(sampled, heard, strict=True):
        assert (errors(given, there, mu, sends="models")[1:][there & mu] == 0).all()


def test_nothing_moves_where_the_client_is_not_sampled() -> None:
    found = errors(course(), [False] * ROUNDS, [True] * ROUNDS)
    assert (found == found[0]).all()


def test_the_corrected_equation_4b_leads_to_the_papers_9() -> None:
    """x^c − x^a of the estimator moves as (9) says, which has no ζ in place of ξ^a."""
    given, tap = course(5), Tap(0.7, 0.5)
    sampled, heard = drawn(tap, 30)
    for there, mu in zip(sampled, heard, strict=True):
        signals = given.signals(there)
        error, last, squares = signals.offset.copy(), np.zeros(N), []
        for t in range(ROUNDS):
            if there[t]:
                guess = signals.increments[t] if mu[t] else tap.carry * last
                error = error + signals.mismatches[t] + (signals.increments[t] - guess)
                last = guess
            squares.append(error @ error)
        assert errors(given, there, mu)[1:] == pytest.approx(np.array(squares))


def test_what_is_heard_on_some_coordinates_is_missed_on_the_others() -> None:
    one = Estimator(np.zeros(2), carry=0.5)
    one.hear(np.array([2.0, 2.0]))
    one.hear(np.array([8.0, 9.0]), np.array([True, False]))
    assert one.model.tolist() == [10.0, 3.0]
    one.hear(np.array([1.0, 7.0]), np.array([True, False]), "models")
    assert one.model.tolist() == [1.0, 3.5]


# -- exact moments ----------------------------------------------------------------------------


@pytest.mark.parametrize("sends", ["increments", "models"])
@pytest.mark.parametrize("tap", [Tap(0.6, 0.5), Tap(0.3, 0.2, 1.2), Tap(1.0, 0.5, -0.5)])
def test_protection_is_what_runs_show_on_average(tap: Tap, sends: Sends) -> None:
    given = course()
    sampled, heard = drawn(tap, 2000)
    runs = [
        errors(given, there, mu, tap.carry, sends) for there, mu in zip(sampled, heard, strict=True)
    ]
    exact = protection(given, tap, sends)
    for t in (1, ROUNDS // 2, ROUNDS):
        low, high = interval(np.array(runs)[:, t])
        assert low - 1e-9 <= exact[t] <= high + 1e-9


@pytest.mark.parametrize("tap", [Tap(0.6, 0.5), Tap(0.3, 0.2, 1.2), Tap(0.5, 1.0)])
def test_moments_are_those_of_runs_with_given_signals(tap: Tap) -> None:
    given = course().signals(np.ones(ROUNDS, bool))
    found = monte_carlo(given, tap)
    low, high = interval((found**2).sum(axis=1))
    exact = moments(given, tap)
    assert low <= exact.second[-1] <= high
    assert exact.mean[-1] == pytest.approx(found.mean(axis=0) @ found.mean(axis=0), abs=0.5)
    assert (exact.variance >= -1e-9).all()


@pytest.mark.parametrize("sampling", [0.2, 5 / 8, 1.0])
def test_18_is_the_mean_over_client_sampling(sampling: float) -> None:
    """On a recorded trajectory: Monte Carlo over δ within its confidence interval."""
    given = course(2).signals(np.arange(ROUNDS) % 3 > 0)
    sampled, _ = drawn(Tap(sampling, 1.0), RUNS)
    error = given.offset + sampled @ given.mismatches
    low, high = interval((error**2).sum(axis=1))
    found = perfect_interception(given, sampling)
    assert low - 1e-9 <= found <= high + 1e-9
    assert found == pytest.approx(moments(given, Tap(sampling, 1.0)).second[-1])


def test_18_is_not_the_protection_where_the_mismatch_depends_on_the_sampling() -> None:
    """(18) takes ζ as given. Given the server's course instead, the mean is another."""
    given, tap = course(2), Tap(0.5, 1.0)
    sampled, heard = drawn(tap, 2000)
    low, high = interval(
        np.array([errors(given, a, b)[-1] for a, b in zip(sampled, heard, strict=True)])
    )
    assert low <= protection(given, tap)[-1] <= high
    every = perfect_interception(given.signals(np.ones(ROUNDS, bool)), tap.sampling)
    assert not low <= every <= high


def test_the_best_sampling_is_the_largest_of_a_grid() -> None:
    grid = np.linspace(0, 1, 2001)
    for seed in range(20):
        given = course(seed).signals(np.random.default_rng(seed).random(ROUNDS) < 0.5)
        if seed % 2:  # mismatches that cancel: the maximum lies inside
            given = Signals(given.increments, given.mismatches - given.mismatches.mean(axis=0),
                            0 * given.offset)  # fmt: skip
        values = [perfect_interception(given, p) for p in grid]
        assert perfect_interception(given, best_sampling(given)) >= max(values) - 1e-6
        if seed % 2:
            assert best_sampling(given) == pytest.approx(0.5)


# -- what the paper proves --------------------------------------------------------------------


def violation(given: Signals, tap: Tap) -> tuple[float, int]:
    """By what factor (17) is too large at worst, and when; Monte Carlo confirms the moments."""
    bound, found = step_17(given, tap), moments(given, tap).variance
    ratio = bound[1:] / found[1:]
    worst = int(ratio.argmax()) + 1
    cut = Signals(given.increments[:worst], given.mismatches[:worst], given.offset)
    measured = monte_carlo(cut, tap, 4 * RUNS).var(axis=0).sum()
    assert measured == pytest.approx(found[worst], rel=0.08)
    assert measured < bound[worst]
    return float(ratio.max()), worst


@pytest.mark.parametrize(("carry", "least"), [(0.0, 1.5), (0.5, 1.25)])
def test_step_17_is_violated_for_m_is_missing_in_proposition_2(carry: float, least: float) -> None:
    """One large increment, long ago: V goes on counting its spread, though m of it is carried."""
    once = np.zeros((25, 1))
    once[0] = 10.0
    given = Signals(once, np.zeros((25, 1)), np.zeros(1))
    assert violation(given, Tap(0.2, 0.9, carry))[0] > least


def test_step_17_is_violated_for_its_cross_term_is_not_zero() -> None:
    """With m = −1, of which the square is 1, what Proposition 2 left out is no matter."""
    given = Signals(np.tile([[3.0], [-3.0]], (15, 1)), np.zeros((30, 1)), np.zeros(1))
    assert violation(given, Tap(0.73, 0.17, -1.0))[0] > 1.1


def test_step_17_holds_where_its_cross_term_is_zero() -> None:
    """Without increments v has no ξ_τ in it."""
    given, tap = course(1).signals(np.ones(ROUNDS, bool)), Tap(0.5, 0.5, 0.0)
    constant = Signals(np.zeros((ROUNDS, N)), given.mismatches, given.offset)
    assert (step_17(constant, tap) <= moments(constant, tap).variance + 1e-9).all()


def test_theorem_1_is_step_17s_limit_and_the_mean() -> None:
    """For signals that do not change, (17) sums to what the theorem has, and g_t is E e_t."""
    tap, rounds = Tap(0.5, 0.5, 0.5), 400
    given = Signals(np.full((rounds, 1), 2.0), np.zeros((rounds, 1)), np.zeros(1))
    mean = moments(given, tap).mean[-1]
    assert theorem_1(given, tap)[-1] == pytest.approx(step_17(given, tap)[-1] + mean, rel=0.05)


def test_theorem_1_has_the_papers_terms() -> None:
    """By the sums as they are printed."""
    given, tap = course(4).signals(np.ones(ROUNDS, bool)), Tap(0.6, 0.3, 0.5)
    p, gamma, m, t = tap.sampling, tap.interception, tap.carry, ROUNDS - 1
    xi, r = given.increments, given.mismatches

    def h(t: int) -> Floats:
        h: Floats = (1 - p) ** t * xi[t]
        for k in range(t):
            h = h + (1 - p) ** (t - k - 1) * p * (xi[t] - m * xi[k])
        return h

    last = sum((p * (1 - p) ** (t - s - 1) * xi[s] for s in range(t)), 0 * xi[0])
    spread = (1 - p) ** t * last @ last + sum(
        p * (1 - p) ** (t - k - 1) * (xi[k] - last) @ (xi[k] - last) for k in range(t)
    )
    q = np.zeros(N)
    for k in range(t):
        before = sum((p * (1 - p) ** (k - s - 1) * xi[s] for s in range(k)), 0 * xi[0])
        q = (1 - p) * q + p * (1 - gamma) * (m * q + xi[k] - m * before)
    s = h(t) + m * q
    g = given.offset + p * r[: t + 1].sum(axis=0)
    g = g + p * (1 - gamma) / (1 - (1 - gamma) * m) * sum(h(k) for k in range(t + 1))
    expected = (
        (1 - p) * (s + r[t]) @ (s + r[t])
        + p * gamma * s @ s
        + (1 - p) * gamma / (1 - gamma) * r[t] @ r[t]
        + spread
        + g @ g
    )
    assert theorem_1(given, tap)[-1] == pytest.approx(expected)


@pytest.mark.parametrize("sampling", [0.3, 1.0])
@pytest.mark.parametrize("gamma", [0.2, 0.5, 0.8])
def test_the_second_moment_is_stable_exactly_below_the_threshold(
    sampling: float, gamma: float
) -> None:
    exact, papers = stability_threshold(gamma), paper_threshold(sampling, gamma)
    assert exact <= papers + 1e-12 or sampling == 1.0
    rounds = 4000
    once = np.zeros((rounds, 1))
    once[0] = 1.0  # one increment, and then only what is carried on
    given = Signals(once, np.zeros((rounds, 1)), np.zeros(1))
    below = moments(given, Tap(sampling, gamma, 0.98 * exact)).second
    above = moments(given, Tap(sampling, gamma, 1.02 * exact)).second
    assert below[-1] == pytest.approx(below[-2], rel=1e-6)
    assert below[-1] < 1e6
    assert above[-1] > 1e6 * above[rounds // 8] > 0


def test_simulated_runs_grow_above_the_threshold_and_settle_below_it() -> None:
    """γ = 0.5: m = 1.41. Logarithms of the second moment's growth a round, from runs."""
    growth = {}
    for m in (1.0, 1.9):
        _, heard = drawn(Tap(1.0, 0.5), RUNS, 8)
        size = np.prod(np.where(heard, 0.0, m) ** 2, axis=1)
        growth[m] = size.mean() ** (1 / 8)
    assert growth[1.0] < 0.6
    assert growth[1.9] > 1.5
    assert 1.9 < paper_threshold(1.0, 0.5) == 2.0, "the paper's condition lets it pass"


def test_no_interception_at_all_and_every_one() -> None:
    assert stability_threshold(1.0) == paper_threshold(0.5, 1.0) == math.inf
    with pytest.raises(InvalidSetting, match="interception is 0"):
        Tap(0.5, 0)
    with pytest.raises(InvalidSetting, match="below 1; at 1 there is equation"):
        theorem_1(course().signals([True] * ROUNDS), Tap(0.5, 1.0))
    with pytest.raises(InvalidSetting, match="shapes of signals"):
        Signals(np.zeros((2, 3)), np.zeros((2, 2)), np.zeros(3))
    with pytest.raises(InvalidSetting, match="shapes of a course"):
        Course(np.zeros((2, 3)), np.zeros((2, 3)), np.zeros(2), np.zeros(3))
