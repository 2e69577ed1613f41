"""What a budget buys: the noise, and the ε of a whole run."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.core.errors import InvalidSetting
from eris.core.noise import PrivacyClaim, epsilon
from eris.methods.privacy import Calibration, LocalPrivacy

budgets = st.floats(0.1, 50)
releases_ = st.integers(1, 400)


@settings(max_examples=8, deadline=None)
@given(budgets, releases_, st.floats(0.1, 10))
def test_composed_spends_the_budget_and_not_more(budget: float, releases: int, clip: float) -> None:
    privacy = LocalPrivacy(budget, clip=clip)
    spent = privacy.spent(releases)
    assert spent <= budget
    assert spent == pytest.approx(budget, rel=1e-6)
    # And a little less noise would break it.
    less = PrivacyClaim("gaussian", clip, privacy.sigma(releases) * (1 - 1e-6), releases)
    assert epsilon(less, privacy.delta) > budget


@settings(max_examples=8, deadline=None)
@given(budgets, st.integers(2, 400), st.integers(1, 20))
def test_per_round_spends_the_budget_in_a_round_and_more_in_a_run(
    budget: float, rounds: int, uses: int
) -> None:
    privacy = LocalPrivacy(budget, calibration="per-round")
    assert privacy.spent(1, uses) <= budget
    assert privacy.spent(1, uses) == pytest.approx(budget, rel=1e-6)
    assert privacy.sigma(rounds, uses) == privacy.sigma(1, uses)
    assert privacy.spent(rounds, uses) > 1.3 * budget


@pytest.mark.parametrize("calibration", ["composed", "per-round"])
def test_what_is_spent_is_what_the_accountant_reads_of_the_claim(calibration: Calibration) -> None:
    privacy = LocalPrivacy(4.0, delta=1e-6, clip=2.0, calibration=calibration)
    claim = privacy.claim(10, uses=3)
    assert claim == PrivacyClaim("gaussian", 2.0, privacy.sigma(10, uses=3), 30)
    assert privacy.spent(10, uses=3) == epsilon(claim, 1e-6)


def test_noise_grows_with_the_norm_and_the_root_of_the_releases() -> None:
    one = LocalPrivacy(8.0)
    assert LocalPrivacy(8.0, clip=3.0).sigma(5) == pytest.approx(3 * one.sigma(5), rel=1e-9)
    assert one.sigma(49) == pytest.approx(7 * one.sigma(1), rel=1e-9)
    assert one.sigma(7, uses=7) == one.sigma(49)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"epsilon": 0}, "epsilon is 0; expected a number above 0"),
        ({"epsilon": -1.0}, "epsilon is -1.0"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"epsilon": math.inf}, "epsilon is inf"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta is 0.0"),
        ({"epsilon": 1.0, "clip": -2.0}, "-2.0"),
        ({"epsilon": 1.0, "calibration": "never"}, "calibration is 'never'"),
    ],
)
def test_budgets_that_mean_nothing(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        LocalPrivacy(**wrong)
    assert says in str(refused.value)
