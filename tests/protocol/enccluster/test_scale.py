"""Weights as integers: the range law, rounding that no platform changes, and the mean's error."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.core.errors import InvalidSetting, RefusedContribution
from eris.core.grid import MOST_SAMPLES
from eris.protocol.enccluster.scale import CentroidScale

WEIGHTS = st.floats(-1.5, 1.5, width=32)
SAMPLES = st.lists(st.integers(1, MOST_SAMPLES), min_size=1, max_size=8)


@given(WEIGHTS, SAMPLES)
def test_an_integer_is_the_exact_quotient_rounded_twice_at_most(
    weight: float, samples: list[int]
) -> None:
    scale = CentroidScale(len(samples), sum(samples))
    found = scale.scaled(np.array([weight], np.float32), samples[0])[0]
    exact = Fraction(weight) * 2**20 * samples[0] / sum(samples)
    # One correctly rounded division, then ties to even: Fraction and float do the same.
    assert found == round(float(exact))
    assert abs(found - exact) <= Fraction(1, 2) + Fraction(1, 2**20)


@given(st.data(), SAMPLES)
def test_the_mean_of_any_set_is_within_its_error(data: st.DataObject, samples: list[int]) -> None:
    scale = CentroidScale(len(samples), sum(samples))
    included = data.draw(st.sets(st.integers(0, len(samples) - 1), min_size=1))
    weights = data.draw(st.lists(WEIGHTS, min_size=len(samples), max_size=len(samples)))
    total = np.zeros(1, np.int64)
    for k in included:
        total += scale.scaled(np.array([weights[k]], np.float32), samples[k])
    assert abs(int(total[0])) <= scale.bound <= scale.reach
    heavy = sum(samples[k] for k in included)
    exact = sum((Fraction(weights[k]) * samples[k] for k in included), Fraction()) / heavy
    most = Fraction(len(included), 2) / 2**20 * sum(samples) / heavy
    found = Fraction(float(scale.mean(total, heavy)[0]))
    assert abs(found - exact) <= most * Fraction(1001, 1000) + abs(exact) / 2**22


@pytest.mark.parametrize("sign", [1, -1])
def test_all_clients_at_the_edge_stay_within_the_bound(sign: int) -> None:
    samples = [1, 2, 3, 5, 7, 11, 13]
    scale = CentroidScale(len(samples), sum(samples))
    edge = np.full(1, sign * scale.most, np.float32)
    total = sum(int(scale.scaled(edge, s)[0]) for s in samples)
    assert abs(total) <= scale.bound


def test_ties_go_to_the_even_neighbour() -> None:
    scale = CentroidScale(2, 2, fraction_bits=0, most=9, reach=10)
    values = np.array([1, 3, 5, -1, -3], np.float32)
    assert scale.scaled(values, 1).tolist() == [0, 2, 2, 0, -2]


def test_the_defaults_hold_up_to_2048_clients() -> None:
    assert CentroidScale(2048, 2048).bound <= 1 << 21
    with pytest.raises(
        InvalidSetting,
        match=r"weight range is 1.99.*at most 1.99.* a sum of 2050 clients at 20 bits reaches "
        r"2.09\d+e\+06, and logarithms go to 2097152",
    ):
        CentroidScale(2050, 2050)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"eligible": 0}, "eligible clients"),
        ({"reference": 0}, "reference samples"),
        ({"reference": 3 * (MOST_SAMPLES + 1)}, "reference samples"),
        ({"fraction_bits": 39}, "fraction_bits"),
        ({"most": 0.0}, "weight range"),
        ({"most": float("nan")}, "weight range"),
        ({"most": float("inf")}, "weight range"),
        ({"most": 2.0}, "weight range"),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(fields: dict[str, float], name: str) -> None:
    with pytest.raises(InvalidSetting) as found:
        CentroidScale(**{"eligible": 3, "reference": 3, **fields})  # type: ignore[arg-type]
    assert found.value.name == name


@pytest.mark.parametrize("bad", [2.0, -2.0, float("nan"), float("inf"), -float("inf")])
def test_a_weight_beyond_the_range_is_named_by_layer_and_coordinate(bad: float) -> None:
    scale, values = CentroidScale(3, 3), np.zeros(5, np.float32)
    scale.examine(4, values)
    values[3] = bad
    with pytest.raises(RefusedContribution, match=r"client 4: conv1\.weight\[3\] is .*expected at"):
        scale.examine(4, values, lambda at: f"conv1.weight[{at}]")
    with pytest.raises(RefusedContribution, match="client 4: coordinate 3 is"):
        scale.examine(4, values)
    with pytest.raises(RefusedContribution, match="client 4: centroid 3 is"):
        scale.scaled(values, 1, client=4)


@pytest.mark.parametrize("samples", [0, 6, MOST_SAMPLES + 1])
def test_a_client_with_more_samples_than_were_declared_is_refused(samples: int) -> None:
    with pytest.raises(RefusedContribution, match=f"client 2: has {samples} samples; expected"):
        CentroidScale(3, 5).scaled(np.zeros(1, np.float32), samples, client=2)
    with pytest.raises(InvalidSetting, match="included samples"):
        CentroidScale(3, 5).mean(np.zeros(1, np.int64), samples)
