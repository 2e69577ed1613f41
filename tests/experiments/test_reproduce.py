"""The papers' experiments: recipes that hold, runs that are kept, tables beside the paper's."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from eris.experiments.runs import reproduce
from eris.experiments.runs.progress import Progress
from eris.experiments.runs.reproduce import EXPERIMENTS, Experiment, Row, RunOutcome
from eris.methods.registry import create

DIGITS = Experiment(
    "tiny",
    "Digits under dropout",
    {"data.name": "digits", "data.clients": 5, "data.samples": 20, "training.rounds": 3,
     "training.learning_rate": 0.5, "training.evaluate_every": 1, "method.name": "eris"},
    (
        Row("none", {"faults.dropout": 0.0}, "90 ± 1"),
        Row("half, + ε", {"faults.dropout": 0.5}),
    ),
    curve="faults.dropout",
)  # fmt: skip


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_row_is_a_recipe_of_a_method_with_a_folder_of_its_own(name: str) -> None:
    experiment = EXPERIMENTS[name]
    recipes = [experiment.recipe(row, seed) for row in experiment.rows for seed in (0, 1)]
    assert len({recipe.name for recipe in recipes}) == 2 * len(experiment.rows)
    for recipe in recipes:
        create(recipe.method.name, **recipe.method.settings)
        assert recipe.data.clients == 50
        assert recipe.data.samples == 16
        # Momentum is the clients', or the server rule's (whose own default it is).
        assert recipe.training.momentum == (0.0 if recipe.server.rule == "fedavgm" else 0.9)
    if experiment.curve is not None:
        assert all(experiment.curve in row.changes for row in experiment.rows)


def test_runs_are_kept_and_not_run_again(tmp_path: Path) -> None:
    done = reproduce.reproduce(DIGITS, [0, 1], tmp_path, Progress())
    assert {label: len(runs) for label, runs in done.items()} == {"none": 2, "half, + ε": 2}
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "tiny-half-0", "tiny-half-1", "tiny-none-0", "tiny-none-1",
    ]  # fmt: skip
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    again = reproduce.reproduce(DIGITS, [0, 1], tmp_path, Progress())
    assert {path: path.stat().st_mtime_ns for path in written} == written
    outcome = RunOutcome.of(again["none"][0])
    lines = again["none"][0].rounds()
    assert outcome.accuracy == lines[-1]["metrics"]["accuracy"] > 0.2
    losses = [line["metrics"]["loss"] for line in lines]
    assert outcome.best_round == 1 + losses.index(min(losses))
    assert outcome.epsilon is None
    # Shards whose owner was away keep their value, so less is published.
    assert RunOutcome.of(again["half, + ε"][0]).sent < outcome.sent


def test_the_table_has_ours_beside_the_papers_and_the_curve_a_picture(tmp_path: Path) -> None:
    done = reproduce.reproduce(DIGITS, [0], tmp_path, Progress())
    console = Console(width=200, record=True, file=StringIO())
    console.print(reproduce.table(DIGITS, done))
    text = console.export_text()
    assert "90 ± 1" in text
    assert f"{100 * RunOutcome.of(done['none'][0]).accuracy:.2f}" in text
    reproduce.draw(DIGITS, done, tmp_path / "deep" / "curve.png")
    assert (tmp_path / "deep" / "curve.png").read_bytes().startswith(b"\x89PNG")
