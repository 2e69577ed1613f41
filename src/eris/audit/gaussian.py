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
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eris.core.errors import InvalidSetting, library
from eris.core.streams import Stream
from eris.theory.leakage import gaussian_capacity

Reading = Literal["observed", "paper"]
"""Whose meaning of σ and σ_cond: :func:`capacity`'s or :func:`capacity_paper`'s."""

DRAWS = 5000
"""Coordinates that the normality check looks at: of more it would reject what nobody could see."""

LEVEL = 0.01
"""Level of each of its two tests."""

_PIECE = 1 << 16  # coordinates at a time, so that float64 copies stay in the cache
_LEAST = 20  # coordinates below which the check's kurtosis test says nothing
_DEVIATIONS = 6.0  # of the first vector, to either side, are what a histogram shows by default


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

    Vectors go in one at a time and are not kept. ``limit`` is the half-width of the bins; without
    one the first vector decides, six of its standard deviations. What lies outside is counted
    in ``outside``.

    >>> histogram = WeightHistogram(limit=3.0, bins=6)
    >>> found = histogram.add(0, Stream(1, "example").normal(0, 10_000))
    >>> histogram.counts.tolist(), found.gaussian
    ([[212, 1400, 3411, 3316, 1413, 227]], True)
    """

    def __init__(self, limit: float | None = None, bins: int = 120, seed: int = 0) -> None:
        if limit is not None and not 0 < limit < math.inf:
            raise InvalidSetting("limit", limit, "a finite number above 0, or None")
        if not 1 <= bins <= 100_000:
            raise InvalidSetting("bins", bins, "a whole number from 1 to 100000")
        self.limit, self.bins, self.seed = limit, bins, seed
        self.statistics: list[WeightStatistics] = []
        self._counts: list[NDArray[np.int64]] = []

    def add(self, round: int, vector: ArrayLike) -> WeightStatistics:
        """Take one round's vector in: a whole update, or the coordinates that were seen of it."""
        values = _flat(round, vector)
        found = _statistics(round, values, self.seed)
        if self.limit is None:
            self.limit = _DEVIATIONS * found.deviation if found.deviation > 0 else 1.0
        self._counts.append(_counts(values, self.edges))
        self.statistics.append(found)
        return found

    @property
    def edges(self) -> NDArray[np.float64]:
        """The ``bins + 1`` ends of the bins; known once a limit is."""
        if self.limit is None:
            raise InvalidSetting("limit", None, "a limit, or a vector added that decides it")
        return np.linspace(-self.limit, self.limit, self.bins + 1)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Values per round and bin, in the order in which rounds were added."""
        return self._all()[:, 1:-1]

    @property
    def outside(self) -> NDArray[np.int64]:
        """Values per round below the first and above the last bin, (rounds, 2)."""
        return self._all()[:, [0, -1]]

    @property
    def rejected(self) -> float:
        """Share of the rounds in which a Gaussian was rejected; of Gaussians one or two in 100."""
        if not self.statistics:
            raise InvalidSetting("rounds", 0, "at least one vector added")
        return sum(not found.gaussian for found in self.statistics) / len(self.statistics)

    def _all(self) -> NDArray[np.int64]:
        return np.array(self._counts, np.int64).reshape(-1, self.bins + 2)


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
    largest: float
    """The same of the coordinate that tells most: C_max as the theorem has it.

    A maximum of estimates: with few clients it is too large by chance, by about √(ln n/(K − 1)).
    """
    reading: Reading


def capacity(
    across: ArrayLike,
    *,
    within: ArrayLike | None = None,
    noise: float = 0.0,
    resolution: float = 0.0,
) -> Capacity:
    """C_max from the updates of K clients in one round, (K, n), and what is random about them.

    σ² of a coordinate is its variance *across clients*: to an observer who knows all that came
    before, a client's data are one draw of the population's. σ_cond² is what is random when the
    data are given, the largest of

    * ``noise``: the standard deviation of Gaussian noise that the client adds, as it arrives (σ of
      local privacy on the scale of the update);
    * ``within``: draws (m, n), or (K, m, n), of *the same* client's update from the same model, of
      which the variance is taken: batches drawn anew, noise drawn anew. An estimate only: noise
      that is not Gaussian leaves less than its variance says;
    * ``resolution``: the step to which values are rounded. A rounded value holds at most
      h(x) − ln(step) nats, which is the formula at σ_cond² = step²/(2πe).

    With none of them the update is a function of the data and the capacity infinite (unless the
    clients' updates are all equal): the Gaussian bound then says nothing, and Remark D.1's premise
    does not hold.

    >>> seen = Stream(1, "example").normal(0, 100_000).reshape(100, 1000) * 2
    >>> round(capacity(seen, noise=1.0).nats, 2), capacity(seen).nats
    (0.7, inf)
    """
    total = _clients(across).var(axis=0, ddof=1)
    for name, value in (("noise", noise), ("resolution", resolution)):
        if not 0 <= value < math.inf:
            raise InvalidSetting(name, value, "a finite number, 0 or more")
    known = max(noise**2, resolution**2 / (2 * math.pi * math.e))
    left = np.full_like(total, known)
    if within is not None:
        left = np.maximum(left, _within(within, total.size))
    each = [_nats(*pair) for pair in zip(total.tolist(), left.tolist(), strict=True)]
    variance, conditional = float(total.mean()), float(left.mean())
    return Capacity(variance, conditional, _nats(variance, conditional), max(each), "observed")


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
    nats = _nats(variance, conditional)
    return Capacity(variance, conditional, nats, nats, "paper")


def information_bound(
    coordinates_seen: Sequence[int], capacity: Capacity | Sequence[Capacity]
) -> float:
    """Σ_t (coordinates seen in round t)·C nats: theorem 3.3 with what a view really held.

    ``capacity`` is one for all rounds or one per round (the proof adds rounds up, so each may have
    its own). Of a capacity its ``nats`` count, the constant of Remark D.1; for a constant of your
    own use :func:`dataclasses.replace`. More nats than the data have (ln 2 a canary, thrown by a
    fair coin) say nothing.

    >>> channel = Capacity(2.0, 1.0, nats=0.25, largest=0.25, reading="observed")
    >>> information_bound([100, 0, 60], channel)
    40.0
    """
    rounds = len(coordinates_seen)
    each = [capacity] * rounds if isinstance(capacity, Capacity) else list(capacity)
    if len(each) != rounds:
        raise InvalidSetting("capacities", len(each), f"one, or one for each of {rounds} rounds")
    for round, seen in enumerate(coordinates_seen):
        if not 0 <= seen < math.inf:
            raise InvalidSetting(f"coordinates seen in round {round}", seen, "a number, 0 or more")
    # A round in which nothing is seen tells nothing, whatever a coordinate would.
    pairs = zip(coordinates_seen, each, strict=True)
    return math.fsum(seen * channel.nats for seen, channel in pairs if seen)


def guessed_information(right: int, guesses: int) -> float:
    """Nats that an attack with ``right`` of ``guesses`` membership guesses has shown to be there.

    Each canary is a fair coin, and a guess that is right with probability a tells at least
    ln 2 − h(a) of it (Fano). Estimated from the share of right guesses, so it belongs on the axis
    of :func:`information_bound`, and chance adds about ¼ nat; 0 for no better than even.

    >>> round(guessed_information(right=75, guesses=100), 2), guessed_information(50, 100)
    (13.08, 0.0)
    """
    if not 0 <= guesses < math.inf:
        raise InvalidSetting("guesses", guesses, "a whole number, 0 or more")
    if not 0 <= right <= guesses:
        raise InvalidSetting("right", right, f"a whole number from 0 to {guesses}")
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
    values = _finite("updates", across)
    if values.ndim != 2 or values.shape[0] < 2 or values.shape[1] < 1:
        raise InvalidSetting("shape of the updates", values.shape, "(2 or more clients, n)")
    return values


def _within(within: ArrayLike, coordinates: int) -> NDArray[np.float64]:
    draws = _finite("draws of an update", within)
    if draws.ndim not in (2, 3) or draws.shape[-1] != coordinates or draws.shape[-2] < 2:
        expected = f"(draws, {coordinates}) or (clients, draws, {coordinates}), at least 2 draws"
        raise InvalidSetting("shape of the draws of an update", draws.shape, expected)
    spread: NDArray[np.float64] = draws.var(axis=-2, ddof=1)
    return spread if draws.ndim == 2 else np.asarray(spread.mean(axis=0), np.float64)


def _finite(name: str, values: ArrayLike) -> NDArray[np.float64]:
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as refused:
        raise InvalidSetting(name, type(values).__name__, "numbers in equal rows") from refused
    if not np.isfinite(array).all():
        raise InvalidSetting(name, "not finite", "finite numbers only")
    return array


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


def _counts(values: NDArray[Any], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Values per bin, with those below the first and above the last at the ends."""
    counts = np.zeros(edges.size + 1, np.int64)
    for start in range(0, values.size, _PIECE):
        piece = values[start : start + _PIECE].astype(np.float64)
        counts[1:-1] += np.histogram(piece, edges)[0]
        counts[0] += np.count_nonzero(piece < edges[0])
        counts[-1] += np.count_nonzero(piece > edges[-1])
    return counts
