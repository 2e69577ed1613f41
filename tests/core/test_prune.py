"""What PriPrune withholds, and what travels of the rest."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.core.compress import Encoded, Encoding
from eris.core.errors import InvalidSetting, MalformedMessage
from eris.core.prune import Prune
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.testing import assert_same_bits

DRAW = Stream(1, "test-unused")
whole_numbers = st.lists(st.integers(-9, 9), min_size=1, max_size=60)


def vector(values: list[int]) -> Vector:
    return np.array(values, np.float32)


def normal(n: int, number: int = 0) -> Vector:
    return Stream(5, "test-prune", number).normal(0, n).astype(np.float32)


# -- what is withheld -----------------------------------------------------------------------------


@settings(deadline=None)
@given(whole_numbers, st.floats(0.01, 0.99))
def test_the_largest_are_withheld_and_of_equals_the_first(values: list[int], rate: float) -> None:
    # Slowly: one after another, each the largest that is left and the first of those.
    left = dict(enumerate(values))
    for _ in range(round(rate * len(values))):
        del left[max(left, key=lambda place: (abs(values[place]), -place))]
    found = Prune(rate=rate).withheld(vector(values))
    assert np.flatnonzero(~found).tolist() == sorted(left)


@settings(deadline=None)
@given(whole_numbers, st.integers(1, 63))
def test_adaptive_withholds_as_few_as_leave_at_most_that_energy(
    values: list[int], share: int
) -> None:
    # In exact fractions; a share of 64ths is exact as a float, too.
    energy = Fraction(share, 64)
    squares = sorted((value * value for value in values), reverse=True)
    fewest = next(
        count for count in range(len(values) + 1)
        if sum(squares[count:]) <= energy * sum(squares)
    )  # fmt: skip
    prune = Prune(energy=share / 64)
    found = prune.withheld(vector(values))
    assert found.sum() == fewest
    # And they are the largest, the first of equals, as with a fixed rate.
    order = sorted(range(len(values)), key=lambda place: (-abs(values[place]), place))
    assert np.flatnonzero(found).tolist() == sorted(order[:fewest])


def test_less_energy_withholds_more_and_none_of_it_nearly_all() -> None:
    update = normal(500)
    counts = [int(Prune(energy=e).withheld(update).sum()) for e in (0.9, 0.5, 0.1, 1e-3, 1e-300)]
    assert counts == sorted(counts)
    assert counts[0] > 0
    assert counts[-1] == 500


def test_an_update_of_zeros_has_nothing_to_withhold() -> None:
    assert not Prune(energy=0.5).withheld(np.zeros(9, np.float32)).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("prune", [Prune(rate=0.1), Prune(energy=0.5)], ids=repr)
def test_a_value_that_is_no_number_does_not_let_the_others_through(
    prune: Prune, bad: float
) -> None:
    update = normal(100)
    healthy = prune.withheld(update)
    update[healthy.argmin()] = bad
    found = prune.withheld(update)
    assert found.any()
    if np.isnan(bad):  # counts as nothing: the same are withheld as if it were 0
        update[np.isnan(update)] = 0
        assert found.tolist() == prune.withheld(update).tolist()
    else:  # is the first to be withheld
        assert found[np.isinf(update)].all()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({}, "one of the two"),
        ({"rate": 0.1, "energy": 0.1}, "one of the two"),
        ({"rate": 0.0}, "rate is 0.0; expected a number between 0 and 1"),
        ({"rate": 1.0}, "rate is 1.0"),
        ({"energy": 1.0}, "energy is 1.0"),
        ({"energy": float("nan")}, "energy is nan"),
    ],
)
def test_settings_that_mean_nothing(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        Prune(**wrong)
    assert says in str(refused.value)


# -- what travels ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 64, 1000])
@pytest.mark.parametrize("rate", [0.1, 0.9])
def test_a_segment_comes_back_in_a_bit_a_coordinate_and_32_a_value(size: int, rate: float) -> None:
    values = normal(size, size)
    values[Prune(rate=rate).withheld(values)] = 0
    encoded = Prune(rate=rate).encode(values, DRAW)
    sent = np.count_nonzero(values)
    assert encoded.count == sent
    assert len(encoded.data) == (size + 7) // 8 + 4 * sent
    assert_same_bits(Prune(rate=rate).decode(encoded, size), values)


def test_the_wire_form_is_what_the_page_says() -> None:
    """Golden: the lowest bit is the first coordinate, values are little-endian float32."""
    values = np.array([0, 1, 0, 0, 0, 0, 0, 0, -2, 0], np.float32)
    encoded = Prune(rate=0.5).encode(values, DRAW)
    assert encoded.encoding == Encoding.SPARSE
    assert encoded.data == bytes([0b10, 0b1, 0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0])


def hostile() -> dict[str, Encoded]:
    good = Prune(rate=0.5).encode(vector([0, 3, 0, 4, 5, 0, 0, 0, 6, 0]), DRAW)
    bitmap, values = good.data[:2], good.data[2:]
    sparse = Encoding.SPARSE
    return {
        "another encoding": Encoded(Encoding.DENSE, good.count, good.data),
        "a byte short": Encoded(sparse, good.count, good.data[:-1]),
        "a byte more": Encoded(sparse, good.count, good.data + b"\0"),
        "nothing": Encoded(sparse, good.count, b""),
        "a value fewer than bits": Encoded(sparse, 3, bitmap + values[:12]),
        "a value more than bits": Encoded(sparse, 5, bitmap + values + values[:4]),
        "a bit beyond the end": Encoded(
            sparse, 4, bytes([bitmap[0] ^ 0b10, bitmap[1] | 0b100]) + values
        ),
        "more values than coordinates": Encoded(sparse, 11, b"\xff\xff" + bytes(44)),
        "a negative count": Encoded(sparse, -1, bitmap[:-1] + b"\0"),
    }


@pytest.mark.parametrize("case", hostile())
def test_hostile_bytes_are_refused(case: str) -> None:
    with pytest.raises(MalformedMessage, match="payload"):
        Prune(rate=0.5).decode(hostile()[case], 10)


@settings(deadline=None)
@given(st.binary(max_size=40), st.integers(-2, 12), st.integers(0, 20))
def test_any_bytes_are_refused_or_read(data: bytes, count: int, size: int) -> None:
    encoded = Encoded(Encoding.SPARSE, count, data)
    try:
        values = Prune(rate=0.5).decode(encoded, size)
    except MalformedMessage:
        return
    assert values.shape == (size,)
    assert values.dtype == np.float32
    assert np.count_nonzero(values.view(np.uint32)) <= count
