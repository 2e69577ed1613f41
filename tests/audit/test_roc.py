"""ROC curves against scikit-learn and plain loops, and how often the area's interval is right."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from eris.audit.roc import auc_interval, auc_variance, roc, roc_curve
from eris.core.errors import InvalidSetting


@pytest.mark.parametrize("levels", [4, 1_000_000])
def test_curve_and_area_are_those_of_scikit_learn(levels: int) -> None:
    rng = np.random.default_rng(levels)
    scores = rng.integers(0, levels, 300).astype(np.float64)
    included = rng.random(300) < 0.4 + 0.3 * scores / levels
    curve = roc_curve(scores, included)
    others, members, _ = metrics.roc_curve(included, scores, drop_intermediate=False)
    assert curve.false_positive == pytest.approx(others)
    assert curve.true_positive == pytest.approx(members)
    assert roc(scores, included).auc == pytest.approx(metrics.roc_auc_score(included, scores))


def test_true_positives_at_few_false_ones_are_those_of_plain_loops() -> None:
    rng = np.random.default_rng(1)
    included = np.arange(2400) < 1400
    scores = np.round(rng.normal(size=2400) + 2 * included, 2)
    found = roc(scores, included)
    assert (found.members, found.others) == (1400, 1000)
    for allowed, share in ((10, found.tpr_at_1_percent), (1, found.tpr_at_01_percent)):
        best = 0
        for threshold in np.unique(scores):
            if np.count_nonzero(scores[~included] >= threshold) <= allowed:
                best = max(best, int(np.count_nonzero(scores[included] >= threshold)))
        assert share == best / 1400 > 0


@pytest.mark.parametrize(("others", "known"), [(99, 0), (100, 1), (999, 1), (1000, 2)])
def test_a_rate_finer_than_the_others_is_not_claimed(others: int, known: int) -> None:
    included = np.arange(50 + others) < 50
    found = roc(included.astype(np.float64), included)
    shares = [found.tpr_at_1_percent, found.tpr_at_01_percent]
    assert shares == [1.0] * known + [None] * (2 - known)


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.0])
def test_the_interval_covers_the_true_area(shift: float) -> None:
    """The area of normal scores a shift apart is Φ(shift/√2)."""
    true = float(stats.norm.cdf(shift / np.sqrt(2)))
    rng = np.random.default_rng(int(shift))
    covered = 0
    for _ in range(600):
        included = np.arange(150) < 70
        found = roc(rng.normal(size=150) + shift * included, included)
        assert found.low < found.auc < found.high
        covered += found.low <= true <= found.high
    assert 0.92 * 600 <= covered < 600


def test_perfect_and_inverted_scores_keep_a_margin() -> None:
    included = np.arange(60) < 20
    perfect = roc(included.astype(np.float64), included)
    inverted = roc(-included.astype(np.float64), included)
    assert (perfect.auc, perfect.high) == (1.0, 1.0)
    assert 0.7 < perfect.low < 0.97
    assert (inverted.auc, inverted.low) == (0.0, 0.0)
    assert 0.03 < inverted.high < 0.3
    same = roc(np.zeros(60), included)
    assert same.auc == 0.5
    assert same.low < 0.5 < same.high


def test_the_variance_is_exact_for_exponential_scores() -> None:
    """Hanley and McNeil's model; few members and many others tell its two terms apart."""
    rng = np.random.default_rng(6)
    area, members, others = 0.8, 4, 60
    found = rng.exponential(area / (1 - area), (5000, members, 1))
    areas = (found > rng.exponential(1.0, (5000, 1, others))).mean(axis=(1, 2))
    assert areas.mean() == pytest.approx(area, abs=0.01)
    assert areas.var() == pytest.approx(auc_variance(area, members, others), rel=0.07)


def test_swapping_members_and_others_mirrors_the_interval() -> None:
    low, high = auc_interval(0.8, 30, 90)
    mirrored = auc_interval(0.2, 90, 30)
    assert (1 - high, 1 - low) == pytest.approx(mirrored)
    wider = auc_interval(0.8, 30, 90, confidence=0.99)
    assert wider[0] < low < 0.8 < high < wider[1]


def test_the_summary_is_plain() -> None:
    found = roc(np.arange(10.0), np.arange(10) % 2 == 0)
    assert json.loads(json.dumps(asdict(found))) == asdict(found)


def test_what_has_no_curve_is_refused() -> None:
    for same in (np.ones(9, np.bool_), np.zeros(9, np.bool_)):
        with pytest.raises(InvalidSetting, match="of 9 in'; expected some in and some out"):
            roc(np.zeros(9), same)
    included = np.arange(9) < 4
    with pytest.raises(InvalidSetting, match=r"scores\[2\] is nan"):
        roc(np.where(np.arange(9) == 2, np.nan, 1.0), included)
    with pytest.raises(InvalidSetting, match="scores is"):
        roc_curve(np.zeros((2, 9)), included)
    with pytest.raises(InvalidSetting, match="each of 8 canaries"):
        roc(np.zeros(8), included)
    with pytest.raises(InvalidSetting, match="confidence is"):
        roc(np.zeros(9), included, confidence=0.0)
