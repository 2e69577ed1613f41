"""The papers' membership tables: recipes that hold, outcomes that are kept and shown."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from eris.experiments.audits.tables import AUDITS, AuditRow, AuditTable, audited, draw, line, shown
from eris.experiments.runs.prepared import method_of

SMALL = {
    "data.name": "digits",
    "data.clients": 6,
    "data.samples": 12,
    "data.canaries": 0.5,
    "training.rounds": 3,
    "training.learning_rate": 0.1,
}
TABLE = AuditTable(
    "audit-small",
    "A small table",
    SMALL,
    (
        AuditRow("FedAvg", {"method.name": "fedavg"}, "60.0 ± 1.0", at=1),
        AuditRow("ERIS", {"method.name": "eris", "method.aggregators": 3}, at=3),
    ),
    every=2,
    curve="aggregators",
)


@pytest.mark.parametrize("name", AUDITS)
def test_every_row_is_a_recipe_that_names_a_method(name: str) -> None:
    table = AUDITS[name]
    for row in table.rows:
        recipe = table.recipe(row, seed=3)
        assert recipe.seed == 3
        assert recipe.data.canaries == 0.5
        if row.changes.get("method.plan") == "contiguous":
            continue  # warns when it is composed; its own tests see to that
        method_of(recipe)
    labels = [row.label for row in table.rows]
    assert len(set(labels)) == len(labels)
    assert len({table.path(Path(), row, 0) for row in table.rows}) == len(labels)


def test_outcomes_are_kept_and_not_computed_again(tmp_path: Path) -> None:
    told: list[tuple[str, int]] = []
    progress = lambda label: lambda done, rounds: told.append((label, done))  # noqa: E731
    first = audited(TABLE, [0], tmp_path, progress)
    assert [done for _, done in told] == [1, 2, 3] * 2
    told.clear()
    again = audited(TABLE, [0], tmp_path, progress)
    assert not told
    assert again == first
    kept = json.loads((tmp_path / "audits" / "audit-small-eris-0.json").read_text())
    assert kept["row"] == "ERIS"
    assert kept["about"]["seed"] == 0
    assert kept["about"]["canaries"] == kept["findings"][0]["canaries"]
    assert "accuracy" in kept["about"]["metrics"]


def test_a_table_and_its_picture_show_what_was_found(tmp_path: Path) -> None:
    outcomes = audited(TABLE, [0, 1], tmp_path)
    found = line(outcomes["ERIS"])
    joint = [
        one["pooled"]["accuracy"]
        for outcome in outcomes["ERIS"]
        for one in outcome["findings"]
        if (one["observer"], one["score"]) == ("aggregator 0", "joint")
    ]
    assert found["joint"] == pytest.approx(sum(joint) / 2)
    assert found["joint"] is not None
    assert found["mean"] is not None
    assert found["worst"] is not None
    assert found["worst"] >= found["mean"]
    assert line(outcomes["FedAvg"])["mean"] is None, "there is one server"
    console = Console(width=250, record=True, file=io.StringIO())
    console.print(shown(TABLE, outcomes))
    text = console.export_text()
    assert "60.0 ± 1.0" in text
    assert f"{100 * found['joint']:.1f}" in text
    draw(TABLE, outcomes, tmp_path / "new" / "curve.png")
    assert (tmp_path / "new" / "curve.png").read_bytes().startswith(b"\x89PNG")
