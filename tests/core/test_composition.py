"""Many releases together: the design's numbers, what is exact, what adds up, what is refused."""

from __future__ import annotations

import sys

import pytest

from eris.core.composition import by_rdp, composed, discretisation, sampled_sigma_for
from eris.core.errors import InvalidSetting, MissingExtra
from eris.core.noise import PrivacyClaim, epsilon
from eris.core.shared_noise import NoisePlan

DELTA = 1e-5


def sampled(z: float, q: float, rounds: int) -> PrivacyClaim:
    return PrivacyClaim("gaussian", 1.0, z, rounds, q)


@pytest.mark.parametrize(
    ("z", "q", "rounds", "pld", "rdp"),
    [
        (4, 0.25, 160, 3.4863, 3.7909),
        (2, 0.25, 160, 8.4013, 9.1513),
        (1, 0.1, 160, 8.8856, 9.8757),
        (2, 0.25, 250, 10.8952, 11.7776),
    ],
)
def test_the_numbers_of_the_design(z: float, q: float, rounds: int, pld: float, rdp: float) -> None:
    claim = sampled(z, q, rounds)
    assert composed((claim,), DELTA) == pytest.approx(pld, abs=6e-5)
    assert composed((claim,), DELTA, adaptive=True) == pytest.approx(rdp, abs=6e-5)


def test_all_samples_are_exact_and_need_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    whole = PrivacyClaim("gaussian", 1.0, 7.5924, 160)
    assert composed((whole,), DELTA) == pytest.approx(7.9999541, abs=1e-7)
    halves = PrivacyClaim("gaussian", 1.0, 7.5924, 80), PrivacyClaim("gaussian", 2.0, 15.1848, 80)
    assert composed(halves, DELTA, adaptive=True) == pytest.approx(epsilon(whole, DELTA), rel=1e-12)
    assert composed((), DELTA) == 0.0
    assert NoisePlan(8, 160, 50).sigma == pytest.approx(7.5924, abs=1e-4)
    with pytest.raises(MissingExtra, match=r"dp-accounting; .*'eris-fl\[audit\]'"):
        composed((sampled(3.21, 0.5, 7),), DELTA)
    with pytest.raises(MissingExtra, match=r"dp-accounting; .*'eris-fl\[audit\]'"):
        _ = NoisePlan(8, 77, 50, sampling_rate=0.5).sigma


@pytest.mark.parametrize(("budget", "z"), [(8, 2.08), (2, 6.48), (1, 11.94)])
def test_the_noise_that_a_quarter_of_the_samples_needs(budget: float, z: float) -> None:
    found = sampled_sigma_for(budget, DELTA, 160, 0.25)
    assert found == pytest.approx(z, rel=0.01)
    assert composed((sampled(found, 0.25, 160),), DELTA) <= budget
    assert composed((sampled(0.995 * found, 0.25, 160),), DELTA) > budget


def test_mixed_releases_lie_between_their_parts_and_their_bounds() -> None:
    plain, some = PrivacyClaim("gaussian", 1.0, 10.0, 40), sampled(8, 0.25, 80)
    both = composed((plain, some), DELTA)
    assert composed((plain,), DELTA) < both
    assert composed((some,), DELTA) < both
    assert both < composed((plain, some), DELTA, adaptive=True)
    assert both < composed((plain, sampled(8, 0.5, 80)), DELTA)
    assert both == pytest.approx(composed((some, plain), DELTA), rel=1e-6)
    # A whole batch is a rate of 1, and a little less than that is a little less.
    near = composed((sampled(10.0, 1 - 1e-9, 40),), DELTA)
    assert near == pytest.approx(composed((plain,), DELTA), rel=1e-3)
    assert near >= composed((plain,), DELTA) * (1 - 1e-6)
    split = composed((sampled(8, 0.25, 30), sampled(8, 0.25, 50)), DELTA)
    assert split == pytest.approx(composed((some,), DELTA), rel=1e-4)
    assert 0 < discretisation(plain, some) <= 1.5e-4


def test_losses_beyond_pld_are_bounded_by_rdp() -> None:
    hopeless = sampled(0.02, 0.5, 3)
    assert composed((hopeless,), DELTA) == by_rdp((hopeless,), DELTA) > 1000


def test_what_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"delta is 1e-13; expected a number in \[1e-12, 1\)"):
        composed((sampled(4, 0.25, 1),), 1e-13)
    with pytest.raises(InvalidSetting, match=r"delta is 1e-13"):
        sampled_sigma_for(8.0, 1e-13, 10, 0.25)
    with pytest.raises(InvalidSetting, match=r"sampling_rate is 1\.5; expected a number in \(0, 1"):
        NoisePlan(8, 10, 5, sampling_rate=1.5)
