"""Averages in float64, rounded once, and the chunks they are formed over."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest

from eris.core.chunks import Chunking, ChunkKind
from eris.core.errors import InvalidSetting
from eris.core.mixing import add_difference, add_difference_at, settled
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.testing.synthetic import assert_same_bits

KINDS: tuple[ChunkKind, ...] = get_args(ChunkKind)


def values(name: str, n: int = 200) -> Vector:
    return Stream(9, name).normal(0, n).astype(np.float32)


def test_a_mean_is_rounded_once() -> None:
    """Within half a unit in the last place of the exact rational mean."""
    model, others = values("x"), [values(f"y{i}") for i in range(7)]
    total = np.zeros(len(model))
    for other in others:
        add_difference(total, other, model, 1.0)
    mean = settled(model, total / 8)
    for i in range(len(model)):
        exact = sum((Fraction(float(v[i])) for v in (model, *others)), Fraction(0)) / 8
        unit = Fraction(float(np.spacing(np.abs(mean[i]))))
        assert abs(Fraction(float(mean[i])) - exact) <= unit * Fraction(501, 1000)


def test_equal_models_stay_to_the_last_bit() -> None:
    model = values("x") * np.float32(1e20)
    total, count = np.zeros(len(model)), np.zeros(len(model), np.int64)
    places = np.arange(0, len(model), 3)
    for weight in (1 / 3, 0.1, 1 / 7):
        add_difference(total, model, model, weight)
    add_difference_at(total, count, places, model[places], model)
    assert_same_bits(settled(model, total), model)
    assert (count == (np.arange(len(model)) % 3 == 0)).all()


def test_what_is_too_large_stays_finite() -> None:
    top = np.finfo(np.float32).max
    out = settled(np.array([top, -top, 1], np.float32), np.array([1e300, -1e300, -1.0]))
    assert_same_bits(out, np.array([top, -top, 0], np.float32))


# Chunks.


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "replacement"])
@pytest.mark.parametrize(("n", "chunks"), [(1, 1), (7, 3), (100, 8), (1000, 16), (5003, 33)])
def test_chunks_are_a_balanced_partition(kind: ChunkKind, n: int, chunks: int) -> None:
    chunking = Chunking(chunks, kind, n, seed=4)
    for round in (1, 2):
        parts = [chunking.places(round, chunk, carrier=chunk) for chunk in range(chunks)]
        assert sorted(np.concatenate(parts).tolist()) == list(range(n))
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == [chunking.size(round, chunk) for chunk in range(chunks)]


def test_kinds_of_chunks() -> None:
    def parts(kind: ChunkKind, round: int, seed: int = 4) -> list[list[int]]:
        chunking = Chunking(4, kind, 400, seed)
        return [chunking.places(round, chunk, chunk + 10).tolist() for chunk in range(4)]

    assert parts("linear", 3) == [list(range(at, at + 100)) for at in range(0, 400, 100)]
    assert parts("static", 1) == parts("static", 2) != parts("static", 1, seed=5)
    assert parts("dynamic", 1) != parts("dynamic", 2)
    assert parts("dynamic", 1) == parts("dynamic", 1)
    # Random chunks spread: none holds much more than its share of any quarter of the model.
    for kind in ("static", "dynamic"):
        for part in parts(kind, 1):
            quarters = Counter(place // 100 for place in part)
            assert all(15 <= quarters[quarter] <= 35 for quarter in range(4)), quarters


def test_with_replacement_carriers_draw_on_their_own() -> None:
    chunking = Chunking(4, "replacement", 4000, seed=4)
    one = chunking.places(1, 0, carrier=7)
    assert len(one) == chunking.size(1, 0) == 1000
    assert (one == chunking.places(1, 0, carrier=7)).all()
    assert one.min() >= 0
    assert one.max() < 4000
    for other in (chunking.places(1, 0, 8), chunking.places(2, 0, 7)):
        # Two sets of 1000 draws out of 4000: 884 = 4000·(1 − e^(−1/4)) are met, 196 by both.
        assert 850 < len(set(other.tolist())) < 920
        assert 150 < len(set(one.tolist()) & set(other.tolist())) < 240


def test_chunkings_that_cannot_be() -> None:
    with pytest.raises(InvalidSetting, match="chunks is 5; expected 1 to n = 4"):
        Chunking(5, "static", 4, 0)
    with pytest.raises(InvalidSetting, match="chunks is 0; expected 1 to n = 4"):
        Chunking(0, "static", 4, 0)
    with pytest.raises(InvalidSetting, match="n is 0; expected at least 1 coordinate"):
        Chunking(1, "static", 0, 0)
    with pytest.raises(InvalidSetting, match="chunking is 'odd'; expected one of static, linear"):
        Chunking(1, "odd", 4, 0)  # type: ignore[arg-type]
