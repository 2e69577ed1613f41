"""Models by name: those of the package, and a user's own function, ``module:function``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from eris import models
from eris.core.errors import InvalidSetting, one_of
from eris.models import ModelEntry
from eris.named import called, code_sha256, is_named, named_function


@dataclass(frozen=True)
class OwnModel(ModelEntry):
    """A function that returns a module; what it reads is found by trying it."""

    @property
    def constructor(self) -> Callable[..., nn.Module]:
        """The function."""
        return named_function("model", self.name)

    @property
    def sha256(self) -> str | None:
        """The checksum of the function's file."""
        return code_sha256(self.constructor)


def entry(name: str) -> ModelEntry:
    """What is known of the model called ``name``.

    >>> entry("my_code:network").source
    'your own'
    """
    if not is_named(name):
        return models.entry(name)
    return OwnModel(name, name, (), 0, "your own", "your own")


def create(name: str, seed: int, **settings: Any) -> nn.Module:
    """The model called ``name``, with weights that depend on ``seed`` alone.

    A user's own function is called with PyTorch's generator set to the seed, and with ``seed`` if
    it takes one.
    """
    found = entry(name)
    if not isinstance(found, OwnModel):
        return models.create(name, seed, **settings)
    takes = inspect.signature(found.constructor).parameters
    known = sorted(set(takes) - {"seed"})
    for key in settings:
        if key not in known:
            expected = one_of(known, key) if known else "no settings"
            raise InvalidSetting(f"{name} setting", key, expected)
    given = {**settings, "seed": seed} if "seed" in takes else settings
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = called("model", name, given=given)
    if not isinstance(made, nn.Module):
        raise InvalidSetting(f"what {name} returned", type(made).__name__, "a torch.nn.Module")
    return made
