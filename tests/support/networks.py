"""Small networks of a test's own, by name (``support.networks:perceptron``)."""

from __future__ import annotations

from torch import nn

from eris.models.seeding import seeded


def perceptron() -> nn.Module:
    """Two linear layers with ReLU on 8 × 8 images."""
    return seeded(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)), 0
    )


def convolution() -> nn.Module:
    """No linear layer at all."""
    return seeded(lambda: nn.Sequential(nn.Conv2d(1, 10, 8), nn.Flatten()), 0)
