"""ConvNeXt for 32 × 32 colour images (Liu et al., 2022), small.

EncCluster's table counts 0.16 million parameters for what it calls ConvNeXt-Tiny, which has 28
million as published; the channels and blocks here are chosen to have as many as the table says.
Patches are 2 × 2 instead of 4 × 4, and there are three stages instead of four. Blocks have no layer
scale: it is for deep networks.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from eris.models.seeding import check_classes, seeded

CHANNELS, BLOCKS = (24, 48, 96), (2, 2, 1)


class ConvNeXt(nn.Module):
    """The layers; ``convnext`` makes them with reproducible weights."""

    def __init__(self, *, classes: int) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        before = 3
        for number, (channels, count) in enumerate(zip(CHANNELS, BLOCKS, strict=True)):
            halved = nn.Conv2d(before, channels, 2, stride=2)
            stages += [halved, _Norm(channels)] if number == 0 else [_Norm(before), halved]
            stages += [_Block(channels) for _ in range(count)]
            before = channels
        self.stages = nn.Sequential(*stages)
        self.norm = nn.LayerNorm(before)
        self.full = nn.Linear(before, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (N, classes) of images (N, 3, 32, 32)."""
        logits: torch.Tensor = self.full(self.norm(self.stages(images).mean(dim=(2, 3))))
        return logits


def convnext(seed: int, *, classes: int = 10) -> ConvNeXt:
    """ConvNeXt of 24-48-96 channels, 2-2-1 blocks: 158,338 parameters.

    The weights depend on ``seed`` alone.
    """
    check_classes(classes)
    return seeded(lambda: ConvNeXt(classes=classes), seed)


class _Norm(nn.Module):
    """Layer norm of every pixel's channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = self.norm(x.permute(0, 2, 3, 1))
        return normed.permute(0, 3, 1, 2)


class _Block(nn.Module):
    """Filtered 7 × 7 a channel at a time, then each pixel through a wide layer; a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.filters = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.wide = nn.Linear(channels, 4 * channels)
        self.narrow = nn.Linear(4 * channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.norm(self.filters(x).permute(0, 2, 3, 1))
        y = self.narrow(functional.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)
