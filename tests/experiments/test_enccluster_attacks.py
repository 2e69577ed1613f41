"""The program that reads trained EncCluster federations."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from eris.core.errors import InvalidSetting
from eris.experiments.audits import enccluster_attacks as program
from eris.experiments.audits.enccluster_attacks import (
    BOTH,
    QUICK,
    AttackSettings,
    main,
    measures_of,
)
from eris.training.flat import flatten

TINY = replace(
    QUICK, samples=40, epochs=1, rounds=1, shown=(1,), clients=4, clusters=16, fraction_bits=12
)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "QUICK", TINY)


def test_lines_are_printed_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["--quick", "--runs", str(tmp_path)]
    main(given)
    told = capsys.readouterr().out
    assert "4 clients of 40 samples; 64-256-10, 19,210 weights" in " ".join(told.split())
    rows = json.loads(next(line for line in told.splitlines() if line.startswith('{"mappings"')))
    assert [row["name"] for row in rows["mappings"]] == ["weights, round 1", "updates, round 1"]
    for row in rows["mappings"]:
        found = measures_of(row["found"])
        assert found.exact == found.determined > 0
        assert found.rank <= found.bound == 4 * 15 + 1
    weights, updates = (measures_of(row["found"]) for row in rows["mappings"])
    assert updates.attack.explained > 0.9
    assert weights.clustering.error > 0
    kept = sorted((tmp_path / "enccluster-attacks").iterdir())
    assert len(kept) == len(BOTH)
    monkeypatch.setattr(program, "AttackedTraining", None)  # nothing is trained again
    main(given)
    assert capsys.readouterr().out == told


def test_a_model_to_begin_with_is_another_line(tmp_path: Path) -> None:
    start = flatten(program.network(TINY, 5))
    save_file({"model": start}, tmp_path / "model.safetensors")
    own = AttackSettings(quick=True, only="digits", initial=str(tmp_path / "model.safetensors"))
    usual = AttackSettings(quick=True, only="digits")
    assert np.array_equal(own.start(TINY), start)
    assert own.path(TINY, BOTH[0]) != usual.path(TINY, BOTH[0])


def test_sizes_can_be_asked_for() -> None:
    (world,) = AttackSettings(only="resnet20", samples=200, rounds=4).worlds
    assert (world.samples, world.rounds, world.shown) == (200, 4, (1, 4))


@pytest.mark.parametrize("given", [["--only", "resnets20"], ["--initial", "model.safetensors"]])
def test_what_is_not_there_is_refused(given: list[str]) -> None:
    with pytest.raises(InvalidSetting, match="expected"):
        main(given)
