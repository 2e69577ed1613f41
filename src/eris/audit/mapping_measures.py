"""How near an attack on mappings and sums came: beside clustering itself and the aggregate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.audit.mappings import ReadCentroids
from eris.core.vectors import Vector


@dataclass(frozen=True)
class Guess:
    """How near guesses of all clients' models are, as means over the clients."""

    error: float
    """Squared error over the model's variance."""
    explained: float
    """Of the client's deviation from the model it began with: 1 is all, 0 what that model itself
    explains, below 0 worse than that."""


@dataclass(frozen=True)
class MappingMeasures:
    """One row of the table."""

    clients: int
    clusters: int
    coordinates: int
    rank: int
    bound: int
    differences: int
    """N(κ−1): all there are."""
    determined: int
    exact: int
    """Those of the determined ones that are the client's own, as integers."""
    tied: float
    """Coordinates in clusters that are not determined, as a share."""
    residual: float
    attack: Guess
    clipped: Guess
    """The aggregate clipped to the cells that the attack found."""
    aggregate: Guess
    """The opened mean of the clustered models."""
    mean: Guess
    """The mean of the models themselves: all that a secure sum would show."""
    clustering: Guess
    """The clustered model itself: the best that centroids can give."""


def relative_error(truth: Vector, guess: Vector) -> float:
    """Squared error over the variance of what is guessed.

    >>> relative_error(np.array([1, -1], np.float32), np.array([1, 0], np.float32))
    0.5
    """
    return _square(guess, truth) / (len(truth) * float(truth.astype(np.float64).var()))


def explained(truth: Vector, guess: Vector, start: Vector) -> float:
    """The share of a client's deviation from ``start`` that a guess of its model explains.

    >>> start, truth = np.zeros(2, np.float32), np.array([3, 4], np.float32)
    >>> explained(truth, truth, start), explained(truth, start, start)
    (1.0, 0.0)
    """
    return 1 - _square(guess, truth) / _square(truth, start)


def measured(
    found: ReadCentroids,
    models: NDArray[np.float32],
    centroids: NDArray[np.float32],
    integers: NDArray[np.int64],
    start: Vector,
) -> MappingMeasures:
    """What was read beside the clients' models, centroids and the integers they encrypted.

    ``models`` are those before clustering, and ``start`` is the model that the clients deviate
    from; where updates are clustered, ``models`` are updates and ``start`` is zero.
    """
    count, clusters = found.sizes.shape
    own = integers - np.take_along_axis(integers, found.references[:, None], axis=1)
    everyone = range(count)

    def judged(guesses: list[Vector]) -> Guess:
        pairs = list(zip(models, guesses, strict=True))
        errors = [relative_error(truth, guess) for truth, guess in pairs]
        shares = [explained(truth, guess, start) for truth, guess in pairs]
        return Guess(float(np.mean(errors)), float(np.mean(shares)))

    settled = found.determined.copy()
    settled[np.arange(count), found.references] = True
    mean = np.average(models, axis=0, weights=found.weights).astype(np.float32)
    return MappingMeasures(
        clients=count,
        clusters=clusters,
        coordinates=len(found.aggregate),
        rank=found.rank,
        bound=found.bound,
        differences=count * (clusters - 1),
        determined=int(found.determined.sum()),
        exact=int((found.determined & (found.differences == own)).sum()),
        tied=float(found.sizes[~settled].sum() / found.sizes.sum()),
        residual=found.residual,
        attack=judged([found.model(i) for i in everyone]),
        clipped=judged([found.clipped(i) for i in everyone]),
        aggregate=judged([found.aggregate] * count),
        mean=judged([mean] * count),
        clustering=judged([centroids[i][found.mappings[i]] for i in everyone]),
    )


def _square(one: Vector, other: Vector) -> float:
    apart = np.subtract(one, other, dtype=np.float64)
    return float(apart @ apart)
