"""Statistical assertions at a level at which a sound program never fails, on whatever processor.

What torch computes differs in its last bits between processors, and with it which side of a 95 %
interval a single draw lands on. A test without a signal therefore asks at :data:`LEVEL`, and its
sample is large enough that a signal is still found there.
"""

from __future__ import annotations

import math

from numpy.typing import ArrayLike

from eris.audit.roc import roc
from eris.audit.statistics import pooled

LEVEL = 1e-4
CONFIDENCE = 1 - LEVEL


def tells(scores: ArrayLike, included: ArrayLike) -> bool:
    """Whether scores tell members from others, by the area under the curve or by the thirds."""
    area = roc(scores, included, CONFIDENCE)
    guessed = pooled(scores, included, CONFIDENCE)
    return not (area.low < 0.5 < area.high and guessed.low < 0.5 < guessed.high)


def hoeffding(draws: int) -> float:
    """How far a mean of independent draws from [0, 1] strays from its expectation, at most."""
    return math.sqrt(math.log(2 / LEVEL) / (2 * draws))
