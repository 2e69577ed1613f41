"""Exact clipping: the bound holds for the integers, counted in integers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting
from eris.core.exact_clip import Products, add_clipped, add_clipped_products, check_room


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


def parts(seed: int, rows: int = 1, factor: float = 1.0) -> Products:
    """A layer of 7 × 130, its shifts, a layer of 3 × 7 and a kernel: 1,041 coordinates."""
    drawn = np.random.default_rng(seed)
    left = (drawn.normal(size=(rows, 110)) * factor).astype(np.float32)
    left[:, :3] = 0  # units that are off
    entered = drawn.normal(size=(rows, 137)).astype(np.float32)
    layout = [[0, 7, 130, 0, 0], [910, 7, 1, 0, 0], [917, 3, 7, 7, 130], [938, 103, 1, 7, 0]]
    return Products(left, entered, np.array(layout))


def written_out(given: Products) -> NDArray[np.float64]:
    """Products of two float32 are exact."""
    left, entered = given.left.astype(np.float64), given.entered.astype(np.float64)
    rows = []
    for a, b in zip(left, entered, strict=True):
        full, other = np.outer(a[:7], b[:130]), np.outer(a[7:10], b[130:])
        rows.append(np.concatenate([full.ravel(), a[:7], other.ravel(), a[7:]]))
    return np.stack(rows)


def of_products(given: Products, clip: float, places: int) -> NDArray[np.int64]:
    total = np.zeros(1041, np.int64)
    add_clipped_products(total, given, clip, places)
    return total


@settings(max_examples=30, deadline=None)
@given(some.integers(0, 2**32 - 1), some.floats(1e-3, 1e3), some.integers(0, 45))
def test_no_products_are_longer_than_the_clip(seed: int, clip: float, places: int) -> None:
    length = float(np.linalg.norm(written_out(parts(seed))))
    for factor in (1e-3, 1e3, *(clip / length * (1 + near) for near in (-1e-7, 0, 1e-7))):
        rows = parts(seed, factor=factor)
        content = of_products(rows, clip, places)
        assert is_within(content, clip, places)
        exact = written_out(rows)[0]
        shorter = min(1.0, clip / float(np.linalg.norm(exact)))
        slow = np.trunc(np.ldexp(exact * shorter, places))
        assert (np.abs(content - slow) <= 1 + 2.0**-41 * np.abs(slow)).all()


def test_products_are_summed_one_by_one() -> None:
    rows = parts(5, rows=40)
    whole = of_products(rows, 5.0, 40)
    apart = [
        of_products(rows._replace(left=left[None], entered=entered[None]), 5.0, 40)
        for left, entered in zip(rows.left, rows.entered, strict=True)
    ]
    assert np.array_equal(whole, sum(apart))
    for column, bad in ((0, np.nan), (50, np.inf)):  # what meets a unit that is off, too
        rows.entered[3, column] = bad
        assert np.array_equal(of_products(rows, 5.0, 40), whole - apart[3])


@pytest.mark.parametrize(
    ("line", "changed"),
    [(0, [1, 7, 130, 0, 0]), (1, [910, 6, 1, 0, 0]), (2, [917, 3, 7, 7, 131]),
     (3, [938, 103, 1, 8, 0]), (0, [0, 7, 130, -1, 0])],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused(line: int, changed: list[int]) -> None:
    rows = parts(0)
    rows.layout[line] = changed
    with pytest.raises(InvalidSetting, match="parts of 1041 values, one behind the other"):
        of_products(rows, 1.0, 10)


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
