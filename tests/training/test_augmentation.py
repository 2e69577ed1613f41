"""Pictures that are shifted and mirrored: by a slow loop, and alike in both ways to train."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.training.augmentation import cropped_and_flipped
from eris.training.options import LocalTraining
from eris.training.torch import TorchTrainer, evaluate, flatten, single_threaded
from eris.training.trainer import PerSampleNoise
from eris.training.vectorised import TorchPopulation

GENERATOR = torch.Generator().manual_seed(4)
IMAGES = torch.randn(12, 3, 6, 5, generator=GENERATOR)
LABELS = torch.arange(12) % 3
PARTS = [np.arange(0, 5), np.arange(5, 12)]
HOW: dict[str, Any] = {"learning_rate": 0.05, "epochs": 2, "batch_size": 3, "seed": 9}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 3))


def by_hand(image: np.ndarray[Any, Any], word: int) -> np.ndarray[Any, Any]:
    """One picture, pixel by pixel."""
    channels, height, width = image.shape
    down, across, mirrored = word % 9, word // 9 % 9, word // 81 % 2
    out = np.zeros_like(image)
    for c in range(channels):
        for y in range(height):
            for x in range(width):
                row = y + down - 4
                column = (width - 1 - x if mirrored else x) + across - 4
                if 0 <= row < height and 0 <= column < width:
                    out[c, y, x] = image[c, row, column]
    return out


def test_a_batch_is_what_a_slow_loop_makes_of_it() -> None:
    words = Stream(1, "test").words(0, len(IMAGES))
    found = cropped_and_flipped(IMAGES, words)
    assert found.is_contiguous()
    for image, word, one in zip(IMAGES.numpy(), words.tolist(), found.numpy(), strict=True):
        np.testing.assert_array_equal(one, by_hand(image, word))


def test_all_places_and_both_sides_are_equally_likely() -> None:
    words = Stream(2, "test").words(0, 81 * 2 * 400)
    counts = np.bincount(words % 162, minlength=162)
    # χ² with 161 degrees of freedom: mean 161, deviation 18.
    assert ((counts - 400) ** 2 / 400).sum() < 161 + 5 * 18


def updates(path: Any, model: nn.Module, round: int, **other: Any) -> list[Any]:
    clients = TorchPopulation(
        model,
        IMAGES,
        LABELS,
        PARTS,
        path=path,
        augment="crop-flip",
        **(HOW | other),
    )
    assert path == "loop" or clients.obstacle is None
    with single_threaded():
        return [one.vector for one in clients.updates([0, 1], flatten(model), round)]


def test_one_pass_trains_on_the_pictures_of_the_plain_loop() -> None:
    model = network()
    for round in (3, 4):  # the first round is held against the loop in any case
        for loop, fast in zip(*(updates(p, model, round) for p in ("loop", "fast")), strict=True):
            assert np.linalg.norm(loop - fast) < 1e-4 * np.linalg.norm(loop)


def test_a_round_repeats_and_another_differs() -> None:
    model = network()
    first, again, other = (updates("loop", model, round) for round in (3, 3, 4))
    assert all(map(np.array_equal, first, again))
    assert not any(map(np.array_equal, first, other))
    elsewhere = updates("loop", model, 3, seed=10)
    assert not any(map(np.array_equal, first, elsewhere))


def test_a_step_is_the_gradient_of_the_changed_batch() -> None:
    model, client, round = network(), 5, 7
    trainer = TorchTrainer(
        model, IMAGES, LABELS, client=client, learning_rate=0.1, augment="crop-flip", seed=2
    )
    start = flatten(model)
    words = Stream(2, "augmentation", round=round, client=client).words(0, 12)
    changed = cropped_and_flipped(IMAGES, words)
    plain = TorchTrainer(network(), changed, LABELS, learning_rate=0.1)
    np.testing.assert_array_equal(
        trainer.update(start, round).vector, plain.update(start, round).vector
    )


def test_pictures_that_are_tested_on_stay_as_they_are() -> None:
    model = network()
    trainer = TorchTrainer(model, IMAGES, LABELS, learning_rate=0.1, augment="crop-flip")
    start = flatten(model)
    trainer.update(start, 1)
    assert trainer.evaluate(start, IMAGES, LABELS) == evaluate(model, start, IMAGES, LABELS)


@pytest.mark.parametrize("estimator", ["svrg", "saga"])
def test_estimators_that_remember_samples_are_refused_beside_it(estimator: Any) -> None:
    with pytest.raises(InvalidSetting, match="augment is 'crop-flip'; expected 'none' beside"):
        LocalTraining(learning_rate=0.1, estimator=estimator, augment="crop-flip")


def test_what_is_no_picture_or_no_word_is_refused() -> None:
    flat = IMAGES.flatten(1)
    linear = nn.Linear(flat.shape[1], 3)
    with pytest.raises(InvalidSetting, match="samples to augment"):
        TorchTrainer(linear, flat, LABELS, learning_rate=0.1, augment="crop-flip")
    with pytest.raises(InvalidSetting, match="samples to augment"):
        TorchPopulation(linear, flat, LABELS, PARTS, learning_rate=0.1, augment="crop-flip")
    with pytest.raises(InvalidSetting, match="augment is 'auto'"):
        LocalTraining(learning_rate=0.1, augment="auto")  # type: ignore[arg-type]


def test_noise_per_sample_is_refused_beside_it() -> None:
    model = network()
    trainer = TorchTrainer(model, IMAGES, LABELS, learning_rate=0.1, augment="crop-flip")
    with pytest.raises(InvalidSetting, match="private update"):
        trainer.private_update(flatten(model), 1, PerSampleNoise(1.0, 1.0, 0))
    with pytest.raises(InvalidSetting, match="with noise per sample"):
        trainer.check_clipping(flatten(model))
