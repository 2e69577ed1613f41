"""A common grid: rounding that is right on average, its error, and units that sums fit."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.core.errors import InvalidSetting
from eris.core.grid import CommonGrid, exponent_for, most_clients, room
from eris.core.ring import add_wire, exponent_in, packed_form, to_wire, word_bits
from eris.core.streams import Stream

# Three programs that share no code agreed on these.
V: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("enccluster_vectors.json").read_text()
)["packing"]  # fmt: skip


@pytest.mark.parametrize("case", [c for c in V if c["bits"] >= 8], ids=lambda c: str(c["bits"]))
def test_words_lie_as_in_the_vectors(case: dict[str, Any]) -> None:
    words, form = np.array(case["values"], np.uint64), packed_form(case["bits"], 3)
    assert to_wire(words, form).hex() == case["packed"]
    total = np.zeros(len(words), np.uint64)
    add_wire(total, bytes.fromhex(case["packed"]), form)
    assert total.tolist() == case["values"]


@given(st.integers(8, 32), st.none() | st.integers(-63, 63))
def test_a_form_names_bits_and_exponent(bits: int, exponent: int | None) -> None:
    form = packed_form(bits, exponent)
    assert word_bits(form) == bits
    assert exponent_in(form) == exponent
    expected = 256 + bits + (0 if exponent is None else 2**16 * (exponent + 64))
    assert form == expected < 1 << 24, "exact in a float32"


@pytest.mark.parametrize(("bits", "exponent"), [(7, 0), (33, 0), (12, 64), (12, -64)])
def test_other_forms_are_refused(bits: int, exponent: int) -> None:
    with pytest.raises(InvalidSetting):
        packed_form(bits, exponent)


@given(st.integers(8, 32), st.integers(1, 512), st.floats(1e-6, 1e6))
def test_an_exponent_is_the_finest_that_fits(bits: int, clients: int, most: float) -> None:
    clients = min(clients, most_clients(bits))
    found = exponent_for(bits, clients, most)
    fits = most * 2.0**found <= room(bits, clients)
    assert fits
    assert found == 30 or most * 2.0 ** (found + 1) > room(bits, clients)


def test_powers_of_two_are_their_own_exponents() -> None:
    assert room(12, 1023) == 1024
    assert exponent_for(12, 1023, 1.0) == 10
    assert exponent_for(12, 1023, math.nextafter(1.0, 2.0)) == 9


def test_rounding_is_right_on_average_and_its_error_is_the_law() -> None:
    """E[u] = x·levels·S_i/S_ref; the mean's squared error is N·Δ²/6, to the nearest N·Δ²/12."""
    clients, n = 10, 20_000
    samples = [1 + 2 * k for k in range(clients)]
    grid = CommonGrid(2.0**9, sum(samples))
    values = np.random.default_rng(1).normal(0, 0.3, (clients, n)).astype(np.float32)
    exact = np.average(values.astype(np.float64), axis=0, weights=samples)

    def error(stochastic: bool, included: range) -> np.ndarray[Any, Any]:
        total = np.zeros(n, np.int64)
        for k in included:
            draws = Stream(3, "test-grid", client=k).uniform(0, n) if stochastic else None
            total += grid.integers(values[k], samples[k], draws)
        weights = [samples[k] for k in included]
        over = np.average(values[: len(included)].astype(np.float64), axis=0, weights=weights)
        found = grid.mean(total, sum(weights)) - over
        law = len(included) * grid.unit(sum(weights)) ** 2 / (6 if stochastic else 12)
        # A sum of squares of about normal errors has deviation √(2/n).
        assert abs(float(np.square(found).mean()) / law - 1) < 5 * math.sqrt(2 / n)
        return found

    found = error(stochastic=True, included=range(clients))
    assert abs(float(found.mean())) < 5 * float(found.std()) / math.sqrt(n)
    assert abs(float(np.corrcoef(found, exact)[0, 1])) < 5 / math.sqrt(n)
    error(stochastic=False, included=range(clients))
    error(stochastic=True, included=range(7))
    assert np.square(found).max() < (clients * grid.unit(sum(samples))) ** 2


def test_small_values_vanish_to_the_nearest_and_not_on_average() -> None:
    grid, n = CommonGrid(1.0, 1), 4000
    small = np.full(n, 0.1, np.float32)
    assert not grid.integers(small, 1, None).any()
    drawn = grid.integers(small, 1, Stream(1, "test-grid").uniform(0, n))
    assert abs(drawn.mean() - 0.1) < 5 * 0.3 / math.sqrt(n)
