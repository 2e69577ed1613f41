"""Layers to complete, drawn by a seed: a perceptron, MNIST images, and one owner's view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.low_rank import Choice, Entries, Matrix
from eris.core.masks import fraction_kept
from eris.core.shards import RandomPlan
from eris.core.streams import Stream
from eris.data import load_mnist
from eris.models.seeding import seeded
from eris.training.flat import FlatParameters

PIXELS, CLASSES, WIDTH = 784, 10, 256
MEAN, DEVIATION = 0.1307, 0.3081


@cache
def images() -> tuple[Tensor, Tensor, str]:
    """MNIST's training images, normalised, as rows; their labels; and where they are from."""
    data = load_mnist()
    pixels = torch.from_numpy(data.train_images.reshape(-1, PIXELS).astype(np.float32)) / 255
    labels = torch.from_numpy(data.train_labels.astype(np.int64))
    return (pixels - MEAN) / DEVIATION, labels, data.source


def perceptron(seed: int, width: int = WIDTH) -> nn.Sequential:
    """784 – width – 10 with ReLU, as PyTorch initialises it."""

    def build() -> nn.Sequential:
        return nn.Sequential(nn.Linear(PIXELS, width), nn.ReLU(), nn.Linear(width, CLASSES))

    return seeded(build, seed)


def drawn(seed: int, count: int) -> NDArray[np.int64]:
    """Different images, by lot."""
    words = Stream(seed, "completion case").words(0, len(images()[0]))
    return np.argsort(words, kind="stable")[:count]


def first_layer(flat: NDArray[np.generic], width: int = WIDTH) -> NDArray[np.generic]:
    """[∂W | ∂c] of the first layer, from a flat gradient; or the same of a mask."""
    weights = flat[: width * PIXELS].reshape(width, PIXELS)
    return np.column_stack([weights, flat[width * PIXELS : width * (PIXELS + 1)]])


@dataclass(frozen=True, eq=False)
class LayerCase:
    """The layer of every round, on top of each other; what an owner sees of it; the inputs."""

    truth: Matrix
    entries: Entries
    inputs: NDArray[np.float32]

    def success(self, rows: Choice, columns: Choice, left: Matrix, right: Matrix) -> bool:
        """Whether 90 % of the columns that are not zero are determined, and right to 10⁻³."""
        some = (self.truth != 0).any(axis=0)
        return bool(columns[some].mean() >= 0.9 and self.error(rows, columns, left, right) < 1e-3)

    def error(self, rows: Choice, columns: Choice, left: Matrix, right: Matrix) -> float:
        """How far what is called determined is from the truth, relative to it."""
        truth = self.truth[np.ix_(rows, columns)]
        size = float(np.linalg.norm(truth))
        return float(np.linalg.norm(left[rows] @ right[columns].T - truth)) / size if size else 0.0


def case(
    seed: int,
    samples: int,
    shards: int,
    kept: float = 1.0,
    *,
    rounds: int = 1,
    learning_rate: float = 0.1,
    rotate: bool = True,
) -> LayerCase:
    """Network, batch and plan, all new with the seed; full-batch steps on the same samples."""
    inputs, labels, _ = images()
    places = torch.from_numpy(drawn(seed, samples))
    module = perceptron(seed)
    flat = FlatParameters(module)
    position = flat.read()
    truths, parts = [], []
    for round in range(rounds):
        flat.write(position)
        module.zero_grad()
        functional.cross_entropy(module(inputs[places]), labels[places]).backward()  # type: ignore[no-untyped-call]
        gradient = flat.gradient([parameter.grad for parameter in flat.parameters])
        position = position - learning_rate * gradient
        truth = first_layer(gradient.numpy()).astype(np.float64)
        seen = first_layer(_seen(len(position), seed, shards, kept, round, rotate))
        truths.append(truth)
        parts.append(Entries.of(truth, seen.astype(np.bool_)))
    return LayerCase(np.vstack(truths), Entries.stacked(parts), inputs[places].numpy())


def _seen(n: int, seed: int, shards: int, kept: float, round: int, rotate: bool) -> Choice:
    """What one owner is sent in a round."""
    plan = RandomPlan(shards, rotate=1) if rotate else RandomPlan(shards)
    at = plan.at(n, seed, round).coordinates(seed % shards)
    if kept < 1:
        at = at[fraction_kept(n, kept, Stream(seed, "mask", round=round)).among(at)]
    seen = np.zeros(n, np.bool_)
    seen[at] = True
    return seen


def mean_layer(
    seed: int,
    clients: int,
    samples: int,
    *,
    width: int = WIDTH,
    steps: int = 1,
    noise: float | None = None,
    optimiser: Callable[..., torch.optim.Optimizer] | None = None,
) -> tuple[Matrix, NDArray[np.int64]]:
    """The first layer's mean update of several clients, and the places of all their images.

    ``noise`` is the deviation on the sum of gradients that are clipped, each, to length 1.
    """
    inputs, labels, _ = images()
    places = drawn(seed, clients * samples)
    at = torch.from_numpy(places)
    if noise is not None:
        found = _noised(seed, inputs[at], labels[at], noise, width)
    else:
        total = np.zeros((width, PIXELS + 1))
        for mine in at.reshape(clients, samples):
            total += _update(seed, inputs[mine], labels[mine], steps, width, optimiser)
        found = total / clients
    grid = np.rint(found * 2.0**33) * 2.0**-33  # as means travel
    return grid.astype(np.float32).astype(np.float64), places


def _update(
    seed: int,
    inputs: Tensor,
    labels: Tensor,
    steps: int,
    width: int,
    optimiser: Callable[..., torch.optim.Optimizer] | None,
) -> Matrix:
    module = perceptron(seed, width)
    before = _layer(module)
    chosen = (optimiser or torch.optim.SGD)(module.parameters(), lr=0.1)
    for _ in range(steps):
        chosen.zero_grad()
        functional.cross_entropy(module(inputs), labels).backward()  # type: ignore[no-untyped-call]
        if steps == 1 and optimiser is None:
            return _layer(module, gradient=True)
        chosen.step()
    return before - _layer(module)


def _layer(module: nn.Sequential, *, gradient: bool = False) -> Matrix:
    layer = module[0]
    assert isinstance(layer, nn.Linear)
    parts = [part.grad if gradient else part.detach() for part in (layer.weight, layer.bias)]
    weight, bias = (part.double().numpy() for part in parts if part is not None)
    return np.column_stack([weight, bias])


def _noised(seed: int, inputs: Tensor, labels: Tensor, noise: float, width: int) -> Matrix:
    """The mean of gradients that are clipped to length 1, with noise on their sum."""
    module = perceptron(seed, width)
    total = np.zeros((width, PIXELS + 1))
    for one, label in zip(inputs, labels, strict=True):
        module.zero_grad()
        functional.cross_entropy(module(one[None]), label[None]).backward()  # type: ignore[no-untyped-call]
        square = sum(float((p.grad**2).sum()) for p in module.parameters() if p.grad is not None)
        total += _layer(module, gradient=True) / max(1.0, square**0.5)
    draws = Stream(seed, "completion noise").normal(0, total.size).reshape(total.shape)
    return np.asarray((total + noise * draws) / len(inputs))
