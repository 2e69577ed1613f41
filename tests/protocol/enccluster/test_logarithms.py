"""Logarithms against multiplication, and the table's file against damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.core.errors import InvalidSetting
from eris.protocol.enccluster import logarithms
from eris.protocol.enccluster.group import of_public
from eris.protocol.enccluster.labels import point
from eris.protocol.enccluster.logarithms import DamagedTable, LogarithmTable, is_logarithm
from eris.runtimes.logarithm_tables import cached_table
from support.enccluster import REACH, table

SMALL = LogarithmTable.build(50)


def test_every_entry_of_a_table_is_found_with_its_sign() -> None:
    numbers = list(range(-50, 51))
    values, found = SMALL.find([of_public(k) for k in numbers], 50)
    assert found.all()
    assert values.tolist() == numbers


@settings(max_examples=30)
@given(st.lists(st.integers(-700, 700), min_size=1, max_size=8), st.integers(1, 650))
def test_giant_steps_go_to_the_bound_and_no_further(numbers: list[int], bound: int) -> None:
    values, found = SMALL.find([of_public(k) for k in numbers], bound)
    assert found.tolist() == [abs(k) <= bound for k in numbers]
    assert values.tolist() == [k if abs(k) <= bound else 0 for k in numbers]


def test_all_numbers_are_found_by_giant_steps() -> None:
    numbers = list(range(-410, 411))
    values, found = LogarithmTable.build(3).find([of_public(k) for k in numbers], 405)
    assert [v for v, f in zip(values.tolist(), found, strict=True) if f] == numbers[5:-5]


@given(st.integers(-REACH, REACH))
def test_logarithms_of_the_larger_table(number: int) -> None:
    values, found = table().find([of_public(number)], REACH)
    assert (values[0], found[0]) == (number, True)


def test_a_point_of_which_nobody_knows_a_logarithm_has_none() -> None:
    points = [point(b"label", 0, t) for t in range(100)]
    values, found = table().find(points, 3 * REACH)
    assert not found.any()
    assert not values.any()


def test_nothing_has_no_logarithms() -> None:
    values, found = SMALL.find([], 50)
    assert len(values) == len(found) == 0


def test_a_logarithm_is_compared_in_full() -> None:
    assert is_logarithm(-7, of_public(-7))
    assert is_logarithm(0, None)
    for value, one in ((7, of_public(-7)), (0, of_public(1)), (1, None)):
        assert not is_logarithm(value, one)


def test_building_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logarithms, "_STEP", 16)
    told: list[tuple[int, int]] = []
    built = LogarithmTable.build(50, lambda *where: told.append(where))
    assert told == [(16, 50), (32, 50), (48, 50), (50, 50)]
    assert np.array_equal(built.prefixes, SMALL.prefixes)
    assert np.array_equal(built.multiples, SMALL.multiples)


def test_a_collision_of_prefixes_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = logarithms._keys

    def cut(points: object) -> object:
        prefixes, odd, infinite = whole(points)  # type: ignore[arg-type]
        return prefixes >> np.uint64(56), odd, infinite

    monkeypatch.setattr(logarithms, "_keys", cut)
    with pytest.raises(DamagedTable, match="the same first 8 bytes"):
        LogarithmTable.build(256)


@pytest.mark.parametrize("reach", [0, -1, 1 << 29])
def test_sizes_of_tables_have_limits(reach: int) -> None:
    with pytest.raises(InvalidSetting, match="table reach"):
        LogarithmTable.build(reach)


# -- bytes and files --------------------------------------------------------------------------

DATA = b"".join(SMALL.pieces())


def test_bytes_of_a_table_are_the_table() -> None:
    read = LogarithmTable.of(DATA)
    assert b"".join(read.pieces()) == DATA
    assert read.find([of_public(-33)], 50)[0].tolist() == [-33]
    assert len(DATA) == 56 + 12 * 50 + 7


@pytest.mark.parametrize("at", [0, 15, 16, 24, 55, 56, 300, 500, len(DATA) - 1])
def test_one_wrong_bit_is_seen(at: int) -> None:
    damaged = bytearray(DATA)
    damaged[at] ^= 4
    with pytest.raises(DamagedTable):
        LogarithmTable.of(bytes(damaged))


@pytest.mark.parametrize("cut", [0, 1, 55, 56, 100, len(DATA) - 1])
def test_a_part_of_a_table_is_none(cut: int) -> None:
    with pytest.raises(DamagedTable):
        LogarithmTable.of(DATA[:cut])
    with pytest.raises(DamagedTable):
        LogarithmTable.of(DATA + b"\0")


def test_a_table_is_built_once_and_then_mapped(tmp_path: Path) -> None:
    told: list[int] = []
    folder = tmp_path / "cache" / "eris"
    for _ in range(2):
        found = cached_table(folder, 50, lambda done, _: told.append(done))
        assert b"".join(found.pieces()) == DATA
    assert told == [50]
    assert [path.name for path in folder.iterdir()] == ["logarithms-50.table"]


@pytest.mark.parametrize("damage", [b"", b"rubbish", DATA[:-1], DATA[:-1] + b"\xff"])
def test_a_damaged_file_is_built_anew(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "logarithms-50.table"
    path.write_bytes(damage)
    told: list[int] = []
    found = cached_table(tmp_path, 50, lambda done, _: told.append(done))
    assert told == [50]
    assert path.read_bytes() == b"".join(found.pieces()) == DATA


def test_a_table_under_anothers_name_is_built_anew(tmp_path: Path) -> None:
    path = tmp_path / "logarithms-60.table"
    path.write_bytes(DATA)
    assert cached_table(tmp_path, 60).reach == 60
    assert LogarithmTable.of(path.read_bytes()).reach == 60


def test_a_kill_while_it_is_built_leaves_no_file(tmp_path: Path) -> None:
    def kill(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_table(tmp_path, 50, kill)
    assert list(tmp_path.iterdir()) == []
