"""What people bring as data, as tensors: arrays, a ``Dataset``, a ``DataLoader``."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from eris.core.errors import CastWarning, InvalidSetting

Samples = Tensor | ArrayLike | Dataset[Any] | DataLoader[Any]
"""Inputs as an array or tensor, one sample a row; or inputs and targets together."""


def as_tensors(inputs: Samples, targets: Tensor | ArrayLike | None = None) -> tuple[Tensor, Tensor]:
    """Inputs and targets as they are trained on.

    Fractions are float32 (others are cast, with a :class:`CastWarning`), labels that are whole
    numbers int64. A ``Dataset`` or the one behind a ``DataLoader`` is read once, here: what it
    draws at random is drawn once.

    >>> images, labels = as_tensors(np.zeros((2, 3), np.float32), [0, 1])
    >>> images.shape, labels.dtype
    (torch.Size([2, 3]), torch.int64)
    """
    if isinstance(inputs, Dataset | DataLoader):
        if targets is not None:
            expected = "nothing: a data set brings its own"
            raise InvalidSetting("targets", type(targets).__name__, expected)
        rows, targets = _read(inputs)
    elif targets is None:
        expected = "one for each input, or a Dataset of (input, target) in place of both"
        raise InvalidSetting("targets", None, expected)
    else:
        rows = inputs
    samples, labels = _tensor("inputs", rows), _tensor("targets", targets)
    if not labels.is_floating_point() and labels.dtype not in (torch.bool, torch.int64):
        labels = labels.long()
    check_data(samples, labels)
    return samples, labels


def check_data(inputs: Tensor, targets: Tensor) -> None:
    """Refuse data without samples, or with another number of targets."""
    if len(inputs) != len(targets):
        raise InvalidSetting("targets", f"{len(targets)} long", f"{len(inputs)}, one per input")
    if len(inputs) == 0:
        raise InvalidSetting("inputs", "empty", "at least one sample")


def batch_size_of(inputs: Samples) -> int | None:
    """The size of a ``DataLoader``'s batches; None if there is none."""
    return inputs.batch_size if isinstance(inputs, DataLoader) else None


def _tensor(name: str, given: Tensor | ArrayLike) -> Tensor:
    if not isinstance(given, Tensor):
        array = np.asarray(given)
        if array.dtype.kind not in "fiub" or array.ndim == 0:
            found = f"{array.dtype} of shape {array.shape}"
            raise InvalidSetting(name, found, "numbers, one sample a row")
        # PyTorch writes into what it wraps, as far as it knows.
        whole = np.ascontiguousarray(array if array.flags.writeable else array.copy())
        given = torch.from_numpy(whole)
    if given.dtype == torch.float64:
        text = f"{name} are float64; they are cast to float32, in which models are trained"
        warnings.warn(CastWarning(text), stacklevel=4)
        return given.float()
    return given


def _read(given: Dataset[Any] | DataLoader[Any]) -> tuple[Any, Any]:
    """All samples of a data set, put together as its loader would."""
    data = given.dataset if isinstance(given, DataLoader) else given
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        return data.tensors
    if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
        expected = "one with a length: rounds pass over all samples again and again"
        raise InvalidSetting("data set", type(data).__name__, expected)
    put = given.collate_fn if isinstance(given, DataLoader) else default_collate
    if len(data) == 0:
        raise InvalidSetting("inputs", "empty", "at least one sample")
    try:
        found = put([data[place] for place in range(len(data))])
    except (TypeError, RuntimeError, ValueError) as refusal:
        expected = f"samples of one shape, as tensors or arrays ({refusal})"
        raise InvalidSetting("data set", type(data).__name__, expected) from refusal
    if not isinstance(found, tuple | list) or len(found) != 2:
        expected = "samples that are pairs of input and target"
        raise InvalidSetting("data set", type(data).__name__, expected)
    return found[0], found[1]
