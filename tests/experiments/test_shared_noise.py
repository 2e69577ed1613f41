"""Trainings with shared noise: their sums have the noise that was agreed; what is done is kept."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from eris.core.errors import InvalidSetting
from eris.experiments.runs import noised, shared_noise
from eris.experiments.runs.noised import Images, NoisedTraining, course, network, rate_for, walk
from eris.experiments.runs.shared_noise import NoiseCampaign, kept
from eris.protocol.secure.noising import spread
from eris.training.flat import flatten
from eris.training.vectorised import TorchPopulation

TRAINING = NoisedTraining("softmax", 5, "shared", 8, False, 0.1, rounds=2)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four clients, and data that need not be fetched."""
    generator = torch.Generator().manual_seed(0)
    sets = [
        Images(torch.randn(count, 1, 28, 28, generator=generator), torch.arange(count) % 10)
        for count in (80, 30)
    ]
    monkeypatch.setattr(noised, "mnist", lambda: ("drawn", *sets))
    monkeypatch.setattr(noised, "CLIENTS", 4)
    monkeypatch.setattr(noised, "VALIDATION", 20)


def models(training: NoisedTraining) -> list[Any]:
    images = noised.mnist()[1]
    model = network(training.model, training.seed)
    parts = list(np.arange(20).reshape(4, 5))
    clients = TorchPopulation(model, images.inputs, images.labels, parts, learning_rate=1.0)
    return list(course(training, clients, flatten(model)))


@pytest.mark.parametrize("dsc", [False, True])
def test_a_round_has_the_noise_of_its_clients(dsc: bool) -> None:
    one = replace(TRAINING, dsc=dsc, rounds=1)
    noisy, clean = models(one)[0], models(replace(one, noise="clipped"))[0]
    if dsc:  # entries of what is published are cut to a limit, which this noise exceeds
        moved = float(np.linalg.norm(noisy - clean))
        assert 0 < moved < 2.2 * 0.034 * float(np.linalg.norm(flatten(network("softmax", 0))))
        return
    std = one.terms.std * math.sqrt(4) / 20
    assert abs(spread((noisy - clean).astype(np.float64) / one.step, std)) < 4
    assert one.noise_of_a_sum == pytest.approx(std * 20)
    local = replace(one, noise="local")
    assert local.noise_of_a_sum == pytest.approx(one.noise_of_a_sum * math.sqrt(2))


def test_what_has_no_noise_is_the_plain_rule() -> None:
    plain = replace(TRAINING, noise="none", rate=0.01)
    found = models(plain)
    images, model = noised.mnist()[1], network("softmax", 0)
    x: Any = flatten(model).astype(np.float64)
    velocity: Any = 0.0
    clients = TorchPopulation(
        model, images.inputs, images.labels, [np.arange(20)], learning_rate=1.0
    )
    for number in range(2):
        update = next(iter(clients.updates([0], x.astype(np.float32), 0))).vector
        velocity = 0.9 * velocity + update
        x = x - 0.01 * velocity
        assert np.allclose(found[number], x, atol=1e-6)


def test_noise_alone_moves_a_model_as_far_as_planned() -> None:
    rate = rate_for(TRAINING, 7850, 20.0)
    assert walk(replace(TRAINING, rate=rate), 7850) == pytest.approx(20, rel=0.05)


def test_trainings_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = NoiseCampaign("softmax-16", runs=str(tmp_path))
    told: list[float] = []
    first = kept(campaign, TRAINING, lambda label, share: told.append(share))
    assert told == [0.5, 1.0]
    assert list(first["test"]) == ["1", "2"]
    monkeypatch.setattr(shared_noise, "trained", None)  # nothing is trained again
    assert kept(campaign, TRAINING, lambda label, share: None) == first
    with pytest.raises(InvalidSetting, match="only is 'softmax'; expected one of softmax-16"):
        NoiseCampaign("softmax")
    with pytest.raises(InvalidSetting, match="model is 'perceptron'"):
        network("perceptron", 0)


def test_rates_are_chosen_in_one_cell_and_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of scanned rates the best on validation images; elsewhere noise walks as far, and no rate is
    above that of clipped gradients."""
    asked: list[NoisedTraining] = []

    def trained(training: NoisedTraining, tell: Any) -> dict[str, Any]:
        asked.append(training)
        far = walk(training, 7850)
        # The best walk is the middle one, the best rate of clipped gradients 0.4.
        good = -abs(math.log(far / 6)) if far else -abs(math.log(training.rate / 0.4))
        return {
            "training": asdict(training), "noise of a sum in clips": training.noise_of_a_sum,
            "walk": far, "validation": good, "norm": 1.0,
            "test": {"80": 0.8, "120": 0.85, "160": 0.9},
        }  # fmt: skip

    monkeypatch.setattr(shared_noise, "trained", trained)
    campaign = NoiseCampaign("softmax-16", seeds=2, first_seed=1, runs=str(tmp_path))
    cell = campaign.cells[0]

    def row(samples: int) -> Any:
        chosen = replace(cell, samples=samples, dsc=True)
        return shared_noise.row(campaign, chosen, "shared", 8, lambda label, share: None)

    few, many = row(16), row(5000)
    assert {(one.samples, one.dsc, one.seed) for one in asked[:6]} == {(64, False, 0)}
    assert [(one.noise, one.epsilon) for one in asked[:6]] == [("shared", 2)] * 3 + [
        ("clipped", 8)
    ] * 3
    assert [one.seed for one in asked[6:8]] == [1, 2]
    assert few["chosen"][0]["walk"] == pytest.approx(6, rel=0.05)
    assert many["chosen"][0]["training"]["rate"] == 0.4
    assert len(asked) == 10, "what is kept is not trained again"
    table = shared_noise.shown_as(cell, [("shared", 8.0, few)])
    assert [column.header for column in table.columns][:3] == ["noise", "ε", "std/C in a sum"]
    assert next(iter(table.columns[8].cells)) == "90.0, 90.0"
