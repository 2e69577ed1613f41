"""LeNet-5 for grey images of 28 × 28 (61,706 parameters: the papers' on MNIST) and for colour
images of 32 × 32 (62,006: FLIP's on CIFAR-10).

Two 5 × 5 convolutions of 6 and 16 channels, then layers of 120, 84 and 10 (LeCun, Bottou, Bengio
and Haffner, 1998), with ReLU and max-pooling as is usual today.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.nn import functional

from eris.models.seeding import seeded


class LeNet5(nn.Module):
    """The layers; ``lenet5`` makes one with reproducible weights."""

    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        # Grey images are padded to the 32 × 32 that colour ones have.
        self.conv1 = nn.Conv2d(channels, 6, kernel_size=5, padding=2 if channels == 1 else 0)
        self.conv2 = nn.Conv2d(6, 16, kernel_size=5)
        self.full1 = nn.Linear(16 * 5 * 5, 120)
        self.full2 = nn.Linear(120, 84)
        self.full3 = nn.Linear(84, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (N, 10) of images (N, 1, 28, 28) or (N, 3, 32, 32)."""
        x = functional.max_pool2d(functional.relu(self.conv1(images)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.full1(x.flatten(1)))
        x = functional.relu(self.full2(x))
        logits: torch.Tensor = self.full3(x)
        return logits


def lenet5(seed: int) -> LeNet5:
    """LeNet-5 with PyTorch's default initialisation, drawn from a generator of its own.

    The weights are those of ``torch.manual_seed(seed); LeNet5()``, but the process-wide random
    state is neither read nor changed.
    """
    return seeded(LeNet5, seed)


def lenet5_colour(seed: int) -> LeNet5:
    """The same for colour images of 32 × 32."""
    return seeded(partial(LeNet5, 3), seed)
