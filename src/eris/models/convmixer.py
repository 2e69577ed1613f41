"""ConvMixer for 32 × 32 colour images (Trockman and Kolter, 2022): patches, then one block again.

EncCluster trains ConvMixer-256/8; here the width and the depth are settings, and small by default.
Group norm is in the place of batch norm, whose running statistics are no parameters.
"""

from __future__ import annotations

import torch
from torch import nn

from eris.core.errors import require
from eris.models.resnet import GROUP_CHANNELS
from eris.models.seeding import check_channels, check_classes, seeded


class ConvMixer(nn.Module):
    """The layers; ``convmixer`` makes them with reproducible weights."""

    def __init__(self, width: int, depth: int, kernel: int, *, classes: int) -> None:
        super().__init__()
        self.patches = nn.Sequential(nn.Conv2d(3, width, 2, stride=2), *_after(width))
        self.blocks = nn.Sequential(*(_Mixing(width, kernel) for _ in range(depth)))
        self.full = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (N, classes) of images (N, 3, 32, 32)."""
        logits: torch.Tensor = self.full(self.blocks(self.patches(images)).mean(dim=(2, 3)))
        return logits


def convmixer(
    seed: int, *, classes: int = 10, width: int = 64, depth: int = 4, kernel: int = 5
) -> ConvMixer:
    """ConvMixer-``width``/``depth`` on patches of 2 × 2; 25,930 parameters by default.

    The paper's 256/8 has 594,186. The weights depend on ``seed`` alone.
    """
    check_classes(classes)
    check_channels("width", width, GROUP_CHANNELS)
    require(depth >= 1, "depth", depth, "at least 1")
    require(kernel >= 1 and kernel % 2 == 1, "kernel", kernel, "an odd number")
    return seeded(lambda: ConvMixer(width, depth, kernel, classes=classes), seed)


class _Mixing(nn.Module):
    """Pixels are mixed a channel at a time, around which there is a shortcut; then channels."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        across = nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=width)
        self.pixels = nn.Sequential(across, *_after(width))
        self.channels = nn.Sequential(nn.Conv2d(width, width, 1), *_after(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed: torch.Tensor = self.channels(x + self.pixels(x))
        return mixed


def _after(width: int) -> tuple[nn.Module, nn.Module]:
    return nn.GELU(), nn.GroupNorm(width // GROUP_CHANNELS, width)
