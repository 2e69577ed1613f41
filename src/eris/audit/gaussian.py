"""The Gaussian constants of ERIS F.1, measured, and the mutual-information bound they give.

Theorem 3.3 (3.7 in the older text) bounds what an observer learns by the coordinates it sees times
C_max nats each, and remark D.1 puts C_max = ½·ln(σ²/σ_cond²) if a coordinate is Gaussian, with
variance σ² to the observer and σ_cond² once the client's data are known. Here are the histograms
and the normality check of F.1 (:class:`WeightHistogram`), two readings of the two variances
(:func:`capacity`, :func:`capacity_paper`), and the bound with the number of coordinates that were
really seen (:func:`information_bound`), beside which a measured attack is put
(:func:`guessed_information`).

What of this is a bound. Let the noise left given the data be Gaussian and independent over
coordinates, as local privacy adds it. Then h(x_i | D) is known, h(x_i) is at most that of a
Gaussian of variance σ², and the sum over coordinates holds: the bound needs *no* Gaussian updates,
only Gaussian noise. Without noise it fails where it matters: a full-batch update is a function of
the data, σ_cond is 0 and C_max infinite. The papers' σ_cond is another thing, see
:func:`capacity_paper`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eris.core.errors import InvalidSetting, library, require
from eris.core.streams import Stream
from eris.theory.leakage import gaussian_capacity

DRAWS = 5000
"""Coordinates that the normality check looks at: of more it would reject what nobody could see."""

LEVEL = 0.01
"""Level of each of its two tests."""

_PIECE = 1 << 16  # coordinates at a time, so that float64 copies stay in the cache
_LEAST = 20  # coordinates below which the check's kurtosis test says nothing
_DEVIATIONS = 6.0  # of the first vector, to either side, are what a histogram shows
_BINS = 120


@dataclass(frozen=True)
class WeightStatistics:
    """The shape of one client's values in one round, over its coordinates."""

    round: int
    count: int
    mean: float
    deviation: float
    skewness: float
    excess_kurtosis: float
    """0 for a Gaussian, 3 for Laplace; gradients have tens or hundreds."""
    p_value: float
    """Of D'Agostino and Pearson's K² test on at most :data:`DRAWS` coordinates."""
    distance: float
    """Largest distance of their empirical to the fitted normal distribution function."""

    @property
    def gaussian(self) -> bool:
        """Whether a Gaussian is rejected neither by K² nor by the distance, at 1 % each.

        K² sees skewness and kurtosis only: the weights of a fresh LeNet-5, uniform in every layer,
        pass it. The distance is held against Lilliefors' critical value. With 5,000 draws small
        departures are rejected too; ``distance`` says how large one is (of Gaussians about 0.01).
        """
        critical = 1.035 / math.sqrt(min(self.count, DRAWS))
        return self.p_value >= LEVEL and self.distance <= critical


class WeightHistogram:
    """A client's values round by round, as F.1 plots them: counts, moments, a normality check.

    Vectors go in one at a time and are not kept. The first one decides where the bins end, at six
    of its standard deviations; what lies outside is in none of them.

    >>> histogram = WeightHistogram()
    >>> found = histogram.add(0, Stream(1, "example").normal(0, 10_000))
    >>> histogram.counts.shape, round(float(histogram.edges[-1])), found.gaussian
    ((1, 120), 6, True)
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.statistics: list[WeightStatistics] = []
        self._counts: list[NDArray[np.int64]] = []

    def add(self, round: int, vector: ArrayLike) -> WeightStatistics:
        """Take one round's vector in: a whole update, or the coordinates that were seen of it."""
        values = _flat(round, vector)
        found = _statistics(round, values, self.seed)
        self.statistics.append(found)
        self._counts.append(np.histogram(values, self.edges)[0])
        return found

    @property
    def edges(self) -> NDArray[np.float64]:
        """The ends of the bins; known once a vector is."""
        if not self.statistics:
            raise InvalidSetting("rounds", 0, "at least one vector added")
        limit = _DEVIATIONS * self.statistics[0].deviation or 1.0
        return np.linspace(-limit, limit, _BINS + 1)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Values per round and bin, in the order in which rounds were added."""
        return np.array(self._counts, np.int64).reshape(-1, _BINS)

    @property
    def rejected(self) -> float:
        """Share of the rounds in which a Gaussian was rejected; of Gaussians one or two in 100."""
        if not self.statistics:
            raise InvalidSetting("rounds", 0, "at least one vector added")
        return sum(not found.gaussian for found in self.statistics) / len(self.statistics)


@dataclass(frozen=True)
class Capacity:
    """What one coordinate can tell in one round, and the variances that follows from."""

    variance: float
    """σ²: of a coordinate as the observer sees it, mean over coordinates."""
    conditional_variance: float
    """σ_cond²: what is left once the client's data are known, mean over coordinates."""
    nats: float
    """½·ln(σ²/σ_cond²); infinite where nothing random is left, 0 where the data add nothing.

    With the same σ_cond everywhere this is at least the mean over coordinates (ln is concave), so
    times the coordinates seen it bounds what they tell together.
    """


def capacity(across: ArrayLike, *, noise: float = 0.0) -> Capacity:
    """C_max from the updates of K clients in one round, (K, n), and what is random about them.

    σ² of a coordinate is its variance *across clients*: to an observer who knows all that came
    before, a client's data are one draw of the population's. σ_cond² is what is random when the
    data are given: ``noise`` is the standard deviation of Gaussian noise that the client adds, as
    it arrives (σ of local privacy on the scale of the update).

    Without it the update is a function of the data and the capacity infinite (unless the clients'
    updates are all equal): the Gaussian bound then says nothing, and Remark D.1's premise does not
    hold.

    >>> seen = Stream(1, "example").normal(0, 100_000).reshape(100, 1000) * 2
    >>> round(capacity(seen, noise=1.0).nats, 2), capacity(seen).nats
    (0.7, inf)
    """
    require(0 <= noise < math.inf, "noise", noise, "a finite number, 0 or more")
    each = _clients(across).var(axis=0, ddof=1)
    # A mean of as many, so that both are rounded alike.
    variance, conditional = float(each.mean()), float(np.full_like(each, noise**2).mean())
    return Capacity(variance, conditional, _nats(variance, conditional))


def capacity_paper(weights: ArrayLike) -> Capacity:
    """C_max as F.1 reads its histograms: coordinates stand for draws of one and the same weight.

    F.1 plots all weights that a client uploads in a round and calls their spread σ_cond ("well
    below 0.2"). Read so, of K clients' weights (K, n), σ_cond² is the mean over clients of the
    variance over a client's coordinates, and σ² the variance of all of them together. The two
    differ only by how far the clients' mean weights lie apart, so C_max is next to 0 whatever the
    updates give away.

    It is no bound. How much a client's weights differ from one another is not how much is unknown
    of one of them: publish every client's data in the weights, in an order known to all, and this
    figure does not move. It is here to be printed beside :func:`capacity`.

    >>> known = Stream(1, "example").normal(0, 100_000).reshape(100, 1000) * 0.1
    >>> round(capacity_paper(known).nats, 3), capacity(known).nats
    (0.0, inf)
    """
    values = _clients(weights)
    conditional = float(values.var(axis=1).mean())
    variance = max(float(values.var()), conditional)
    return Capacity(variance, conditional, _nats(variance, conditional))


def information_bound(coordinates_seen: Sequence[int], capacities: Sequence[Capacity]) -> float:
    """Σ_t (coordinates seen in round t)·C_t nats: theorem 3.3 with what a view really held.

    The proof adds rounds up, so each has its own capacity; its ``nats`` count, the constant of
    Remark D.1. More nats than the data have (ln 2 a canary, thrown by a fair coin) say nothing.

    >>> information_bound([100, 0, 60], [Capacity(2.0, 1.0, nats=0.25)] * 3)
    40.0
    """
    # A round in which nothing is seen tells nothing, whatever a coordinate would.
    pairs = zip(coordinates_seen, capacities, strict=True)
    return math.fsum(seen * channel.nats for seen, channel in pairs if seen)


def guessed_information(right: int, guesses: int) -> float:
    """Nats that an attack with ``right`` of ``guesses`` membership guesses has shown to be there.

    Each canary is a fair coin, and a guess that is right with probability a tells at least
    ln 2 − h(a) of it (Fano). Estimated from the share of right guesses, so it belongs on the axis
    of :func:`information_bound`, and chance adds about ¼ nat; 0 for no better than even.

    >>> round(guessed_information(right=75, guesses=100), 2), guessed_information(50, 100)
    (13.08, 0.0)
    """
    require(0 <= guesses < math.inf, "guesses", guesses, "a whole number, 0 or more")
    require(0 <= right <= guesses, "right", right, f"a whole number from 0 to {guesses}")
    if 2 * right <= guesses:
        return 0.0
    shares = (right / guesses, 1 - right / guesses)
    doubt = -math.fsum(share * math.log(share) for share in shares if share > 0)
    return guesses * (math.log(2) - doubt)


def _nats(variance: float, conditional: float) -> float:
    """½·ln(σ²/σ_cond²), also where one of them is 0; an estimated σ² may fall below σ_cond²."""
    if variance <= conditional:
        return 0.0
    return gaussian_capacity(variance, conditional) if conditional > 0 else math.inf


def _clients(across: ArrayLike) -> NDArray[np.float64]:
    try:
        values = np.asarray(across, np.float64)
    except (TypeError, ValueError) as refused:
        found = type(across).__name__
        raise InvalidSetting("updates", found, "numbers in equal rows") from refused
    if not np.isfinite(values).all():
        raise InvalidSetting("updates", "not finite", "finite numbers only")
    if values.ndim != 2 or values.shape[0] < 2 or values.shape[1] < 1:
        raise InvalidSetting("shape of the updates", values.shape, "(2 or more clients, n)")
    return values


def _flat(round: int, vector: ArrayLike) -> NDArray[Any]:
    values = np.asarray(vector)
    name = f"vector of round {round}"
    if values.ndim != 1 or values.dtype.kind != "f" or values.size < _LEAST:
        expected = f"a flat vector of at least {_LEAST} floating-point numbers"
        raise InvalidSetting(name, f"{values.dtype} {values.shape}", expected)
    if not np.isfinite(values).all():
        raise InvalidSetting(name, "not finite", "finite numbers only")
    return values


def _statistics(round: int, values: NDArray[Any], seed: int) -> WeightStatistics:
    mean, deviation, skewness, excess = _moments(values)
    p_value, distance = 0.0, 0.5  # of one value repeated, which is no Gaussian
    if deviation > 0:
        p_value, distance = _normality(_drawn(round, values, seed))
    return WeightStatistics(
        round, values.size, mean, deviation, skewness, excess, p_value, distance
    )


def _moments(values: NDArray[Any]) -> tuple[float, float, float, float]:
    """Mean, standard deviation, skewness and excess kurtosis over all coordinates."""
    starts = range(0, values.size, _PIECE)
    pieces = [values[start : start + _PIECE] for start in starts]
    mean = math.fsum(float(piece.sum(dtype=np.float64)) for piece in pieces) / values.size
    # In units of the largest deviation, so that fourth powers of small gradients do not vanish.
    unit = max(float(np.abs(piece - np.float64(mean)).max()) for piece in pieces)
    if unit <= 1e-12 * abs(mean) or unit == 0:  # what rounding the mean leaves of equal values
        return mean, 0.0, 0.0, 0.0
    sums = np.zeros(3)
    for piece in pieces:
        centred = (piece - np.float64(mean)) / unit
        squared = centred * centred
        sums += squared.sum(), (squared * centred).sum(), (squared * squared).sum()
    second, third, fourth = (sums / values.size).tolist()
    return mean, unit * math.sqrt(second), third / second**1.5, fourth / second**2 - 3


def _drawn(round: int, values: NDArray[Any], seed: int) -> NDArray[np.float64]:
    """All values, or as many as the check looks at, none twice: repeats would raise its level."""
    stream = Stream(seed, "audit-normality", round)
    if values.size >= 4 * DRAWS:  # where of twice as many draws enough are distinct
        drawn = (stream.uniform(0, 2 * DRAWS) * values.size).astype(np.int64)
        values = values[drawn[np.sort(np.unique(drawn, return_index=True)[1])[:DRAWS]]]
    elif values.size > DRAWS:
        values = values[stream.permutations(1, values.size)[0, :DRAWS]]
    return values.astype(np.float64)


def _normality(drawn: NDArray[np.float64]) -> tuple[float, float]:
    """p-value of the K² test, and the largest distance of the distribution functions."""
    scale = float(np.abs(drawn - drawn.mean()).max())
    if scale == 0:  # all draws equal, of values that are nearly all equal
        return 0.0, 0.5
    stats = library("scipy.stats", "scipy", "audit")
    standard = (drawn - drawn.mean()) / scale
    p_value = float(stats.normaltest(standard).pvalue)
    fitted = stats.norm.cdf(np.sort(standard) / standard.std())
    ranks = np.arange(drawn.size + 1) / drawn.size
    distance = max(float((ranks[1:] - fitted).max()), float((fitted - ranks[:-1]).max()))
    return p_value, distance
