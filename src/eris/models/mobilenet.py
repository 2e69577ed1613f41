"""MobileNetV2 for 32 × 32 colour images (Sandler et al., 2018): inverted residual blocks.

The published table of blocks with a width of one's choice; of its five halvings of the image the
first two are left out, as is usual for small images. Group norm is in the place of batch norm,
whose running statistics are no parameters.
"""

from __future__ import annotations

import torch
from torch import nn

from eris.core.errors import InvalidSetting
from eris.models.resnet import GROUP_CHANNELS
from eris.models.seeding import check_classes, seeded

STEM, LAST = 32, 1280
BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels at width 1, blocks in a row, stride of the first of them."""


class MobileNet(nn.Module):
    """The layers; ``mobilenet`` makes them with reproducible weights."""

    def __init__(self, width: float, *, classes: int) -> None:
        super().__init__()
        before = _channels(STEM, width)
        self.first = _convolution(3, before, size=3)
        blocks = []
        for expansion, channels, count, stride in BLOCKS:
            for number in range(count):
                after = _channels(channels, width)
                blocks.append(_Inverted(before, after, expansion, 1 if number else stride))
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.last = _convolution(before, _channels(LAST, width))
        self.full = nn.Linear(_channels(LAST, width), classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (N, classes) of images (N, 3, 32, 32)."""
        x = self.last(self.blocks(self.first(images)))
        logits: torch.Tensor = self.full(x.mean(dim=(2, 3)))
        return logits


def mobilenet(seed: int, *, classes: int = 10, width: float = 0.25) -> MobileNet:
    """MobileNetV2 with ``width`` times the published channels, in whole groups of eight.

    162,602 parameters by default, 2,236,682 at the published width. The weights depend on
    ``seed`` alone.
    """
    check_classes(classes)
    if not 0 < width <= 2:
        raise InvalidSetting("width", width, "a number above 0, at most 2")
    return seeded(lambda: MobileNet(width, classes=classes), seed)


class _Inverted(nn.Module):
    """Widened, filtered a channel at a time, narrowed; a shortcut where the shape stays."""

    def __init__(self, before: int, after: int, expansion: int, stride: int) -> None:
        super().__init__()
        inside = before * expansion
        widened = [_convolution(before, inside)] if expansion > 1 else []
        self.layers = nn.Sequential(
            *widened,
            _convolution(inside, inside, size=3, stride=stride, groups=inside),
            nn.Conv2d(inside, after, 1, bias=False),
            nn.GroupNorm(after // GROUP_CHANNELS, after),
        )
        self.shortcut = stride == 1 and before == after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layers(x)
        return x + y if self.shortcut else y


def _channels(count: int, width: float) -> int:
    """The nearest whole number of groups, at least one."""
    return GROUP_CHANNELS * max(1, round(count * width / GROUP_CHANNELS))


def _convolution(
    before: int, after: int, *, size: int = 1, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    # A norm's own shift makes a bias before it redundant.
    filters = nn.Conv2d(
        before, after, size, stride=stride, padding=size // 2, groups=groups, bias=False
    )
    return nn.Sequential(filters, nn.GroupNorm(after // GROUP_CHANNELS, after), nn.ReLU6())
