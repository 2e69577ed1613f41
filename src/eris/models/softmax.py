"""Softmax regression: one linear layer on the pixels, for data without a network of their own."""

from __future__ import annotations

import math

import torch
from torch import nn

from eris.models.seeding import check_classes, seeded


class Softmax(nn.Module):
    """The layer; ``softmax`` makes one with reproducible weights."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.full = nn.Linear(math.prod(shape), classes)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Logits (N, classes) of samples (N, …)."""
        logits: torch.Tensor = self.full(samples.flatten(1))
        return logits


def softmax(seed: int, classes: int = 10) -> Softmax:
    """Softmax regression on 8 × 8 grey images, from a generator of its own.

    >>> sum(parameter.numel() for parameter in softmax(0).parameters())
    650
    """
    check_classes(classes)
    return seeded(lambda: Softmax((1, 8, 8), classes), seed)
