"""Clients that cluster their models, drawn by a seed: Laplace layers, and really trained networks.

What a client sends of it under EncCluster is its mapping and the integers of its centroids; the
server opens the sum. Here both are plain, for an attack on mappings and sums asks for no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from eris.audit.embeddings import Cluster, nearest
from eris.audit.mapping_measures import MappingMeasures, measured
from eris.audit.mappings import Mappings, ReadCentroids, read_centroids
from eris.core import clustering
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.data import load_digits
from eris.data.partition import dirichlet, iid
from eris.training.flat import flatten, unflatten

FRACTION_BITS = 20
LAYERS, LARGEST, SMALLEST = 19, 0.2, 0.03
"""Layers of equal size, and the deviation of the first and the last of them."""


def kmeans(values: Vector, clusters: int) -> Vector:
    """The centroids of clients' codebooks.

    >>> kmeans(np.array([0, 0.5, 5, 5.5, 6], np.float32), 2).tolist()
    [0.25, 5.5]
    """
    return clustering.clustered(values, clusters).centroids


# -- what is clustered and summed -------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ClusteredClients:
    """Clients of one round, what they send, and the sums that the server opens."""

    models: NDArray[np.float32]
    """Before clustering: weights, or updates."""
    start: Vector
    """What the models deviate from: the last global model, or zero."""
    samples: tuple[int, ...]
    centroids: NDArray[np.float32]
    integers: NDArray[np.int64]
    mappings: Mappings
    sums: NDArray[np.int64]

    @property
    def aggregate(self) -> Vector:
        """The weighted mean of the clustered models."""
        return (self.sums * 2.0**-FRACTION_BITS).astype(np.float32)

    def attacked(self) -> ReadCentroids:
        """What mappings and sums say."""
        clusters = self.centroids.shape[1]
        return read_centroids(
            self.sums, self.mappings, self.samples, clusters, fraction_bits=FRACTION_BITS
        )

    def judged(self, found: ReadCentroids) -> MappingMeasures:
        """The measures of an attack on these clients."""
        return measured(found, self.models, self.centroids, self.integers, self.start)

    def permuted(self, seed: int) -> ClusteredClients:
        """The control: every client's mapping, shuffled over the coordinates."""
        lots = Stream(seed, "permuted mappings").permutations(*self.mappings.shape)
        return replace(self, mappings=np.take_along_axis(self.mappings, lots, axis=1))


def clustered(
    models: NDArray[np.float32],
    start: Vector,
    samples: Sequence[int],
    clusters: int,
    cluster: Cluster = kmeans,
) -> ClusteredClients:
    """Cluster every model, put its centroids into fixed point with its share, and add up."""
    centroids = np.stack([cluster(model, clusters) for model in models])
    mappings = np.stack([nearest(*pair) for pair in zip(models, centroids, strict=True)])
    weights = np.array(samples, np.float64)[:, None]
    scaled = centroids.astype(np.float64) * 2.0**FRACTION_BITS * weights / weights.sum()
    integers = np.rint(scaled).astype(np.int64)
    return ClusteredClients(
        models, start, tuple(samples), centroids, integers, mappings.astype(np.uint16),
        np.take_along_axis(integers, mappings, axis=1).sum(axis=0),
    )  # fmt: skip


def laplace_clients(
    seed: int,
    samples: Sequence[int],
    coordinates: int,
    clusters: int = 128,
    apart: float = 0.1,
    cluster: Cluster = kmeans,
) -> ClusteredClients:
    """Clients whose weights are those of a network with Laplace layers and normal deviations of
    their own, ``apart`` times as large as their layer's."""
    layer = np.linspace(0, LAYERS - 1e-9, coordinates).astype(np.int64)
    deviations = np.linspace(LARGEST, SMALLEST, LAYERS)[layer]
    uniform = Stream(seed, "laplace layers").uniform(0, coordinates) - 0.5
    start = -np.sign(uniform) * np.log1p(-2 * np.abs(uniform)) / np.sqrt(2) * deviations
    own = [
        Stream(seed, "own deviations", client=client).normal(0, coordinates)
        for client in range(len(samples))
    ]
    models = (start + apart * deviations * np.array(own)).astype(np.float32)
    return clustered(models, start.astype(np.float32), samples, clusters, cluster)


# -- really trained clients -------------------------------------------------------------------

CLIENTS, EACH, EPOCHS, BATCH, RATE = 10, 150, 2, 32, 0.1
PIXELS, WIDTH, CLASSES = 64, 256, 10


def initial(seed: int) -> Vector:
    """Weights of a 64 – 256 – 10 network as He et al. begin: normal, with tails; biases zero."""
    draws = Stream(seed, "normal weights").normal(0, (PIXELS + CLASSES) * WIDTH)
    first, second = np.split(draws, [PIXELS * WIDTH])
    parts = [
        first * np.sqrt(2 / PIXELS), np.zeros(WIDTH), second * np.sqrt(2 / WIDTH), np.zeros(CLASSES)
    ]  # fmt: skip
    return np.concatenate(parts).astype(np.float32)


class DigitsClients:
    """Ten clients with 150 digits each that train one network in rounds.

    Digits are dealt by lot, or by labels from Dirichlet(``alpha``).
    """

    def __init__(self, seed: int, clusters: int = 128, *, alpha: float | None = None) -> None:
        data = load_digits()
        pixels = np.concatenate([data.train_images, data.test_images]).reshape(-1, PIXELS)
        labels = np.concatenate([data.train_labels, data.test_labels])
        if alpha is None:
            dealt = iid(len(labels), CLIENTS, EACH, seed)
        else:
            dealt = dirichlet(labels, CLIENTS, alpha, seed, EACH)
        self._inputs = [torch.from_numpy(pixels[own].astype(np.float32) / 16) for own in dealt]
        self._labels = [torch.from_numpy(labels[own].astype(np.int64)) for own in dealt]
        left = np.setdiff1d(np.arange(len(labels)), np.concatenate(dealt))
        self._unseen = torch.from_numpy(pixels[left].astype(np.float32) / 16), labels[left]
        self._module = nn.Sequential(nn.Linear(PIXELS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
        self._seed, self._clusters = seed, clusters

    def rounds(self) -> Iterator[tuple[ClusteredClients, ClusteredClients]]:
        """Round after round, the clients with clustered weights, by which training goes on, and
        the same clients with clustered updates."""
        model, samples = initial(self._seed), [EACH] * CLIENTS
        for number in count(1):
            models = np.stack([self.trained(model, number, one) for one in range(CLIENTS)])
            weights = clustered(models, model, samples, self._clusters)
            yield weights, clustered(models - model, 0 * model, samples, self._clusters)
            model = weights.aggregate

    def embeddings(self, client: int, model: Vector) -> NDArray[np.floating]:
        """The hidden layer of a client's own data under a model."""
        unflatten(model, self._module)
        with torch.no_grad():
            hidden: NDArray[np.floating] = self._module[:2](self._inputs[client]).numpy()
        return hidden

    def accuracy(self, model: Vector) -> float:
        """The share of the digits of no client that a model tells right."""
        unflatten(model, self._module)
        inputs, labels = self._unseen
        with torch.no_grad():
            told = self._module(inputs).argmax(dim=1).numpy()
        return float(np.mean(told == labels))

    def trained(self, model: Vector, number: int, client: int) -> Vector:
        """A client's model after the local training of a round."""
        unflatten(model, self._module)
        optimiser = torch.optim.SGD(self._module.parameters(), RATE)
        stream = Stream(self._seed, "digits batches", round=number, client=client)
        for order in torch.from_numpy(stream.permutations(EPOCHS, EACH)):
            for batch in order.split(BATCH):
                optimiser.zero_grad()
                given = self._module(self._inputs[client][batch])
                loss = functional.cross_entropy(given, self._labels[client][batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
        return flatten(self._module)
