"""ConvMixer, MobileNet and ConvNeXt: parameters by hand, published sizes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from eris.core.errors import InvalidSetting
from eris.models import create
from eris.training.torch import TorchTrainer, flatten, parameter_count, single_threaded
from eris.training.vectorised import TorchPopulation

NAMES = ["convmixer", "mobilenet", "convnext"]


def mixer_parameters(width: int, depth: int, kernel: int, classes: int) -> int:
    """Every convolution with a bias and two numbers a channel of its norm; a linear layer."""
    each = 3 * width
    block = width * kernel**2 + each + width**2 + each
    return 3 * 4 * width + each + depth * block + (width + 1) * classes


@pytest.mark.parametrize(("width", "depth", "kernel", "classes"), [(64, 4, 5, 10), (16, 2, 3, 100)])
def test_a_mixer_has_the_parameters_of_its_formula(
    width: int, depth: int, kernel: int, classes: int
) -> None:
    made = create("convmixer", 0, width=width, depth=depth, kernel=kernel, classes=classes)
    assert parameter_count(made) == mixer_parameters(width, depth, kernel, classes)


def test_the_papers_mixer_has_its_published_size() -> None:
    """0.6 million: Trockman and Kolter, table 2, ConvMixer-256/8 on CIFAR-10 with kernels of 5."""
    assert mixer_parameters(256, 8, 5, 10) == 594_186


def test_a_mobilenet_of_full_width_has_its_published_size() -> None:
    """torchvision's MobileNetV2 has 3,504,872 parameters, of which 1000 × 1281 are its last layer;
    batch norm and group norm have as many."""
    assert parameter_count(create("mobilenet", 0, width=1.0, classes=1000)) == 3_504_872


def test_a_convnext_has_the_parameters_of_its_formula() -> None:
    def block(c: int) -> int:
        return 50 * c + 2 * c + (c + 1) * 4 * c + (4 * c + 1) * c

    halved = (12 + 1) * 24 + 2 * 24 + 2 * 24 + (96 + 1) * 48 + 2 * 48 + (192 + 1) * 96
    expected = 2 * block(24) + 2 * block(48) + block(96) + halved + 2 * 96 + 97 * 10
    assert parameter_count(create("convnext", 0)) == expected == 158_338


@pytest.mark.parametrize("name", NAMES)
def test_images_are_read_one_by_one(name: str) -> None:
    model = create(name, 0)
    images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        together, alone = model(images), torch.cat([model(one[None]) for one in images])
    assert together.numpy() == pytest.approx(alone.numpy(), abs=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_clients_train_in_one_pass_as_in_the_loop(name: str) -> None:
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(6, 3, 32, 32, generator=generator)
    targets, parts = torch.arange(6) % 10, [np.arange(0, 3), np.arange(3, 6)]
    model = create(name, 0)
    start = flatten(model)
    with single_threaded():
        together = TorchPopulation(model, inputs, targets, parts, path="fast", learning_rate=0.01)
        assert together.obstacle is None
        found = list(together.updates([0, 1], start, 5))
        for part, update in zip(parts, found, strict=True):
            alone = TorchTrainer(model, inputs[part], targets[part], learning_rate=0.01)
            expected = alone.update(start, 5).vector
            off = np.linalg.norm(update.vector - expected) / np.linalg.norm(expected)
            assert off < 1e-3


@pytest.mark.parametrize(
    ("name", "settings", "found"),
    [
        ("convmixer", {"width": 60}, "width is 60; expected a multiple of 8"),
        ("convmixer", {"classes": 1}, "classes is 1"),
        ("convmixer", {"depth": 0}, "depth is 0; expected at least 1"),
        ("convmixer", {"kernel": 4}, "kernel is 4; expected an odd number"),
        ("mobilenet", {"width": 0.0}, "width is 0.0"),
        ("convnext", {"classes": 0}, "classes is 0"),
    ],
)
def test_what_is_no_model_is_refused(name: str, settings: dict[str, float], found: str) -> None:
    with pytest.raises(InvalidSetting, match=found):
        create(name, 0, **settings)
