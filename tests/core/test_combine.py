"""Laws of combining: the fixed-point mean is the exact one up to what it states, in any order, and
nothing that was refused leaves a trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from eris.core.combine import (
    MOST_SAMPLES,
    ExactMean,
    FixedPoint,
    NonFinite,
    OrderStatistic,
    bounded,
    examine,
)
from eris.core.errors import InvalidSetting, RefusedContribution
from eris.core.masks import fraction_kept
from eris.core.streams import Stream
from eris.testing import assert_same_bits

Vector = NDArray[np.float32]
Collector = ExactMean | OrderStatistic
Weighted = tuple[Vector, int]

law = settings(max_examples=150, deadline=None, derandomize=True)
RANGES = (2.0**-20, 0.001, 0.5, 1.0, 3.7, 64.0, 1e4)
PRECISION = FixedPoint()
TRIMS = (None, 0.0, 0.125, 0.25, 0.375)


def vector(*values: float) -> Vector:
    return np.array(values, np.float32)


def combined(collector: Collector, contributions: Sequence[Weighted]) -> Vector:
    for client, (values, weight) in enumerate(contributions):
        collector.add(values, weight, client)
    return collector.result()


@st.composite
def contributions(draw: st.DrawFn, reach: float, size: int | None = None) -> list[Weighted]:
    """Several clients' values within ±reach and their weights."""
    size = draw(st.integers(1, 5)) if size is None else size
    part = st.floats(-1, 1, width=32)
    count = draw(st.integers(1, 6))
    weight = draw(st.sampled_from([1, 7, 1000, 2**20, 2**25, 2**30, 2**44]))
    result = []
    for _ in range(count):
        values = np.array([draw(part) * reach for _ in range(size)], np.float32)
        inside = np.where(
            np.abs(values.astype(np.float64)) > reach, np.nextafter(values, np.float32(0)), values
        )
        result.append((inside.astype(np.float32), draw(st.integers(1, weight))))
    return result


# -- the mean -------------------------------------------------------------------------------------


@law
@given(st.data(), st.sampled_from(RANGES))
def test_the_mean_is_exact_up_to_what_it_states(data: st.DataObject, reach: float) -> None:
    precision = FixedPoint(reach)
    added = data.draw(contributions(reach))
    found = combined(ExactMean(len(added[0][0]), precision), added)
    weight = sum(w for _, w in added)
    for i, value in enumerate(found):
        exact = sum((Fraction(float(v[i])) * w for v, w in added), Fraction(0)) / weight
        # Half a step of the grid, half a unit in the last place; the last factor is for the double
        # that the mean passes through on its way from 64 bits to 32.
        unit = float(np.spacing(np.abs(value)))
        stated = precision.resolution / 2 + unit / 2 * (1 + 2.0**-20)
        assert abs(Fraction(float(value)) - exact) <= Fraction(stated)


@law
@given(st.data(), st.sampled_from(RANGES))
def test_the_mean_is_numpys(data: st.DataObject, reach: float) -> None:
    precision = FixedPoint(reach)
    added = data.draw(contributions(reach))
    found = combined(ExactMean(len(added[0][0]), precision), added)
    values = np.stack([v for v, _ in added]).astype(np.float64)
    expected = np.average(values, axis=0, weights=[w for _, w in added])
    assert np.allclose(found, expected, rtol=1e-6, atol=precision.resolution)


def test_whole_numbers_have_no_error_at_all() -> None:
    draws = np.random.default_rng(1).integers(-60, 61, (9, 200))
    weights = [1, 2, 3, 4, 5, 6, 7, 8, 28]  # 64 together: the quotients are exact too
    added = [(g.astype(np.float32), w) for g, w in zip(draws, weights, strict=True)]
    expected = (draws * np.array(weights)[:, None]).sum(axis=0) / 64
    assert_same_bits(combined(ExactMean(200, PRECISION), added), expected.astype(np.float32))


@law
@given(st.data(), st.sampled_from(RANGES))
def test_the_order_of_arrival_does_not_change_a_bit(data: st.DataObject, reach: float) -> None:
    added = data.draw(contributions(reach))
    size = len(added[0][0])
    expected = combined(ExactMean(size, FixedPoint(reach)), added)
    turned = data.draw(st.permutations(added))
    assert_same_bits(combined(ExactMean(size, FixedPoint(reach)), turned), expected)


def test_no_order_of_five_changes_a_bit() -> None:
    # In floating point these sums differ with the order: 64 swallows what is small.
    draws = np.random.default_rng(2).standard_normal((5, 40))
    scales = [64 / 5, 1e-3, 1e-6, 1.0, 1e-8]
    added = [
        (np.clip(g * s, -64, 64).astype(np.float32), 3 + k)
        for k, (g, s) in enumerate(zip(draws, scales, strict=True))
    ]
    expected = combined(ExactMean(40, PRECISION), added)
    for order in permutations(added):
        assert_same_bits(combined(ExactMean(40, PRECISION), order), expected)
    floats = {sum((v * w for v, w in o), vector(0)).tobytes() for o in permutations(added)}
    assert len(floats) > 1, "the data would not show a sum that depends on order"


@law
@given(st.data(), st.integers(0, 12), st.integers(0, 12))
def test_a_piece_of_the_mean_is_the_mean_of_the_piece(
    data: st.DataObject, one: int, other: int
) -> None:
    start, stop = sorted((one, other))
    added = data.draw(contributions(64.0, size=12))
    whole = combined(ExactMean(12, PRECISION), added)
    pieces = [(v[start:stop], w) for v, w in added]
    assert_same_bits(combined(ExactMean(stop - start, PRECISION), pieces), whole[start:stop])


# -- range and overflow ---------------------------------------------------------------------------


@pytest.mark.parametrize("reach", [2.0**-100, 2.0**-20, 0.5, 1.0, 3.0, 64.0, 2.0**20])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_value_at_the_range_is_taken_and_the_next_one_is_not(reach: float, sign: int) -> None:
    mean = ExactMean(1, FixedPoint(reach))
    mean.add(vector(sign * reach), 2, "anna")
    assert_same_bits(mean.result(), vector(sign * reach))
    beyond = np.nextafter(vector(sign * reach), np.float32(sign * np.inf))
    with pytest.raises(RefusedContribution, match=r"client ben: 1 of 1 values .* beyond ±"):
        mean.add(beyond, 2, "ben")


@pytest.mark.parametrize("reach", [1.0, 3.0, 64.0, 2.0**15, 1e-6])
@pytest.mark.parametrize("total", [1, 1000, 2**24 - 1, 2**24, 10**9, 2**40, MOST_SAMPLES])
def test_the_extreme_does_not_overflow(reach: float, total: int) -> None:
    precision = FixedPoint(reach)
    most = np.float32(reach)
    if float(most) > reach:
        most = np.nextafter(most, np.float32(0))
    for parts in {1, min(total, 3), min(total, 1000)}:
        mean = ExactMean(2, precision)
        weights = [total // parts] * (parts - 1)
        for client, weight in enumerate([*weights, total - sum(weights)]):
            mean.add(np.array([most, -most]), weight, client)
        assert mean.weight == total
        error = np.abs(mean.result().astype(np.float64) - [most, -most])
        assert (error <= precision.resolution / 2 + np.spacing(most)).all()


@pytest.mark.parametrize(("reach", "range_bits"), [(1.0, 0), (64.0, 6), (65.0, 7), (0.25, -2)])
def test_a_value_has_the_same_bits_whatever_the_range(reach: float, range_bits: int) -> None:
    precision = FixedPoint(reach)
    assert precision.fraction_bits + range_bits == 39
    assert precision.resolution == 2.0**-precision.fraction_bits


@pytest.mark.parametrize("total", [2 * 10**7, 10**8, 10**9, 2**40])
def test_many_samples_give_the_weighted_mean_in_any_order(total: int) -> None:
    draws = np.random.default_rng(total).standard_normal((5, 40)).astype(np.float32)
    weights = [total // 15 * share for share in (1, 2, 3, 4, 5)]
    added = list(zip(draws, weights, strict=True))
    expected = combined(ExactMean(40, PRECISION), added)
    exact = np.array(weights) @ draws.astype(np.float64) / sum(weights)
    assert np.allclose(expected, exact, rtol=1e-6, atol=PRECISION.resolution)
    for order in permutations(added):
        assert_same_bits(combined(ExactMean(40, PRECISION), order), expected)


@law
@given(st.data(), st.integers(0, 24))
def test_a_mean_of_two_words_is_that_of_one_where_one_is_enough(
    data: st.DataObject, shift: int
) -> None:
    light = [(v, 1 + w % 1000) for v, w in data.draw(contributions(64.0, size=6))]
    # With all weights doubled alike the mean is the same; from some point on in two words.
    heavy = [(values, weight << shift) for values, weight in light]
    one, other = ExactMean(6, PRECISION), ExactMean(6, PRECISION)
    assert_same_bits(combined(other, heavy), combined(one, light))
    assert (other._high is None) == (other.weight < 2**24)


def test_more_samples_than_a_sum_holds_are_refused_and_change_nothing() -> None:
    mean = ExactMean(1, FixedPoint())
    mean.add(vector(1), MOST_SAMPLES - 7, "anna")
    message = r"client ben: 8 samples would raise the sum of samples above 140737488355327"
    with pytest.raises(RefusedContribution, match=message):
        mean.add(vector(5), 8, "ben")
    mean.add(vector(1), 7, "cleo")
    assert mean.weight == MOST_SAMPLES
    assert_same_bits(mean.result(), vector(1))


@pytest.mark.parametrize("weight", [0, -1])
@pytest.mark.parametrize("trim", ["mean", *TRIMS])
def test_a_weight_below_one_is_refused(weight: int, trim: float | str | None) -> None:
    collector: Collector = ExactMean(1, PRECISION)
    if not isinstance(trim, str):
        collector = OrderStatistic(1, PRECISION, trim)
    collector.add(vector(1), 1, "anna")
    with pytest.raises(RefusedContribution, match=f"client ben: has {weight} samples"):
        collector.add(vector(9), weight, "ben")
    assert_same_bits(collector.result(), vector(1))


@pytest.mark.parametrize("value_range", [0.0, -1.0, math.inf, math.nan])
def test_a_range_that_is_none_is_refused(value_range: float) -> None:
    with pytest.raises(InvalidSetting, match=f"value_range is {value_range}; expected a positive"):
        FixedPoint(value_range)


def test_a_range_that_leaves_no_fraction_is_refused() -> None:
    assert FixedPoint(2.0**31).fraction_bits == 8
    with pytest.raises(InvalidSetting, match=r"value_range is 4294967296.0; .* at most 2\*\*31"):
        FixedPoint(2.0**32)


# -- values that are none -------------------------------------------------------------------------

BAD = [math.nan, math.inf, -math.inf, 64.5, -1e30]
COLLECTORS: list[Callable[[NonFinite], Collector]] = [
    lambda policy: ExactMean(3, PRECISION, policy),
    lambda policy: OrderStatistic(3, PRECISION, 0.0, policy),
]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("make", COLLECTORS)
def test_refuse_names_who_and_where_and_leaves_no_trace(
    bad: float, make: Callable[[NonFinite], Collector]
) -> None:
    collector, alone = make("refuse"), make("refuse")
    for each in (collector, alone):
        each.add(vector(1, 2, 3), 1, "anna")
    with pytest.raises(RefusedContribution) as refused:
        collector.add(vector(7, bad, bad), 4, "ben")
    assert refused.value.client == "ben"
    assert f"2 of 3 values are not finite or beyond ±64 (the first is {np.float32(bad)} at 1" in (
        refused.value.reason
    )
    for each in (collector, alone):
        each.add(vector(5, 6, 7), 2, "cleo")
    assert collector.weight == alone.weight
    assert_same_bits(collector.result(), alone.result())


@pytest.mark.parametrize(
    ("bad", "clipped"),
    [(math.nan, 0), (math.inf, 64), (-math.inf, -64), (64.5, 64), (-1e30, -64), (64, 64)],
)
@pytest.mark.parametrize("make", COLLECTORS)
def test_clip_and_zero(bad: float, clipped: float, make: Callable[[NonFinite], Collector]) -> None:
    for policy, stands_for in (("clip", clipped), ("zero", 64 if bad == 64 else 0)):
        kept: NonFinite = "clip" if policy == "clip" else "zero"
        collector, expected = make(kept), make(kept)
        given_values = vector(1, bad, -2)
        collector.add(given_values, 3, "anna")
        expected.add(vector(1, stands_for, -2), 3, "anna")
        assert_same_bits(collector.result(), expected.result())
        assert_same_bits(given_values, vector(1, bad, -2), "what was given")


# -- order statistics -----------------------------------------------------------------------------


def slow_trimmed_mean(values: Sequence[float], trim: Fraction) -> float:
    """One coordinate: sort, cut ⌊count·trim⌋ at either end, average the rest."""
    cut = math.floor(len(values) * trim)
    rest = sorted(values)[cut : len(values) - cut]
    return float(sum(map(Fraction, rest)) / len(rest))


@law
@given(st.data())
def test_the_median_is_numpys(data: st.DataObject) -> None:
    added = data.draw(contributions(64.0))
    found = combined(OrderStatistic(len(added[0][0]), PRECISION, None), added)
    expected = np.median(np.stack([v for v, _ in added]).astype(np.float64), axis=0)
    assert np.array_equal(found, expected.astype(np.float32))


@law
@given(st.data(), st.sampled_from([0.0, 0.125, 0.25, 0.375, 0.4375]))
def test_the_trimmed_mean_is_a_slow_one(data: st.DataObject, trim: float) -> None:
    added = data.draw(contributions(64.0))
    found = combined(OrderStatistic(len(added[0][0]), PRECISION, trim), added)
    for i, value in enumerate(found):
        slow = slow_trimmed_mean([float(v[i]) for v, _ in added], Fraction(trim))
        assert abs(float(value) - slow) <= float(np.spacing(np.float32(abs(slow)))) + 1e-12


@law
@given(st.data(), st.sampled_from(TRIMS))
def test_order_statistics_do_not_depend_on_order(data: st.DataObject, trim: float | None) -> None:
    zero = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0**-126])
    added = [
        (vector(*(data.draw(zero) for _ in range(4))), data.draw(st.integers(1, 9)))
        for _ in range(data.draw(st.integers(1, 6)))
    ]
    expected = combined(OrderStatistic(4, PRECISION, trim), added)
    turned = data.draw(st.permutations(added))
    assert_same_bits(combined(OrderStatistic(4, PRECISION, trim), turned), expected)


def test_a_piece_of_the_middle_is_the_middle_of_the_piece() -> None:
    # What is large cancels, so that the order in which a column is summed shows; NumPy's own sum
    # takes another order for one column than for many.
    draws = np.random.default_rng(4)
    small = draws.standard_normal((30, 6)) * 3e-14
    rows = np.concatenate([np.full((10, 6), 64.0), np.full((10, 6), -64.0), small])
    added = [(row.astype(np.float32), 1) for row in draws.permutation(rows)]
    for trim in (0.0, 0.1):
        whole = combined(OrderStatistic(6, PRECISION, trim), added)
        for i in range(6):
            piece = combined(
                OrderStatistic(1, PRECISION, trim), [(v[i : i + 1], 1) for v, _ in added]
            )
            assert_same_bits(piece, whole[i : i + 1])


@pytest.mark.parametrize("trim", TRIMS)
def test_no_order_of_signed_zeros_changes_a_bit(trim: float | None) -> None:
    added = [(vector(0.0), 1), (vector(-0.0), 1), (vector(-0.0), 1), (vector(1), 1)]
    expected = combined(OrderStatistic(1, PRECISION, trim), added)
    for order in permutations(added):
        assert_same_bits(combined(OrderStatistic(1, PRECISION, trim), order), expected)


def test_order_statistics_count_clients_and_not_samples() -> None:
    added = [(vector(1), 1000), (vector(2), 1), (vector(9), 1)]
    assert_same_bits(combined(OrderStatistic(1, PRECISION, None), added), vector(2))
    assert_same_bits(combined(OrderStatistic(1, PRECISION, 0.0), added), vector(4))


@pytest.mark.parametrize("value_range", [0.1, 0.3, 1e-3])
def test_a_range_that_no_float32_holds_bounds_every_policy_alike(value_range: float) -> None:
    precision = FixedPoint(value_range=value_range)
    beyond = np.float32(value_range)
    while float(beyond) <= value_range:
        beyond = np.nextafter(beyond, np.float32(1))
    values = np.array([0, beyond, -beyond], np.float32)
    with pytest.raises(RefusedContribution, match="at 1 of the segment"):
        bounded(values, "anna", precision, "refuse")
    assert bounded(values, "anna", precision, "zero").tolist() == [0, 0, 0]
    clipped = bounded(values, "anna", precision, "clip").astype(np.float64)
    assert np.all(np.abs(clipped) <= value_range)
    assert np.all(np.abs(clipped[1:]) > 0.999 * value_range)


@pytest.mark.parametrize(
    "collector", [ExactMean(2, FixedPoint()), OrderStatistic(2, FixedPoint(), None)]
)
@pytest.mark.parametrize("values", [np.zeros(3, np.float32), np.zeros(1, np.float32), np.zeros(2)])
def test_values_of_another_size_or_type_are_refused_by_name(
    collector: ExactMean | OrderStatistic, values: NDArray[np.float32]
) -> None:
    with pytest.raises(RefusedContribution, match=r"anna.*expected 2 float32 values"):
        collector.add(values, 1, "anna")
    assert collector.weight == 0
    with pytest.raises(InvalidSetting, match="at least 1 before there is a result"):
        collector.result()


def test_an_order_statistic_bounds_the_sum_of_samples_too() -> None:
    median = OrderStatistic(1, FixedPoint(), None)
    median.add(np.zeros(1, np.float32), MOST_SAMPLES, "anna")
    with pytest.raises(RefusedContribution, match=r"ben.*raise the sum of samples above"):
        median.add(np.zeros(1, np.float32), 1, "ben")


# -- a whole update -------------------------------------------------------------------------------


@law
@given(st.data(), st.sampled_from(RANGES), st.booleans(), st.booleans())
def test_an_update_is_refused_whole_exactly_if_one_of_its_values_would_be(
    data: st.DataObject, reach: float, shifted: bool, masked: bool
) -> None:
    part = st.floats(-1.25, 1.25, width=32) | st.sampled_from([math.nan, math.inf, -math.inf])
    values = st.lists(part, min_size=70, max_size=70)
    update = np.array(data.draw(values), np.float32) * np.float32(reach)
    reference = np.float32(reach) * np.linspace(-0.5, 0.5, 70, dtype=np.float32)
    kept = fraction_kept(70, 0.4, Stream(data.draw(st.integers(0, 99)), "mask"))
    sent = update - reference if shifted else update
    places = kept.among(np.arange(70)) if masked else np.arange(70)
    bad = places[~(np.abs(sent[places].astype(np.float64)) <= reach)]

    def look() -> float:
        return examine(
            update, "anna", FixedPoint(reach), reference=reference if shifted else None,
            kept=kept if masked else None,
        )  # fmt: skip

    if not len(bad):
        assert look() == 0
        return
    with pytest.raises(RefusedContribution) as refused:
        look()
    said = f"{len(bad)} of {len(places)} values are not finite or beyond ±{reach:g} (the first is"
    assert f"{said} {sent[bad[0]]} at coordinate {bad[0]})" in str(refused.value)


@pytest.mark.parametrize("policy", ["clip", "zero"])
def test_other_policies_refuse_nothing(policy: NonFinite) -> None:
    assert examine(vector(1, math.nan, 70), "anna", PRECISION, policy) == 0


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("size", [1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7])
def test_what_vanishes_of_an_update_is_its_share_of_the_norm(size: float, shifted: bool) -> None:
    draws = size * np.random.default_rng(3).standard_normal(1000)
    reference = np.ones(1000, np.float32) * np.float32(size) if shifted else None
    update = draws.astype(np.float32)
    sent = (update if reference is None else update - reference).astype(np.float64)
    combined = ExactMean(1000, PRECISION)
    combined.add(sent.astype(np.float32), 1, "anna")
    # What arrives is what the owner's grid has of it.
    share = np.linalg.norm(sent - combined.result()) / np.linalg.norm(sent)
    found = examine(update, "anna", PRECISION, reference=reference)
    assert found == pytest.approx(share if share > 0.01 else 0.0, rel=1e-5)
    assert (found > 0) == (size < 5e-9)
