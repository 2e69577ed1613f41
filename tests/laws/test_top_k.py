"""Laws of top-k: it is biased, it contracts, and with error feedback it loses nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.core.compress import Encoded, Encoding, TopK, error_feedback
from eris.core.errors import MalformedMessage
from eris.core.streams import Stream
from support.compressors import complaint


def test_top_k_is_biased() -> None:
    values = np.array([3, -4, 1, 2], np.float32)
    encoded = TopK(0.5).encode(values, Stream(1, "top"))
    assert TopK(0.5).decode(encoded, 4).tolist() == [3, -4, 0, 0]
    # Nothing is drawn, so the error of one draw is the bias.
    assert TopK(0.5).encode(values, Stream(2, "top")) == encoded


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.floats(-9, 9, width=32), min_size=1, max_size=40), st.floats(0.01, 1))
def test_top_k_keeps_the_largest_and_contracts(numbers: list[float], fraction: float) -> None:
    values, top = np.array(numbers, np.float32), TopK(fraction)
    size = len(values)
    count = max(1, round(fraction * size))
    encoded = top.encode(values, Stream(0, "top"))
    assert (encoded.count, len(encoded.data)) == (count, 8 * count)
    decoded = top.decode(encoded, size)
    assert decoded.dtype == np.float32
    best = sorted(range(size), key=lambda i: (-abs(numbers[i]), i))[:count]
    expected = np.zeros(size, np.float32)
    expected[best] = values[best]
    assert np.array_equal(decoded, expected)
    left, whole = np.square(values - decoded).sum(), np.square(values).sum()
    assert left <= (1 - count / size) * whole * (1 + 1e-6)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 30), st.integers(1, 12), st.floats(0.01, 1), st.integers(0, 2**64 - 1))
def test_error_feedback_loses_nothing(size: int, rounds: int, fraction: float, seed: int) -> None:
    # Whole numbers, so that every sum is exact.
    words = Stream(seed, "updates").words(0, size * rounds).reshape(rounds, size)
    updates = (words % np.uint32(201)).astype(np.float32) - np.float32(100)
    top, memory = TopK(fraction), np.zeros(size, np.float32)
    arrived = np.zeros(size, np.float32)
    for update in updates:
        encoded, memory = error_feedback(top, update, memory, Stream(seed, "top"))
        arrived += top.decode(encoded, size)
        assert (memory[top.decode(encoded, size) != 0] == 0).all()
    assert np.array_equal(arrived + memory, updates.sum(axis=0))


def test_without_memory_small_coordinates_never_arrive() -> None:
    update, memory = np.array([10, 1], np.float32), np.zeros(2, np.float32)
    top, arrived, without = TopK(0.5), np.zeros(2, np.float32), np.zeros(2, np.float32)
    for _ in range(50):
        encoded, memory = error_feedback(top, update, memory, Stream(0, "top"))
        arrived += top.decode(encoded, 2)
        without += top.decode(top.encode(update, Stream(0, "top")), 2)
    assert without[1] == 0
    assert arrived[1] >= 40


def test_top_k_refuses_what_no_client_sends() -> None:
    top = TopK(0.5)
    good = top.encode(np.array([1, 2, 3, 4], np.float32), Stream(0, "top"))

    def indices(*numbers: int) -> Encoded:
        return replace(good, data=np.array(numbers, "<u4").tobytes() + good.data[8:])

    for bad in (indices(3, 2), indices(2, 2), indices(2, 4), indices(0, 2**32 - 1)):
        with pytest.raises(MalformedMessage, match=r"payload.data: indices must .* below 4"):
            top.decode(bad, 4)
    assert top.decode(indices(0, 1), 4).tolist() == [3, 4, 0, 0]
    assert complaint(lambda: top.decode(replace(good, count=1), 4)) == "payload.count"
    assert complaint(lambda: top.decode(replace(good, data=good.data[:-4]), 4)) == "payload.data"
    assert complaint(lambda: top.decode(good, 8)) == "payload.count"
    dense = replace(good, encoding=Encoding.DENSE)
    assert complaint(lambda: top.decode(dense, 4)) == "payload.encoding"
