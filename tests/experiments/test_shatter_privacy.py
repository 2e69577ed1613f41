"""Shatter's measures on a small federation of digits."""

from __future__ import annotations

import json

import pytest

from eris.core.errors import InvalidSetting
from eris.experiments.audits.shatter_privacy import ShatterExperiment, as_table, main, rows
from eris.methods.shatter import Shatter

SMALL = ShatterExperiment(
    data="digits",
    nodes=6,
    samples=10,
    alpha=0.3,
    rounds=4,
    epochs=3,
    learning_rate=0.5,
    neighbours=2,
    virtual_nodes=(4,),
    degree=2,
    test_samples=100,
)


def test_virtual_nodes_hide_more_than_whole_models_do() -> None:
    told: list[None] = []
    whole, noisy, chunks = rows(SMALL, lambda: told.append(None))
    assert len(told) == 3 * SMALL.rounds
    names = ("EL", "Muffliato, σ = 0.025", "Shatter, k = 4")
    assert (whole.method, noisy.method, chunks.method) == names
    assert whole.link.chance == pytest.approx(1 / 5)
    assert whole.link.low > whole.link.chance, "whole models tell whose they are"
    assert chunks.link.share < whole.link.share
    assert chunks.loss.pieces.mean < whole.loss.pieces.mean
    table = as_table(SMALL, [whole, noisy, chunks])
    assert table.row_count == 3
    assert table.title == "r = 2 for all methods"


def test_all_methods_are_compared_on_graphs_of_the_papers_degree() -> None:
    methods = ShatterExperiment().methods
    assert {method["method.degree"] for method in methods.values()} == {6}  # figure 7
    assert Shatter().degree == Shatter().virtual_nodes == 8, "Shatter's own, section 6.1"


def test_the_command_ends_with_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    small = [
        "--data",
        "digits",
        "--nodes",
        "20",
        "--samples",
        "8",
        "--rounds",
        "1",
        "--test-samples",
        "99",
    ]
    assert main([*small, "--epochs", "1", "--neighbours", "1"]) == 0
    report = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert report["rows"][0]["method"] == "EL"
    assert len(report["rows"]) == 6


def test_somebody_has_to_be_looked_at() -> None:
    with pytest.raises(InvalidSetting, match="neighbours is 20"):
        ShatterExperiment(neighbours=20)
