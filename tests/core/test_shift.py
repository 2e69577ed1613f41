"""Shifted compression: the step, the contraction it was chosen for, and that one shared reference
does the work of one for every client."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from eris.core.compress import QSGD, RandP
from eris.core.errors import InvalidSetting
from eris.core.shift import advance, difference, estimate, shift_step
from eris.core.streams import Stream

Vector = NDArray[np.float32]
FRACTIONS = [1.0, 0.5, 0.2, 0.05, 0.01]


def compress(values: Vector, fraction: float, round: int) -> Vector:
    """rand-p with the mask of a round."""
    kept = RandP(fraction).kept(len(values), Stream(1, "mask", round))
    result = np.zeros_like(values)
    positions = kept.among(np.arange(len(values)))
    result[positions] = values[positions] * np.float32(kept.scale)
    return result


def vector(purpose: str, size: int = 200, client: int = 0) -> Vector:
    return Stream(5, purpose, client=client).normal(0, size).astype(np.float32)


@pytest.mark.parametrize(
    ("omega", "gamma"),
    [
        (0.0, math.sqrt(1 / 2)),
        (1.0, math.sqrt(3) / 4),
        (19.0, math.sqrt(39 / 16_000)),
        (99.0, math.sqrt(199 / 2_000_000)),
        (1 / 8, math.sqrt(1.25 / (2 * 1.125**3))),
    ],
)
def test_the_step_is_the_theorems(omega: float, gamma: float) -> None:
    assert shift_step(omega) == pytest.approx(gamma, rel=1e-15)


def test_steps_in_decimals() -> None:
    # Five per cent kept, one per cent kept, everything kept.
    assert round(shift_step(RandP(0.05).omega(1)), 6) == 0.049371
    assert round(shift_step(RandP(0.01).omega(1)), 6) == 0.009975
    assert round(shift_step(RandP(1.0).omega(1)), 6) == 0.707107


@pytest.mark.parametrize("omega", [-1e-9, -1.0, math.nan, math.inf])
def test_variances_that_mean_nothing_are_refused(omega: float) -> None:
    with pytest.raises(InvalidSetting, match=r"omega is .*; expected a finite number, 0 or more"):
        shift_step(omega)


def test_a_variance_whose_cube_is_infinite_is_refused() -> None:
    assert 0 < shift_step(1e100) < 1e-99
    with pytest.raises(InvalidSetting, match=r"omega is 1e\+300; expected a number whose cube"):
        shift_step(1e300)


def root(value: Fraction) -> float:
    """The double nearest to √value, without the machine's square root."""
    shift = 300  # 2³⁰⁰ of them to 1: more digits than the nearest double can depend on
    return float(Fraction(math.isqrt(math.floor(value * 4**shift)), 2**shift))


@settings(derandomize=True)
@given(st.floats(0, 1e12))
def test_the_bits_of_the_step_are_those_of_ieee_754(omega: float) -> None:
    # Every operation rounded once to the nearest double, in rational numbers: what any machine
    # must get, whatever its C library makes of pow.
    def rounded(exact: Fraction) -> Fraction:
        return Fraction(float(exact))

    spread = rounded(1 + Fraction(omega))
    cube = rounded(rounded(spread * spread) * spread)
    above = rounded(1 + 2 * Fraction(omega))
    assert shift_step(omega) == root(rounded(above / (2 * cube)))


@pytest.mark.parametrize("levels", [1, 3, 16])
def test_the_bits_of_qsgds_variance_are_those_of_ieee_754(levels: int) -> None:
    for size in (2, 3, 1000, 999_983, 2**53 - 1):
        by_root = float(Fraction(root(Fraction(size))) / levels)
        assert QSGD(levels).omega(size) == min(size / levels**2, by_root)


@pytest.mark.parametrize("fraction", FRACTIONS)
def test_the_reference_contracts_towards_the_update(fraction: float) -> None:
    # Lemma C.2: E‖g − s⁺‖² ≤ (1 − 1/(2(1+ω)))·‖g − s‖² for s⁺ = s + γ·C(g − s).
    omega = RandP(fraction).omega(200)
    gamma = shift_step(omega)
    g, s = vector("update"), vector("reference")
    before = float(np.square(g - s, dtype=np.float64).sum())
    draws = 4000
    ratios = np.empty(draws)
    for round in range(draws):
        after = advance(s, compress(difference(g, s), fraction, round), gamma)
        ratios[round] = np.square(g - after, dtype=np.float64).sum() / before
    deviation = 5 * ratios.std() / math.sqrt(draws) + 1e-6
    bound = 1 - 1 / (2 * (1 + omega))
    expected = 1 - 2 * gamma + gamma**2 * (1 + omega)
    assert expected <= bound
    assert abs(ratios.mean() - expected) <= deviation
    assert ratios.mean() <= bound + deviation


@pytest.mark.parametrize("omega", [0, 0.1, 0.5, 1, 2, 5, 19, 99, 1e4, 1e8])
def test_the_lemma_holds_for_every_variance(omega: float) -> None:
    gamma = shift_step(omega)
    assert 1 - 2 * gamma + gamma**2 * (1 + omega) <= 1 - 1 / (2 * (1 + omega))
    assert 0 < gamma < 1


def test_a_reference_finds_an_update_that_stands_still() -> None:
    g, s = vector("update"), np.zeros(200, np.float32)
    gamma = shift_step(RandP(0.2).omega(200))
    for round in range(400):
        s = advance(s, compress(difference(g, s), 0.2, round), gamma)
    assert np.abs(g - s).max() < 1e-4
    # There is then nothing left for compression to add noise to.
    assert np.allclose(estimate(s, compress(difference(g, s), 0.2, 400)), g, atol=1e-3)


def test_one_shared_reference_does_the_work_of_one_per_client() -> None:
    # Σ w_k C(g_k − s_k) = C(ḡ − s) when all clients keep the same coordinates.
    weights, fraction = [0.5, 0.3, 0.2], 0.1
    gamma = shift_step(RandP(fraction).omega(200))
    own = [np.zeros(200, np.float32) for _ in weights]
    shared = paper = np.zeros(200, np.float32)
    for round in range(50):
        updates = [vector(f"update {round}", client=k) for k in range(3)]
        sent = [
            compress(difference(g, s), fraction, round) for g, s in zip(updates, own, strict=True)
        ]
        own = [advance(s, v, gamma) for s, v in zip(own, sent, strict=True)]
        increment = sum(np.float32(w) * v for w, v in zip(weights, sent, strict=True))
        assert isinstance(increment, np.ndarray)
        of_paper = estimate(paper, increment)
        paper = advance(paper, increment, gamma)

        mean = sum(np.float32(w) * g for w, g in zip(weights, updates, strict=True))
        assert isinstance(mean, np.ndarray)
        common = compress(difference(mean, shared), fraction, round)
        assert np.allclose(estimate(shared, common), of_paper, atol=1e-4)
        shared = advance(shared, common, gamma)
        assert np.allclose(shared, paper, atol=1e-4)
        average = sum(np.float32(w) * s for w, s in zip(weights, own, strict=True))
        assert np.allclose(average, paper, atol=1e-4), "s = Σ w_k s_k"


def test_everything_stays_float32_and_nothing_is_changed_in_place() -> None:
    g, s = vector("update"), vector("reference")
    g_before, s_before = g.copy(), s.copy()
    for result in (difference(g, s), estimate(s, g), advance(s, g, 0.3)):
        assert result.dtype == np.float32
    assert np.array_equal(g, g_before)
    assert np.array_equal(s, s_before)
    # One rounding for the product and one for the sum, coordinate by coordinate.
    assert advance(s, g, 0.3)[7] == np.float32(s[7] + np.float32(np.float32(0.3) * g[7]))
    assert difference(g, s)[7] == g[7] - s[7]
    assert estimate(s, g)[7] == s[7] + g[7]
