"""The directory's file: what was saved is there, whatever happens to the process or the disk."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eris.core.errors import ErisError
from eris.runtimes.grpc.ledger import Ledger, LedgerDamaged, LedgerUnwritable, backup
from support.limits import files_of_at_most
from support.registry import founded, join, renew, restored, stated

SAVING = """
import itertools, json, sys
from eris.runtimes.grpc.ledger import Ledger
ledger = Ledger(sys.argv[1])
state = ledger.load()
for _ in itertools.count():
    for member in state["members"]:
        member["through"] += 1
    state["views"][0]["from_round"] = state["members"][0]["through"]
    ledger.save(state)
    print(state["members"][0]["through"], flush=True)
"""


def state_of(rounds: int = 1) -> dict[str, Any]:
    directory = founded()
    join(directory, 0.0, "anna", max_share=1 / 3)
    join(directory, 0.0, "ben", client=False)
    for round in range(1, rounds + 1):
        for name in ("anna", "ben"):
            renew(directory, 1.0, name, round)
    join(directory, 1.0, "cleo", aggregator=False, max_share=0.1)
    directory.leave(1.0, "cleo", "key of cleo")
    return directory.state()


def saved(path: Path, state: dict[str, Any]) -> Path:
    with closing(Ledger(path)) as ledger:
        ledger.save(state)
    return path


def test_a_state_is_read_as_it_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "directory.db"
    with closing(Ledger(path)) as ledger:
        assert ledger.load() is None
        first, later = state_of(), state_of(rounds=40)
        assert first != later
        ledger.save(first)
        assert ledger.load() == first
        ledger.save(later)
    with closing(Ledger(path)) as ledger:
        assert ledger.load() == later
        ledger.save({**later, "views": later["views"][1:]})  # one has been forgotten
    with closing(Ledger(path)) as ledger:
        assert ledger.load() == {**later, "views": later["views"][1:]}
        ledger.save(first)
    with closing(Ledger(path)) as ledger:
        assert ledger.load() == first


def test_a_directory_goes_on_from_its_ledger(tmp_path: Path) -> None:
    directory = founded()
    join(directory, 0.0, "anna", max_share=1 / 3)
    join(directory, 0.0, "ben")
    renew(directory, 1.0, "anna", 6)
    with closing(Ledger(saved(tmp_path / "directory.db", directory.state()))) as ledger:
        loaded = ledger.load()
    assert loaded is not None
    assert json.dumps(loaded) == json.dumps(directory.state())
    again = restored(directory, 50.0).state()
    assert again["terms"][:-1] == loaded["terms"]
    assert again["revision"] == loaded["revision"] + 1
    fresh = {"terms", "revision"}
    assert {k: again[k] for k in again.keys() - fresh} == {
        k: loaded[k] for k in loaded.keys() - fresh
    }


def test_only_one_process_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "directory.db"
    with closing(Ledger(path)), pytest.raises(ErisError, match="another process holds"):
        Ledger(path)
    with closing(Ledger(path)) as ledger:
        ledger.save(state_of())


def test_a_copy_is_of_one_revision_while_others_are_made(tmp_path: Path) -> None:
    path = saved(tmp_path / "directory.db", state_of())
    command = [sys.executable, "-c", SAVING, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for number in range(5):
                told = int(process.stdout.readline())
                copy = tmp_path / f"copy-{number}"
                backup(path, copy)
                with closing(Ledger(copy)) as ledger:
                    found = ledger.load()
                assert found is not None
                assert found["members"][0]["through"] >= told  # what was told is in it
                assert found["views"][0]["from_round"] == found["members"][0]["through"]
                assert copy.stat().st_mode & 0o777 == 0o600
        finally:
            process.kill()


def test_a_copy_of_the_one_file_by_other_means_lacks_what_is_in_its_log(tmp_path: Path) -> None:
    path, alone = tmp_path / "directory.db", tmp_path / "alone"
    with closing(Ledger(path)) as ledger:
        ledger.save(state_of())
        shutil.copy(path, alone)
        backup(path, tmp_path / "whole")
    with closing(Ledger(alone)) as ledger:
        assert ledger.load() is None
    with closing(Ledger(tmp_path / "whole")) as ledger:
        assert ledger.load() == state_of()


def test_a_copy_replaces_nothing_and_has_something_in_it(tmp_path: Path) -> None:
    path, target = saved(tmp_path / "directory.db", state_of()), tmp_path / "copy"
    assert backup(path, target) == state_of()["revision"]
    before = target.read_bytes()
    with pytest.raises(ErisError, match="exists, and a backup overwrites nothing"):
        backup(path, target)
    assert target.read_bytes() == before
    with pytest.raises(ErisError, match="there is no ledger at"):
        backup(tmp_path / "none", tmp_path / "other")
    Ledger(tmp_path / "empty.db").close()
    with pytest.raises(ErisError, match="holds no federation yet"):
        backup(tmp_path / "empty.db", tmp_path / "other")
    damage_header(path)
    with pytest.raises(LedgerDamaged):
        backup(path, tmp_path / "other")
    with pytest.raises(ErisError, match="cannot be written"):
        backup(target, tmp_path / "no" / "folder")
    assert not (tmp_path / "other").exists()


def test_a_ledger_is_its_owners_alone(tmp_path: Path) -> None:
    path = saved(tmp_path / "directory.db", state_of())
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("after", [1, 50])
def test_what_was_saved_survives_a_kill(tmp_path: Path, after: int) -> None:
    before = state_of()
    path = saved(tmp_path / "directory.db", before)
    command = [sys.executable, "-c", SAVING, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(after)]
        process.kill()
        told += process.stdout.readlines()
    last = int([line for line in told if line.endswith("\n")][-1])
    with closing(Ledger(path)) as ledger:
        found = ledger.load()
    assert found is not None
    assert found["members"][0]["through"] in (last, last + 1)  # saved, but no longer told
    # One state, not half of it and half of the next.
    were = [member["through"] for member in before["members"]]
    are = [member["through"] for member in found["members"]]
    assert len({now - was for now, was in zip(are, were, strict=True)}) == 1
    assert found["views"][0]["from_round"] == are[0]


def test_a_disk_without_room_changes_nothing_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "directory.db"
    first, later = state_of(), state_of(rounds=40)
    with closing(Ledger(path)) as ledger:
        ledger.save(first)
        with files_of_at_most(512), pytest.raises(LedgerUnwritable) as full:
            ledger.save(later)
        assert str(path) in str(full.value)
        assert "make room on the disk" in str(full.value)
        assert ledger.load() == first
        shutil.copytree(tmp_path, tmp_path / "copy")
        with closing(Ledger(tmp_path / "copy" / "directory.db")) as copy:
            assert copy.load() == first
        ledger.save(later)  # once there is room
    with closing(Ledger(path)) as ledger:
        assert ledger.load() == later
    with pytest.raises(LedgerUnwritable, match="nowhere"):
        Ledger(tmp_path / "nowhere" / "directory.db")


def damage_header(path: Path) -> None:
    path.write_bytes(b"GARBAGE." * 1000)


def damage_pages(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def by_another_program(path: Path) -> None:
    path.unlink()
    changed(path, "CREATE TABLE t (a)")


def changed(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(statement)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (damage_header, "not a database"),
        (damage_pages, "directory.db, the directory's ledger, is damaged"),
        (cut_short, "directory.db, the directory's ledger, is damaged"),
        (by_another_program, "another program's database"),
        (lambda path: changed(path, "DROP TABLE views"), "no such table: views"),
        (lambda path: changed(path, "DELETE FROM members WHERE number = 0"), "a member is missing"),
        (lambda path: changed(path, "UPDATE members SET through = 'x'"), "through of member 0"),
        (lambda path: changed(path, "UPDATE views SET owners = '['"), "Expecting value"),
    ],
)
def test_a_damaged_file_is_named_with_what_to_do(
    tmp_path: Path, damage: Callable[[Path], None], says: str
) -> None:
    path = saved(tmp_path / "directory.db", state_of())
    damage(path)
    with pytest.raises(LedgerDamaged) as damaged, closing(Ledger(path)) as ledger:
        ledger.load()
    assert says in str(damaged.value)
    assert str(path) in str(damaged.value)
    assert "put its last copy back" in str(damaged.value)


def test_a_ledger_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "directory.db", state_of())
    changed(path, "PRAGMA user_version = 5")
    with pytest.raises(ErisError, match="has format 5; this version of eris reads 4"):
        Ledger(path)


def test_seats_and_keys_are_in_the_ledger(tmp_path: Path) -> None:
    directory = founded(seats=2, start_with=3)
    for name in ("anna", "ben", "cleo"):
        join(directory, 0.0, name, keys=stated(name, 2**62))
    renew(directory, 1.0, "anna", 1)
    join(directory, 2.0, "ben", keys=stated("ben", 2**62 + 1))
    with closing(Ledger(saved(tmp_path / "directory.db", directory.state()))) as ledger:
        loaded = ledger.load()
        assert loaded is not None
        assert json.dumps(loaded) == json.dumps(directory.state())
        join(directory, 3.0, "ben", keys=stated("ben", 2**62 + 2))
        ledger.save(directory.state())
    again = restored(directory, 9.0, seats=2, start_with=3)
    assert again.standing(0).views == directory.standing(0).views
