"""Checkpoints: whole or not there, whatever moment the process dies at."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eris.experiments.runs import checkpoint
from eris.experiments.runs.checkpoint import RECORD, STATE, Checkpoint, RunDamaged
from eris.files import synced


def state(round: int) -> dict[str, NDArray[Any]]:
    return {
        "model": np.arange(5, dtype=np.float32) + round,
        "trainer/3/momentum": np.full((2, 3), round, np.float32).T,  # not contiguous
        "counter": np.array(round, np.uint64),
        "nothing": np.zeros(0, np.int64),
    }


def made(round: int) -> Checkpoint:
    return Checkpoint(round, state(round), {"settings": "…"}, {"rounds.jsonl": 10 * round})


def assert_is(found: Checkpoint | None, round: int) -> None:
    assert found is not None
    assert (found.round, found.about) == (round, {"settings": "…"})
    assert found.sizes == {"rounds.jsonl": 10 * round}
    assert found.state.keys() == state(round).keys()
    for name, value in state(round).items():
        assert found.state[name].dtype == value.dtype
        assert found.state[name].shape == value.shape
        assert found.state[name].tobytes() == value.tobytes()


def test_the_newest_is_kept_and_read_back(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path) is None
    for round in (10, 20, 999_999, 1_000_000):
        checkpoint.save(tmp_path, made(round))
        assert_is(checkpoint.latest(tmp_path), round)
    assert [path.name for path in tmp_path.iterdir()] == ["round-1000000"]


def test_what_is_no_checkpoint_is_not_removed_with_the_old_ones(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "kept").mkdir()
    for round in (10, 20):
        checkpoint.save(tmp_path, made(round))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "notes.txt", "round-000020"]


class Killed(BaseException):
    """The process dies here."""


STEPS = [
    (Path, "mkdir"),
    (checkpoint, "save_file"),
    (checkpoint, "sha256_of"),
    (Path, "write_text"),
    (os, "fsync"),
    (Path, "rename"),
    (shutil, "rmtree"),
]


@pytest.mark.parametrize(("where", "step"), STEPS, ids=[step for _, step in STEPS])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_a_kill_at_any_step_leaves_a_whole_checkpoint(
    where: Any, step: str, before: bool, call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # nobody cuts the power here
    checkpoint.save(tmp_path, made(10))
    real, calls = getattr(where, step), 0

    def deadly(*arguments: Any, **settings: Any) -> Any:
        nonlocal calls
        calls += 1
        if before and calls == call:
            raise Killed
        result = real(*arguments, **settings)
        if calls == call:
            raise Killed
        return result

    with monkeypatch.context() as patch:
        patch.setattr(where, step, deadly)
        try:
            checkpoint.save(tmp_path, made(20))
            died = False
        except Killed:
            died = True
    assert died == (calls >= call)
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert_is(found, found.round)
    assert found.round in (10, 20)
    assert found.round == 20 or died
    # The next one works, and clears what was left over.
    checkpoint.save(tmp_path, made(30))
    assert_is(checkpoint.latest(tmp_path), 30)
    assert len(list(tmp_path.iterdir())) == 1


def test_files_are_on_disk_before_the_name_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    sync, rename = synced, Path.rename

    def noted(path: Path) -> None:
        happened.append(path.name)
        sync(path)

    def renamed(self: Path, target: Path) -> Path:
        happened.append("rename")
        return rename(self, target)

    monkeypatch.setattr(checkpoint, "synced", noted)
    monkeypatch.setattr(Path, "rename", renamed)
    checkpoint.save(tmp_path, made(1))
    cut = happened.index("rename")
    assert {STATE, RECORD} <= set(happened[:cut])
    assert happened[cut + 1 :] == [tmp_path.name]


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        (STATE, lambda data: data[:-1] + bytes([data[-1] ^ 1]), "is damaged: the sha256 of state"),
        (STATE, lambda data: data[:100], "is damaged: the sha256 of state"),
        (RECORD, lambda data: data[:20], "is damaged (JSONDecodeError"),
        (RECORD, lambda data: b"[]", "is damaged (TypeError"),
        (RECORD, lambda data: b"{}", "is damaged (KeyError"),
    ],
)
def test_a_damaged_one_is_named_with_what_to_do(
    file: str, change: Any, says: str, tmp_path: Path
) -> None:
    checkpoint.save(tmp_path, made(10))
    path = tmp_path / "round-000010" / file
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(RunDamaged) as refused:
        checkpoint.latest(tmp_path)
    assert says in str(refused.value)
    assert "round-000010" in str(refused.value)
    assert "remove that folder to start the run again" in str(refused.value)


def test_a_lost_file_and_an_unreadable_state_are_named(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, made(10))
    path = tmp_path / "round-000010"
    (path / STATE).write_bytes(b"not tensors")
    record = json.loads((path / RECORD).read_text())
    record["sha256"] = hashlib.sha256(b"not tensors").hexdigest()
    (path / RECORD).write_text(json.dumps(record))
    with pytest.raises(RunDamaged, match="SafetensorError"):
        checkpoint.latest(tmp_path)
    (path / STATE).unlink()
    with pytest.raises(RunDamaged, match="FileNotFoundError"):
        checkpoint.latest(tmp_path)
