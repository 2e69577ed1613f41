"""The one-run bound: published vectors, a slow oracle, and how often it accuses the innocent."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from dataclasses import asdict
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from eris.audit.one_run import (
    RESOLUTION,
    bound,
    canaries_needed,
    ceiling,
    epsilon_lower_bound,
    p_value,
)
from eris.audit.statistics import thirds
from eris.core.errors import InvalidSetting

# The formula of Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run" (NeurIPS
# 2023), to six digits: m, r, v, δ and the largest refuted ε at significance 0.05.
VECTORS = [
    (1000, 100, 75, 1e-4, 0.672985),
    (100_000, 1510, 1439, 1e-5, 2.675851),
    (1000, 666, 500, 1e-5, 0.952123),
    (300, 200, 150, 1e-5, 0.820971),
    (999, 666, 666, 1e-5, 5.375049),
    (1000, 666, 333, 1e-5, 0.0),
]

# With 360 canaries the exact rate of false alarms is 3.9, 3.8 and 2.7 % for these ε (it is a step
# function of both), so that 2,000 audits show that it is below 5 %.
AUDITS, CANARIES, LOOKS = 2000, 360, 20
GUESSES = 2 * (CANARIES // 3)
EPSILONS = [0.5, 1.0, 3.0]


@pytest.mark.parametrize(("m", "guesses", "right", "delta", "epsilon"), VECTORS)
def test_published_vectors(m: int, guesses: int, right: int, delta: float, epsilon: float) -> None:
    assert epsilon_lower_bound(m, guesses, right, delta) == pytest.approx(epsilon, abs=5e-7)


def test_published_p_value() -> None:
    assert p_value(1000, 100, 75, 1.0, 1e-4) == pytest.approx(0.400555, abs=5e-7)


def slow_p_value(m: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    q = 1 / (1 + math.exp(-epsilon))
    mass = [math.comb(guesses, k) * q**k * (1 - q) ** (guesses - k) for k in range(guesses + 1)]
    alpha = max((math.fsum(mass[right - i : right]) / i for i in range(1, right + 1)), default=0)
    return min(1.0, math.fsum(mass[right:]) + 2 * m * delta * alpha)


@pytest.mark.parametrize("delta", [0.0, 1e-5, 3e-3])
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 2.5, 6.0])
def test_p_values_are_those_of_plain_loops(epsilon: float, delta: float) -> None:
    for m, guesses in ((1, 1), (30, 20), (90, 40)):
        for right in range(guesses + 1):
            expected = slow_p_value(m, guesses, right, epsilon, delta)
            found = p_value(m, guesses, right, epsilon, delta)
            assert found == pytest.approx(expected, rel=1e-9), (m, guesses, right)


def test_the_tail_keeps_its_digits() -> None:
    assert p_value(1500, 1000, 1000, 0.0, 0.0) == pytest.approx(0.5**1000, rel=1e-9)
    assert p_value(100_000, 66_666, 0, 3.0, 1e-5) == 1.0
    assert 1.6 < epsilon_lower_bound(100_000, 66_666, 60_000, 1e-5, 0.05 / 100) < 1.8


def test_the_bound_is_the_largest_refuted_epsilon_and_grows_with_right_guesses() -> None:
    before = 0.0
    for right in range(100, GUESSES + 1, 5):
        found = epsilon_lower_bound(CANARIES, GUESSES, right)
        if found > 0:
            assert found > before
            assert p_value(CANARIES, GUESSES, right, found, 1e-5) < 0.05
            assert p_value(CANARIES, GUESSES, right, found + 2 * RESOLUTION, 1e-5) >= 0.05
        else:
            assert p_value(CANARIES, GUESSES, right, 0.0, 1e-5) >= 0.05
        before = found
    assert before == ceiling(CANARIES, GUESSES)


@pytest.mark.parametrize("delta", [0.0, 1e-5, 5e-3])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("significance", [0.3, 0.05, 0.0025])
def test_the_canaries_needed_are_the_fewest(
    delta: float, epsilon: float, significance: float
) -> None:
    shown = [m for m in range(3, 120) if ceiling(m, 2 * (m // 3), delta, significance) > epsilon]
    if shown:
        assert canaries_needed(delta, significance, epsilon) == shown[0]
    else:
        with pytest.raises(InvalidSetting, match="canaries show nothing above"):
            canaries_needed(delta, significance, epsilon)


def test_a_bound_names_what_it_rests_on() -> None:
    alone = bound(CANARIES, GUESSES, 150)
    corrected = bound(CANARIES, GUESSES, 150, looks=LOOKS)
    assert alone.epsilon == epsilon_lower_bound(CANARIES, GUESSES, 150)
    assert corrected.epsilon == epsilon_lower_bound(CANARIES, GUESSES, 150, 1e-5, 0.05 / LOOKS)
    assert corrected.ceiling == ceiling(CANARIES, GUESSES, 1e-5, 0.05 / LOOKS)
    assert corrected.epsilon < alone.epsilon < alone.ceiling
    assert json.loads(json.dumps(asdict(corrected))) == {
        "epsilon": corrected.epsilon,
        "ceiling": corrected.ceiling,
        "confidence": 0.95,
        "delta": 1e-5,
        "canaries": CANARIES,
        "guesses": GUESSES,
        "right": 150,
        "looks": LOOKS,
    }


@cache
def found_epsilon(right: int, significance: float) -> float:
    return epsilon_lower_bound(CANARIES, GUESSES, right, 1e-5, significance)


@cache
def right_guesses_to_accuse(m: int, guesses: int, epsilon: float, significance: float) -> int:
    """The fewest right guesses whose bound lies above ε (one more than all if none does)."""

    def accusing(right: int) -> bool:
        return p_value(m, guesses, right, epsilon, 1e-5) < significance

    return bisect_left(range(guesses + 1), True, key=accusing)


@pytest.mark.parametrize("m", [30, 99, 300, 1000])
@pytest.mark.parametrize("significance", [0.05, 0.05 / LOOKS])
def test_the_exact_rate_of_false_alarms_is_below_the_significance(
    m: int, significance: float
) -> None:
    guesses = 2 * (m // 3)
    for epsilon in EPSILONS:
        fewest = right_guesses_to_accuse(m, guesses, epsilon, significance)
        truth = 1 / (1 + math.exp(-epsilon))
        assert stats.binom.sf(fewest - 1, guesses, truth) < significance
        if fewest <= guesses:
            assert epsilon_lower_bound(m, guesses, fewest, 1e-5, significance) > epsilon
        assert epsilon_lower_bound(m, guesses, fewest - 1, 1e-5, significance) <= epsilon


class RandomisedResponse:
    """Audits of a mechanism that is exactly ε-private: each coin is told right with chance q.

    The observer ranks what it was told, and draws lots among equals; each look draws new ones.
    """

    def __init__(self, epsilon: float) -> None:
        self.rng = np.random.default_rng([7, int(10 * epsilon)])
        self.included = self.rng.random((AUDITS, CANARIES)) < 0.5
        told_right = self.rng.random((AUDITS, CANARIES)) < 1 / (1 + math.exp(-epsilon))
        self.told = np.where(told_right, self.included, ~self.included)

    def scores(self) -> NDArray[np.float64]:
        return np.asarray(self.told + 0.5 * self.rng.random((AUDITS, CANARIES)))

    def right(self) -> NDArray[np.int64]:
        guesses = thirds(self.scores())
        right = guesses == np.where(self.included, 1, -1)
        return np.asarray(right.sum(axis=1), np.int64)


def false_alarms(right: NDArray[np.int64], epsilon: float, significance: float) -> float:
    return float(np.mean([found_epsilon(int(v), significance) > epsilon for v in right]))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_private_mechanism_is_rarely_accused_unless_one_picks_the_best_look(
    epsilon: float,
) -> None:
    mechanism = RandomisedResponse(epsilon)
    looks = np.stack([mechanism.right() for _ in range(LOOKS)])
    assert 0.01 < false_alarms(looks[0], epsilon, 0.05) <= 0.05
    best = looks.max(axis=0)
    assert false_alarms(best, epsilon, 0.05 / LOOKS) <= 0.05
    assert false_alarms(best, epsilon, 0.05) > 0.1


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_thresholds_chosen_afterwards_accuse_a_private_mechanism(epsilon: float) -> None:
    mechanism = RandomisedResponse(epsilon)
    order = np.argsort(mechanism.scores(), axis=1)
    truth = np.take_along_axis(mechanism.included, order, axis=1)
    accused = np.zeros(AUDITS, np.bool_)
    for side in range(1, CANARIES // 3 + 1):
        right = (~truth[:, :side]).sum(axis=1) + truth[:, -side:].sum(axis=1)
        accused |= right >= right_guesses_to_accuse(CANARIES, 2 * side, epsilon, 0.05)
    assert accused.mean() > 0.1


def test_too_few_canaries_are_refused_with_the_number_it_takes() -> None:
    with pytest.raises(InvalidSetting, match=r"canaries is 6; expected at least 9, two thirds"):
        bound(6, 4, 4)
    assert bound(9, 6, 6).epsilon > 0
    needed = canaries_needed(1e-5, 0.05 / 160)
    with pytest.raises(InvalidSetting, match=rf"at least {needed}, .* 160 look\(s\), delta 1e-05"):
        bound(needed - 1, 2 * ((needed - 1) // 3), 0, looks=160)
    assert bound(needed, 2 * (needed // 3), 2 * (needed // 3), looks=160).epsilon > 0


def test_too_few_guesses_are_refused_with_the_number_it_takes() -> None:
    with pytest.raises(InvalidSetting, match=r"guesses is 0; expected at least 5 of 300 canaries"):
        bound(300, 0, 0)
    assert bound(300, 5, 5).epsilon > 0
    with pytest.raises(InvalidSetting, match=r"guesses is 66666; .* or fewer looks"):
        bound(100_000, 66_666, 66_666, looks=1000)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"m": 0}, "canaries is 0"),
        ({"guesses": 301}, "guesses is 301; expected a whole number from 0 to 300 canaries"),
        ({"guesses": -1}, "guesses is -1"),
        ({"right": 201}, "right is 201; expected a whole number from 0 to 200"),
        ({"right": -1}, "right is -1"),
        ({"delta": -1e-9}, "delta is"),
        ({"delta": 1.0}, "delta is"),
        ({"delta": math.nan}, "delta is"),
        ({"delta": 0.2}, "delta is 0.2; expected a smaller one, or fewer looks"),
        ({"confidence": 1.0}, "confidence is"),
        ({"confidence": 0.0}, "confidence is"),
        ({"looks": 0}, "looks is 0"),
    ],
)
def test_impossible_audits_are_refused(changed: dict[str, float], named: str) -> None:
    audit: dict[str, float] = {"m": 300, "guesses": 200, "right": 150}
    with pytest.raises(InvalidSetting, match=named):
        bound(**(audit | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize("epsilon", [-0.1, math.inf, math.nan])
def test_impossible_epsilons_are_refused(epsilon: float) -> None:
    with pytest.raises(InvalidSetting, match="epsilon is"):
        p_value(300, 200, 150, epsilon, 1e-5)
    with pytest.raises(InvalidSetting, match="epsilon is"):
        canaries_needed(epsilon=epsilon)


def test_an_epsilon_out_of_reach_is_said_to_be() -> None:
    with pytest.raises(InvalidSetting, match=r"epsilon is 40\.0; expected less"):
        canaries_needed(delta=0.0, epsilon=40.0)
