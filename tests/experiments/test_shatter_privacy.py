"""Shatter's measures on a small federation of digits."""

from __future__ import annotations

import json

import pytest

from eris.core.errors import InvalidSetting
from eris.experiments.shatter_privacy import ShatterExperiment, as_table, main, rows

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
    whole, chunks = rows(SMALL, lambda: told.append(None))
    assert len(told) == 2 * SMALL.rounds
    assert (whole.method, chunks.method) == ("EL", "Shatter, k = 4")
    assert whole.link.chance == pytest.approx(1 / 5)
    assert whole.link.low > whole.link.chance, "whole models tell whose they are"
    assert chunks.link.share < whole.link.share
    assert chunks.loss.pieces.mean < whole.loss.pieces.mean
    assert as_table([whole, chunks]).row_count == 2


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
    assert len(report["rows"]) == 5


def test_somebody_has_to_be_looked_at() -> None:
    with pytest.raises(InvalidSetting, match="neighbours is 20"):
        ShatterExperiment(neighbours=20)
