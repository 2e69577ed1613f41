"""EncCluster's appendix A: what clustering and filters do to models, as printed and as it is.

The paper's equations (8) to (16) bound the error of a client's clustered model, and of the mean of
many, from below and read privacy into it. Each function here says which equation it is and what is
wrong with it; beside the printed ones stand the ones that hold. A lower bound on a mean error
bounds no leakage, whatever its value: who opens sums reads centroids exactly (docs/enccluster.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import require

Numbers = NDArray[np.float64]


def any_wrong_hit(bits: int, clusters: int) -> float:
    """1 − (1 − 2^−bits)^(κ − 1): that a weight has a wrong candidate beside its true one.

    >>> round(any_wrong_hit(8, 128), 3)
    0.392
    """
    _check(bits, clusters)
    return float(-np.expm1((clusters - 1) * np.log1p(-(2.0**-bits))))


def wrong_by_first_hit(bits: int, sizes: Numbers) -> float:
    """That the first hit is wrong: Σ_c share_c·(1 − (1 − 2^−bits)^c), c from 0.

    ``sizes`` are the weights of each cluster, in the order in which they are asked for.

    >>> round(wrong_by_first_hit(8, np.ones(128)), 3)
    0.212
    """
    return float(_shares(sizes) @ _wrong_of(bits, len(sizes)))


def printed_wrong(bits: int) -> float:
    """Equation (9)'s 2^−bits: one question's, where κ − 1 are asked.

    >>> round(wrong_by_first_hit(8, np.ones(128)) / printed_wrong(8))
    54
    """
    return 2.0**-bits


@dataclass(frozen=True, eq=False)
class ClusteredModel:
    """A model, its centroids and which of them each weight has."""

    weights: Numbers
    centroids: Numbers
    mapping: NDArray[np.intp]

    @property
    def sizes(self) -> Numbers:
        """Weights of each cluster."""
        return np.bincount(self.mapping, minlength=len(self.centroids)).astype(np.float64)

    @property
    def inertia(self) -> float:
        """Σ_i (θ*_i − c_i)²: what clustering alone costs."""
        return float(((self.weights - self.centroids[self.mapping]) ** 2).sum())

    def apart(self) -> Numbers:
        """(θ*_i − c_k)² of each weight, a row, from each centroid, a column."""
        return (self.weights[:, None] - self.centroids[None, :]) ** 2

    def expected_error(self, bits: int) -> float:
        """(8): E‖θ* − θ‖², where the first hit of a filter is taken.

        Of a weight in cluster c, candidate k < c is the first hit with 2^−bits·(1 − 2^−bits)^k.
        """
        rate, count = 2.0**-bits, len(self.centroids)
        first = rate * (1 - rate) ** np.arange(count)
        distances = self.apart()
        before = np.concatenate(
            [np.zeros((len(self.weights), 1)), np.cumsum(distances * first, axis=1)], axis=1
        )
        rows = np.arange(len(self.weights))
        kept = (1 - rate) ** self.mapping
        errors = before[rows, self.mapping] + kept * distances[rows, self.mapping]
        return float(errors.sum())

    def printed_mixture(self, bits: int) -> float:
        """(9), with (10)'s mean over the other centroids: (1 − p)·inertia + p·(mean of the others).

        p is 2^−bits, too small by about κ/2, and a wrong centroid is any other alike, where the
        first hit prefers low indices.
        """
        rate, distances = 2.0**-bits, self.apart()
        own = distances[np.arange(len(self.weights)), self.mapping]
        others = (distances.sum(axis=1) - own) / (len(self.centroids) - 1)
        return float(((1 - rate) * own + rate * others).sum())

    def printed_sum(self, bits: int) -> float:
        """(10) as printed: α, itself a sum over all weights, stands inside the sum over weights,
        and the mean over κ − 1 other centroids is taken over all κ."""
        rate, count = 2.0**-bits, len(self.weights)
        others = self.apart().sum(axis=1) / (len(self.centroids) - 1)
        return float(count * (1 - rate) * self.inertia + rate * others.sum())

    def printed_bound(self, bits: int) -> float:
        """(11): d·((1 − p)·D_intra + p·D_inter), of the smallest distances of any weight.

        It is below (8), and 0 as soon as one weight lies on its centroid.
        """
        rate, distances = 2.0**-bits, self.apart()
        rows = np.arange(len(self.weights))
        nearest = float(distances[rows, self.mapping].min())
        masked = distances.copy()
        masked[rows, self.mapping] = np.inf
        return len(self.weights) * ((1 - rate) * nearest + rate * float(masked.min()))


def mean_error(errors: Numbers) -> float:
    """(12)–(14): ‖mean over clients of (θ* − θ)‖²; a row of ``errors`` is a client's."""
    return float((errors.mean(axis=0) ** 2).sum())


def printed_mean_error(errors: Numbers) -> float:
    """(15): (1/N²)·Σ‖θ*_n − θ_n‖², which drops the products of different clients' errors.

    They vanish in the mean only if errors are independent and of mean zero. Clients that started
    from one model round weights alike, and a wrong hit moves a weight towards the first centroids.
    """
    return float((errors**2).sum() / len(errors) ** 2)


def mean_cross_terms(errors: Numbers) -> float:
    """What (15) leaves out of (14)."""
    return mean_error(errors) - printed_mean_error(errors)


def printed_mean_bound(bits: int, intra: float, inter: float, coordinates: int, n: int) -> float:
    """(16), d·((1 − p)·D_intra + p·D_inter)/K, with its undefined K read as the clients."""
    rate = 2.0**-bits
    return coordinates * ((1 - rate) * intra + rate * inter) / n


def _wrong_of(bits: int, clusters: int) -> Numbers:
    _check(bits, clusters)
    return np.asarray(-np.expm1(np.arange(clusters) * np.log1p(-(2.0**-bits))), np.float64)


def _shares(sizes: Numbers) -> Numbers:
    total = float(sizes.sum())
    require(total > 0 and bool((sizes >= 0).all()), "cluster sizes", sizes, "numbers, not all 0")
    return sizes / total


def _check(bits: int, clusters: int) -> None:
    require(bits >= 1, "bits", bits, "at least 1")
    require(clusters >= 2, "clusters", clusters, "at least 2")
