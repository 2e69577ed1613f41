"""A lower bound on ε from one run's guesses (Steinke, Nasr and Jagielski 2023).

Each of m canaries was put in or left out by its own fair coin. The observer made r guesses, chosen
without the coins, and v of them are right. Were the run (ε, δ)-private, v right guesses or more
would have at most the probability

    p(ε) = min(1, β + 2mδα),   q = 1/(1 + e^−ε),
    β = P[Bin(r, q) ≥ v],   α = max over 1 ≤ i ≤ v of P[v − i ≤ Bin(r, q) < v]/i.

The bound is the largest ε that is so p_at. It holds for guesses fixed beforehand; whoever takes
the best of several rounds, clients or scores has *looked* that many times and divides the
significance by the number of looks (:func:`bound`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from eris.core.errors import InvalidSetting, library, require

special = library("scipy.special", "scipy", "audit")

RESOLUTION = 1e-9
"""The bound is found to this much."""

MOST_CANARIES = 1_000_000
"""How far :func:`canaries_needed` looks."""


@dataclass(frozen=True)
class Bound:
    """What one audit says about ε: at least ``epsilon``, at the confidence named.

    ``ceiling`` is what the same number of guesses would have given had all been right: an audit
    cannot find more than that, whatever leaked. ``looks`` is the number of attempts of which this
    is the best one; the confidence holds for all of them together.
    """

    epsilon: float
    ceiling: float
    confidence: float
    delta: float
    canaries: int
    guesses: int
    right: int
    looks: int


def _tail(m: int, guesses: int, right: int, delta: float) -> Callable[[float], float]:
    """p(ε) of one outcome; what does not depend on ε is worked out once."""
    below = np.arange(right)
    log_choices = (
        special.gammaln(guesses + 1)
        - special.gammaln(below + 1)
        - special.gammaln(guesses - below + 1)
    )

    def p_value(epsilon: float) -> float:
        if right == 0:
            return 1.0
        log_right = -math.log1p(math.exp(-epsilon))
        log_wrong = log_right - epsilon
        # P[Bin(r, q) ≥ v] as an incomplete beta function: exact far out in the tail.
        q = 1 / (1 + math.exp(-epsilon))
        beta = float(special.betainc(right, guesses - right + 1, q))
        log_mass = log_choices + below * log_right + (guesses - below) * log_wrong
        sums = np.cumsum(np.exp(log_mass[::-1]))
        alpha = float(np.max(sums / np.arange(1, right + 1)))
        return min(1.0, beta + 2 * m * delta * alpha)

    return p_value


def _require_counts(m: int, guesses: int, right: int) -> None:
    require(m >= 1, "canaries", m, "at least 1")
    require(0 <= guesses <= m, "guesses", guesses, f"a whole number from 0 to {m} canaries")
    require(0 <= right <= guesses, "right", right, f"a whole number from 0 to {guesses} guesses")


def _require_levels(delta: float, significance: float) -> None:
    require(0 <= delta < 1, "delta", delta, "a number in [0, 1)")
    require(0 < significance < 1, "significance", significance, "a number in (0, 1)")


def _require_epsilon(epsilon: float) -> None:
    require(0 <= epsilon < math.inf, "epsilon", epsilon, "a number not below 0")


def p_value(m: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """p(ε): how likely so many right guesses are, at most, if the run is (ε, δ)-private.

    >>> round(p_value(1000, 100, 75, epsilon=1.0, delta=1e-4), 6)
    0.400555
    """
    _require_counts(m, guesses, right)
    _require_levels(delta, 0.5)
    _require_epsilon(epsilon)
    return _tail(m, guesses, right, delta)(epsilon)


def epsilon_lower_bound(
    m: int, guesses: int, right: int, delta: float = 1e-5, significance: float = 0.05
) -> float:
    """The largest ε with p(ε) < ``significance``; 0 if the guesses refute nothing.

    >>> round(epsilon_lower_bound(1000, 100, 75, delta=1e-4), 6)
    0.672985
    """
    _require_counts(m, guesses, right)
    _require_levels(delta, significance)
    p_at = _tail(m, guesses, right, delta)
    if p_at(0.0) >= significance:
        return 0.0
    # Ends: in float64 q is 1 beyond ε = 37, and so is p.
    low, high = 0.0, 1.0
    while p_at(high) < significance:
        low, high = high, 2 * high
    while high - low > RESOLUTION:
        middle = (low + high) / 2
        if p_at(middle) < significance:
            low = middle
        else:
            high = middle
    return low


def ceiling(m: int, guesses: int, delta: float = 1e-5, significance: float = 0.05) -> float:
    """The bound if every guess were right: all that so many guesses can show.

    >>> round(ceiling(999, 666), 6)
    5.375049
    """
    return epsilon_lower_bound(m, guesses, guesses, delta, significance)


def canaries_needed(delta: float = 1e-5, significance: float = 0.05, epsilon: float = 0.0) -> int:
    """The fewest canaries whose ceiling, two thirds of them guessed, lies above ``epsilon``.

    >>> canaries_needed(), canaries_needed(epsilon=3.0)
    (9, 93)
    """
    _require_levels(delta, significance)
    _require_epsilon(epsilon)
    log_right = -math.log1p(math.exp(-epsilon))
    third, left = 0, significance
    # With all of 2k guesses right β = q^2k falls in k and the other term of p grows. So what the
    # other term leaves of the significance at k says how large k must be at least.
    while left > 0:
        third = max(third + 1, math.ceil(math.log(left) / (2 * log_right)))
        if 3 * third > MOST_CANARIES:
            break
        p = p_value(3 * third, 2 * third, 2 * third, epsilon, delta)
        if p < significance:
            return 3 * third
        left = significance - (p - math.exp(2 * third * log_right))
    reached = f"at significance {significance:g} up to {MOST_CANARIES} canaries show nothing above"
    if epsilon > 0:
        raise InvalidSetting("epsilon", epsilon, f"less: with delta {delta:g} {reached} it")
    raise InvalidSetting("delta", delta, f"a smaller one, or fewer looks: {reached} epsilon 0")


def bound(
    m: int,
    guesses: int,
    right: int,
    delta: float = 1e-5,
    confidence: float = 0.95,
    looks: int = 1,
) -> Bound:
    """The bound with its ceiling; for the best of several looks give that one and their number.

    Bonferroni's correction: each look has the significance (1 − confidence)/looks. An audit that
    could show nothing even with every guess right is refused, with the number that it takes.

    >>> found = bound(1000, 666, 500)
    >>> round(found.epsilon, 6), round(found.ceiling, 2)
    (0.952123, 5.38)
    >>> bound(1000, 666, 500, looks=160).epsilon < found.epsilon
    True
    >>> bound(6, 4, 4)
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: canaries is 6; expected at least 9, two thirds of them \
guessed, for any bound on epsilon at confidence 0.95, 1 look(s), delta 1e-05
    """
    require(0 < confidence < 1, "confidence", confidence, "a number in (0, 1)")
    require(looks >= 1, "looks", looks, "at least 1")
    significance = (1 - confidence) / looks
    most = ceiling(m, guesses, delta, significance)
    if most == 0:
        at = f"for any bound on epsilon at confidence {confidence:g}, {looks} look(s)"
        raise _too_few(m, guesses, delta, significance, f"{at}, delta {delta:g}")
    found = epsilon_lower_bound(m, guesses, right, delta, significance)
    return Bound(found, most, confidence, delta, m, guesses, right, looks)


def _too_few(m: int, guesses: int, delta: float, significance: float, at: str) -> InvalidSetting:
    needed = canaries_needed(delta, significance)
    if m < needed:
        return InvalidSetting("canaries", m, f"at least {needed}, two thirds of them guessed, {at}")

    def enough(number: int) -> bool:
        return p_value(m, number, number, 0.0, delta) < significance

    fewest = 1 + bisect_left(range(1, m + 1), True, key=enough)
    more = f"at least {fewest} of {m} canaries guessed, or " if fewest <= m else ""
    return InvalidSetting("guesses", guesses, f"{more}fewer looks or a smaller delta, {at}")
