"""Local differential privacy as a part of a method: clip every sample's gradient and add noise.

The client protects its samples before anything leaves it, whatever the method does with the update
then (DP-SGD, Abadi et al. 2016, at each client). Neighbouring data sets differ by one sample that
is there or not; how many samples a client has is its weight, which is not protected.
"""

from __future__ import annotations

from dataclasses import dataclass

from eris.core.errors import InvalidSetting
from eris.core.noise import Calibration, PrivacyClaim, epsilon, sigma_for


@dataclass(frozen=True)
class LocalPrivacy:
    """A budget (ε, δ) for every sample, and the norm ``clip`` its gradient is cut to.

    ``calibration="composed"`` spends the budget over all rounds together. ``"per-round"`` spends it
    anew in each, as the ERIS authors did; what the run spends in total is :meth:`spent` and belongs
    beside every result.

    >>> LocalPrivacy(10.0).sigma(releases=120) < LocalPrivacy(1.0).sigma(releases=120)
    True
    >>> round(LocalPrivacy(10.0, calibration="per-round").spent(releases=120))
    333
    """

    epsilon: float
    delta: float = 1e-5
    clip: float = 1.0
    calibration: Calibration = "composed"

    def __post_init__(self) -> None:
        if self.epsilon == 0:
            raise InvalidSetting("epsilon", 0, "a number above 0")
        self.sigma(1)  # refuses what makes no sense

    def sigma(self, releases: int) -> float:
        """The noise on the sum of a step's clipped gradients if ``releases`` steps use a sample."""
        return sigma_for(self.epsilon, self.delta, self.clip, releases, self.calibration)

    def claim(self, releases: int) -> PrivacyClaim:
        """What the accountant reads."""
        return PrivacyClaim("gaussian", self.clip, self.sigma(releases), releases)

    def spent(self, releases: int) -> float:
        """The ε of the whole run at δ, whatever the calibration."""
        return epsilon(self.claim(releases), self.delta)
