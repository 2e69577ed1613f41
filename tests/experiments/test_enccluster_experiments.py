"""EncCluster's experiments: recipes that hold, a table beside the paper's, and costs marked."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from eris.cli.main import app
from eris.core.errors import InvalidSetting
from eris.experiments.runs import reproduce
from eris.experiments.runs.enccluster import (
    CIFAR100,
    ENCCLUSTER,
    FEDAVG,
    adapted,
    reference,
    table,
)
from eris.experiments.runs.encryption_costs import Costs, CostSettings, main, weights_of
from eris.experiments.runs.progress import Progress
from eris.experiments.runs.reproduce import Experiment, Row, RunOutcome
from eris.methods.registry import create

SMALL = {"method.clusters": 4, "method.weight_range": 8.0, "method.fraction_bits": 10}
"""A table of logarithms that is quick to build has room for these."""
DIGITS = Experiment(
    "tiny",
    "Digits",
    {"data.name": "digits", "data.clients": 5, "data.samples": 20, "training.rounds": 2,
     "training.evaluate_every": 1},
    (
        Row(FEDAVG, {"method.name": "fedavg"}),
        Row("EncCluster, no filter", {"method.name": "enccluster", **SMALL}, "-0.14"),
    ),
)  # fmt: skip


@pytest.mark.parametrize("name", ENCCLUSTER)
def test_every_row_is_a_recipe_of_a_method_with_a_folder_of_its_own(name: str) -> None:
    experiment = ENCCLUSTER[name]
    recipes = [experiment.recipe(row, 0) for row in experiment.rows]
    assert len({recipe.name for recipe in recipes}) == len(experiment.rows)
    for row, recipe in zip(experiment.rows, recipes, strict=True):
        create(recipe.method.name, **recipe.method.settings)
        assert recipe.training.epochs == 1
        beside = reference(row.label, experiment.rows)
        other = next(one for one in experiment.rows if one.label == beside)
        # A row differs from what it is held against in its method, and in nothing else.
        further = {
            key: value
            for key, value in row.changes.items()
            if not key.startswith("method.") and other.changes.get(key) != value
        }
        assert not further


def test_table_3_has_the_papers_settings() -> None:
    rows = {row.label: row for row in ENCCLUSTER["enccluster-table3"].rows}
    assert len(rows) == 16
    sampled = rows["EncCluster, skewed, ρ = 0.2"]
    assert sampled.paper == "-1.05"
    assert sampled.changes["training.sampled"] == 6
    assert sampled.changes["data.alpha"] == 0.1
    assert sampled.changes["method.average"] == "plain"
    assert rows["EncCluster without filter, IID, ρ = 1"].paper == "-0.14"
    assert rows["FedAvg, IID, ρ = 0.2"].paper == "88.42"
    assert "training.sampled" not in rows["FedAvg_wc, IID, ρ = 1"].changes


@pytest.mark.filterwarnings("ignore:EncCluster does not hide")
def test_the_table_holds_a_row_against_fedavg(tmp_path: Path) -> None:
    done = reproduce.reproduce(DIGITS, [0], tmp_path, Progress())
    console = Console(width=200, record=True, file=StringIO())
    console.print(table(DIGITS, done))
    text = console.export_text()
    plain, enc = (RunOutcome.of(done[row.label][0]) for row in DIGITS.rows)
    assert f"{100 * (enc.accuracy - plain.accuracy):+.2f}" in text
    assert f"{enc.sent / plain.sent:.4f}" in text
    assert "-0.14" in text


def test_only_cifar100_takes_a_path_and_needs_one() -> None:
    with pytest.raises(InvalidSetting, match="the folder of your own CIFAR-100"):
        adapted(ENCCLUSTER[CIFAR100])
    with pytest.raises(InvalidSetting, match=f"only {CIFAR100} has it"):
        adapted(ENCCLUSTER["enccluster-table5"], path="somewhere")
    made = adapted(ENCCLUSTER[CIFAR100], path="somewhere")
    recipe = made.recipe(made.rows[0], 0)
    assert (recipe.data.path, recipe.model.settings) == ("somewhere", {"classes": 100})


def test_a_quick_try_has_runs_of_its_own() -> None:
    whole = ENCCLUSTER["enccluster-cifar10"]
    quick = adapted(whole, quick=True)
    assert quick.run_name(quick.rows[0], 0) != whole.run_name(whole.rows[0], 0)
    assert quick.recipe(quick.rows[0], 0).training.rounds == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["mnist", "--quick"],
            "only eavesdropper, enccluster-costs, enccluster-attacks, enccluster-cifar10",
        ),
        (["mnist", "--path", "x"], "none: mnist takes what was fetched"),
        ([CIFAR100], "the folder of your own CIFAR-100"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["reproduce", *arguments])
    assert done.exit_code != 0
    assert said in str(done.exception) + done.output


# -- costs ----------------------------------------------------------------------------------------

WEIGHTS = np.linspace(-0.5, 0.5, 3000, dtype=np.float32)
QUICK = CostSettings(clusters=16, clients=5, sample=8, paillier_sample=2, quick=True)


def test_what_is_not_measured_says_so() -> None:
    rows = {row.label: row for row in Costs(WEIGHTS, QUICK).rows()}
    assert rows["EncCluster"].how == "measured"
    assert rows["DeTrust-FL"].how == "extrapolated from 50 weights"
    assert rows["DeTrust-FL"].times_fedavg == pytest.approx(8.25, abs=0.02)
    small = rows["SEFL, n of 256 bits (no security)"]
    assert small.how == "extrapolated from 2 weights"
    assert (small.paper_s, small.paper_volume) == ("7.64", "2.581")
    large = rows["EncCluster, 521 bits"]
    assert large.how == "computed"
    assert large.encryption_s == pytest.approx(rows["EncCluster"].encryption_s * (521 / 256) ** 3)
    assert all(row.encryption_s > 0 for row in rows.values())


def test_weights_are_trained_ones_if_there_are_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(QUICK, runs=str(tmp_path))
    start, which = weights_of(settings)
    assert (len(start), which) == (269_722, "ResNet-20 at its start, seed 0")

    def small(*_: Any) -> Any:
        return WEIGHTS, "few weights"

    monkeypatch.setattr("eris.experiments.runs.encryption_costs.weights_of", small)
    main(["--runs", str(tmp_path), "--quick", "--clusters", "16", "--paillier-sample", "2"])
    assert '"weights": "few weights"' in capsys.readouterr().out
