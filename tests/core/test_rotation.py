"""The rotation of coordinates: orthogonal, the same bits everywhere, and what it does to masks."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting
from eris.core.rotation import BLOCK, Rotation, rotated_size
from eris.core.streams import Stream

SIZES = [1, 100, 3 * BLOCK, 61_706]


def normals(n: int) -> NDArray[np.float32]:
    return Stream(n, "example").normal(0, n).astype(np.float32)


def plain(x: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """R·x as it is written down, in plain NumPy."""
    size = BLOCK * -(-len(x) // BLOCK)
    words = Stream(seed, "rotation-order").words(0, len(x))
    order = np.lexsort((np.arange(len(x)), words))
    signs = np.where(Stream(seed, "rotation").words(0, size) >> 31 == 1, 1, -1)
    z = np.zeros(size, np.float32)
    z[: len(x)] = x[order]
    z *= signs.astype(np.float32)
    for reach in (1, 2, 4, 8, 16, 32, 64, 128):
        pairs = z.reshape(size // BLOCK, -1, 2, reach)
        a, b = pairs[:, :, 0].copy(), pairs[:, :, 1].copy()
        pairs[:, :, 0], pairs[:, :, 1] = a + b, a - b
    return z * np.float32(2.0**-4)


@pytest.mark.parametrize("n", SIZES)
def test_it_is_what_is_written_down_and_its_transpose_undoes_it(n: int) -> None:
    x, turn = normals(n), Rotation(n, seed=3)
    kept = x.copy()
    y = turn.forward(x)
    assert turn.size == len(y) == rotated_size(n)
    assert np.array_equal(y, plain(x, 3))
    assert np.linalg.norm(turn.back(y) - x) <= 4e-7 * np.linalg.norm(x)
    assert np.linalg.norm(y) == pytest.approx(np.linalg.norm(x), rel=1e-6)
    assert np.array_equal(x, kept)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("count", [1, 8, 11])
def test_several_rows_at_some_places_have_the_same_bits(n: int, count: int) -> None:
    turn = Rotation(n, seed=3)
    rows = normals(count * n).reshape(count, n)
    for share in (1.0, 0.03, 0.0):
        drawn = Stream(n, "places").words(0, turn.size) < np.uint32(share * (2**32 - 1))
        places = np.flatnonzero(drawn)
        found = turn.forward_at(places, rows)
        assert found.shape == (count, len(places))
        for row, one in zip(rows, found, strict=True):
            assert np.array_equal(one, turn.forward(row)[places])


def test_its_bits_are_the_same_on_every_platform() -> None:
    y = Rotation(1000, seed=7).forward(np.arange(1000, dtype=np.float32) / np.float32(7))
    assert hashlib.sha256((y + np.float32(0)).tobytes()).hexdigest()[:16] == "8617a37ab8dd4fa6"


def test_padded_places_are_dropped_on_the_way_back() -> None:
    turn = Rotation(100, seed=1)
    y = turn.forward(normals(100))
    inner = np.zeros(BLOCK, np.float32)
    inner[200] = 5  # before Hadamard and signs: a place that holds no coordinate
    hadamard = np.array(
        [[(-1) ** (i & j).bit_count() for j in range(BLOCK)] for i in range(BLOCK)], np.float32
    )
    padded = y + hadamard @ inner / np.float32(16)
    assert np.allclose(turn.back(padded), turn.back(y), atol=1e-5)


def test_a_seed_makes_its_own() -> None:
    x = normals(1000)
    assert not np.array_equal(Rotation(1000, 1).forward(x), Rotation(1000, 2).forward(x))
    with pytest.raises(InvalidSetting, match="n is 0; expected 1 to"):
        Rotation(0, 1)


# -- why ------------------------------------------------------------------------------------------


def noise(h: NDArray[np.float64], g: NDArray[np.float64], turn: Rotation) -> float:
    """Σ h′_jj·g′_j² over tr H·‖g‖²/n: what sparse masks add in the rotated basis."""
    # h′_jj of R·diag(h)·Rᵀ is the mean of h over the block: entries of R are ±1/16.
    rotated = turn.forward(g.astype(np.float32)).astype(np.float64)
    words = Stream(5, "rotation-order").words(0, turn.n)
    spread = h[np.argsort(words, kind="stable")].reshape(-1, BLOCK).mean(axis=1)
    diagonal = np.repeat(spread, BLOCK)
    return float((diagonal * rotated**2).sum() / (h.sum() * (g**2).sum() / turn.n))


def test_every_place_of_a_block_carries_as_much() -> None:
    g = Stream(2, "example").normal(0, BLOCK) ** 3
    assert noise(g**2, g, Rotation(BLOCK, seed=5)) == pytest.approx(1, rel=1e-5)


def test_blocks_of_256_do_nearly_as_well_as_one() -> None:
    for seed in range(4):
        g = Stream(seed, "example").normal(0, 4096) ** 3
        h = g**2
        coordinates = float((h * g**2).sum() / (h.sum() * (g**2).sum() / 4096))
        # A block has its own share of both, so a part of 1/256 of the excess stays.
        expected = 1 + (coordinates - 1) / BLOCK
        assert noise(h, g, Rotation(4096, seed=5)) == pytest.approx(expected, rel=0.25)
        assert coordinates > 25
