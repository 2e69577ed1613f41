"""Words of a ring on the wire, against sums of Python's own integers."""

from __future__ import annotations

import numpy as np
import pytest

from eris.core.ring import (
    RING_BYTES,
    TILE,
    Words,
    add_planes,
    add_wire,
    check_sums,
    planes,
    signed,
    to_wire,
)

COUNTS = (0, 1, 3, TILE - 1, TILE, TILE + 1, 2 * TILE + 5)


def drawn(count: int, seed: int = 0) -> Words:
    return np.random.default_rng(seed).integers(0, 1 << 64, count, dtype=np.uint64)


def laid_out(words: Words, ring_bytes: int) -> bytes:
    """The bytes of a wire, word by word: low parts of a tile before its high parts."""
    cut = [int(word) % (1 << 8 * ring_bytes) for word in words]
    pieces = []
    for first in range(0, len(cut), TILE):
        tile = cut[first : first + TILE]
        low = 8 if ring_bytes == 8 else 4
        pieces += [(word % (1 << 8 * low)).to_bytes(low, "little") for word in tile]
        pieces += [(word >> 8 * low).to_bytes(ring_bytes - low, "little") for word in tile]
    return b"".join(pieces)


@pytest.mark.parametrize("ring_bytes", RING_BYTES)
@pytest.mark.parametrize("count", COUNTS)
def test_a_wire_is_words_modulo_two_to_the_w_tile_by_tile(ring_bytes: int, count: int) -> None:
    words = drawn(count)
    assert bytes(to_wire(words, ring_bytes)) == laid_out(words, ring_bytes)


@pytest.mark.parametrize("ring_bytes", RING_BYTES)
@pytest.mark.parametrize("count", COUNTS)
def test_adding_a_wire_gives_the_sum_and_the_check_sums_of_what_was_added(
    ring_bytes: int, count: int
) -> None:
    words, before = drawn(count), drawn(count, seed=1)
    wire, cut = to_wire(words, ring_bytes), words & np.uint64((1 << 8 * ring_bytes) - 1)
    for given in (wire, bytes(wire)):
        total = before.copy()
        found = add_wire(total, given, ring_bytes)
        assert np.array_equal(total, before + cut)
        assert found == check_sums(cut)
        slow = [int(word) for word in cut]
        assert found[0] == sum(slow) % (1 << 64)
        assert found[1] == sum((2 * i + 1) * word for i, word in enumerate(slow)) % (1 << 64)
    total = before.copy()
    add_planes(total, planes(np.frombuffer(wire, np.uint8), ring_bytes), ring_bytes)
    assert np.array_equal(total, before + cut)


@pytest.mark.parametrize("ring_bytes", RING_BYTES)
def test_signed_words_are_what_was_cut(ring_bytes: int) -> None:
    edge = 1 << 8 * ring_bytes - 1
    values = [0, 1, -1, edge - 1, -edge]
    words = np.array([value % (1 << 64) for value in values], np.uint64)
    total = np.zeros(len(values), np.uint64)
    add_wire(total, to_wire(words, ring_bytes), ring_bytes)
    assert signed(total, ring_bytes).tolist() == values
