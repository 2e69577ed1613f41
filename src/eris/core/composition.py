"""ε of many releases together, of which some were of secret random batches.

Without sampling :func:`eris.core.noise.epsilon` knows the exact answer. With it there is none in
closed form, and dp-accounting gives upper bounds: privacy loss distributions (PLD; Koskela et al.
2020, Doroshenko et al. 2022), for releases that were fixed beforehand, and Rényi differential
privacy (RDP; Mironov 2017), which is looser and holds also where what is released next was chosen
by what was seen before (Feldman and Zrnic 2021).

``sampling_rate`` q below 1 is read as the *Poisson-sampled* Gaussian mechanism: every record takes
part with probability q independently and in secret, and neighbours differ by one record that is
there or not. Batches of a fixed size, or draws that an observer knows, are another mechanism.
"""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, reduce
from typing import Any

from eris.core.errors import InvalidSetting, library, require
from eris.core.noise import PrivacyClaim, epsilon, sigma_for

LEAST_DELTA = 1e-12
"""Below, the Fourier transforms inside PLD resolve nothing."""
_FINEST = 1e-4  # the interval of the losses where nothing speaks for another one
_TAIL = 10.0  # standard deviations: beyond lies less than e⁻⁵⁰, where dp-accounting cuts
_POINTS = 200_000  # of a single release's losses: about a second, a few hundred MB
_COMPOSED_POINTS = 2_000_000  # of all releases' losses, which only the FFT sees
_NOISE = (1e-6, 1e9)  # σ per sensitivity: the library divides by its square
LARGEST = 700.0
"""The largest loss: float64 has no e^ε much beyond."""


def composed(claims: tuple[PrivacyClaim, ...], delta: float, *, adaptive: bool = False) -> float:
    """ε of all releases together at δ: exact if none is of a sampled batch, else an upper bound.

    By PLD or, if what was released later was chosen by what was seen before (``adaptive``), by RDP.
    So it is where single losses are beyond PLD. Without sampling it makes no difference.

    >>> sampled = PrivacyClaim("gaussian", 1.0, sigma=4.0, rounds=160, sampling_rate=0.25)
    >>> [round(composed((sampled,), 1e-5, adaptive=adaptive), 4) for adaptive in (False, True)]
    [3.4863, 3.7909]
    """
    held = tuple(claim for claim in claims if claim.rounds)
    if all(claim.sampling_rate == 1 for claim in held):
        squares = (claim.rounds * (claim.sensitivity / claim.sigma) ** 2 for claim in held)
        mu = math.sqrt(math.fsum(squares))
        return epsilon(PrivacyClaim("gaussian", mu, 1.0, 1), delta) if mu else 0.0
    require(LEAST_DELTA <= delta < 1, "delta", delta, f"a number in [{LEAST_DELTA:g}, 1)")
    if adaptive or any(spreads(claim)[2] > LARGEST for claim in held):
        return by_rdp(held, delta)
    return by_pld(held, delta)


@lru_cache(1024)
def sampled_sigma_for(epsilon: float, delta: float, rounds: int, rate: float) -> float:
    """σ per sensitivity with which so many sampled releases stay within (ε, δ), by PLD.

    At most 0.1 % above the least there is.

    >>> round(sampled_sigma_for(8.0, 1e-5, 160, 0.25), 1)
    2.1
    """
    if rate == 1:
        return sigma_for(epsilon, delta, 1.0, rounds)
    require(LEAST_DELTA <= delta < 1, "delta", delta, f"a number in [{LEAST_DELTA:g}, 1)")

    def enough(sigma: float) -> bool:
        claim = PrivacyClaim("gaussian", 1.0, sigma, rounds, rate)
        if spreads(claim)[2] > LARGEST:
            return False
        return by_pld((claim,), delta, coarser=10) <= epsilon

    high = sigma_for(epsilon, delta, 1.0, rounds)  # sampling only takes away
    low = high * rate / 2
    while enough(low):
        low, high = low / 2, low
    while high > low * 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def discretisation(*claims: PrivacyClaim) -> float:
    """The interval to whose multiples privacy losses are rounded up: fine enough, and affordable.

    1e-4, as in the library, for losses of the order of one. In proportion more where the composed
    loss spreads wider (with 1e-4 an ε of 427 costs 13 s and 2.3 GB, with this rule 0.5 s and
    differs in the seventh digit); less where a single release's loss is so small that rounding
    would add to it a thousand times over (q = 0.001, σ = 100, T = 10⁵: ε is 0.0240 with 1e-4,
    0.0074 with this rule).

    >>> discretisation(PrivacyClaim("gaussian", 1.0, sigma=10.0, rounds=100))
    0.0001
    """
    found = [spreads(claim) for claim in claims]
    together = math.hypot(*(composed for _, composed, _ in found))
    # By powers of two, so that a few more releases have the same interval.
    wider = 2.0 ** math.floor(math.log2(max(1.0, together)))
    wanted = min(_FINEST * wider, *(single / 20 for single, _, _ in found))
    largest = max(most for _, _, most in found)
    return max(wanted, largest / _POINTS, 2 * _TAIL * together / _COMPOSED_POINTS)


def spreads(claim: PrivacyClaim) -> tuple[float, float, float]:
    """Standard deviation of the loss of one release, of all together, and the largest of one.

    Without subsampling all releases are together one with √T times the signal. With it the loss
    of a release is ln(1 − q + q·e^L), L the plain one: its variance is q²(e^(1/σ²) − 1) as long as
    that is small (Bu et al. 2020), and never more than L's.
    """
    signal, q = claim.sensitivity / claim.sigma, claim.sampling_rate
    if q == 1:
        signal *= math.sqrt(claim.rounds)
        return signal, signal, 2 * _TAIL * signal  # the loss lies within ± 10 around its mean
    plain = signal * (signal / 2 + _TAIL)
    if plain > LARGEST / 2:  # where the other exponent, 1/σ², may leave float64
        return signal, signal * math.sqrt(claim.rounds), plain
    single = min(q * math.sqrt(math.expm1(signal * signal)), signal)
    return single, single * math.sqrt(claim.rounds), math.log1p(q * math.expm1(plain))


@lru_cache(1024)
def by_pld(claims: tuple[PrivacyClaim, ...], delta: float, coarser: int = 1) -> float:
    """An upper bound on ε by PLD, whatever the interval."""
    interval = coarser * discretisation(*claims)
    parts = []
    for claim in claims:
        noise, count = _noise_multiplier(claim), claim.rounds
        if claim.sampling_rate == 1:  # all releases are together one, with √T times the signal
            noise, count = noise / math.sqrt(count), 1
        parts.append(_losses(noise, claim.sampling_rate, interval).self_compose(count))
    whole = reduce(lambda one, other: one.compose(other), parts)
    return float(whole.get_epsilon_for_delta(delta))


@lru_cache(32)
def _losses(noise: float, rate: float, interval: float) -> Any:
    """The privacy loss distribution of one release: what takes long, the same for any number."""
    accounting()
    library = importlib.import_module("dp_accounting.pld.privacy_loss_distribution")
    return library.from_gaussian_mechanism(
        noise, value_discretization_interval=interval, sampling_prob=rate
    )


@lru_cache(1024)
def by_rdp(claims: tuple[PrivacyClaim, ...], delta: float) -> float:
    """An upper bound on ε by RDP.

    Noise below a millionth of the sensitivity is none, and above 10⁹ of it is 10⁹.
    """
    if any(claim.sigma / claim.sensitivity < _NOISE[0] for claim in claims):
        return math.inf
    dp = accounting()
    accountant = importlib.import_module("dp_accounting.rdp").RdpAccountant()
    with _quiet():
        for claim in claims:
            event = dp.GaussianDpEvent(_noise_multiplier(claim))
            if claim.sampling_rate < 1:
                event = dp.PoissonSampledDpEvent(claim.sampling_rate, event)
            accountant.compose(dp.SelfComposedDpEvent(event, claim.rounds))
        return float(accountant.get_epsilon(delta))


def accounting() -> Any:
    """The library, or one line that says how to install it."""
    return library("dp_accounting", "dp-accounting", "audit")


def _noise_multiplier(claim: PrivacyClaim) -> float:
    if claim.mechanism != "gaussian":
        raise InvalidSetting("mechanism", claim.mechanism, "'gaussian', all that is accounted")
    return min(claim.sigma / claim.sensitivity, _NOISE[1])


@contextmanager
def _quiet() -> Iterator[None]:
    """No warning of each Rényi order that did not converge: leaving it out loosens the bound only.

    The library logs through absl, whose logger is the standard one of that name.
    """
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
