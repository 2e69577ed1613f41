"""Models whose weights depend on a seed alone, not on PyTorch's process-wide random state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from eris.core.errors import InvalidSetting

Model = TypeVar("Model", bound=nn.Module)


def seeded(build: Callable[[], Model], seed: int) -> Model:
    """``build()`` with PyTorch's default initialisation, drawn from a generator of its own.

    The weights are those of ``torch.manual_seed(seed); build()``, provided that ``build`` makes its
    layers in the order in which it registers them; the process-wide random state is neither read
    nor changed.
    """
    generator = seeded_generator(seed)
    model = without_weights(build)
    for layer in model.modules():
        _initialise(layer, generator)
    return model


def check_classes(classes: int) -> None:
    """Refuse a classifier with fewer than two classes."""
    if classes < 2:
        raise InvalidSetting("classes", classes, "an integer of at least 2")


def check_channels(name: str, channels: int, group: int) -> None:
    """Refuse channels that are not whole groups of a norm."""
    if channels < group or channels % group:
        raise InvalidSetting(name, channels, f"a multiple of {group}, the channels of a group")


def seeded_generator(seed: int) -> torch.Generator:
    """A generator of its own for one model's weights."""
    if not 0 <= seed < 2**63:
        raise InvalidSetting("seed", seed, "an integer in [0, 2^63)")
    return torch.Generator().manual_seed(seed)


def without_weights(build: Callable[[], Model]) -> Model:
    """``build()`` with memory for its weights that nobody has written to yet."""
    with torch.device("meta"):  # no memory and, above all, no draws from the global generator
        model = build()
    return model.to_empty(device="cpu")


def _initialise(layer: nn.Module, generator: torch.Generator) -> None:
    if isinstance(layer, nn.Conv2d | nn.Linear):
        nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
        if layer.bias is not None:
            bound = 1 / math.sqrt(layer.weight[0].numel())
            nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    elif isinstance(layer, nn.GroupNorm | nn.BatchNorm2d | nn.LayerNorm):
        layer.reset_parameters()  # ones and zeros, no draws
    elif any(True for _ in layer.parameters(recurse=False)):
        # Left alone, these would be whatever the memory held before.
        raise TypeError(f"no rule to initialise the parameters of {type(layer).__name__}")
