"""ResNet-9, -18 and -20: their sizes, their shapes, and what their normalisation stands for."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from torch import nn

from eris.core.errors import InvalidSetting
from eris.models.resnet import Norm, ResNet, resnet18, resnet20
from eris.models.resnet9 import ResNet9, resnet9


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def widths(model: nn.Module) -> list[int]:
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    return [layer.out_channels for layer in layers if layer.kernel_size == (3, 3)]


def test_resnet9_has_the_papers_size_and_channels() -> None:
    model = resnet9(0)
    assert size(model) == 1_652_682
    assert widths(model) == [32, 64, 64, 64, 128, 256, 256, 256]
    assert not list(model.buffers())
    assert size(model.full) == 10_250


def test_resnet18_has_the_usual_size_for_small_images() -> None:
    assert size(resnet18(0)) == 11_173_962
    # 4,800 channels: a norm has a scale and a shift for each, a bias is one number.
    assert size(resnet18(0, norm="none")) == 11_173_962 - 4_800
    assert widths(resnet18(0)) == [64] * 5 + [128] * 4 + [256] * 4 + [512] * 4


def test_resnet20_has_the_papers_270_thousand() -> None:
    assert size(resnet20(0)) == size(resnet20(0, norm="batch")) == 269_722
    assert size(resnet20(0, norm="none")) == 269_722 - 688
    assert widths(resnet20(0)) == [16] * 7 + [32] * 6 + [64] * 6


def test_more_classes_change_the_last_layer_only() -> None:
    assert size(resnet9(0, classes=100)) == 1_652_682 + 90 * 1025
    assert size(resnet18(0, classes=100)) == 11_173_962 + 90 * 513
    assert size(resnet20(0, classes=100)) == 269_722 + 90 * 65
    assert resnet20(0, classes=100)(torch.zeros(2, 3, 32, 32)).shape == (2, 100)


def test_a_shortcut_without_parameters_takes_every_second_pixel_and_pads_with_zeros() -> None:
    block = resnet20(0).get_submodule("blocks.3")
    images = torch.arange(2 * 16 * 4 * 4, dtype=torch.float32).reshape(2, 16, 4, 4)
    short = block.get_submodule("shortcut")(images)
    assert short.shape == (2, 32, 2, 2)
    assert torch.equal(short[:, 8:24], images[:, :, ::2, ::2])
    assert not short[:, :8].any()
    assert not short[:, 24:].any()


@pytest.mark.parametrize("norm", get_args(Norm))
def test_the_norm_is_the_one_asked_for(norm: Norm) -> None:
    model = resnet20(0, norm=norm)
    kinds = {type(layer) for layer in model.modules()}
    assert (nn.GroupNorm in kinds) == (norm == "group")
    assert (nn.BatchNorm2d in kinds) == (norm == "batch")
    assert bool(list(model.buffers())) == (norm == "batch")
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            assert (layer.bias is not None) == (norm == "none")


def test_with_group_norm_an_image_is_judged_alone() -> None:
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    for model in (resnet20(0), resnet20(0, norm="none")):
        assert torch.allclose(model(images)[:1], model(images[:1]), atol=1e-5)
    mixing = resnet20(0, norm="batch")
    assert not torch.allclose(mixing(images)[:1], mixing(images[:1]), atol=1e-3)


def test_batch_norm_starts_as_pytorch_starts_it() -> None:
    model = resnet20(0, norm="batch")
    for name, buffer in model.named_buffers():
        assert bool((buffer == (1 if name.endswith("running_var") else 0)).all()), name


@pytest.mark.parametrize("norm", get_args(Norm))
def test_the_weights_are_pytorchs_own_for_that_seed(norm: Norm) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        usual: list[nn.Module] = [ResNet9()]
        torch.manual_seed(11)
        usual += [ResNet((64, 128, 256, 512), 2, classes=10, norm=norm, project=True)]
    for ours, theirs in zip([resnet9(11), resnet18(11, norm=norm)], usual, strict=True):
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("build", [resnet9, resnet18, resnet20])
def test_one_class_is_refused(build: Any) -> None:
    with pytest.raises(InvalidSetting, match="classes is 1"):
        build(0, classes=1)


def test_an_unknown_norm_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="'layer'; expected one of group, batch, none"):
        resnet20(0, norm="layer")  # type: ignore[arg-type]
