"""Clipping, Gaussian noise, and the exact (ε, δ) of what was added.

What a run claims is data (:class:`PrivacyClaim`); one accountant, :func:`epsilon`, reads it and
refuses what it does not know. For the Gaussian mechanism without subsampling the answer is exact:
T releases with noise σ of a value of sensitivity Δ, each chosen after seeing the earlier ones, are
together as revealing as one release with μ = Δ·√T/σ (Dong, Roth & Su 2022), and

    δ(ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ)            (Balle & Wang 2018, theorem 8)

is the smallest δ that holds at ε. It is evaluated with the Mills ratio R(x) = Φ(−x)/φ(x) as
φ(x)·(R(x) − R(x + μ)) at x = ε/μ − μ/2, where no e^ε appears that could overflow.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting, require
from eris.core.vectors import Vector

_PIECE = 1 << 16  # coordinates at a time, so that float64 copies stay in the cache
_MARGIN = 1 - 2.0**-40  # more than float64 loses in a norm or a product, less than float32 resolves
_FURTHEST = 40.0  # standard deviations; no float64 δ lies beyond


class Draws(Protocol):
    """Where noise comes from."""

    def normal(self, start: int, count: int) -> NDArray[np.float64]:
        """Standard normal draws ``start`` to ``start + count``; none is asked for twice."""


def secret_seed() -> int:
    """A seed for noise that protects: 64 bits from the operating system, to be kept by the client.

    >>> 0 <= secret_seed() < 2**64
    True
    """
    return secrets.randbits(64)


def clip(vector: Vector, bound: float) -> tuple[Vector, float]:
    """The vector, scaled down to L2 norm ``bound`` if it is longer, and its norm before that.

    Norms are float64. Scaled coordinates are rounded to float32 *towards zero*, after a margin of
    2⁻⁴⁰ for float64's own rounding, so what was scaled is never longer than ``bound``. The norm is
    as private as the vector; it is returned for the client's own records.

    >>> clipped, norm = clip(np.array([3, 4], np.float32), 2.5)
    >>> clipped.round(3), norm
    (array([1.5, 2. ], dtype=float32), 5.0)
    """
    require(0 < bound < math.inf, "bound", bound, "a finite number above 0")
    _check_vector(vector)
    norm = math.sqrt(
        math.fsum(
            float(np.square(vector[piece], dtype=np.float64).sum())
            for piece in _pieces(len(vector))
        )
    )
    if not math.isfinite(norm):
        raise InvalidSetting("norm of the vector to clip", norm, "finite coordinates only")
    if norm <= bound:
        return vector.copy(), norm
    scale = bound / norm * _MARGIN
    clipped = np.empty_like(vector)
    for piece in _pieces(len(vector)):
        exact = np.multiply(vector[piece], scale, dtype=np.float64)
        nearest = exact.astype(np.float32)
        inward = np.nextafter(nearest, np.float32(0))
        clipped[piece] = np.where(np.abs(nearest) > np.abs(exact), inward, nearest)
    return clipped, norm


def gaussian(vector: Vector, sigma: float, source: Draws) -> Vector:
    """The vector plus N(0, σ²) on every coordinate: draw i of ``source`` on coordinate i.

    The noise is added in float64 and the sum rounded to float32. A stream gives the same noise
    again, which is what a simulation wants; whoever knows its seed can subtract it. *For
    protection* two things are the caller's part: the source is a cipher's
    (:class:`eris.protocol.secure.noise.CipherDraws`), for Philox passes for random in every
    statistical test but is none; and no source is used for two vectors, whose difference would be
    free of noise.

    Nor is ε a statement about floating-point numbers. It holds for real-valued noise; the doubles
    a sampler can reach are unevenly spaced, and which sums occur can betray the value underneath
    (Mironov 2012, shown for Laplace noise). Rounding the sum to float32 hides most of these low
    bits and is no proof. The noise also ends at about 8.3 σ, and drawing it is not constant-time.

    >>> from eris.core.streams import Stream
    >>> gaussian(np.zeros(3, np.float32), 2.0, Stream(seed=1, purpose="noise")).dtype
    dtype('float32')
    """
    require(0 <= sigma < math.inf, "sigma", sigma, "a finite number, 0 or more")
    _check_vector(vector)
    noisy = np.empty_like(vector)
    with np.errstate(over="ignore"):  # reported below, by name
        for piece in _pieces(len(vector)):
            noise = source.normal(piece.start, piece.stop - piece.start)
            noisy[piece] = vector[piece] + sigma * noise
    if not np.isfinite(noisy).all():
        raise InvalidSetting("vector plus noise", "not finite", "values that float32 can hold")
    return noisy


@dataclass(frozen=True)
class PrivacyClaim:
    """What was done for privacy, as data: nothing here is a promise until an accountant reads it.

    ``sensitivity`` is the largest L2 distance between the values of two neighbouring inputs. With
    contributions clipped to C it is C where neighbours differ by adding or removing one
    contribution, and 2C where one is *replaced*, as whenever a client's whole clipped update is
    the thing protected (local differential privacy). ``sigma`` is the noise on that same scale.
    ``rounds`` counts noisy releases about the same person: with noise in every local step, steps.
    ``sampling_rate`` below 1 claims that a secret random part of the data took part in each.

    >>> claim = PrivacyClaim("gaussian", sensitivity=1.0, sigma=10.0, rounds=100)
    >>> round(epsilon(claim, delta=1e-5), 6)
    4.377178
    """

    mechanism: str
    sensitivity: float
    sigma: float
    rounds: int
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        above = "a finite number above 0"
        require(0 < self.sensitivity < math.inf, "sensitivity", self.sensitivity, above)
        require(0 <= self.sigma < math.inf, "sigma", self.sigma, "a finite number, 0 or more")
        _whole("rounds", self.rounds, 0)
        if not 0 < self.sampling_rate <= 1:
            raise InvalidSetting("sampling_rate", self.sampling_rate, "a number in (0, 1]")


def epsilon(claim: PrivacyClaim, delta: float) -> float:
    """The smallest ε at which the claim is (ε, δ)-differentially private; exact, not a bound.

    Good to about ten digits. Infinite without noise, 0 where δ alone covers everything.

    >>> epsilon(PrivacyClaim("laplace", 1.0, sigma=1.0, rounds=1), 1e-5)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: mechanism is 'laplace'; expected 'gaussian', ...
    """
    if claim.mechanism != "gaussian":
        raise InvalidSetting("mechanism", claim.mechanism, "'gaussian', all this accountant knows")
    if claim.sampling_rate != 1:
        raise InvalidSetting(
            "sampling_rate",
            claim.sampling_rate,
            "1.0: this accountant does not know amplification by subsampling",
        )
    require(0 < delta < 1, "delta", delta, "a number in (0, 1)")
    return _epsilon(_signal_to_noise(claim.sensitivity, claim.sigma, claim.rounds), delta)


def sigma_for(epsilon: float, delta: float, sensitivity: float, releases: int) -> float:
    """The smallest σ with which so many releases together stay within (ε, δ).

    The Gaussian mechanism, no subsampling. Whoever calibrates a part of the releases by itself
    spends far more in all, and must print :func:`epsilon` of the whole claim beside the budget.

    >>> sigma = sigma_for(1.0, 1e-5, sensitivity=1.0, releases=1)
    >>> round(sigma, 6)
    3.730632
    >>> round(epsilon(PrivacyClaim("gaussian", 1.0, sigma, 100), 1e-5), 2)
    14.43
    """
    require(0 <= epsilon < math.inf, "epsilon", epsilon, "a finite number, 0 or more")
    require(0 < delta < 1, "delta", delta, "a number in (0, 1)")
    require(0 < sensitivity < math.inf, "sensitivity", sensitivity, "a finite number above 0")
    _whole("releases", releases, 1)

    def enough(sigma: float) -> bool:
        return _epsilon(_signal_to_noise(sensitivity, sigma, releases), delta) <= epsilon

    high = float(sensitivity)
    while not enough(high):
        high *= 2
        if high == math.inf:  # where Δ·√T/σ may be ∞/∞, and no σ would ever be enough
            raise InvalidSetting(
                "budget (ε, δ)",
                (epsilon, delta),
                f"one a finite σ can meet at sensitivity {sensitivity!r}, releases {releases!r}",
            )
    low = high / 2
    while enough(low):
        low, high = low / 2, low
    # ``high`` has been seen to be enough at every step, so the σ returned is within the budget
    # also as :func:`epsilon` will compute it.
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _signal_to_noise(sensitivity: float, sigma: float, rounds: int) -> float:
    return sensitivity * math.sqrt(rounds) / sigma if sigma > 0 else math.inf


def _epsilon(mu: float, delta: float) -> float:
    # The privacy loss is N(μ²/2, μ²). Search for ε by how many standard deviations x it lies above
    # the mean: whatever μ is, x lies between that of ε = 0 and 40.
    if mu == math.inf:
        return math.inf
    low, high = max(-mu / 2, -_FURTHEST), _FURTHEST
    if _delta(low, mu) <= delta:
        return 0.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _delta(middle, mu) > delta else (low, middle)
    return mu * (high + mu / 2)


def _delta(x: float, mu: float) -> float:
    """δ at ε = μ·(x + μ/2)."""
    density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    if mu < 1e-5:
        # R(x) − R(x + μ) would cancel; by its slope R′ = x·R − 1 in the middle it is good to μ².
        middle = x + mu / 2
        return density * mu * (1 - middle * _mills(middle))
    if x < 0:  # where R(x) grows beyond bounds
        return 0.5 * math.erfc(x / math.sqrt(2)) - density * _mills(x + mu)
    return density * (_mills(x) - _mills(x + mu))


def _mills(x: float) -> float:
    """R(x) = Φ(−x)/φ(x), to a few units in the last place."""
    if x < 3:
        return math.sqrt(math.pi / 2) * math.exp(x * x / 2) * math.erfc(x / math.sqrt(2))
    tail = 0.0  # Laplace's continued fraction x + 1/(x + 2/(x + …)), from its far end
    for k in range(50, 0, -1):
        tail = k / (x + tail)
    return 1 / (x + tail)


def _pieces(n: int) -> Iterator[slice]:
    return (slice(start, min(start + _PIECE, n)) for start in range(0, n, _PIECE))


def _check_vector(vector: Vector) -> None:
    if vector.dtype != np.float32 or vector.ndim != 1:
        raise InvalidSetting("vector", f"{vector.dtype} {vector.shape}", "a flat float32 vector")


def _whole(name: str, value: int, least: int) -> None:
    if not (least <= value < math.inf and value == int(value)):
        raise InvalidSetting(name, value, f"a whole number, {least} or more")
