"""How well scores tell members from non-members at every threshold: ROC, its area, its left end."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eris.audit.statistics import checked_scores, checked_truth
from eris.core.errors import library, require

special = library("scipy.special", "scipy", "audit")
optimize = library("scipy.optimize", "scipy", "audit")


@dataclass(frozen=True)
class Roc:
    """The area under the ROC curve with its interval, and the true positives at few false ones.

    ``low`` and ``high`` come from Hanley and McNeil's variance (1982), solved for the true area as
    Newcombe (2006, part 2) advises: at no signal that is the Mann–Whitney test, and a perfect
    score does not shrink the interval to a point.

    ``tpr_at_1_percent`` and ``tpr_at_01_percent`` are the largest share of members found with at
    most that share of non-members accused. They are None with fewer than 100 and 1,000
    non-members: a curve has no points between 0 and 1/others.
    """

    auc: float
    low: float
    high: float
    confidence: float
    tpr_at_1_percent: float | None
    tpr_at_01_percent: float | None
    members: int
    others: int


@dataclass(frozen=True)
class RocCurve:
    """The curve's corners from (0, 0) to (1, 1), one for each distinct score."""

    false_positive: NDArray[np.float64]
    true_positive: NDArray[np.float64]

    def true_positive_at(self, false_positive: float) -> float:
        """The largest share of members found without accusing more of the others than given."""
        # Shares are fractions of two counts; the margin is against their rounding alone.
        allowed = self.false_positive <= false_positive * (1 + 1e-9)
        return float(self.true_positive[allowed].max())


def roc_curve(scores: ArrayLike, included: ArrayLike) -> RocCurve:
    """The corners of the ROC curve; equal scores are one corner.

    >>> curve = roc_curve([0.9, 0.8, 0.8, 0.1], [True, True, False, False])
    >>> curve.false_positive.tolist(), curve.true_positive.tolist()
    ([0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0])
    """
    accused, found = _corners(scores, included)
    return RocCurve(accused / accused[-1], found / found[-1])


def roc(scores: ArrayLike, included: ArrayLike, confidence: float = 0.95) -> Roc:
    """The area (equal scores count half) with its interval, and the curve's left end.

    >>> found = roc([0.9, 0.8, 0.7, 0.1], [True, True, False, False])
    >>> found.auc, found.low < 1, found.tpr_at_1_percent
    (1.0, True, None)
    """
    require(0 < confidence < 1, "confidence", confidence, "a number in (0, 1)")
    accused, found = _corners(scores, included)
    others, members = int(accused[-1]), int(found[-1])
    curve = RocCurve(accused / others, found / members)
    # Whole numbers up to the one division, so that a perfect score is exactly 1.
    twice_area = int(np.sum(np.diff(accused) * (found[1:] + found[:-1])))
    auc = twice_area / (2 * members * others)
    low, high = auc_interval(auc, members, others, confidence)
    return Roc(
        auc=auc,
        low=low,
        high=high,
        confidence=confidence,
        tpr_at_1_percent=curve.true_positive_at(0.01) if others >= 100 else None,
        tpr_at_01_percent=curve.true_positive_at(0.001) if others >= 1000 else None,
        members=members,
        others=others,
    )


def auc_interval(
    auc: float, members: int, others: int, confidence: float = 0.95
) -> tuple[float, float]:
    """All areas θ with |auc − θ| ≤ z·√V(θ), V being Hanley and McNeil's variance.

    >>> low, high = auc_interval(0.5, members=200, others=200)
    >>> round(low, 3), round(high, 3)
    (0.444, 0.556)
    """
    # Swapping members and others mirrors the curve, and its upper end is then a lower one.
    low = _lower_end(auc, members, others, confidence)
    return low, 1 - _lower_end(1 - auc, others, members, confidence)


def _lower_end(auc: float, members: int, others: int, confidence: float) -> float:
    z = float(special.ndtri(0.5 + confidence / 2))

    def excess(area: float) -> float:
        return abs(auc - area) - z * math.sqrt(auc_variance(area, members, others))

    # Just below the measured area: at an area of 1 both terms vanish, which is not the end sought.
    return float(optimize.brentq(excess, 0.0, auc * (1 - 1e-12))) if auc > 0 else 0.0


def auc_variance(area: float, members: int, others: int) -> float:
    """Variance of the measured area if the true one is ``area`` (Hanley and McNeil 1982).

    At ½ it is the Mann–Whitney test's, (members + others + 1)/(12·members·others).

    >>> auc_variance(0.5, members=10, others=10) == 21 / 1200
    True
    """
    of_members = (members - 1) * (1 - area) / (2 - area)
    of_others = (others - 1) * area / (1 + area)
    return area * (1 - area) * (1 + of_members + of_others) / (members * others)


def _corners(scores: ArrayLike, included: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Others accused and members found, from none to all, as the threshold falls."""
    values = checked_scores(scores)
    require(values.ndim == 1, "scores", values.shape, "one score for each canary")
    truth = checked_truth(included, len(values))
    members = int(np.count_nonzero(truth))
    both = 0 < members < len(truth)
    require(both, "included", f"{members} of {len(truth)} in", "some in and some out")
    order = np.argsort(-values, kind="stable")
    ordered, hits = values[order], truth[order]
    last_of_equals = np.append(ordered[1:] != ordered[:-1], True)
    accused = np.cumsum(~hits)[last_of_equals]
    found = np.cumsum(hits)[last_of_equals]
    return np.append(0, accused), np.append(0, found)
