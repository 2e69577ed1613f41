"""ε by the numerical accountants: reference values, the exact answer, monotony, refusals."""

from __future__ import annotations

import logging
import math
import sys

import pytest

from eris.audit.accounting import Accounted, accounted
from eris.core.composition import discretisation
from eris.core.errors import InvalidSetting, MissingExtra
from eris.core.noise import PrivacyClaim, epsilon, sigma_for


def claim(sigma: float, rounds: int = 1, rate: float = 1.0, clip: float = 1.0) -> PrivacyClaim:
    return PrivacyClaim("gaussian", clip, sigma, rounds, rate)


def by_pld(found: Accounted) -> float:
    assert found.epsilon_pld is not None, found.note
    return found.epsilon_pld


@pytest.mark.parametrize(
    ("released", "pld", "rdp"),
    [(claim(1.0, 1000, 0.01), 1.828244, 2.101367), (claim(10.0, 100), 4.377178, 4.728507)],
)  # dp-accounting 0.6 at its own interval, 1e-4
def test_reference_values(released: PrivacyClaim, pld: float, rdp: float) -> None:
    found = accounted(released, 1e-5)
    assert by_pld(found) == pytest.approx(pld, abs=5e-7)
    assert found.epsilon_rdp == pytest.approx(rdp, abs=5e-7)
    assert (found.delta, found.claim, found.note) == (1e-5, released, "")


@pytest.mark.parametrize("delta", [1e-5, 1e-9, 0.3])
@pytest.mark.parametrize(("sigma", "rounds"), [(0.5, 1), (3.0, 40), (200.0, 3)])
def test_plain_gaussians_are_bounded_and_bounded_closely(
    sigma: float, rounds: int, delta: float
) -> None:
    found = accounted(claim(sigma, rounds), delta)
    assert found.exact == epsilon(claim(sigma, rounds), delta) == found.epsilon
    assert found.exact - 1e-6 <= by_pld(found) <= found.exact + 1e-3
    assert found.epsilon_rdp >= by_pld(found) - 1e-6


def test_sampling_everyone_costs_what_no_sampling_does() -> None:
    """The two ways through the library, one release of the sum or ten by Fourier transforms."""
    found = accounted(claim(1.0, 10, rate=1 - 1e-12), 1e-9)
    exact = epsilon(claim(1.0, 10), 1e-9)
    assert exact - 1e-6 <= by_pld(found) <= exact + 1e-3
    assert found.exact is None
    assert found.epsilon == found.epsilon_pld


def test_more_sampling_and_more_rounds_cost_more_and_sampling_less_than_none() -> None:
    costs = [by_pld(accounted(claim(4.0, 50, rate), 1e-5)) for rate in (0.02, 0.2, 0.8, 1.0)]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1] / 10
    costs = [by_pld(accounted(claim(4.0, rounds, 0.2), 1e-5)) for rounds in (1, 30, 900)]
    assert costs == sorted(costs)


def test_only_the_ratio_of_noise_to_sensitivity_counts() -> None:
    one, other = accounted(claim(8.0, 40, 0.2), 1e-5), accounted(claim(4.0, 40, 0.2, 0.5), 1e-5)
    assert one.bounds == other.bounds
    assert discretisation(one.claim) == discretisation(other.claim)


def test_many_small_losses_are_resolved() -> None:
    """The library's own interval gives 0.0240 here; the central limit theorem says 0.00743."""
    found = accounted(claim(100.0, 100_000, 0.001), 1e-5)
    limit = epsilon(claim(1 / (0.001 * math.sqrt(math.expm1(1e-4))), 100_000), 1e-5)
    assert limit - 1e-5 <= by_pld(found) <= 1.01 * limit
    assert by_pld(found) < found.epsilon_rdp


@pytest.mark.parametrize(("sigma", "rate"), [(2e9, 0.5), (1e300, 0.5), (100.0, 1e-9)])
def test_losses_below_rounding_errors_are_never_taken_for_none(sigma: float, rate: float) -> None:
    """RDP by itself says 0 of the first, whose exact ε is no less than that of half the signal."""
    rounds = 10**12 if sigma == 2e9 else 1
    found = accounted(claim(sigma, rounds, rate), 1e-5)
    least = epsilon(claim(sigma / rate, rounds), 1e-5)
    assert all(bound >= least for bound in found.bounds)
    assert sigma != 2e9 or least > 1e-4


def test_a_round_at_a_time_calibration_over_160_rounds() -> None:
    sigma = sigma_for(10.0, 1e-5, 1.0, 1)
    found = accounted(claim(sigma, 160), 1e-5)
    assert 400 < found.epsilon < by_pld(found) < found.epsilon + 1e-3


def test_where_pld_ends_the_exact_value_stands_and_it_is_said() -> None:
    found = accounted(claim(0.1, 160), 1e-5)
    assert found.epsilon_pld is None
    assert "above 700" in found.note
    assert "exact value" in found.note
    assert found.epsilon == found.exact == pytest.approx(8538.487, abs=1e-3)
    assert found.epsilon_rdp > found.epsilon
    assert found.bounds == (found.epsilon_rdp,)
    sampled = accounted(claim(0.02, 160, 0.5), 1e-5)
    assert sampled.epsilon_pld is sampled.exact is None
    assert "bound by RDP" in sampled.note
    assert sampled.epsilon == sampled.epsilon_rdp > 700


def test_no_noise_is_infinite_and_no_release_is_nothing() -> None:
    for rate in (1.0, 0.01):
        found = accounted(claim(0.0, 5, rate), 1e-5)
        assert (found.epsilon_pld, found.epsilon_rdp, found.epsilon) == (math.inf,) * 3
        for sigma in (0.0, 1.0):
            found = accounted(claim(sigma, 0, rate), 1e-5)
            assert (found.epsilon_pld, found.epsilon_rdp, found.exact) == (0.0, 0.0, 0.0)
    hardly = accounted(claim(1e-200, 5), 1e-5)
    assert hardly.epsilon == hardly.epsilon_rdp == math.inf


def test_what_is_not_known_is_refused() -> None:
    unknown = PrivacyClaim("laplace", 1.0, 1.0, 5)
    with pytest.raises(InvalidSetting, match="mechanism is 'laplace'; expected 'gaussian'"):
        accounted(unknown, 1e-5)
    for delta in (0.0, 1e-13, 1.0, math.nan):
        with pytest.raises(InvalidSetting, match="delta is"):
            accounted(claim(1.0), delta)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingExtra, match=r"installed: dp-accounting; .*'eris-fl\[audit\]'"):
        accounted(claim(1.0), 1e-5)


def test_orders_that_do_not_converge_make_no_noise(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("absl")
    with caplog.at_level(logging.WARNING, logger="absl"):
        log.addHandler(caplog.handler)
        found = accounted(claim(0.5, 160, 0.1), 1e-5)
        assert log.level == logging.WARNING, "as it was before"
        log.removeHandler(caplog.handler)
    assert not caplog.records
    assert by_pld(found) == pytest.approx(40.1009, abs=1e-3)  # at a tenth of the interval
    assert found.epsilon_rdp > by_pld(found)
