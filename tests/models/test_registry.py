"""What holds for every model in the registry, and how the registry answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.core.errors import InvalidSetting
from eris.models import MODELS, create, entry
from eris.models.factorisation import mean_squared_error
from eris.models.seeding import seeded
from eris.training.torch import Loss, TorchTrainer, flatten, parameter_count, single_threaded

NAMES = [name for name, known in MODELS.items() if known.weights is None]
"""Those with pre-trained weights need a folder: test_text.py."""
NORMED = ["resnet18", "resnet20"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with single_threaded():
        yield


def tiny_batch(name: str, count: int = 4) -> tuple[Tensor, Tensor, Loss]:
    known, generator = entry(name), torch.Generator().manual_seed(5)
    if known.classes is None:
        pairs = torch.randint(0, 900, (count, *known.input_shape), generator=generator)
        return pairs, torch.randint(1, 6, (count,), generator=generator), mean_squared_error
    inputs = torch.randn(count, *known.input_shape, generator=generator)
    targets = torch.randint(0, known.classes, (count,), generator=generator)
    return inputs, targets, functional.cross_entropy


def check_step(model: nn.Module, name: str, **settings: Any) -> None:
    """One step of the trainer gives a finite update, and along it the loss falls."""
    inputs, targets, loss = tiny_batch(name)
    trainer = TorchTrainer(model, inputs, targets, learning_rate=0.01, loss=loss, **settings)
    start = flatten(model, **settings)
    update = trainer.update(start, 1)
    assert update.vector.shape == (parameter_count(model),)
    assert np.isfinite(update.vector).all()
    assert update.vector.any()
    after = trainer.update(start - np.float32(0.01) * update.vector, 2)
    assert after.metrics["loss"] < update.metrics["loss"]


@pytest.mark.parametrize("name", NAMES)
def test_the_entry_says_what_is_made(name: str) -> None:
    known, model = entry(name), create(name, 0)
    assert parameter_count(model) == known.parameters
    inputs, _, _ = tiny_batch(name, count=2)
    assert model(inputs).shape == ((2, known.classes) if known.classes else (2,))


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_decides_the_weights_and_the_global_state_is_left_alone(name: str) -> None:
    before = torch.random.get_rng_state()
    first, again, other = create(name, 3), create(name, 3), create(name, 4)
    assert torch.equal(before, torch.random.get_rng_state())
    assert np.array_equal(flatten(first), flatten(again))
    assert not np.array_equal(flatten(first), flatten(other))


@pytest.mark.parametrize("name", NAMES)
def test_one_step_lowers_the_loss(name: str) -> None:
    check_step(create(name, 0), name)


@pytest.mark.parametrize("name", NORMED)
def test_one_step_lowers_the_loss_without_a_norm(name: str) -> None:
    check_step(create(name, 0, norm="none"), name)


@pytest.mark.parametrize("name", NORMED)
def test_batch_norm_is_trained_only_where_the_user_says_so(name: str) -> None:
    model = create(name, 0, norm="batch")
    with pytest.raises(InvalidSetting, match="running statistics, which are not parameters"):
        check_step(model, name)
    check_step(model, name, running_statistics="ignore")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_out_of_range_is_refused(name: str, seed: int) -> None:
    with pytest.raises(InvalidSetting, match="seed"):
        create(name, seed)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("resnet-9", "resnet9"), ("LeNet5", "lenet5"), ("matrix_factorization", "matrix-fact")],
)
def test_an_unknown_name_is_answered_with_the_nearest(wrong: str, meant: str) -> None:
    with pytest.raises(InvalidSetting, match=rf"did you mean '{meant}"):
        create(wrong, 0)


def test_a_name_like_no_other_lists_them_all() -> None:
    with pytest.raises(InvalidSetting, match=r"matrix-factorisation$"):
        entry("xyz")


def test_settings_reach_the_constructor_and_unknown_ones_are_refused() -> None:
    assert parameter_count(create("matrix-factorisation", 0, dimensions=2, biases=False)) == 5250
    with pytest.raises(InvalidSetting, match=r"resnet20 setting is 'nrom'; .* classes, norm"):
        create("resnet20", 0, nrom="group")
    with pytest.raises(InvalidSetting, match="no settings"):
        create("lenet5", 0, classes=3)


def test_a_layer_without_a_rule_is_not_left_uninitialised() -> None:
    with pytest.raises(TypeError, match="Bilinear"):
        seeded(lambda: nn.Bilinear(2, 2, 2), 0)


def test_without_torch_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"resnet9; run `pip install 'eris-fl\[torch\]'"):
        create("resnet9", 0)


def test_listing_models_does_not_import_torch() -> None:
    code = "import sys, eris.models as m; m.entry('resnet9'); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
