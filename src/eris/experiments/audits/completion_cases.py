"""Layers to complete, drawn by a seed: a network, MNIST images, and one owner's view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.completion import FLOAT32, precision_of_difference
from eris.audit.layers import LinearLayer, whole
from eris.audit.low_rank import Choice, Entries, Matrix, rms
from eris.core.masks import fraction_kept
from eris.core.shards import RandomPlan
from eris.core.streams import Stream
from eris.core.vectors import Indices, Vector
from eris.data import load_mnist
from eris.experiments.audits.opened_sums import opened_rounds
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.methods.privacy import LocalPrivacy
from eris.models.lenet import lenet5
from eris.models.resnet9 import resnet9
from eris.models.seeding import seeded
from eris.training.flat import FlatParameters, flatten
from eris.training.vectorised import TorchPopulation

SIDE = 28
PIXELS, CLASSES, WIDTH = SIDE * SIDE, 10, 256
NOISY_ROUNDS = 100
"""For which shared noise is planned."""
MEAN, DEVIATION = 0.1307, 0.3081

Optimiser = Callable[..., torch.optim.Optimizer]
Wire = Callable[[Vector, Stream], Vector]
"""What becomes of an owner's values on their way."""


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


def _grey(rows: Tensor) -> Tensor:
    return rows.reshape(-1, 1, SIDE, SIDE)


def _padded(rows: Tensor) -> Tensor:
    """As ResNet-9 takes them: 32 × 32, three channels."""
    return functional.pad(_grey(rows), (2, 2, 2, 2), value=-MEAN / DEVIATION).repeat(1, 3, 1, 1)


@dataclass(frozen=True)
class Studied:
    """A layer of a network, and how that takes MNIST's images.

    ``varying`` is the share of its columns that are no multiples of the bias column (None: that of
    MNIST's pixels, which grows with the samples), ``alive`` that of the units a sample activates.
    """

    title: str
    network: Callable[[int], nn.Module]
    layer: str
    taken: Callable[[Tensor], Tensor] = _grey
    varying: float | None = None
    alive: float = 0.5

    def within(self, flat: FlatParameters) -> LinearLayer:
        """Where it lies in a flat update; a convolution is read as the matrix of its kernels."""
        starts = {name: place.start for name, place in zip(flat.names, flat.places, strict=True)}
        module: Any = flat.module.get_submodule(self.layer)
        outputs, inputs = module.weight.flatten(1).shape
        weight, bias = (starts[f"{self.layer}.{part}"] for part in ("weight", "bias"))
        return LinearLayer(self.layer, outputs, inputs, weight, bias, 1, self is FIRST)


FIRST = Studied("perceptron, first", perceptron, "0", lambda rows: rows)
LAST = Studied("perceptron, last", perceptron, "2", lambda rows: rows, varying=1.0, alive=1.0)
FULL1 = Studied("LeNet-5 full1", lenet5, "full1", varying=0.9)
FULL2 = Studied("LeNet-5 full2", lenet5, "full2", varying=0.5)
FULL3 = Studied("LeNet-5 full3", lenet5, "full3", varying=0.6, alive=1.0)
CONV2 = Studied("LeNet-5 conv2", lenet5, "conv2", varying=1.0)
RESNET = Studied("ResNet-9 last", resnet9, "full", _padded, varying=1.0, alive=1.0)


def drawn(seed: int, count: int) -> NDArray[np.int64]:
    """Different images, by lot."""
    words = Stream(seed, "completion case").words(0, len(images()[0]))
    return np.argsort(words, kind="stable")[:count]


@dataclass(frozen=True, eq=False)
class LayerCase:
    """The layer of every round, on top of each other; what an owner sees of it; the inputs."""

    truth: Matrix
    entries: Entries
    inputs: NDArray[np.float32]
    tolerance: float = FLOAT32
    """The precision of the update."""

    def coverage(self, columns: Choice) -> float:
        """Of the columns that are not zero, the share that is determined."""
        return float(columns[(self.truth != 0).any(axis=0)].mean())

    def success(self, rows: Choice, columns: Choice, left: Matrix, right: Matrix) -> bool:
        """Whether 90 % of the columns that are not zero are determined, and right to 10⁻³."""
        return self.coverage(columns) >= 0.9 and self.error(rows, columns, left, right) < 1e-3

    def error(self, rows: Choice, columns: Choice, left: Matrix, right: Matrix) -> float:
        """How far what is called determined is from the truth, relative to it."""
        truth = self.truth[np.ix_(rows, columns)]
        size = float(np.linalg.norm(truth))
        return float(np.linalg.norm(left[rows] @ right[columns].T - truth)) / size if size else 0.0


@dataclass(frozen=True)
class Local:
    """What a client does in a round; one step on all samples is sent as its gradient."""

    steps: int = 1
    optimiser: Optimiser | None = None
    learning_rate: float = 0.1

    def update(self, flat: FlatParameters, at: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """The direction that a client sends, from a model and its samples."""
        flat.write(at)
        module = flat.module
        chosen = (self.optimiser or torch.optim.SGD)(module.parameters(), lr=self.learning_rate)
        for _ in range(self.steps):
            chosen.zero_grad()
            torch.autograd.backward(functional.cross_entropy(module(inputs), labels))
            if self.plain:
                return flat.gradient([parameter.grad for parameter in flat.parameters])
            chosen.step()
        return (at - flat.read()) / self.learning_rate

    @property
    def plain(self) -> bool:
        """Whether what is sent is one gradient."""
        return self.steps == 1 and self.optimiser is None


def case(
    seed: int,
    samples: int,
    shards: int,
    kept: float = 1.0,
    *,
    rounds: int = 1,
    learning_rate: float = 0.1,
    rotate: bool = True,
    of: Studied = FIRST,
    local: Local | None = None,
    clients: int = 1,
    wire: Wire | None = None,
) -> LayerCase:
    """Network, batch and plan, all new with the seed; the same samples in every round.

    ``clients`` of so many samples each are summed before an owner sees anything.
    """
    inputs, labels, _ = images()
    places = torch.from_numpy(drawn(seed, clients * samples))
    flat = FlatParameters(of.network(seed))
    layer, position = of.within(flat), flat.read()
    local = local or Local(learning_rate=learning_rate)
    truths, parts, tolerance = [], [], FLOAT32
    for round in range(rounds):
        updates = [
            local.update(flat, position, of.taken(inputs[mine]), labels[mine])
            for mine in places.reshape(clients, samples)
        ]
        update = torch.stack(updates).mean(dim=0)
        if not local.plain:  # what it is the difference of was rounded
            before = rms(position.numpy()) / local.learning_rate
            tolerance = max(tolerance, precision_of_difference(before, rms(update.numpy())))
        position = position - local.learning_rate * update
        values, everywhere = update.numpy(), np.arange(len(update))
        truth = whole(layer, layer.entries(everywhere, values))
        assert truth is not None
        at = _seen(len(values), seed, shards, kept, round, rotate)
        sent = values[at]
        if wire is not None:
            sent = wire(sent, Stream(seed, "completion wire", round=round))
        truths.append(truth)
        parts.append(layer.entries(at, sent))
    shown = inputs[places].numpy()
    return LayerCase(np.vstack(truths), Entries.stacked(parts), shown, tolerance)


def _seen(n: int, seed: int, shards: int, kept: float, round: int, rotate: bool) -> Indices:
    """What one owner is sent in a round."""
    plan = RandomPlan(shards, rotate=1) if rotate else RandomPlan(shards)
    at = plan.at(n, seed, round).coordinates(seed % shards)
    if kept < 1:
        at = at[fraction_kept(n, kept, Stream(seed, "mask", round=round)).among(at)]
    return at


def mean_layer(
    seed: int, clients: int, samples: int, *, local: Local | None = None, noise: float | None = None
) -> tuple[Matrix, NDArray[np.int64]]:
    """The first layer's mean update of several clients, and the places of all their images.

    ``noise`` is the deviation on the sum of gradients that are clipped, each, to length 1.
    """
    inputs, labels, _ = images()
    places = drawn(seed, clients * samples)
    at = torch.from_numpy(places)
    flat = FlatParameters(perceptron(seed))
    position, layer = flat.read(), FIRST.within(flat)
    if noise is not None:
        found = _noised(seed, flat, inputs[at], labels[at], noise)
    else:
        local = local or Local()
        updates = [
            local.update(flat, position, inputs[mine], labels[mine])
            for mine in at.reshape(clients, samples)
        ]
        found = torch.stack(updates).double().mean(dim=0)
    grid = (found * 2.0**33).round() * 2.0**-33  # as means travel
    values = grid.float().numpy()
    mean = whole(layer, layer.entries(np.arange(len(values)), values))
    assert mean is not None
    return mean, places


def opened_layer(
    seed: int, clients: int, samples: int, epsilon: float | None = None
) -> tuple[Matrix, NDArray[np.int64]]:
    """The same from the messages of a simulated run with secure sums, as every member is told it in
    the first round; with ``epsilon``, noise that clients share for 100 rounds, C = 1."""
    inputs, labels, _ = images()
    places, model = drawn(seed, clients * samples), perceptron(seed)
    parts = list(places.reshape(clients, samples))
    noise = None if epsilon is None else LocalPrivacy(epsilon)
    federation = Federation(
        TorchPopulation(model, inputs, labels, parts, learning_rate=0.1), flatten(model),
        ERIS(aggregators=4, secure="2 of 3", privacy=noise), samples=[samples] * clients,
        seed=seed, min_included=clients,
    )  # fmt: skip
    (opened,) = opened_rounds(federation, 1, planned=NOISY_ROUNDS)
    mean = opened.sums / opened.weights
    layer = FIRST.within(FlatParameters(model))
    found = whole(layer, layer.entries(np.arange(len(mean)), mean))
    assert found is not None
    return found, places


def _noised(
    seed: int, flat: FlatParameters, inputs: Tensor, labels: Tensor, noise: float
) -> Tensor:
    """The mean of gradients that are clipped to length 1, with noise on their sum."""
    position = flat.read()
    total = torch.zeros(len(flat), dtype=torch.float64)
    for one, label in zip(inputs, labels, strict=True):
        update = Local().update(flat, position, one[None], label[None]).double()
        total += update / max(1.0, float(update.norm()))
    draws = torch.from_numpy(Stream(seed, "completion noise").normal(0, len(total)))
    return (total + noise * draws) / len(inputs)
