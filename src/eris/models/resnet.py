"""ResNet-18 and ResNet-20 for 32 × 32 colour images (He, Zhang, Ren and Sun, 2016).

ResNet-18 is what Shatter trains on CIFAR-10, in the usual variant for small images: a first
convolution of 3 × 3 with stride 1 and no pooling after it, 64-128-256-512 channels, two blocks
each, 1 × 1 convolutions where a shortcut changes shape. ResNet-20 is what EncCluster trains: the
paper's own network for CIFAR-10, 16-32-64 channels, three blocks each, shortcuts without parameters
(every second pixel, new channels zero).

Normalisation is a choice the user sees, because batch norm does not fit a federation: its running
statistics are not parameters, so they are neither sent nor averaged. ``eris.training.torch``
refuses such a model unless told what to do with them.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import nn
from torch.nn import functional

from eris.core.errors import InvalidSetting, one_of
from eris.models.seeding import check_classes, seeded

Norm = Literal["group", "batch", "none"]
"""``group``: group norm. ``batch``: batch norm. ``none``: biases in the convolutions instead."""

GROUP_CHANNELS = 8
"""Channels a group, so that the 16 channels of ResNet-20 are two groups and not a layer norm."""


class ResNet(nn.Module):
    """The layers; ``resnet18`` and ``resnet20`` make them with reproducible weights."""

    def __init__(
        self, channels: tuple[int, ...], blocks: int, *, classes: int, norm: Norm, project: bool
    ) -> None:
        super().__init__()
        self.first = _convolution(3, channels[0], norm=norm)
        stages = []
        before = channels[0]
        for stage, after in enumerate(channels):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                stages.append(_Block(before, after, stride, norm=norm, project=project))
                before = after
        self.blocks = nn.Sequential(*stages)
        self.full = nn.Linear(before, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (N, classes) of images (N, 3, 32, 32)."""
        x = self.blocks(functional.relu(self.first(images)))
        logits: torch.Tensor = self.full(x.mean(dim=(2, 3)))
        return logits


def resnet18(seed: int, *, classes: int = 10, norm: Norm = "group") -> ResNet:
    """ResNet-18 for small images; 11,173,962 parameters at 10 classes with a norm.

    The weights depend on ``seed`` alone (see ``eris.models.seeding``).
    """
    return _resnet((64, 128, 256, 512), 2, seed, classes, norm, project=True)


def resnet20(seed: int, *, classes: int = 10, norm: Norm = "group") -> ResNet:
    """ResNet-20 for CIFAR; 269,722 parameters at 10 classes with a norm.

    The weights depend on ``seed`` alone (see ``eris.models.seeding``).
    """
    return _resnet((16, 32, 64), 3, seed, classes, norm, project=False)


class _Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int, *, norm: Norm, project: bool) -> None:
        super().__init__()
        self.conv1 = _convolution(before, after, norm=norm, stride=stride)
        self.conv2 = _convolution(after, after, norm=norm)
        self.shortcut: nn.Module
        if stride == 1 and before == after:
            self.shortcut = nn.Identity()
        elif project:
            self.shortcut = _convolution(before, after, norm=norm, stride=stride, size=1)
        else:
            self.shortcut = _Subsample(after - before)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv2(functional.relu(self.conv1(x)))
        return functional.relu(y + self.shortcut(x))


class _Subsample(nn.Module):
    """The paper's option A: every second pixel, the new channels zero on both sides."""

    def __init__(self, new: int) -> None:
        super().__init__()
        self.below, self.above = new // 2, new - new // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.below, self.above))


def _convolution(
    before: int, after: int, *, norm: Norm, stride: int = 1, size: int = 3
) -> nn.Sequential:
    # A norm's own shift makes a bias before it redundant.
    convolution = nn.Conv2d(
        before, after, size, stride=stride, padding=size // 2, bias=norm == "none"
    )
    if norm == "none":
        return nn.Sequential(convolution)
    if norm == "batch":
        return nn.Sequential(convolution, nn.BatchNorm2d(after))
    return nn.Sequential(convolution, nn.GroupNorm(after // GROUP_CHANNELS, after))


def _resnet(
    channels: tuple[int, ...], blocks: int, seed: int, classes: int, norm: Norm, *, project: bool
) -> ResNet:
    check_classes(classes)
    if norm not in get_args(Norm):
        raise InvalidSetting("norm", norm, one_of(get_args(Norm), norm))
    return seeded(
        lambda: ResNet(channels, blocks, classes=classes, norm=norm, project=project), seed
    )
