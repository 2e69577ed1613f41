"""Places for results are refused before any work; damaged runs are shown and refused as such."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from eris.experiments.runs import runner, store
from eris.experiments.runs.progress import Progress
from eris.experiments.runs.recipe import Recipe
from eris.experiments.runs.store import Run
from support.command import Eris

SMALL = {"data.clients": 4, "data.samples": 8, "training.rounds": 2, "data.canaries": 0.5}


@pytest.fixture
def run(tmp_path: Path, stripes: Path, eris: Eris) -> Run:
    asked = {**SMALL, "data.path": str(stripes), "engine.record": True, "name": "one"}
    return runner.start(Recipe().changed(asked), Path("runs"), Progress())


COMMANDS = [
    ["compare", "one"],
    ["demo"],
    ["data", "partition", "digits"],
    ["reproduce", "dropout"],
    ["reproduce", "audit-aggregators"],
]
BAD = [
    ("out.xyz", "expected a file that ends in .png, .pdf, .svg, .jpg, .jpeg or .webp"),
    ("out", "expected a file that ends in .png"),
    ("", "after --picture is ''; expected a value"),
    (".", "not a folder"),
    ("file/out.png", "expected a place in a folder; file is none"),
    ("/proc/nowhere/out.png", "expected a place that can be written to"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(("picture", "says"), BAD, ids=[repr(picture) for picture, _ in BAD])
def test_a_picture_that_cannot_be_drawn_is_refused_before_any_work(
    command: list[str], picture: str, says: str, eris: Eris, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    # There is no run `one` and no data: whatever is looked at first is what is complained of.
    assert says in eris.refused(*command, "--picture", picture)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_picture_of_what_has_no_curve_is_refused(eris: Eris) -> None:
    for name in ("mnist", "audit-layouts"):
        assert f"none: {name} has no curve" in eris.refused("reproduce", name, "--picture", "a.png")


@pytest.mark.parametrize(
    "command",
    [
        ["run", "--data", "mnist", "--runs", "file/runs"],
        ["reproduce", "mnist", "--runs", "file/runs"],
        ["local", "3", "--folder", "file/nodes"],
        ["demo", "--folder", "file/nodes"],
    ],
    ids=" ".join,
)
def test_a_folder_that_cannot_be_made_is_refused_before_any_work(
    command: list[str], eris: Eris, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    assert "expected a place in a folder" in eris.refused(*command)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("file", [store.MODEL, store.ROUNDS, store.CLIENTS, store.TRANSCRIPT])
def test_what_is_missing_cut_or_changed_is_told(file: str, run: Run, eris: Eris) -> None:
    path = run.path / file
    whole = path.read_bytes()
    assert eris("compare", "one") == 0
    for damage, says in (
        (None, "is missing"),
        (whole[: len(whole) // 2], f"bytes; {len(whole):,} were written"),
        (b"", f"has 0 bytes; {len(whole):,} were written"),
    ):
        if damage is None:
            path.unlink()
        else:
            path.write_bytes(damage)
        assert eris("runs") == 0
        shown = eris.out.splitlines()
        assert [line.split()[0] for line in shown if line.rstrip().endswith("damaged")] == ["one"]
        assert any(line.startswith(f"damaged: runs/one/{file}") for line in shown)
        assert says in eris.out
        assert eris("runs", "show", "one") == 0
        assert eris.out.startswith("one: damaged, ")
        for command in ("compare", "audit"):
            assert f"runs/one/{file} " in eris.refused(command, "one")
            assert says in eris.err
    path.write_bytes(whole[:-2] + b"??")
    if file != store.TRANSCRIPT:
        assert "its sha256 differs" in eris.refused("compare", "one")
    if file != store.CLIENTS:
        assert "its sha256 differs" in eris.refused("audit", "one")
    # And what it says to do makes it good again.
    line = shlex.split(eris.err.partition("recipe again: `")[2].partition("`")[0])
    assert line[:2] == ["eris", "run"]
    assert eris(*line[1:]) == 0, eris.err
    assert eris("compare", "one-again") == 0
    path.write_bytes(whole)
    assert eris("runs") == 0
    assert "damaged" not in eris.out


def test_a_history_shorter_than_its_checkpoint_is_damage(run: Run, eris: Eris) -> None:
    class Stop(Progress):
        def round(self, line: store.Line) -> None:
            raise KeyboardInterrupt

    changes = {"name": "cut", "engine.checkpoint_every": 1}
    with pytest.raises(KeyboardInterrupt):
        runner.start(run.recipe.changed(changes), Path("runs"), Stop())
    assert eris("runs") == 0
    assert "interrupted" in eris.out
    assert "damaged" not in eris.out
    (run.path.parent / "cut" / store.ROUNDS).write_bytes(b"")
    assert eris("runs") == 0
    assert "damaged: runs/cut/rounds.jsonl has 0 bytes" in eris.out
    assert "runs/cut/rounds.jsonl" in eris.refused("compare", "cut")


def test_records_and_lines_that_lack_something_are_not_readable(run: Run, eris: Eris) -> None:
    for file, text in (
        (store.RECORD, '{"format": 1, "state": "finished"}\n'),
        (store.ROUNDS, '{"round": 1}\n'),
    ):
        path = run.path / file
        whole = path.read_bytes()
        path.write_text(text)
        assert eris("runs") == 0
        assert "not readable: runs/one is damaged" in eris.out
        path.write_bytes(whole)


def test_a_kept_row_of_a_table_that_is_damaged_is_named(eris: Eris, tmp_path: Path) -> None:
    from eris.experiments.audits.tables import AUDITS

    table = AUDITS["audit-layouts"]
    path = table.path(Path("runs"), table.rows[0], 0)
    path.parent.mkdir(parents=True)
    for text in ("", "{", "[]", "{}"):
        path.write_text(text)
        assert f"{path} is damaged" in eris.refused("reproduce", table.name, "--seeds", "1")
        assert "remove it, and the same command makes it again" in eris.err
