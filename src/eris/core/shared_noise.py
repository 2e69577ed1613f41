"""Noise that the clients of a sum share: how much each adds, and on what grid.

Every client adds N(0, s²) to its clipped contribution. An opened sum holds the noise of all its
clients, of which a reader knows its own and that of its ``colluders``; so against them a sum of at
least ``min_included`` clients holds σ² = (min_included − 1 − colluders)·s². Whoever opens single
contributions, an owner with enough helpers, meets s² alone. Both figures are always said.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from eris.core.composition import composed, sampled_sigma_for
from eris.core.errors import InvalidSetting, require
from eris.core.noise import PrivacyClaim, sigma_for

_ROOM = 1 + 2.0**-40
"""So that the last round fits, however charges are added up."""
SPAN = 12
"""Standard deviations of a sum's noise for which the ring has room."""


@dataclass(frozen=True)
class NoisePlan:
    """A plan: so much noise for every client that readers learn no more than ε over all rounds.

    Lengths are in units of the clip (the sensitivity of a sum). With ``sampling_rate`` q every
    sample is in a round's batch with probability q, by a coin that nobody else sees.

    >>> plan = NoisePlan(epsilon=8, rounds=160, min_included=50, colluders=2)
    >>> round(plan.sigma, 4), round(plan.of_a_client, 3), round(plan.epsilon_of_openers, 2)
    (7.5924, 1.107, 113.09)
    >>> plan.excess(50)  # doctest: +ELLIPSIS
    1.031...
    """

    epsilon: float
    rounds: int
    min_included: int
    colluders: int = 1
    delta: float = 1e-5
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        require(self.rounds >= 1, "rounds", self.rounds, "at least 1")
        rate = self.sampling_rate
        require(0 < rate <= 1, "sampling_rate", rate, "a number in (0, 1]")
        require(self.colluders >= 0, "colluders", self.colluders, "0 or more")
        if self.min_included < 3 + self.colluders:
            expected = (
                f"at least {3 + self.colluders}: a reader and {self.colluders} colluders know "
                "their own noise, and one more alone would be read"
            )
            raise InvalidSetting("min_included", self.min_included, expected)

    @property
    def honest(self) -> int:
        """The noises that every opened sum holds at least, unknown to a reader."""
        return self.min_included - 1 - self.colluders

    @property
    def sigma(self) -> float:
        """The standard deviation that is unknown to a reader, in every opened sum."""
        rate = self.sampling_rate
        return sampled_sigma_for(self.epsilon, self.delta, self.rounds, rate) * _ROOM

    @property
    def of_a_client(self) -> float:
        """What each client adds, whoever else will be included."""
        return self.sigma / math.sqrt(self.honest)

    @property
    def epsilon_of_openers(self) -> float:
        """ε if an owner and its helpers collude and see single contributions."""
        return self.epsilon_with(1)

    def epsilon_with(self, honest: int) -> float:
        """ε over all rounds where ``honest`` noises of a sum are unknown.

        >>> plan = NoisePlan(epsilon=1, rounds=160, min_included=50, colluders=0)
        >>> round(plan.epsilon_with(47), 4)
        1.0231
        """
        sigma = self.of_a_client * math.sqrt(honest)
        claim = PrivacyClaim("gaussian", 1.0, sigma, self.rounds, self.sampling_rate)
        return composed((claim,), self.delta)

    def excess(self, included: int) -> float:
        """By how much a sum of so many clients has more noise than was promised."""
        return math.sqrt(included / self.honest)


def most_fraction_bits(ring_bytes: int, clients: int, largest: float, of_a_client: float) -> int:
    """The finest grid on which no noisy sum wraps: the largest f.

    ``largest`` is the magnitude of one client's coordinate, both in units of values.

    >>> [most_fraction_bits(size, 50, 64.0, 1.5) for size in (4, 5, 6, 8)]
    [19, 27, 35, 51]
    """
    span = clients * largest + SPAN * of_a_client * math.sqrt(clients)
    room = 2.0 ** (8 * ring_bytes - 1) - clients / 2
    return math.floor(math.log2(room / span))


def check_grid(fraction_bits: int, of_a_client: float, clients: int) -> None:
    """Refuse a grid on which rounding could tell: s must be at least √(6·clients) of its units.

    >>> check_grid(33, 1.5, 50)
    >>> check_grid(3, 1.5, 50)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: noise of a client in units of the grid is 12.0; expected ...
    """
    found = math.ldexp(of_a_client, fraction_bits)
    if found * found < 6 * clients:
        expected = (
            f"at least {math.sqrt(6 * clients):.1f}: the grid 2^-{fraction_bits} is too coarse for "
            "this noise; raise ring_bytes or clip"
        )
        raise InvalidSetting("noise of a client in units of the grid", found, expected)


@cache
def mu_of(epsilon: float, delta: float = 1e-5) -> float:
    """The shift of one Gaussian release, in standard deviations, that an (ε, δ) allows.

    >>> [round(mu_of(e), 5) for e in (1, 2, 8)]
    [0.26805, 0.50155, 1.66603]
    """
    return 1 / sigma_for(epsilon, delta, 1.0, 1)


def rounds_left(budget: float, spent: float, charge: float, delta: float = 1e-5) -> int:
    """How many more rounds of a charge Δ²/σ² a budget of ε allows, after ``spent`` of such.

    >>> plan = NoisePlan(epsilon=1, rounds=160, min_included=50)
    >>> rounds_left(1, 0.0, plan.sigma**-2), rounds_left(1, 160 * plan.sigma**-2, plan.sigma**-2)
    (160, 0)
    """
    require(charge > 0, "charge", charge, "a number above 0")
    return max(0, math.floor((mu_of(budget, delta) ** 2 - spent) / charge))
