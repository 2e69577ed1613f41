"""What a run's noise promises: ε of a privacy claim by numerical accountants, beside the exact one.

An attack gives a lower bound on ε, an accountant an upper one; a figure is honest with both. The
upper ones come from dp-accounting: privacy loss distributions (PLD; Koskela et al. 2020,
Doroshenko et al. 2022), which is what is reported, and Rényi differential privacy (RDP; Mironov
2017), which is looser and older. Both are upper bounds. Without subsampling
:func:`eris.core.noise.epsilon` knows the exact answer and stands beside them.

With ``sampling_rate`` q below 1 a release is read as the *Poisson-sampled* Gaussian mechanism:
every record takes part with probability q independently and in secret, and neighbours differ by
one record that is there or not. Batches of a fixed size, or an observer who knows who took part,
are another mechanism, of which this says nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from eris.core.composition import LARGEST, LEAST_DELTA, accounting, by_pld, by_rdp, spreads
from eris.core.errors import InvalidSetting, require
from eris.core.noise import PrivacyClaim, epsilon

_SMALLEST = 1e-9  # losses that rounding errors of δ, divided by the interval, would drown
_SMALLEST_SAMPLED = 1e-5  # the same where rounding errors of a release add up over all of them


@dataclass(frozen=True)
class Accounted:
    """ε of one claim at δ, by every accountant that knows an answer."""

    epsilon_pld: float | None
    """Upper bound by privacy loss distributions; None where they have no number, see ``note``."""
    epsilon_rdp: float
    """Upper bound by Rényi differential privacy."""
    delta: float
    exact: float | None
    """The smallest ε there is; None under subsampling, where no closed form is known."""
    claim: PrivacyClaim
    note: str = ""
    """Why there is no ε by PLD."""

    @property
    def epsilon(self) -> float:
        """The figure to report: exact where it is known, else the lower of the upper bounds.

        >>> round(accounted(PrivacyClaim("gaussian", 1.0, sigma=10.0, rounds=100), 1e-5).epsilon, 6)
        4.377178
        """
        if self.exact is not None:
            return self.exact
        return self.epsilon_rdp if self.epsilon_pld is None else min(self.bounds)

    @property
    def bounds(self) -> tuple[float, ...]:
        """The upper bounds there are: PLD, RDP."""
        found = (self.epsilon_pld, self.epsilon_rdp)
        return tuple(bound for bound in found if bound is not None)


def accounted(claim: PrivacyClaim, delta: float) -> Accounted:
    """ε of the claim over all its rounds at δ; refuses mechanisms it does not know.

    No noise is ε = ∞, no release is ε = 0. (For RDP noise below a millionth of the sensitivity is
    none, and above 10⁹ of it is 10⁹: upper bounds both.) Losses are rounded up to multiples of an
    interval (``discretisation`` of :mod:`eris.core.composition`), so ε by PLD is an upper bound
    whatever the interval. δ below 1e-12 is refused: the Fourier transforms inside do not resolve
    it.

    Under subsampling a loss so small that rounding errors of thousands of releases would show is
    accounted with a larger sampling rate, which loses more: an upper bound still.

    An ε by PLD is not computed (None, ``note`` says so) where a single release, or the whole run
    without subsampling, loses more than about 700 nats: float64 has no e^ε there, and the memory
    it takes has no limit. Such a run has no privacy left to account for. Of many smaller releases
    whose ε adds up to more than 745 the bound is about one nat loose.

    >>> sampled = PrivacyClaim("gaussian", 1.0, sigma=1.0, rounds=1000, sampling_rate=0.01)
    >>> result = accounted(sampled, delta=1e-5)
    >>> f"PLD {result.epsilon_pld:.6f}, RDP {result.epsilon_rdp:.6f}, exact {result.exact}"
    'PLD 1.828244, RDP 2.101367, exact None'
    """
    if claim.mechanism != "gaussian":
        raise InvalidSetting(
            "mechanism",
            claim.mechanism,
            "'gaussian', with or without Poisson sampling: all that is accounted for",
        )
    require(LEAST_DELTA <= delta < 1, "delta", delta, "a number in [1e-12, 1)")
    # Also where the answer needs none, so that a lack shows at once.
    accounting()
    if claim.rounds == 0:
        return Accounted(0.0, 0.0, delta, 0.0, claim)
    exact = epsilon(claim, delta) if claim.sampling_rate == 1 else None
    if claim.sigma == 0:
        return Accounted(math.inf, math.inf, delta, exact, claim)
    safe = _resolvable(claim)
    note = _beyond_pld(safe, exact)
    pld = None if note else by_pld((safe,), delta)
    return Accounted(pld, by_rdp((safe,), delta), delta, exact, claim, note)


def _beyond_pld(claim: PrivacyClaim, exact: float | None) -> str:
    """Why PLD has no number for a claim, or nothing."""
    single, _, largest = spreads(claim)
    if (largest if exact is None else exact) > LARGEST:
        instead = "the bound by RDP" if exact is None else "the exact value"
        return f"losses above {LARGEST:.0f} are beyond PLD in float64; {instead} stands alone"
    if claim.sampling_rate == 1 and single < _SMALLEST:
        return f"losses below {_SMALLEST:g} are beyond PLD in float64"
    return ""


def _resolvable(claim: PrivacyClaim) -> PrivacyClaim:
    """The claim, or one with a larger sampling rate whose losses float64 resolves."""
    single, _, _ = spreads(claim)
    if claim.sampling_rate == 1 or single >= _SMALLEST_SAMPLED:
        return claim
    enough = claim.sampling_rate * (_SMALLEST_SAMPLED / single) if single > 0 else 1.0
    return replace(claim, sampling_rate=min(1.0, enough))
