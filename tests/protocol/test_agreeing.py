"""What the members of a federation agree on, and what they cannot agree on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eris.core.combine import FixedPoint
from eris.core.compress import QSGD, RandK, RandP, UniformQuantiser
from eris.core.errors import InvalidSetting
from eris.core.rules import CoordinateMedian, FedAdam, FedAvg, FedAvgM, TrimmedMean
from eris.core.shards import ContiguousPlan, RandomPlan, WeightedPlan
from eris.protocol.agreement import Agreement
from eris.protocol.messages import Header, Refusal
from eris.protocol.round.roles import Node
from eris.protocol.schemes import Independent, Masked, Quantised
from eris.protocol.settings import Settings
from eris.protocol.view import View
from support.machines import N, begin, federation, only_answer, to_owner, untouched


def agreed(**changes: Any) -> Settings:
    chosen: dict[str, Any] = {"n": 100, "plan": RandomPlan(4)}
    return Settings(**(chosen | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 0}, "n is 0; expected at least 1 coordinate"),
        ({"n": -5}, "n is -5; expected at least 1 coordinate"),
        ({"plan": RandomPlan(101)}, "shards is 101; expected 1 to n = 100"),
        ({"plan": RandomPlan(0)}, "shards is 0; expected 1 to n = 100"),
        ({"plan": ContiguousPlan(2, rotate=-1)}, "rotate is -1; expected 0"),
        ({"plan": WeightedPlan((1, 0))}, r"weights\[1\] is 0; expected a positive finite number"),
        ({"plan": WeightedPlan((1, 1e9))}, r"weights\[0\] is 1; expected a share of at least"),
        ({"non_finite": "ignore"}, "non_finite is 'ignore'; expected one of refuse, clip, zero"),
        ({"min_included": 0}, "min_included is 0; expected at least 1"),
        ({"quorum": 0}, "quorum is 0; expected at least 1"),
        ({"history": 0}, "history is 0; expected at least 1"),
        ({"segment_size": 0}, "segment_size is 0; expected at least 1 coordinate"),
        ({"close_after": 0.0}, "close_after is 0.0; expected above 0 and below catch_up_after"),
        ({"close_after": 15.0}, "close_after is 15.0; expected above 0 and below .* = 15.0"),
        ({"close_after": math.nan}, "close_after is nan; expected above 0 and below"),
        ({"catch_up_after": math.inf}, "catch_up_after is inf; expected a finite number"),
        ({"catch_up_after": math.nan}, "catch_up_after is nan; expected a finite number"),
        ({"retry_every": 0.0}, "retry_every is 0.0; expected a positive number of seconds"),
        ({"retry_every": math.nan}, "retry_every is nan; expected a positive number of seconds"),
        ({"seed": -1}, r"seed is -1; expected an integer from 0 to 2\*\*64 - 1"),
        (
            {"scheme": Masked(RandP(0.1)), "rule": CoordinateMedian()},
            "rule is 'coordinate-median'; expected a mean: order statistics of compressed values",
        ),
        (
            {"scheme": Quantised(QSGD()), "rule": TrimmedMean()},
            "rule is 'trimmed-mean'; expected a mean: order statistics of compressed values",
        ),
        ({"scheme": Masked(RandK(101))}, "kept_count is 101; expected at most n = 100 coordinates"),
        (
            {"plan": RandomPlan(4, rotate=2), "rule": FedAdam(bias_correction=True)},
            "plan.rotate is 2; expected 0 with bias correction",
        ),
    ],
)
def test_settings_that_cannot_be_name_field_value_and_range(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidSetting, match=message):
        agreed(**changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandP(0.0), r"kept_fraction is 0.0; expected a number in \(0, 1\]"),
        (lambda: RandP(1.5), r"kept_fraction is 1.5; expected a number in \(0, 1\]"),
        (lambda: RandP(math.nan), r"kept_fraction is nan; expected a number in \(0, 1\]"),
        (lambda: RandK(0), "kept_count is 0; expected at least 1 coordinate"),
        (lambda: QSGD(0), "levels is 0; expected 1 to 32767 levels"),
        (lambda: UniformQuantiser(25), "bits is 25; expected 1 to 24 bits"),
        (lambda: RandP(-0.5), r"kept_fraction is -0.5; expected a number in \(0, 1\]"),
    ],
)
def test_compressors_that_cannot_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: View(("a", "b", "a"), (0,), (0,)), "members is 'a'; expected every member's name"),
        (lambda: View(("a", "b"), (0, 1), (2,)), "owners is 2; expected a member's number, 0 to 1"),
        (lambda: View(("a", "b"), (0, 1), (-2,)), "owners is -2; expected a member's number"),
        (lambda: View(("a", "b"), (0, 5), (0,)), "clients is 5; expected a member's number"),
        (lambda: View(("a", "b"), (0, 0), (0,)), r"clients is \(0, 0\); expected every client"),
        (lambda: View(("a",), (), (0,)), "view is .*; expected at least one client"),
        (lambda: View(("a", "b"), (0, 1), (0,), (1,)), r"samples is \(1,\); expected a positive"),
        (lambda: View(("a", "b"), (0, 1), (0,), (1, 0)), r"samples is \(1, 0\); expected a posit"),
        (lambda: View.serverless(["a"], aggregators=0), "aggregators is 0; expected 1 to 1"),
        (lambda: View.serverless(["a"], aggregators=2), "aggregators is 2; expected 1 to 1"),
        (lambda: View.central(["a", "server"]), "members is 'server'; expected every member's"),
    ],
)
def test_views_that_cannot_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        make()


def test_a_view_that_does_not_fit_the_settings() -> None:
    view = View.serverless(["a", "b", "c"], aggregators=3)
    with pytest.raises(InvalidSetting, match="owners is 3; expected one for each of 4 shards"):
        Agreement(agreed(), view)
    with pytest.raises(InvalidSetting, match="owners is 0; expected one for each of 4 shards"):
        Agreement(agreed(), View(("a", "b"), (0, 1), owners=()))
    paper = agreed(plan=RandomPlan(3), scheme=Independent(RandP(0.1)))
    with pytest.raises(InvalidSetting, match="samples is None; expected every client's number"):
        Agreement(paper, view)


def test_a_model_that_does_not_fit_the_settings() -> None:
    agreement = Agreement(Settings(n=N), View.serverless(["a", "b", "c"], aggregators=1))
    with pytest.raises(InvalidSetting, match=r"initial model is \(5,\); expected \(24,\)"):
        Node(agreement, 0, np.zeros(5, np.float32))


def test_every_setting_changes_the_fingerprint() -> None:
    base = agreed(scheme=Masked(RandP(0.1)))
    others = [
        agreed(scheme=Masked(RandP(0.2))),
        agreed(scheme=Masked(RandK(10))),
        agreed(),
        replace(base, n=101),
        replace(base, plan=RandomPlan(5)),
        replace(base, plan=ContiguousPlan(4)),
        replace(base, plan=RandomPlan(4, rotate=1)),
        replace(base, rule=FedAvg(0.5)),
        replace(base, rule=FedAvgM()),
        replace(base, scheme=Independent(RandP(0.1))),
        replace(base, scheme=Independent(RandP(0.1), estimate="unbiased")),
        replace(base, scheme=Masked(RandP(0.1), shift=False)),
        replace(base, scheme=Quantised(QSGD())),
        replace(base, precision=FixedPoint(32.0)),
        replace(base, non_finite="zero"),
        replace(base, segment_size=9),
        replace(base, min_included=4),
        replace(base, quorum=2),
        replace(base, close_after=9.0),
        replace(base, catch_up_after=16.0),
        replace(base, retry_every=3.0),
        replace(base, history=7),
        replace(base, seed=1),
        replace(base, name="other"),
    ]
    prints = {settings.fingerprint for settings in (base, *others)}
    assert len(prints) == 1 + len(others)
    assert agreed(scheme=Masked(RandP(0.1))).fingerprint == base.fingerprint
    assert 0 <= base.fingerprint < 2**64


def test_federations_with_other_settings_do_not_mix() -> None:
    one, other = federation(), federation(seed=5)
    begin(one, 1)
    begin(other, 1)
    assert other[0].receive(to_owner(one[2]), 2) == []
    assert "belongs to a federation with other settings" in other[0].refused[-1]


def test_a_header_names_what_it_is_about() -> None:
    agreement = federation()[0].agreement
    header = agreement.header(2, 7, (1, 0))
    assert header == Header(agreement.settings.fingerprint, 0, 2, 7, 1, 0)
    assert header.key == (1, 0)


def test_the_paper_mode_refuses_a_weight_that_was_not_agreed() -> None:
    nodes = federation(scheme=Independent(RandP(0.5)))
    begin(nodes, 1)
    message = to_owner(nodes[2])
    refusal = only_answer(nodes[0].receive(replace(message, samples=99), 2), Refusal, 2)
    assert "samples of client-2 is 99; expected 5, as agreed in the view" in refusal.reason
    assert untouched(nodes[0])
    assert nodes[0].receive(message, 2) == []
    assert not untouched(nodes[0])
