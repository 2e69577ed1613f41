"""Averages of models as gossip forms them: x + Σ_j w_j (x_j − x), summed in float64, rounded once.

Written with differences, a weight that nobody used is the node's own, and equal models stay what
they are to the last bit. The order of the sum is the caller's, who sorts by sender.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eris.core.kernels import compiled
from eris.core.vectors import Indices, Vector

_LARGEST = float(np.finfo(np.float32).max)


@compiled
def add_difference(
    total: NDArray[np.float64], values: Vector, model: Vector, weight: float
) -> None:
    """total ← total + weight·(values − model).

    >>> total = np.zeros(2)
    >>> add_difference(total, np.array([3, 5], np.float32), np.ones(2, np.float32), 0.5)
    >>> total
    array([1., 2.])
    """
    for i in range(total.shape[0]):
        total[i] += weight * (np.float64(values[i]) - np.float64(model[i]))


@compiled
def add_difference_at(
    total: NDArray[np.float64],
    count: NDArray[np.int64],
    places: Indices,
    values: Vector,
    model: Vector,
) -> None:
    """total ← total + (values − model) at some places, each counted as often as it is named.

    >>> total, count = np.zeros(3), np.zeros(3, np.int64)
    >>> values, model = np.array([4, 4], np.float32), np.ones(3, np.float32)
    >>> add_difference_at(total, count, np.array([2, 2]), values, model)
    >>> total, count
    (array([0., 0., 6.]), array([0, 0, 2]))
    """
    for i in range(places.shape[0]):
        place = places[i]
        total[place] += np.float64(values[i]) - np.float64(model[place])
        count[place] += 1


@compiled
def settled(model: Vector, total: NDArray[np.float64]) -> Vector:
    """model + total, rounded once; what float32 cannot hold becomes its largest number.

    >>> settled(np.ones(2, np.float32), np.array([0.5, 1e300]))
    array([1.5000000e+00, 3.4028235e+38], dtype=float32)
    """
    out = np.empty_like(model)
    for i in range(out.shape[0]):
        exact = np.float64(model[i]) + total[i]
        out[i] = np.float32(min(max(exact, -_LARGEST), _LARGEST))
    return out
