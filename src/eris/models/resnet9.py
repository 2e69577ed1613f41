"""ResNet-9 for 32 × 32 colour images, in the size ERIS trains on CIFAR-10 (1,652,682 parameters).

Eight 3 × 3 convolutions 32-64-(64,64)-128-256-(256,256), the pairs in brackets with a shortcut
around them, and one linear layer. No normalisation: every number that is trained is a parameter.

The papers give the channels and the total. The total settles the rest: the convolutions with their
biases have 1,642,432 parameters, and the 10,250 that remain are a linear layer with bias from
1,024 = 256 · 2 · 2 features to 10 classes. So 32 × 32 pixels are halved four times: after the
convolutions to 64, 128 and 256 channels, and before the linear layer.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from eris.models.seeding import check_classes, seeded


class ResNet9(nn.Module):
    """The layers; ``resnet9`` makes one with reproducible weights."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = _convolution(3, 32)
        self.conv2 = _convolution(32, 64)
        self.pair1 = nn.Sequential(_convolution(64, 64), _convolution(64, 64))
        self.conv3 = _convolution(64, 128)
        self.conv4 = _convolution(128, 256)
        self.pair2 = nn.Sequential(_convolution(256, 256), _convolution(256, 256))
        self.full = nn.Linear(256 * 2 * 2, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (N, classes) of images (N, 3, 32, 32)."""
        x = self.conv1(images)
        x = functional.max_pool2d(self.conv2(x), 2)
        x = x + self.pair1(x)
        x = functional.max_pool2d(self.conv3(x), 2)
        x = functional.max_pool2d(self.conv4(x), 2)
        x = x + self.pair2(x)
        logits: torch.Tensor = self.full(functional.max_pool2d(x, 2).flatten(1))
        return logits


def resnet9(seed: int, *, classes: int = 10) -> ResNet9:
    """ResNet-9 with weights that depend on ``seed`` alone (see ``eris.models.seeding``)."""
    check_classes(classes)
    return seeded(lambda: ResNet9(classes), seed)


def _convolution(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(before, after, kernel_size=3, padding=1), nn.ReLU())
