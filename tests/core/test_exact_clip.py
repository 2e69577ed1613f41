"""Exact clipping: the bound holds for the integers, counted in integers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting
from eris.core.exact_clip import add_clipped, check_room


def clipped(rows: NDArray[np.float32], clip: float, places: int) -> NDArray[np.int64]:
    total = np.zeros(rows.shape[1], np.int64)
    add_clipped(total, rows, clip, places)
    return total


def is_within(content: NDArray[np.int64], clip: float, places: int) -> bool:
    square = sum(int(a) ** 2 for a in content)
    return bool(square <= (Fraction(clip) * 2**places) ** 2)


@settings(max_examples=30, deadline=None)
@given(
    some.integers(1, 600), some.integers(0, 2**32 - 1), some.floats(1e-3, 1e3),
    some.sampled_from([-40, -3, 0, 3, 100]), some.integers(0, 45),
)  # fmt: skip
def test_no_vector_of_integers_is_longer_than_the_clip(
    n: int, seed: int, clip: float, magnitude: int, places: int
) -> None:
    drawn = np.random.default_rng(seed).normal(size=(1, n)).astype(np.float32)
    row = np.ldexp(drawn, magnitude).astype(np.float32)
    assert is_within(clipped(row, clip, places), clip, places)
    # Just about as long as allowed, where roundings decide.
    length = np.linalg.norm(drawn.astype(np.float64))
    for factor in (1 - 1e-7, 1, 1 + 1e-7):
        near = (drawn * (clip / length * factor)).astype(np.float32)
        assert is_within(clipped(near, clip, places), clip, places)


def test_a_vector_as_long_as_the_clip_to_the_last_bit() -> None:
    row = np.full((1, 61_706), 1, np.float32)
    clip = float(np.sqrt(np.float64(61_706)))
    content = clipped(row, clip, 40)
    assert is_within(content, clip, 40)
    assert content.min() > 2**40 * (1 - 2.0**-36)
    # Rounding to nearest on a coarse grid is longer than the clip: what cutting is for.
    coarse = np.rint(row.astype(np.float64) * 0.4 / 0.25).astype(np.int64)[0]
    assert not is_within(coarse, 0.4 * clip, 2)


def test_one_sample_moves_a_sum_by_the_clip_at_most_and_order_by_nothing() -> None:
    drawn = np.random.default_rng(3)
    rows = (drawn.normal(size=(40, 300)) * np.exp(drawn.normal(size=(40, 1)))).astype(np.float32)
    whole = clipped(rows, 5.0, 40)
    assert np.array_equal(whole, clipped(rows[drawn.permutation(40)], 5.0, 40))
    for gone in range(40):
        rest = clipped(np.delete(rows, gone, axis=0), 5.0, 40)
        assert is_within(whole - rest, 5.0, 40)
    apart = sum(clipped(row[None], 5.0, 40) for row in rows)
    assert np.array_equal(whole, apart)


def test_short_vectors_are_cut_and_not_scaled() -> None:
    row = np.array([[0.75, -0.75, 2.0**-9, -(2.0**-9)]], np.float32)
    assert clipped(row, 2.0, 8).tolist() == [192, -192, 0, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_counts_as_nothing(bad: float) -> None:
    rows = np.array([[1, 2], [bad, 1]], np.float32)
    assert clipped(rows, 10.0, 4).tolist() == [16, 32]


def test_weights_shorten() -> None:
    total = np.zeros(2, np.int64)
    add_clipped(total, np.array([[3, 4]], np.float32), 10.0, 20, weight=0.25)
    assert total.tolist() == [3 << 18, 4 << 18]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="places is 56; expected fewer than 56"):
        check_room(64.0, 56)
    with pytest.raises(InvalidSetting, match="rows is 'float64"):
        add_clipped(np.zeros(2, np.int64), np.zeros((1, 2)), 1.0, 4)  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="clip is 0"):
        clipped(np.zeros((1, 2), np.float32), 0, 4)
    with pytest.raises(InvalidSetting, match=r"weight is 1\.5"):
        add_clipped(np.zeros(1, np.int64), np.zeros((1, 1), np.float32), 1.0, 4, weight=1.5)
