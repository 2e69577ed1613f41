"""A client's half of shared noise: from what it contributes to the words that are masked.

The order is the promise. A round is charged before anything is drawn; noise is drawn once, under a
key that is then replaced; and nothing but the words depends on it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import ErisError, require
from eris.core.exact_clip import Arranged, Content, add_clipped
from eris.core.kernels import compiled
from eris.core.vectors import Vector
from eris.protocol.secure.noise import (
    NoiseKeys,
    batch_coins,
    content_digest,
    next_chain_key,
)
from eris.protocol.secure.noise_terms import NoiseGrid, SharedNoise

if TYPE_CHECKING:
    from eris.protocol.schemes.scheme import Coding

Rows = NDArray[np.float32]
"""Gradients, one a row."""
GAUGE = 2048
"""Coordinates without content that every client sends besides: their sums show the noise alone."""
FEWEST = 3238
"""Draws below which a test of level 10⁻³⁰ would not find noise that is 20 % too small."""
ALARM = -NormalDist().inv_cdf(0.5e-30)
"""Noise that was looked at is conditioned on having passed, for which δ pays: so rarely is enough
that nobody has to print it."""

Charge = Callable[[int, bytes], None]
"""Told a round and the tag of its noise, before that is drawn; raises if the round may not be."""


class NoiseFault(ErisError):
    """A client's own noise is not what was agreed; it must not be sent, nor any other."""


class SharedNoising:
    """One client's noise over its rounds.

    ``chain_key`` is 32 bytes: from the operating system at every start, in memory only, and never
    written; of a seed in a simulation alone. ``charge`` is the ledger's.

    >>> noise = SharedNoise.planned("sample", 8, clip=1.0, rounds=160, clients=50, samples=64,
    ...                             min_included=50, colluders=1)
    >>> client = SharedNoising(noise, noise.grid(8), "example", bytes(32), lambda round, tag: None)
    >>> words = client.words(np.zeros(10_000, np.int64), round=0)
    >>> round(noise.std, 1), round(float(words.std()) / 2**33, 1), len(client.gauge)
    (1.1, 1.1, 2048)
    """

    def __init__(
        self, noise: SharedNoise, grid: NoiseGrid, federation: str, chain_key: bytes, charge: Charge
    ) -> None:
        require(len(chain_key) == 32, "bytes of a chain key", len(chain_key), "32")
        self._std = math.ldexp(noise.std, grid.places)
        self._grid, self._federation, self._charge = grid, federation, charge
        self._chain_key, self._rate = chain_key, noise.sampling_rate
        self.last = -1
        """The last round whose noise was drawn."""
        self.gauge: NDArray[np.int64] = np.zeros(0, np.int64)
        """The last round's words of the gauge coordinates."""

    def batch(self, round: int, slots: int) -> NDArray[np.bool_]:
        """Which of a client's slots are in a round's batch; the same until its noise is drawn.

        Nobody else may see it, nor how many they are.
        """
        self._check_new(round)
        return batch_coins(self._chain_key, self._federation, round, slots, self._rate)

    def words(self, content: Content, round: int) -> NDArray[np.int64]:
        """What is masked in a round: the content (on the fine grid) with noise, on the ring's grid.

        Integers as they are, modulo nothing. A round is drawn once; whoever must send it again
        sends the same words.
        """
        self._check_new(round)
        whole = np.concatenate([content, np.zeros(GAUGE, np.int64)])
        fine = self._grid.fine_bits
        digest = content_digest(whole, self._std, self._grid.places, fine)
        keys = NoiseKeys.of(self._chain_key, self._federation, round, digest)
        self._charge(round, noise_tag(keys))
        self.last = round
        drawn = keys.add(whole, self._std, fine)
        self._chain_key = next_chain_key(self._chain_key)
        self._examine(drawn, whole)
        self.gauge = drawn[len(content) :]
        return drawn[: len(content)]

    def _check_new(self, round: int) -> None:
        if round <= self.last:
            raise ErisError(
                f"noise of round {round} was drawn, or a later one's: words are kept and sent "
                "again as they are, never drawn twice"
            )

    def _examine(self, drawn: NDArray[np.int64], content: Content) -> None:
        if len(drawn) < FEWEST:
            return
        squares = _squares(drawn, content, 2.0**-self._grid.fine_bits)
        off = _normal(squares / self._std**2, len(drawn))
        if not abs(off) < ALARM:
            raise NoiseFault(
                f"the noise of this client is {off:+.1f} standard deviations off in size: it is "
                "not sent, and this node must not go on; look for a fault of its memory or of "
                "this installation"
            )


def sent_rows(coding: Coding, round: int, client: int) -> Callable[[Rows], Rows]:
    """What is sent of every gradient, one a row, segment after segment: in the scheme's basis and
    of its kept set, so that this is what is clipped."""
    some = np.zeros(coding.agreement.settings.n, np.float32)
    if coding.enter(some) is some:  # the model's own basis
        return Arranged(coding.layout(round, client)[0])

    def select(rows: Rows) -> Rows:
        return np.stack([coding.gather(round, client, coding.enter(row)) for row in rows])

    return select


def client_content(noise: SharedNoise, grid: NoiseGrid, sent: Vector, samples: int) -> Content:
    """What a client contributes whose whole update is protected: ω·clip(what is sent of it).

    >>> noise = SharedNoise.planned("client", 8, clip=1.0, rounds=160, clients=50, samples=64,
    ...                             min_included=50, colluders=1)
    >>> made = client_content(noise, noise.grid(8), np.array([3, 4], np.float32), samples=16)
    >>> (made / 2**noise.grid(8).fine_places).round(6)
    array([0.15, 0.2 ])
    """
    content = np.zeros(len(sent), np.int64)
    add_clipped(content, sent[None], noise.clip, grid.fine_places, noise.weight(samples))
    return content


def noise_tag(keys: NoiseKeys) -> bytes:
    """By which a ledger knows a round's noise again; it tells nothing about the content."""
    return hashlib.sha256(keys.words).digest()


def spread(noise: NDArray[np.int64] | NDArray[np.float64], std: float) -> float:
    """How far the size of noise is from what it should be, as a standard normal number.

    The sum of squares is χ² with as many degrees of freedom as there are draws; its cube root is
    nearly normal (Wilson and Hilferty 1931), also far out for thousands of draws.

    >>> round(spread(np.array([30.0, -40.0] * 1000), 35.0), 2)
    0.65
    """
    scaled = noise / std
    return _normal(float(scaled @ scaled), len(noise))


def _normal(squares: float, count: int) -> float:
    """χ² with so many degrees of freedom as a standard normal number."""
    share = 2 / (9 * count)
    return (math.cbrt(squares / count) - 1 + share) / math.sqrt(share)


@compiled
def _squares(drawn: Content, content: Content, unit: float) -> float:
    """The sum of squares of what was added to a content."""
    total = 0.0
    for i in range(drawn.shape[0]):
        added = np.float64(drawn[i]) - np.float64(content[i]) * unit
        total += added * added
    return total


def gauged(
    opened: NDArray[np.int64] | NDArray[np.float64], included: int, noise: SharedNoise,
    grid: NoiseGrid,
) -> float:  # fmt: skip
    """:func:`spread` of the gauge coordinates of an opened sum, in units of the grid."""
    return spread(opened, math.ldexp(noise.std, grid.places) * math.sqrt(included))
