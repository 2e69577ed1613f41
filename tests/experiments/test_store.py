"""Run folders: made whole, held by one process, cut back to their checkpoint."""

from __future__ import annotations

import fcntl
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eris.core.errors import InvalidSetting
from eris.experiments.runs import store
from eris.experiments.runs.checkpoint import RunDamaged
from eris.experiments.runs.recipe import Recipe
from eris.experiments.runs.store import Run, RunBusy, all_runs, find, runs_root

ABOUT = {"seed": 0, "data": {}, "model": {}}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "runs" / "first", Recipe(seed=7), ABOUT)


def fill(run: Run, rounds: int, clients: int = 2) -> None:
    done = len(run.rounds())
    for round in range(done + 1, done + rounds + 1):
        lines = [{"round": round, "client": client} for client in range(clients)]
        run.append({"round": round, "loss": 1 / round}, lines)


def test_a_folder_is_made_whole_or_not_at_all(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run.recipe == Recipe(seed=7)
    assert run.about["format"] == store.FORMAT
    with pytest.raises(OSError, match="not empty"):
        Run.create(run.path, Recipe(), ABOUT)
    assert run.recipe.seed == 7

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(store, "write_atomically", fail)
    with pytest.raises(OSError, match="full"):
        Run.create(tmp_path / "runs" / "second", Recipe(), ABOUT)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["first"]


def test_one_process_at_a_time_and_a_killed_one_counts_as_interrupted(run: Run) -> None:
    assert run.state == "interrupted"  # it says it runs, and nobody holds it
    with run.locked():
        assert Run(run.path).state == "running"
        with pytest.raises(RunBusy, match="another process works on"), Run(run.path).locked():
            raise AssertionError("not reached")
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys\n"
            "file = open(sys.argv[1], 'ab')\n"
            "fcntl.flock(file, fcntl.LOCK_EX)\n"
            "print('held', flush=True)\n"
            "sys.stdin.read()\n",
            str(run.path / store.LOCK),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    assert Run(run.path).state == "running"
    with pytest.raises(RunBusy), run.locked():
        raise AssertionError("not reached")
    holder.kill()
    holder.communicate()
    assert run.state == "interrupted"
    with run.locked():
        run.ended("finished")
    assert Run(run.path).state == "finished"


def test_someone_who_looks_does_not_keep_a_run_from_starting(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run.locked():
        pass
    looking = (run.path / store.LOCK).open("rb")
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr("time.sleep", lambda _: looking.close())
    with run.locked():
        assert looking.closed


def test_rounds_are_kept_as_they_come_and_what_is_not_a_number_is_null(run: Run) -> None:
    run.append({"round": 1, "metrics": {"loss": math.nan, "best": math.inf}}, [])
    assert run.rounds() == [{"round": 1, "metrics": {"loss": None, "best": None}}]
    assert run.clients() == []


@pytest.mark.parametrize("tail", [b"", b'{"round": 5, "lo', b"{"])
def test_rewinding_cuts_off_what_came_after_the_checkpoint(run: Run, tail: bytes) -> None:
    fill(run, 3)
    run.save_checkpoint(3, {"model": np.ones(2, np.float32)}, {"settings": "a"})
    before = [(run.path / name).read_bytes() for name in (store.ROUNDS, store.CLIENTS)]
    fill(run, 1)
    for name in (store.ROUNDS, store.CLIENTS):
        with (run.path / name).open("ab") as file:
            file.write(tail)
    assert [line["round"] for line in run.rounds()] == [1, 2, 3, 4]
    found = run.last_checkpoint()
    assert found is not None
    assert found.round == 3
    run.rewind(found)
    assert [(run.path / name).read_bytes() for name in (store.ROUNDS, store.CLIENTS)] == before
    run.rewind(None)
    assert run.rounds() == run.clients() == []


def test_files_that_no_longer_match_their_checkpoint_are_named(run: Run) -> None:
    fill(run, 3)
    run.save_checkpoint(3, {}, {})
    found = run.last_checkpoint()
    whole = (run.path / store.ROUNDS).read_bytes()
    for name, content in (
        (store.ROUNDS, whole[:-1]),
        (store.ROUNDS, b"\n".join(whole.splitlines()[:2]) + b"\n"),
        (store.ROUNDS, whole.replace(b'"round": 3', b'"round": 2')),
        (store.CLIENTS, b""),
    ):
        kept = (run.path / name).read_bytes()
        (run.path / name).write_bytes(content)
        with pytest.raises(RunDamaged, match="is not what it was at the checkpoint of round 3"):
            run.rewind(found)
        (run.path / name).write_bytes(kept)
    (run.path / store.ROUNDS).write_bytes(whole.replace(b'"round": 2', b'"ruond": 2'))
    with pytest.raises(RunDamaged, match="is damaged in line 2"):
        run.rewind(found)
    (run.path / store.ROUNDS).write_bytes(whole)
    run.rewind(found)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": 2}, r"format of .*first is 2; expected 1, which this version reads"),
        ({"state": "odd"}, "has the state 'odd'"),
    ],
)
def test_a_folder_of_another_format_is_refused(run: Run, change: dict[str, Any], says: str) -> None:
    record = json.loads((run.path / store.RECORD).read_text())
    (run.path / store.RECORD).write_text(json.dumps({**record, **change}))
    with pytest.raises((InvalidSetting, RunDamaged), match=says):
        Run(run.path)


def test_damaged_records_and_recipes_are_named(run: Run) -> None:
    (run.path / store.RECIPE).write_text("seed = x")
    with pytest.raises(RunDamaged, match=r"recipe.toml is damaged"):
        _ = Run(run.path).recipe
    (run.path / store.RECORD).write_text("{")
    with pytest.raises(RunDamaged, match=r"run.json is damaged"):
        Run(run.path)


def test_runs_are_found_by_name_or_path_and_the_nearest_is_suggested(run: Run) -> None:
    root = run.path.parent
    assert find("first", root).path == run.path
    assert find(str(run.path), root / "elsewhere").path == run.path
    with pytest.raises(InvalidSetting, match=r"run is 'frist'; .*\(did you mean 'first'\?\)"):
        find("frist", root)
    with pytest.raises(InvalidSetting, match="there is none"):
        find("first", root / "elsewhere")


def test_a_run_that_cannot_be_read_does_not_hide_the_others(run: Run) -> None:
    root = run.path.parent
    Run.create(root / "second", Recipe(), ABOUT)
    (run.path / store.RECIPE).unlink()
    (root / "no run").mkdir()
    broken, second = all_runs(root)
    assert isinstance(broken, RunDamaged)
    assert isinstance(second, Run)
    assert second.name == "second"
    assert list(all_runs(root / "nowhere")) == []


def test_where_runs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ERIS_RUNS", raising=False)
    assert runs_root() == Path("runs")
    monkeypatch.setenv("ERIS_RUNS", "/elsewhere")
    assert runs_root() == Path("/elsewhere")
    assert runs_root("here") == Path("here")
