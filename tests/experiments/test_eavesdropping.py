"""The FLIP paper's experiments, small: what is run, kept and printed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eris.core.errors import InvalidSetting
from eris.experiments.audits import eavesdropping
from eris.experiments.audits.eavesdropping import (
    FULL,
    LAST,
    SETTINGS,
    NoisyModels,
    Setting,
    TapExperiment,
    estimates,
    rows,
    tables,
    taped,
)
from eris.experiments.runs.assembly import assemble
from eris.experiments.runs.checkpoint import RunDamaged
from eris.experiments.runs.recipe import Recipe
from eris.federation import Federation
from eris.methods.fedavg import FedAvg
from eris.training.population import Trainers
from eris.training.trainer import LocalUpdate
from support.command import Eris

SMALL = TapExperiment(samples=16, rounds=7, test_samples=50, images=2)


@pytest.fixture
def few_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coloured noise of CIFAR-10's size, in its place."""
    draw = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, count in (("train", 200), ("test", 60)):
        arrays[f"{part}_inputs"] = draw.normal(size=(count, 3, 32, 32)).astype(np.float32)
        arrays[f"{part}_targets"] = np.arange(count) % 10
    np.savez(tmp_path / "noise.npz", **arrays)
    plain = TapExperiment.recipe

    def recipe(settings: TapExperiment, setting: Setting) -> Recipe:
        return plain(settings, setting).changed({"data.name": str(tmp_path / "noise.npz")})

    monkeypatch.setattr(TapExperiment, "recipe", recipe)


class Still:
    """A client that does not move."""

    def update(self, parameters: Any, round: int) -> LocalUpdate:
        return LocalUpdate(np.zeros_like(parameters), samples=1)


def test_the_papers_settings() -> None:
    full = TapExperiment()
    assert full.samples * full.clients == 50_000
    assert (full.rounds, full.learning_rate, full.interception) == (30, 1e-3, 0.5)
    each = [(one.sampled, one.epochs, one.batch_size) for one in SETTINGS]
    assert each == [(5, 3, 128), (8, 3, 128), (5, 10, 128), (5, 3, 8)]
    # c·L·2C/(mε), with c = √(2·ln 125) = 3.1075
    assert full.sigma == pytest.approx(3.1075 * 10 * 140 / (6250 * 100), rel=1e-4)


@pytest.mark.usefixtures("few_images")
def test_the_tapped_client_is_in_the_last_rounds_and_models_that_are_heard_are_the_clients() -> (
    None
):
    setting = replace(SETTINGS[0], epochs=1)
    course = taped(SMALL, setting, assemble(SMALL.recipe(setting)), False, lambda: None)
    assert all(course.sampled[-LAST:])
    assert np.array_equal(course.server[0], course.initial)
    assert (np.abs(course.increments[np.array(course.sampled)]).max(axis=1) > 0).all()
    found = estimates(SMALL, course)
    gaps = [np.abs(a - b).max() for a, b in zip(found.client, found.by_name["models"], strict=True)]
    assert min(gaps) == 0 < max(np.abs(found.client[-1] - found.by_name["zero, all heard"][-1]))
    told = sum(course.increments[t] for t, there in enumerate(course.sampled) if there)
    assert found.by_name["zero, all heard"][-1] == pytest.approx(told, abs=1e-5)


def test_noise_is_on_the_model_that_is_sent() -> None:
    settings = replace(SMALL, clip=0.5, samples=FULL)
    start = np.ones(40_000, np.float32)
    (update,) = NoisyModels(Trainers([Still()]), settings).updates([0], start, 1)
    sent = start - settings.learning_rate * update.vector
    assert np.linalg.norm(sent) == pytest.approx(0.5, abs=0.05), "clipped to C"
    noise = sent - 0.5 / 200
    assert noise.std() == pytest.approx(settings.sigma, rel=0.05)


def test_a_client_can_be_forced_only_where_clients_are_sampled() -> None:
    start = np.zeros(2, np.float32)
    sampled = Federation([Still() for _ in range(6)], start, FedAvg(), sampled=3, seed=3)
    before = [sampled._sampling.view(r).clients for r in range(1, 9)]  # type: ignore[union-attr]
    sampled.force(4, [2, 3])
    after = [sampled._sampling.view(r).clients for r in range(1, 9)]  # type: ignore[union-attr]
    assert all(4 in after[round - 1] for round in (2, 3))
    assert [one for n, one in enumerate(after) if n not in (1, 2)] == [
        one for n, one in enumerate(before) if n not in (1, 2)
    ]
    assert all(len(set(one)) == 3 for one in after)
    assert before[1:3] != after[1:3]
    with pytest.raises(InvalidSetting, match="a federation with `sampled`"):
        Federation([Still() for _ in range(3)], start, FedAvg()).force(0, [1])
    with pytest.raises(InvalidSetting, match="one of 6"):
        sampled.force(6, [1])


@pytest.mark.usefixtures("few_images")
def test_rows_are_kept_and_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eavesdropping, "SETTINGS", SETTINGS[:1])
    told: list[None] = []
    (first,) = rows(SMALL, tmp_path, lambda: told.append(None))
    assert len(told) == 2 * SMALL.rounds
    monkeypatch.setattr(eavesdropping, "row", lambda *_: pytest.fail("it is there"))
    assert list(rows(SMALL, tmp_path)) == [first]
    shown = tables([first])
    assert [table.row_count for table in shown] == [1, 1]
    assert 0 <= first["taps"]["zero"] <= 1
    assert first["protection"]["measured"] > 0
    (path,) = (tmp_path / "audits").iterdir()
    path.write_text(json.dumps({**first, "about": {}}), encoding="utf-8")
    with pytest.raises(RunDamaged, match="it is of other settings"):
        list(rows(SMALL, tmp_path))


def test_only_this_experiment_is_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[list[str]] = []
    monkeypatch.setattr(eavesdropping, "main", asked.append)
    eris = Eris(monkeypatch, capsys)
    assert eris("reproduce", "eavesdropper", "--seeds", "1", "--quick") == 0, eris.err
    assert asked[0][:2] == ["--seed", "0"]
    assert asked[0][-1] == "--quick"
    assert eris("reproduce", "mnist", "--quick") != 0
    assert "only eavesdropper has fewer samples" in eris.err
