"""Local differential privacy as a part of a method: clip every sample's gradient and add noise.

The client protects its samples before anything leaves it, whatever the method does with the update
then (DP-SGD, Abadi et al. 2016, at each client). Neighbouring data sets differ by one sample that
is there or not; how many samples a client has is its weight, which is not protected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from eris.core.errors import InvalidSetting, require
from eris.core.noise import PrivacyClaim, epsilon, sigma_for

Calibration = Literal["composed", "per-round"]
"""Whether a budget (ε, δ) is meant for all rounds together or for each round by itself."""


@dataclass(frozen=True)
class LocalPrivacy:
    """A budget (ε, δ) for every sample, and the norm ``clip`` its gradient is cut to.

    ``calibration="composed"`` spends the budget over all rounds together. ``"per-round"`` spends it
    anew in each, as the ERIS authors did, over all ``uses`` of a sample in the round; what the run
    spends in total is :meth:`spent` and belongs beside every result.

    >>> LocalPrivacy(10.0).sigma(rounds=120) < LocalPrivacy(1.0).sigma(rounds=120)
    True
    >>> each = LocalPrivacy(10.0, calibration="per-round")
    >>> [round(each.spent(rounds, uses=2)) for rounds in (1, 120)]
    [10, 333]
    """

    epsilon: float
    delta: float = 1e-5
    clip: float = 1.0
    calibration: Calibration = "composed"

    def __post_init__(self) -> None:
        require(self.epsilon != 0, "epsilon", 0, "a number above 0")
        if self.calibration not in get_args(Calibration):
            raise InvalidSetting("calibration", self.calibration, "'composed' or 'per-round'")
        self.sigma(1)  # refuses what makes no sense

    def sigma(self, rounds: int, uses: int = 1) -> float:
        """The noise on the sum of a step's clipped gradients.

        Noise is added in every step, so a sample is released as often as steps use it: ``uses``
        times in each of ``rounds`` rounds.
        """
        together = rounds * uses if self.calibration == "composed" else uses
        return sigma_for(self.epsilon, self.delta, self.clip, together)

    def claim(self, rounds: int, uses: int = 1) -> PrivacyClaim:
        """What the accountant reads."""
        return PrivacyClaim("gaussian", self.clip, self.sigma(rounds, uses), rounds * uses)

    def spent(self, rounds: int, uses: int = 1) -> float:
        """The ε of the whole run at δ, whatever the calibration."""
        return epsilon(self.claim(rounds, uses), self.delta)
