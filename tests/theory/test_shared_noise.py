"""Figures of shared noise: each from an independent computation (δ = 10⁻⁵)."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from eris.audit.accounting import accounted
from eris.core.errors import InvalidSetting
from eris.core.noise import PrivacyClaim, epsilon
from eris.core.shared_noise import NoisePlan, mu_of, rounds_left
from eris.theory.shared_noise import rounding_bound

VECTORS = Path(__file__).parents[1] / "protocol" / "secure" / "noise_vectors.json"
V = json.loads(VECTORS.read_text())["accountant"]


def test_multipliers_of_the_vectors() -> None:
    for name, expected in V["sigma_over_sensitivity"].items():
        target, rounds = (float(word.split()[1]) for word in name.split(", "))
        plan = NoisePlan(target, int(rounds), 50, 0)
        assert plan.sigma == pytest.approx(expected, rel=1e-9)
        assert plan.epsilon_with(plan.honest) <= target


def test_the_same_noise_accounted_both_ways() -> None:
    for case in V["same_noise_two_ways"]:
        for honest, expected in {"1": case["local"], **case["by_honest_noises"]}.items():
            sigma = case["sigma"] * math.sqrt(int(honest))
            found = epsilon(PrivacyClaim("gaussian", 1.0, sigma, case["T"]), V["delta"])
            assert found == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("included", "colluders", "excess", "each", "openers", "full"),
    [
        (50, 0, 1.010, (6.741, 3.603, 1.085), (9.24, 20.48, 116.89), (1.000, 2.000, 8.000)),
        (50, 2, 1.031, (6.883, 3.679, 1.107), (9.01, 19.93, 113.09), (1.000, 2.000, 8.000)),
        (45, 0, 1.066, (7.114, 3.802, 1.145), (8.66, 19.08, 107.35), (0.943, 1.883, 7.498)),
        (45, 1, 1.078, (7.196, 3.846, 1.158), (8.54, 18.80, 105.43), (0.941, 1.881, 7.487)),
        (45, 10, 1.213, (8.093, 4.325, 1.302), (7.41, 16.14, 87.79), (0.927, 1.853, 7.366)),
        (35, 1, 1.231, (8.215, 4.390, 1.322), (7.28, 15.83, 85.79), (0.814, 1.624, 6.392)),
        (35, 2, 1.250, (8.342, 4.458, 1.342), (7.14, 15.52, 83.78), (0.810, 1.615, 6.355)),
        (50, 1, 1.021, (6.811, 3.640, 1.096), (9.13, 20.21, 114.99), (1.000, 2.000, 8.000)),
        (50, 10, 1.132, (7.556, 4.038, 1.216), (8.05, 17.64, 97.66), (1.000, 2.000, 8.000)),
        (45, 2, 1.091, (7.281, 3.892, 1.172), (8.42, 18.51, 103.50), (0.940, 1.878, 7.476)),
        (35, 0, 1.213, (8.093, 4.325, 1.302), (7.41, 16.14, 87.79), (0.818, 1.632, 6.427)),
        (35, 10, 1.443, (9.632, 5.148, 1.550), (6.02, 12.92, 67.31), (0.766, 1.527, 5.986)),
    ],
)
def test_planning_for_dropouts_and_colluders(
    included: int, colluders: int, excess: float, each: tuple[float, ...],
    openers: tuple[float, ...], full: tuple[float, ...],
) -> None:  # fmt: skip
    plans = [NoisePlan(target, 160, included, colluders) for target in (1, 2, 8)]
    assert round(plans[0].excess(50), 3) == excess
    assert tuple(round(plan.of_a_client, 3) for plan in plans) == each
    assert tuple(round(plan.epsilon_of_openers, 2) for plan in plans) == openers
    everyone = [plan.epsilon_with(50 - 1 - colluders) for plan in plans]
    assert tuple(round(found, 3) for found in everyone) == full


def test_fewer_than_agreed_or_more_colluders_than_planned_for() -> None:
    plans = [NoisePlan(target, 160, 50, 0) for target in (1, 2, 8)]
    seen = {n: [round(plan.epsilon_with(n), 4) for plan in plans] for n in (47, 39, 44, 34)}
    assert seen == {
        47: [1.0231, 2.0471, 8.2042],
        39: [1.1337, 2.2725, 9.1904],
        44: [1.0609, 2.1240, 8.5390],
        34: [1.2226, 2.4546, 9.9976],
    }


def epsilons(factor: float) -> list[float]:
    """ε for 1, 2, 8 where the signal is stronger by a factor than was planned for."""
    return [epsilon(PrivacyClaim("gaussian", factor * mu_of(e), 1.0, 1), 1e-5) for e in (1, 2, 8)]


def test_neighbours_by_replacement_momentum_at_clients_and_forgotten_noise() -> None:
    assert [round(e, 2) for e in epsilons(2)] == [2.15, 4.39, pytest.approx(19.1, abs=0.05)]
    # 49 others' noise of a round comes back in the next, times 0.9, where A is not included.
    left = (1 + 49 / (1 + 0.9**2)) / 50
    assert round(left, 3) == 0.561
    assert [round(e, 2) for e in epsilons(left**-0.5)] == [
        1.37,
        2.77,
        pytest.approx(11.4, abs=0.05),
    ]
    assert [round(e, 3) for e in epsilons(math.sqrt(50 / 49))] == [1.011, 2.023, 8.098]


def test_what_the_best_attacker_gets_from_openers() -> None:
    found = [norm.cdf(7 * mu_of(e) / math.sqrt(2)) for e in (1, 2, 8)]
    assert [round(float(auc), 3) for auc in found] == [0.908, 0.993, 1.000]


@pytest.mark.parametrize(
    ("z", "q", "rounds", "pld", "rdp"),
    [
        (4, 0.25, 160, 3.4863, 3.7909),
        (2, 0.25, 160, 8.4013, 9.1513),
        (1, 0.1, 160, 8.8856, 9.8757),
        (2, 0.25, 250, 10.8952, 11.7776),
        (7.5924, 1, 160, 7.9999541, 8.5993),
    ],
)
def test_secret_batches(z: float, q: float, rounds: int, pld: float, rdp: float) -> None:
    found = accounted(PrivacyClaim("gaussian", 1.0, z, rounds, q), 1e-5)
    assert found.epsilon_pld == pytest.approx(pld, abs=1e-3)
    assert found.epsilon_rdp == pytest.approx(rdp, abs=1e-3)


def test_a_budget_ends_with_the_rounds_it_was_made_for() -> None:
    for target in (1.0, 2.0, 8.0):
        for rounds in (20, 160, 250, 1000):
            charge = NoisePlan(target, rounds, 10).sigma ** -2
            spent = math.fsum([charge] * (rounds - 1))
            assert rounds_left(target, spent, charge) == 1
            assert rounds_left(target, spent + charge, charge) == 0


def test_rounding_changes_probabilities_within_its_bound() -> None:
    for std, clients in ((0.5, 2), (0.6, 3), (1.0, 2)):
        grid = np.arange(-30, 31)
        single = norm.cdf((grid + 0.5) / std) - norm.cdf((grid - 0.5) / std)
        found = single
        for _ in range(clients - 1):
            found = np.convolve(found, single, "same")
        # The ideal: a normal number less clients − 1 uniform ones, rounded; by fine sums.
        fine = 2001
        offsets = (np.arange(fine) + 0.5) / fine - 0.5
        if clients == 3:
            offsets = np.add.outer(offsets[::20], offsets[::20]).ravel()
        total = std * math.sqrt(clients)
        edges = (grid[:, None] + 0.5 + offsets[None]) / total
        ideal = (norm.cdf(edges) - norm.cdf(edges - 1 / total)).mean(1)
        middle = np.abs(grid) <= 4 * total
        off = np.abs(found[middle] / ideal[middle] - 1).max()
        assert off <= rounding_bound(std, clients) + 1e-4
    assert rounding_bound(math.sqrt(6 * 50), 50) < 1e-49


@pytest.mark.parametrize(("included", "colluders"), [(2, 0), (3, 1), (12, 10)])
def test_sets_in_which_one_alone_would_be_left_are_refused(included: int, colluders: int) -> None:
    with pytest.raises(InvalidSetting, match=f"min_included is {included}; expected at least"):
        NoisePlan(8, 160, included, colluders)


def test_more_rounds_need_noise_by_their_root() -> None:
    ratio = NoisePlan(2, 640, 20).sigma / NoisePlan(2, 160, 20).sigma
    assert ratio == pytest.approx(2, rel=1e-9)
    assert mu_of(8) == pytest.approx(1.66603, abs=1e-5)
