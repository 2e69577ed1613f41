"""rand-p: the probability that is drawn, ω, γ and the scale are of one and the same p."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eris.core.compress import RandP
from eris.core.errors import InvalidSetting
from eris.core.shift import shift_step
from eris.core.streams import Stream

LEAST = 2.0**-32


@settings(deadline=None, derandomize=True)
@given(st.floats(LEAST, 1) | st.floats(LEAST, 100 * LEAST))
@example(LEAST)
@example(1.5 * LEAST)
@example(2.5 * LEAST)
@example(1 / 3)
@example(1 - 2.0**-53)
@example(1.0)
def test_variance_and_scale_are_of_the_same_probability(fraction: float) -> None:
    compressor = RandP(fraction)
    omega, scale = compressor.omega(10), compressor.kept(10, Stream(1, "mask")).scale
    assert omega == scale - 1
    assert omega == 1 / (round(fraction * 2**32) / 2**32) - 1
    # Rounding p moves it by half of 2⁻³² at most.
    assert abs(1 / scale - fraction) <= LEAST / 2 * (1 + 1e-12)


def test_the_least_probability_and_the_largest() -> None:
    least = RandP(LEAST)
    assert least.omega(1) == 2**32 - 1
    assert least.kept(1000, Stream(1, "mask")).scale == 2.0**32
    assert 0 < shift_step(least.omega(1)) < 1
    assert RandP(1.0).omega(1) == RandP(1 - 2.0**-53).omega(1) == 0


@pytest.mark.parametrize("fraction", [math.nextafter(LEAST, 0), 1e-10, 1e-300, 1e-320, 5e-324])
def test_probabilities_that_no_word_can_draw_are_refused(fraction: float) -> None:
    with pytest.raises(InvalidSetting, match=r"kept_fraction is .*; expected .* \[2\*\*-32, 1\]$"):
        RandP(fraction)


@pytest.mark.parametrize("fraction", [1.5, 0.0, -0.0, -1e-10, math.nan, math.inf])
def test_what_is_no_probability_is_refused_in_the_words_the_guides_quote(fraction: float) -> None:
    with pytest.raises(InvalidSetting) as refusal:
        RandP(fraction)
    assert str(refusal.value) == f"kept_fraction is {fraction}; expected a number in (0, 1]"
