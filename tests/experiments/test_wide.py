"""Tables keep within the terminal: in parts, or folded, and never cut short."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from eris.experiments.audits.tables import AUDITS, shown
from eris.experiments.figures import parts, widened
from eris.experiments.runs import runner
from eris.experiments.runs.progress import Progress
from eris.experiments.runs.recipe import Recipe
from support.command import Eris

NARROW = 80


def test_a_wide_table_is_shown_in_parts_that_each_name_their_rows() -> None:
    table = Table("row", *(f"column {number}" for number in range(20)), title="all", caption="end")
    for row in range(3):
        table.add_row(f"row {row}", *(f"{row}.{number}" for number in range(20)))
    console = Console(width=NARROW, file=io.StringIO())
    shown = parts(table, console)
    assert len(shown) > 1
    assert [part.title for part in shown] == ["all", *[None] * (len(shown) - 1)]
    assert shown[-1].caption == "end"
    headings = [column.header for part in shown for column in part.columns[1:]]
    assert headings == [column.header for column in table.columns[1:]]
    for part in shown:
        assert list(part.columns[0].cells) == ["row 0", "row 1", "row 2"]
        assert console.measure(part).maximum <= NARROW
    assert parts(table, Console(width=400)) == [table]


def test_a_file_has_whole_rows_unless_its_width_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert widened(Console(file=io.StringIO()), 150).width == 150
    monkeypatch.setenv("COLUMNS", "80")
    assert widened(Console(file=io.StringIO()), 150).width == 80


def test_no_command_prints_beyond_80_columns_or_cuts_a_word(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(NARROW))
    eris = Eris(monkeypatch, capsys)
    small = {"data.name": "digits", "model.name": "softmax", "data.clients": 6, "data.samples": 8,
             "training.rounds": 2, "data.canaries": 0.5, "engine.record": True}  # fmt: skip
    names = ["a-rather-long-name-of-a-run-that-somebody-types", "b", "another-long-name-of-a-run"]
    for name, method in zip(names, ("eris", "fedavg-ldp", "soteriafl"), strict=True):
        recipe = Recipe().changed({**small, "name": name, "method.name": method})
        runner.start(recipe, Path("runs"), Progress())
    assert eris("ca", "init", "ca", "--federation", "x") == 0
    for member in ("anna", "a-member" + 11 * "-more"):
        assert eris("ca", "issue", member) == 0, eris.err
    for command in (
        ["runs"],
        ["compare", *names],
        ["audit", "b"],
        ["data", "list"],
        ["data", "partition", "digits"],
        ["methods", "eris"],
        ["ca", "show", "ca"],
    ):
        assert eris(*command) == 0, eris.err
        lines = [line for line in eris.out.splitlines() if not _free(line)]
        assert max(map(len, lines)) <= NARROW, command
        assert "…" not in eris.out, command


def _free(line: str) -> bool:
    """Sentences and paths are not broken: a terminal does that, and they can be copied whole."""
    return "/" in line or ": " in line


def test_the_papers_tables_keep_to_80_columns_too() -> None:
    finding = {"observer": "aggregator 0", "score": "joint", "paper": None,
               "pooled": {"accuracy": 0.51}, "roc": {"auc": 0.5}, "bound": None}  # fmt: skip
    outcome = {"about": {"metrics": {"accuracy": 0.9}}, "findings": [finding], "everyone": []}
    table = AUDITS["audit-mnist"]
    console = Console(width=NARROW, file=io.StringIO())
    whole = shown(table, {row.label: [outcome] for row in table.rows})
    found = parts(whole, console)
    assert sum(len(part.columns) - 1 for part in found) == len(whole.columns) - 1
    assert all(console.measure(part).maximum <= NARROW for part in found)
