"""The FLIP paper's experiments, small: what is run, kept and printed."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from eris.audit.inversion import Inverted
from eris.core.errors import InvalidSetting
from eris.experiments.audits import eavesdropping, tap_images
from eris.experiments.audits.altered import Altered
from eris.experiments.audits.eavesdropping import (
    estimates,
    follow,
    protections,
    rows,
    scaled,
)
from eris.experiments.audits.tap_images import Attacker, TappedImages, rebuilt, singles
from eris.experiments.audits.tap_report import curves, tables
from eris.experiments.audits.tap_training import (
    FULL,
    LAST,
    SETTINGS,
    Setting,
    Taped,
    TapExperiment,
    kept_course,
    noisy_models,
    taped,
)
from eris.experiments.runs.assembly import assemble
from eris.experiments.runs.checkpoint import RunDamaged
from eris.experiments.runs.recipe import Recipe
from eris.federation import Federation
from eris.methods.fedavg import FedAvg
from eris.training.flat import flatten, joined
from eris.training.population import Trainers
from eris.training.trainer import LocalUpdate
from support.command import Eris

SMALL = TapExperiment(samples=16, rounds=7, test_samples=50, images=2, iterations=5)


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
    assert np.array_equal(found.by_name["trained"][0], found.client[0])
    assert np.array_equal(found.last["first"][0], found.by_name["first"][-1])


def made_up(rounds: int = 4, size: int = 6) -> Taped:
    """A course of random moves, in all rounds of which the client is."""
    draw = np.random.default_rng(0)
    server, increments = draw.normal(size=(2, rounds, size)).astype(np.float32)
    return Taped(server, increments, (True,) * rounds, server[0])


def test_protection_is_the_mean_over_every_interception_that_there_can_be() -> None:
    course, rounds = made_up(), range(4)
    kept = protections(TapExperiment(), SETTINGS[1], course)
    at_half = kept["γ"].index(0.5)
    for name, start, sends in (
        ("increments, from zero", np.zeros(6, np.float32), "increments"),
        ("increments, from first", course.initial, "increments"),
        ("models, from zero", np.zeros(6, np.float32), "models"),
    ):
        every = [
            follow(course, start, rounds, heard, sends)[-1]  # type: ignore[arg-type]
            for heard in itertools.product((False, True), repeat=4)
        ]
        mean = np.mean([np.square(course.client[-1] - one).sum() for one in every])
        assert kept[name][at_half] == pytest.approx(mean, rel=1e-4), name
    assert kept["models, from zero"][-1] == pytest.approx(0, abs=1e-9)
    assert kept["increments, from zero"][-1] == pytest.approx(kept["measured"], rel=1e-5)


def test_a_sum_that_is_not_shortened_is_the_estimate_of_who_hears_all() -> None:
    course, rounds = made_up(), range(4)
    *_, whole = scaled(course, rounds)
    assert whole == pytest.approx(follow(course, course.initial, rounds, [True] * 4)[-1], abs=1e-5)


@pytest.mark.usefixtures("few_images")
def test_a_course_is_trained_once_and_one_of_other_settings_is_refused(tmp_path: Path) -> None:
    settings, setting = replace(SMALL, rounds=5), replace(SETTINGS[0], epochs=1)
    assembly, told = assemble(settings.recipe(setting)), []

    def kept(settings: TapExperiment) -> Taped:
        return kept_course(settings, setting, assembly, True, tmp_path, lambda: told.append(1))

    first = kept(settings)
    assert len(told) == 5
    again = kept(replace(settings, interception=0.1, images=7))
    assert len(told) == 5, "what a tap hears does not change training"
    for name in ("server", "increments", "initial"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
    assert first.sampled == again.sampled
    with pytest.raises(RunDamaged, match="it is of other settings"):
        kept(replace(settings, clip=1.0))
    (path,) = tmp_path.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(RunDamaged, match="trains it again"):
        kept(settings)


@pytest.mark.usefixtures("few_images")
def test_dlg_is_asked_about_the_mean_gradient_at_the_model_that_the_tap_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = replace(SMALL, samples=20, images=16)
    setting = replace(SETTINGS[3], epochs=2)  # 6 steps: 20 samples in batches of 8, twice
    assembly = assemble(settings.recipe(setting))
    asked: list[tuple[nn.Module, Mapping[int, Any], int]] = []

    def inverted(module: nn.Module, loss: Any, gradients: Any, **options: Any) -> Inverted:
        asked.append((copy.deepcopy(module), gradients, options["samples"]))
        made = torch.zeros(len(gradients), options["samples"], *options["shape"])
        return Inverted(made, made[:, :, 0, 0, 0].long(), made[:, 0], made[:, 0], made + 1)

    monkeypatch.setattr(tap_images, "invert", inverted)
    model = assembly.initial + np.float32(0.01)
    heard = Attacker("", model, np.full_like(model, -6e-3))
    made = rebuilt(heard, assembly, setting, settings)
    (module, gradients, batch), client = asked[0], TappedImages.of(assembly)
    assert np.array_equal(flatten(module), model)
    assert (len(gradients), batch, len(made.inputs), len(made.labels)) == (2, 8, 16, 16)
    assert gradients[1] == pytest.approx(np.ones_like(model), rel=1e-5), "6 steps of 1e-3 by 1"
    assert (made.control == 1).all()
    assert len(singles(model, client, assembly, settings)) == 8
    module, gradients, batch = asked[1]
    loss = nn.functional.cross_entropy(module(client.inputs[3:4]), client.labels[3:4])
    exact = joined(torch.autograd.grad(loss, list(module.parameters()))).numpy()
    assert gradients[3] == pytest.approx(exact, rel=1e-4, abs=1e-7)
    assert (len(gradients), batch) == (8, 1)
    assert client.closest(client.originals[4:6]).tolist() == [4, 5]


def test_noise_is_on_the_model_that_is_sent() -> None:
    settings = replace(SMALL, clip=0.5, samples=FULL)
    start = np.ones(40_000, np.float32)
    (update,) = Altered(Trainers([Still()]), noisy_models(settings)).updates([0], start, 1)
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
def test_rows_are_kept_and_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[None] = []
    (first,) = rows(SMALL, tmp_path, lambda: told.append(None), SETTINGS[:1])
    assert len(told) == 2 * SMALL.rounds
    monkeypatch.setattr(eavesdropping, "row", lambda *_: pytest.fail("it is there"))
    assert list(rows(SMALL, tmp_path, only=SETTINGS[:1])) == [first]
    accuracies, images, noise, by_interception = tables([first])
    assert [one.row_count for one in (accuracies, images, noise, by_interception)] == [1, 1, 1, 3]
    assert 0 <= first["taps"]["zero"] <= 1
    assert len(first["client by round"]) == len(first["rounds"]) >= LAST
    assert first["client"] == pytest.approx(np.mean(first["client by round"][-LAST:]))
    assert first["protection"]["measured"] > 0
    assert -1 <= first["images"]["random numbers"]["SSIM"] <= 1
    assert curves([first], tmp_path / "curves.png").stat().st_size > 0
    assert (tmp_path / "audits" / first["images"]["picture"]).stat().st_size > 0
    path = tmp_path / "audits" / f"{first['run']}.json"
    path.write_text(json.dumps({**first, "about": {}}), encoding="utf-8")
    with pytest.raises(RunDamaged, match="it is of other settings"):
        list(rows(SMALL, tmp_path, only=SETTINGS[:1]))


def test_settings_are_chosen_by_the_papers_letters() -> None:
    with pytest.raises(InvalidSetting, match="letters of a, b, c, d"):
        eavesdropping.main(["--only", "ax"])


def test_it_can_be_quick_and_others_cannot(
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
    assert "only eavesdropper," in eris.err
