"""EncCluster's own measure of an attack on clusters: how alike two models embed a client's data.

The paper's attacker clusters the aggregate and is *given* the nearest of these centroids for every
entry of the client's model (its section 4, figure 2): it needs the model that it estimates. Both
models embed the client's data, a principal component analysis is fitted to the true embeddings,
and the squared error of what it keeps is the measure. How much is kept the paper does not say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from eris.audit.low_rank import Matrix
from eris.core.errors import require
from eris.core.vectors import Indices, Vector

Embed = Callable[[Vector], NDArray[np.floating]]
"""The embeddings of a client's data under a model, a row a sample."""
Cluster = Callable[[Vector, int], Vector]
"""So many centroids of the values of a vector, ascending."""
COMPONENTS = 2, 16


def nearest(values: Vector, centroids: Vector) -> Indices:
    """The nearest of ascending centroids for every value; of two alike the lower.

    >>> nearest(np.array([0.4, 0.5, 0.6, 9], np.float32), np.array([0, 1], np.float32)).tolist()
    [0, 0, 1, 1]
    """
    between = (centroids[1:].astype(np.float64) + centroids[:-1]) / 2
    return np.asarray(np.searchsorted(between, values.astype(np.float64), side="left"))


def perfect_guess(model: Vector, aggregate: Vector, clusters: int, cluster: Cluster) -> Vector:
    """The paper's estimate of a model: every entry becomes the nearest centroid of the aggregate's.

    >>> quartiles = lambda values, count: np.quantile(values, np.linspace(0, 1, count))
    >>> aggregate = np.array([0.0, 0.5, 1.0], np.float32)
    >>> perfect_guess(np.array([0.1, 0.9, 7.0], np.float32), aggregate, 2, quartiles).tolist()
    [0.0, 1.0, 1.0]
    """
    centroids = cluster(aggregate, clusters)
    return centroids[nearest(model, centroids)]


def projected_error(
    truth: NDArray[np.floating], guess: NDArray[np.floating], components: int
) -> float:
    """Mean squared error between embeddings in the principal components of the true ones.

    >>> truth = np.array([[0.0, 0, 0], [4, 0, 1], [8, 0, 0]])
    >>> moved = truth + [0, 5, 0]  # where the true embeddings do not vary, nothing is seen
    >>> projected_error(truth, moved, 2), projected_error(truth, truth + [0, 0, 2], 2)
    (0.0, 2.0)
    """
    most = min(truth.shape)
    require(1 <= components <= most, "components", components, f"1 to {most}, as rows and columns")
    require(guess.shape == truth.shape, "guess", guess.shape, f"shape {truth.shape}, as the truth")
    fitted = np.asarray(truth, np.float64)
    axes: Matrix = np.linalg.svd(fitted - fitted.mean(axis=0), full_matrices=False)[2][:components]
    return float(np.mean(((guess - fitted) @ axes.T) ** 2))


def embedding_errors(
    truth: Vector,
    guesses: Mapping[str, Vector],
    embed: Embed,
    components: Sequence[int] = COMPONENTS,
) -> dict[str, dict[int, float]]:
    """The paper's measure for every guess of a model, by the components that are kept.

    Another client's model among the guesses is the control: an attack that is no better has
    learned nothing of this client.
    """
    true = embed(truth)
    found = {name: embed(guess) for name, guess in guesses.items()}
    return {
        name: {kept: projected_error(true, rows, kept) for kept in components}
        for name, rows in found.items()
    }
