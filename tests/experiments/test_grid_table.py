"""The program that prints what a common grid costs."""

from __future__ import annotations

import json

import pytest

from eris.experiments.audits import grid_table
from eris.experiments.audits.grid_table import main


def test_a_table_and_its_figures_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By labels, six rounds: what follows is nearest to FedAvg, bytes are b bits a weight."""
    rows = ["FedAvg, float32", "update, following, 12 bits", "weights ±2, stochastic, 12 bits"]
    monkeypatch.setattr(grid_table, "ROWS", {row: grid_table.ROWS[row] for row in rows})
    main(["--quick"])
    table, figures = capsys.readouterr().out.rsplit("\n{", 1)
    assert "6 rounds, 1 seeds from 0" in table
    plain, update, weights = json.loads("{" + figures)["grid"]
    assert plain["upload"] == plain["total"] == 1
    for row in (update, weights):
        words = 12 / 8 * 19_210 + 2 * 400
        assert abs(row["upload"] / (words / (4 * 19_210)) - 1) < 0.005
        assert row["upload"] < row["total"] < 1
        assert row["withheld"] == 0
    for dealt in ("IID", "Dir(0.1)"):
        first, last = update["errors"][dealt]
        assert last < 0.002 < first
        assert weights["errors"][dealt][1] > 100 * last
