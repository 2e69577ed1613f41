"""Faults that are decided once a round: how often they strike, and that they repeat."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting
from eris.runtimes.faults import PER_MESSAGE, PER_ROUND, Fault, FaultPlan

MEMBERS, ROUNDS = range(30), range(1, 401)


def near(draws: Sequence[bool] | NDArray[np.bool_], rate: float) -> bool:
    """Within five standard deviations of the mean of so many draws."""
    return abs(float(np.mean(draws)) - rate) < 5 * math.sqrt(rate * (1 - rate) / len(draws))


KINDS: dict[str, tuple[Fault, Callable[[FaultPlan, int, int], bool]]] = {
    "link": (Fault.LINK, lambda plan, member, round: plan.cut(member, member + 1, round)),
    "dropout": (Fault.DROPOUT, lambda plan, member, round: plan.away(member, round)),
    "churn": (Fault.CHURN, lambda plan, member, round: plan.churned(member, round)),
    "straggle": (Fault.STRAGGLE, lambda plan, member, round: plan.straggles(member, round)),
}


@pytest.mark.parametrize("kind", PER_ROUND)
def test_a_fault_strikes_at_its_rate_and_is_counted(kind: str) -> None:
    fault, strikes = KINDS[kind]
    plan = FaultPlan(seed=1, **{kind: 0.2})
    draws = [strikes(plan, member, round) for member in MEMBERS for round in ROUNDS]
    assert near(draws, 0.2)
    assert plan.struck == {fault: sum(draws)}
    assert plan.any
    assert not plan.in_mid_round
    # Members and rounds by themselves, too: none is luckier than chance allows.
    table = np.array(draws).reshape(len(MEMBERS), len(ROUNDS))
    assert all(near(row, 0.2) for row in table)
    assert all(near(column, 0.2) for column in table.T)
    # Round after round, a member's luck does not last.
    after = table[:, 1:][table[:, :-1]]
    assert near(after, 0.2)


@pytest.mark.parametrize("kind", PER_ROUND)
def test_never_and_always(kind: str) -> None:
    _, strikes = KINDS[kind]
    never, always = FaultPlan(seed=1), FaultPlan(seed=1, **{kind: 1.0})
    for member in MEMBERS:
        assert not strikes(never, member, 1)
        assert strikes(always, member, 1)
    assert not never.any
    assert not +never.struck


def test_who_was_away_is_likelier_to_be_away_again_by_the_correlation() -> None:
    """Shatter, appendix E: 10 % likelier; with it, a member is away 0.5/(1 − 0.05) of the time."""
    plan = FaultPlan(seed=2, churn=0.5, correlation=0.1)
    table = np.array([[plan.churned(member, round) for round in ROUNDS] for member in range(60)])
    before, now = table[:, :-1], table[:, 1:]
    assert near(now[before], 0.55)
    assert near(now[~before], 0.5)
    assert not near(now[before], 0.5)
    assert abs(table.mean() - 0.5 / 0.95) < 0.015


def test_a_correlation_never_makes_a_chance_above_one() -> None:
    plan = FaultPlan(seed=3, churn=0.8, correlation=3.0)
    away = [plan.churned(0, round) for round in ROUNDS]
    first = away.index(True)
    assert all(away[first:])  # once away, for good


def test_churn_is_a_function_of_member_and_round_however_it_is_asked() -> None:
    settings = {"seed": 4, "churn": 0.3, "correlation": 0.5}
    forwards, backwards = FaultPlan(**settings), FaultPlan(**settings)  # type: ignore[arg-type]
    asked = [(member, round) for member in range(5) for round in range(1, 40)]
    found = {who: forwards.churned(*who) for who in asked}
    assert {who: backwards.churned(*who) for who in reversed(asked)} == found
    assert len({tuple(found[m, r] for r in range(1, 40)) for m in range(5)}) == 5


def test_a_link_is_down_in_both_directions() -> None:
    plan = FaultPlan(seed=5, link=0.5)
    ways = [(plan.cut(3, 8, round), plan.cut(8, 3, round)) for round in ROUNDS]
    assert all(there == back for there, back in ways)


def test_kinds_of_fault_strike_independently() -> None:
    plan = FaultPlan(seed=6, dropout=0.5, churn=0.5, straggle=0.5)
    draws = {
        kind: np.array([KINDS[kind][1](plan, member, round) for member in MEMBERS
                        for round in range(1, 101)])
        for kind in ("dropout", "churn", "straggle")
    }  # fmt: skip
    for one, other in (("dropout", "churn"), ("churn", "straggle"), ("straggle", "dropout")):
        assert near(draws[one][draws[other]], 0.5)


@pytest.mark.parametrize("name", [*PER_MESSAGE, *PER_ROUND])
@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_rates_that_are_none_are_refused(name: str, rate: float) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} is .*; expected a rate from 0 to 1"):
        FaultPlan(**{name: rate})  # type: ignore[arg-type]


def test_which_faults_need_the_virtual_clock() -> None:
    for name in (*PER_MESSAGE, *PER_ROUND):
        plan = FaultPlan(**{name: 0.5})  # type: ignore[arg-type]
        assert plan.any
        assert plan.in_mid_round == (name in PER_MESSAGE)
    with pytest.raises(InvalidSetting, match="correlation is -1"):
        FaultPlan(correlation=-1)
