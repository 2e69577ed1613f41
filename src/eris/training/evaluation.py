"""How well a flat model does on some data: loss and accuracy, or the error of ratings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NotRequired, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.training.flat import FlatParameters
from eris.training.given import check_data
from eris.training.gradients import Loss
from eris.training.options import RunningStatistics, at_least_one
from eris.training.statistics import chosen, using_statistics

PIXELS: dict[int, tuple[tuple[float, ...], tuple[float, ...]]] = {
    1: ((0.1307,), (0.3081,)),
    3: ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}
"""Mean and deviation of each channel of MNIST's and CIFAR-10's pixels, divided by 255."""


class Evaluation(TypedDict):
    """How well a model does on some data; accuracy where it gives a row of logits a sample."""

    loss: float
    accuracy: NotRequired[float]
    samples: int


class RatingError(TypedDict):
    """How far predicted ratings are off: the root of the mean squared error."""

    rmse: float
    samples: int


def evaluate(
    module: nn.Module,
    parameters: Vector,
    inputs: Tensor,
    targets: Tensor,
    *,
    batch_size: int = 1024,
    loss: Loss = functional.cross_entropy,
    running_statistics: RunningStatistics = "refuse",
) -> Evaluation:
    """Mean loss of a model, and accuracy of a classifier; ``module`` is lent and left as it was.

    With ``running_statistics="batch"`` the batches matter: each is normalised by itself. With
    ``"local"`` every client's model is another one; ask ``TorchTrainer.evaluate``.
    """
    total, correct, classified = 0.0, 0, True
    running_statistics = chosen(module, running_statistics)
    with _lent(module, parameters, running_statistics) as device:
        for some, wanted in _pieces(device, inputs, targets, batch_size):
            outputs = module(some)
            total += float(loss(outputs, wanted)) * len(some)
            if classified := classified and _are_logits(outputs, wanted):
                correct += int((outputs.argmax(dim=1) == wanted).sum())
    count = len(inputs)
    found: Evaluation = {"loss": total / count, "samples": count}
    return {**found, "accuracy": correct / count} if classified else found


def evaluate_ratings(
    module: nn.Module,
    parameters: Vector,
    pairs: Tensor,
    ratings: Tensor,
    *,
    batch_size: int = 65536,
) -> RatingError:
    """The root mean squared error of predicted ratings; ``module`` is lent and left as it was.

    ``module`` predicts ratings (N,) from ``pairs`` (N, 2) of a user's and an item's number, as
    ``models.factorisation`` does. ``ratings`` may be of any number type.
    """
    total = 0.0
    with _lent(module, parameters, "refuse") as device:
        for some, wanted in _pieces(device, pairs, ratings, batch_size):
            predicted = module(some)
            if predicted.shape != wanted.shape:  # PyTorch would broadcast (N,) and (N, 1)
                expected = f"{tuple(predicted.shape)}, as predicted"
                raise InvalidSetting("shape of the ratings", tuple(wanted.shape), expected)
            total += float((predicted.double() - wanted.double()).square().sum())
    return {"rmse": math.sqrt(total / len(pairs)), "samples": len(pairs)}


def normalise(
    images: NDArray[np.uint8],
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
) -> Tensor:
    """Images in 0..255 as float32 (N, channels, H, W), each channel standardised.

    ``images`` are grey (N, H, W) or (N, channels, H, W). ``mean`` and ``std`` are those of the
    pixels divided by 255, one number or one a channel; by default MNIST's for one channel and
    CIFAR-10's for three.

    >>> normalise(np.zeros((5, 3, 32, 32), np.uint8)).shape
    torch.Size([5, 3, 32, 32])
    """
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        expected = "uint8 of shape (N, H, W) or (N, channels, H, W)"
        raise InvalidSetting("images", f"{images.dtype} {images.shape}", expected)
    scaled = torch.from_numpy(images.astype(np.float32)).div_(255)
    if images.ndim == 3:
        scaled = scaled.unsqueeze(1)
    channels = scaled.shape[1]
    usual = PIXELS.get(channels, (None, None))
    for name, given, known in (("mean", mean, usual[0]), ("std", std, usual[1])):
        taken = known if given is None else given
        values = torch.tensor([] if taken is None else taken, dtype=torch.float32).reshape(-1)
        if len(values) not in (1, channels):
            expected = f"one number, or one for each of {channels} channels"
            raise InvalidSetting(name, given, expected)
        values = values.reshape(1, -1, 1, 1)
        scaled = scaled.sub_(values) if name == "mean" else scaled.div_(values)
    return scaled


def _are_logits(outputs: object, targets: Tensor) -> bool:
    """Whether there is a row of numbers, one a class, for every class number."""
    return (
        isinstance(outputs, Tensor)
        and outputs.dim() == 2
        and targets.dim() == 1
        and not targets.is_floating_point()
    )


@contextmanager
def _lent(
    module: nn.Module, parameters: Vector, running_statistics: RunningStatistics
) -> Iterator[torch.device]:
    """The module with these parameters, and where it computes; afterwards it is as it was."""
    flat = FlatParameters(module, running_statistics)
    if running_statistics == "local":
        expected = "another choice: only a client knows its own, ask TorchTrainer.evaluate"
        raise InvalidSetting("running_statistics", running_statistics, expected)
    position, before, training = flat.checked(parameters), flat.read(), module.training
    module.eval()
    try:
        with torch.no_grad(), using_statistics(module, running_statistics, {}):
            flat.write(position)
            yield flat.device
    finally:
        module.train(training)
        flat.write(before)


def _pieces(
    device: torch.device, inputs: Tensor, targets: Tensor, batch_size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    check_data(inputs, targets)
    at_least_one("batch_size", batch_size)
    for start in range(0, len(inputs), batch_size):
        end = start + batch_size
        yield inputs[start:end].to(device), targets[start:end].to(device)
