"""The models of the papers' experiments, by name (to make one needs the ``torch`` extra).

>>> MODELS["resnet9"].parameters
1652682
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from eris.core.errors import InvalidSetting, library, one_of

if TYPE_CHECKING:
    from torch import nn

__all__ = ["MODELS", "ModelEntry", "create", "entry"]


@dataclass(frozen=True)
class ModelEntry:
    """What is known of a model without making it, so that PyTorch is not needed to list them.

    ``input_shape`` is that of one sample, ``classes`` is none for a model of ratings, and
    ``parameters`` counts what ``create`` makes with no further settings.
    """

    name: str
    function: str
    """``module:function``, which makes it."""
    input_shape: tuple[int, ...]
    parameters: int
    data: str
    source: str
    classes: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the constructor is given unless ``create`` is told otherwise."""
    weights: str | None = None
    """What ``eris data fetch`` calls the weights whose folder ``create`` is given as ``path``."""

    @property
    def constructor(self) -> Callable[..., nn.Module]:
        """The function that makes the model."""
        library("torch", f"PyTorch, for the model {self.name}", "torch")
        module, _, function = self.function.partition(":")
        found: Callable[..., nn.Module] = getattr(import_module(module), function)
        return found


def _entries() -> dict[str, ModelEntry]:
    text = files("eris.models").joinpath("models.toml").read_text(encoding="utf-8")
    return {
        name: ModelEntry(name, input_shape=tuple(keys.pop("input_shape")), **keys)
        for name, keys in tomllib.loads(text).items()
    }


MODELS: Mapping[str, ModelEntry] = _entries()


def entry(name: str) -> ModelEntry:
    """What is known of the model called ``name``.

    >>> entry("resnet-9")
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: model is 'resnet-9'; expected one of lenet5, resnet9, \
softmax, resnet18, resnet20, lenet5-colour, convmixer, mobilenet, convnext, minilm, \
matrix-factorisation (did you mean 'resnet9'?)
    """
    if name not in MODELS:
        raise InvalidSetting("model", name, one_of(MODELS, name))
    return MODELS[name]


def create(name: str, seed: int, **settings: Any) -> nn.Module:
    """The model called ``name``, with weights that depend on ``seed`` alone.

    ``settings`` are those of its constructor, such as ``norm="none"`` for ``resnet20``.
    """
    found = entry(name)
    constructor = found.constructor
    known = set(inspect.signature(constructor).parameters) - {"seed"}
    for key in settings:
        if key not in known:
            expected = one_of(sorted(known), key) if known else "no settings"
            raise InvalidSetting(f"{name} setting", key, expected)
    return constructor(seed=seed, **{**found.settings, **settings})
