"""The models of the papers' experiments, by name (to make one needs the ``torch`` extra).

>>> MODELS["resnet9"].parameters
1652682
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
    module: str
    function: str
    input_shape: tuple[int, ...]
    classes: int | None
    parameters: int
    data: str
    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the constructor is given unless ``create`` is told otherwise."""
    weights: str | None = None
    """What ``eris data fetch`` calls the weights whose folder ``create`` is given as ``path``."""

    @property
    def constructor(self) -> Callable[..., nn.Module]:
        """The function that makes the model."""
        library("torch", f"PyTorch, for the model {self.name}", "torch")
        found: Callable[..., nn.Module] = getattr(
            importlib.import_module(self.module), self.function
        )
        return found


_ENTRIES = (
    ModelEntry(
        "lenet5",
        "eris.models.lenet",
        "lenet5",
        (1, 28, 28),
        10,
        61_706,
        data="MNIST",
        source="LeCun et al. 1998; ERIS",
    ),
    ModelEntry(
        "resnet9",
        "eris.models.resnet9",
        "resnet9",
        (3, 32, 32),
        10,
        1_652_682,
        data="CIFAR-10",
        source="He et al. 2016, nine layers; ERIS",
    ),
    ModelEntry(
        "softmax",
        "eris.models.softmax",
        "softmax",
        (1, 8, 8),
        10,
        650,
        data="digits",
        source="one linear layer",
    ),
    ModelEntry(
        "resnet18",
        "eris.models.resnet",
        "resnet18",
        (3, 32, 32),
        10,
        11_173_962,
        data="CIFAR-10",
        source="He et al. 2016, for small images; Shatter",
    ),
    ModelEntry(
        "resnet20",
        "eris.models.resnet",
        "resnet20",
        (3, 32, 32),
        10,
        269_722,
        data="CIFAR-10",
        source="He et al. 2016, section 4.2; EncCluster",
    ),
    ModelEntry(
        "lenet5-colour",
        "eris.models.lenet",
        "lenet5_colour",
        (3, 32, 32),
        10,
        62_006,
        data="CIFAR-10",
        source="LeCun et al. 1998; FLIP/FLOP",
    ),
    ModelEntry(
        "minilm",
        "eris.models.text",
        "text_classifier",
        (2, 256),
        2,
        22_713_986,
        data="IMDB",
        source="Wang et al. 2020, six layers; stands in for ERIS' DistilBERT",
        weights="minilm",
    ),
    ModelEntry(
        "matrix-factorisation",
        "eris.models.factorisation",
        "matrix_factorisation",
        (2,),
        None,
        55_126,
        data="MovieLens-100K",
        source="Koren et al. 2009; Shatter",
        settings={"users": 943, "items": 1682, "dimensions": 20},
    ),
)
MODELS: Mapping[str, ModelEntry] = {known.name: known for known in _ENTRIES}


def entry(name: str) -> ModelEntry:
    """What is known of the model called ``name``.

    >>> entry("resnet-9")
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: model is 'resnet-9'; expected one of lenet5, resnet9, \
softmax, resnet18, resnet20, lenet5-colour, minilm, matrix-factorisation (did you mean 'resnet9'?)
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
