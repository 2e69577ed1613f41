"""The benchmark of the planner: what it asks, and how it puts two times beside each other."""

from __future__ import annotations

from io import StringIO

import pytest
from benchmarks.planner import COMPRESSED_TO, RATES, Compared, questions, table
from rich.console import Console

from eris.core.errors import InvalidSetting
from eris.planning.plan import planned
from support.hosts import Hosts, LinkShape


def test_three_plans_of_different_kinds_are_asked_for() -> None:
    plans = {name: planned(one) for name, one in questions(1_000_000, RATES).items()}
    assert [plans[name].secure is None for name in ("plain", "compressed", "secure")] == [
        True,
        True,
        False,
    ]
    assert plans["plain"].kept == plans["secure"].kept == 1 > plans["compressed"].kept
    assert plans["compressed"].seconds <= COMPRESSED_TO * plans["plain"].seconds
    # The slowest links own nothing, and so the mix of rates matters.
    assert 0 not in plans["plain"].division.owners


def test_the_middle_round_after_the_first_counts() -> None:
    plan = planned(questions(1_000_000, RATES)["plain"])
    found = Compared(plan, (90.0, 4.0, 6.0, 5.0))
    assert found.measured == 5.0
    assert found.ratio == pytest.approx(plan.seconds / 5)
    out = StringIO()
    Console(file=out, width=120).print(table({"plain": found}, RATES))
    assert "5.00" in out.getvalue()
    assert "40%" in out.getvalue()


def test_hosts_have_one_shape_or_one_each() -> None:
    assert len(set(Hosts(3, LinkShape()).shapes)) == 1
    shapes = [LinkShape(rate_mbit=rate) for rate in (1, 2, 3)]
    assert Hosts(3, shapes).shapes == tuple(shapes)
    with pytest.raises(InvalidSetting, match="shape is '3 shapes'; expected one, or 2"):
        Hosts(2, shapes)
