"""What shared noise is worth: against the best attacker, and what rounding takes from it."""

from __future__ import annotations

import math
from statistics import NormalDist

from eris.core.shared_noise import mu_of


def rounding_bound(std: float, clients: int) -> float:
    """η: how much rounding changes any probability of an opened coordinate, relatively, at most.

    ``std`` in units of the grid. Theorem 1 of docs/shared-noise.md.

    >>> rounding_bound(0.5, 2)  # doctest: +ELLIPSIS
    0.16971...
    """
    theta = 2 * sum(math.exp(-2 * (math.pi * std * j) ** 2 / clients) for j in range(1, 50))
    return math.expm1((clients - 1) * math.log1p(theta))


def best_auc(epsilon: float, delta: float = 1e-5) -> float:
    """The largest area under the curve that any attacker can have at an (ε, δ) of Gaussian noise.

    >>> [round(best_auc(e), 3) for e in (1, 2, 8)]
    [0.575, 0.639, 0.881]
    """
    return NormalDist().cdf(mu_of(epsilon, delta) / math.sqrt(2))


def best_hits(epsilon: float, false_alarms: float = 0.01, delta: float = 1e-5) -> float:
    """The largest share of hits that any attacker can have at a rate of false alarms.

    >>> [round(100 * best_hits(e), 1) for e in (1, 2, 8)]
    [2.0, 3.4, 25.5]
    """
    normal = NormalDist()
    return normal.cdf(normal.inv_cdf(false_alarms) + mu_of(epsilon, delta))
