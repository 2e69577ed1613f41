"""Each kind of fault does what it says, and costs no more than that."""

from __future__ import annotations

from typing import Any

import pytest

from eris.core.errors import InvalidSetting
from eris.core.shards import RandomPlan
from eris.protocol.messages import CatchUp, Snapshot
from eris.runtimes.events import EventEngine
from eris.runtimes.faults import Fault, FaultPlan
from eris.testing import assert_same_bits, initial_model
from support.faulty import ROUNDS, N, Run, dense, run
from support.plans import ChosenFaults, random_faults

EVERYONE = {0, 1, 2, 3}


def up(here: Run) -> list[int]:
    """Who is up."""
    assert isinstance(here.engine, EventEngine)
    return [place.number for place in here.engine.live]


def heal(here: Run) -> None:
    """Nothing goes wrong from now on."""
    assert isinstance(here.engine, EventEngine)
    here.engine.faults = FaultPlan()


def test_without_faults_nothing_is_left_out() -> None:
    here = run()
    here.check()
    assert all(who == EVERYONE for who in here.included.values())
    assert len(here.included) == 2 * ROUNDS


# -- decided once a round -------------------------------------------------------------------------


@pytest.mark.parametrize("clock", [True, False])
def test_dropout_of_all_aggregators_moves_no_shard(clock: bool) -> None:
    faults = FaultPlan(seed=1, dropout=1)
    here = run(faults=faults, clock=clock)
    assert faults.struck[Fault.DROPOUT] == 2 * ROUNDS
    for replica in here.replicas:
        assert_same_bits(replica.model, initial_model(N, 1))
        assert set(replica.versions.values()) == {0}
    assert here.included == {}
    assert [report.included for report in here.reports] == [0] * ROUNDS


@pytest.mark.parametrize("clock", [True, False])
def test_dropout_of_one_aggregator_stops_its_shard_alone(clock: bool) -> None:
    here = run(faults=ChosenFaults(absent={(1, 2), (1, 3)}), rounds=3, clock=clock)
    for replica in here.replicas:
        assert replica.versions == {(0, 0): 3, (1, 0): 1}
    here.rounds(1).check()
    assert here.replicas[0].versions == {(0, 0): 4, (1, 0): 4}
    assert (2, (1, 0)) not in here.included


@pytest.mark.parametrize("rotate", [1, 2, 3])
def test_an_aggregator_away_for_whole_turns_does_not_stop_the_rest_for_good(rotate: int) -> None:
    # Shards drawn anew need the old ones settled: the owner settles every turn it was away in.
    faults = ChosenFaults(absent={(0, round) for round in range(2, 9)})
    here = run(dense(plan=RandomPlan(2, rotate=rotate)), faults, rounds=10, clock=False)
    assert here.replicas[0].settled(10)
    here.check()
    assert here.included[10, (0, 0)] == EVERYONE


class Away(ChosenFaults):
    """Member 1 is away in round 2, and nobody else ever."""

    def churned(self, member: int, round: int) -> bool:
        return (member, round) == (1, 2)


@pytest.mark.parametrize("clock", [True, False])
def test_a_member_that_is_away_neither_trains_nor_aggregates_and_is_back_in_time(
    clock: bool,
) -> None:
    here = run(faults=Away(), rounds=3, clock=clock)
    assert [set(report.clients) for report in here.reports] == [EVERYONE, EVERYONE - {1}, EVERYONE]
    assert here.included[2, (0, 0)] == EVERYONE - {1}
    assert (2, (1, 0)) not in here.included, "its own shard keeps its value"
    assert here.included[3, (0, 0)] == here.included[3, (1, 0)] == EVERYONE
    assert here.results[3, (1, 0)].previous == 1
    (asked,) = {r.sender for r in here.reports[2].records if isinstance(r.message, CatchUp)}
    assert asked == 1
    here.check()


def test_a_broken_link_costs_one_contribution_to_one_shard() -> None:
    faults = ChosenFaults(lost_links=lambda sender, receiver, round: {sender, receiver} == {0, 3})
    here = run(faults=faults, rounds=2)
    assert here.included[1, (0, 0)] == EVERYONE - {3}
    assert here.included[1, (1, 0)] == EVERYONE
    # Client 3 gets the state of shard 0 from others all the same.
    assert all(replica.settled(2) for replica in here.replicas)
    here.check()


@pytest.mark.parametrize("clock", [True, False])
def test_no_link_at_all_moves_nothing(clock: bool) -> None:
    faults = FaultPlan(seed=1, link=1)
    here = run(faults=faults, rounds=3, clock=clock)
    assert faults.struck[Fault.LINK] > 0
    assert all(who == set() for who in here.included.values())
    for replica in here.replicas:
        assert_same_bits(replica.model, initial_model(N, 1))


# -- in the middle of a round ---------------------------------------------------------------------


def test_lost_messages_are_caught_up_with() -> None:
    faults = FaultPlan(seed=5, drop=0.3)
    here = run(faults=faults, rounds=8)
    assert faults.struck[Fault.DROP] > 20
    kinds = {type(record.message) for record in here.records}
    assert {CatchUp, Snapshot} <= kinds
    heal(here)
    here.rounds(1)
    assert all(replica.settled(9) for replica in here.replicas)
    here.check()


@pytest.mark.parametrize(
    "faults",
    [FaultPlan(seed=2, duplicate=1), FaultPlan(seed=2, delay=1, longest_delay=4.5)],
    ids=["twice", "late"],
)
def test_what_comes_twice_or_late_in_a_round_changes_nothing(faults: FaultPlan) -> None:
    here, clean = run(faults=faults), run()
    assert sum(faults.struck.values()) > 50
    for replica in here.replicas:
        assert_same_bits(replica.model, clean.replicas[0].model)
    here.check()


def test_what_comes_after_its_segment_closed_is_dropped_and_its_client_knows() -> None:
    faults = FaultPlan(seed=2, delay=0.4, longest_delay=60)
    here = run(faults=faults)
    assert faults.struck[Fault.DELAY] > 20
    heal(here)
    here.rounds(2).check()
    missing = {(who, name) for name, there in here.included.items() for who in EVERYONE - there}
    assert missing
    assert isinstance(here.engine, EventEngine)
    clients = [place.member.node.client for place in here.engine.live if place.member]
    told = {(one.me, name) for one in clients for name in (*one.left_out, *one.unanswered)}
    assert missing <= told


def test_a_crashed_client_is_missing_until_it_is_back() -> None:
    here = run(faults=ChosenFaults(crashes={(3, 2): (0.0, 60.0)}), rounds=3)
    assert up(here) == [0, 1, 2]
    assert [3 in report.clients for report in here.reports] == [True, False, False]
    assert here.included[3, (0, 0)] == here.included[3, (1, 0)] == EVERYONE - {3}
    while up(here) != [0, 1, 2, 3]:
        here.rounds(1)
    here.rounds(2)
    last = len(here.reports)
    assert here.included[last, (0, 0)] == EVERYONE
    here.check()


def test_a_crashed_owner_publishes_nothing_of_what_it_had_collected() -> None:
    # It stops when some contributions are in, and is back before the others have given up.
    here = run(faults=ChosenFaults(crashes={(0, 2): (0.15, 5.0)}), rounds=4)
    assert (2, (0, 0)) not in here.results or here.results[2, (0, 0)].payload is not None
    assert here.results[2, (1, 0)].payload is not None
    assert here.included[4, (0, 0)] == EVERYONE
    here.check()


@pytest.mark.parametrize("after", [0.05, 0.15, 0.25])
@pytest.mark.parametrize("outage", [0.02, 5.0])  # back in the same round, in a later one
def test_a_crash_does_not_make_a_second_result(after: float, outage: float) -> None:
    here = run(faults=ChosenFaults(crashes={(0, 2): (after, outage)}), rounds=4)
    here.check()  # of one segment and round there is one result


def test_random_crashes_strike_and_are_survived() -> None:
    faults = FaultPlan(seed=3, crash=0.6, longest_outage=20)
    here = run(faults=faults, rounds=6)
    assert faults.struck[Fault.CRASH] >= 4
    heal(here)
    here.rounds(6)
    assert up(here) == [0, 1, 2, 3]
    assert here.reports[-1].included == 1
    assert len({replica.model.tobytes() for replica in here.replicas}) == 1


def test_time_goes_on_when_everyone_is_down() -> None:
    faults = ChosenFaults(crashes={(member, 1): (0.0, 2.0 + member) for member in range(4)})
    here = run(faults=faults, rounds=2)
    assert isinstance(here.engine, EventEngine)
    assert here.engine.now > 2
    assert up(here) == [0, 1, 2, 3]
    assert here.rounds(1).included[3, (0, 0)] == EVERYONE


def test_a_plan_replays_exactly() -> None:
    plans = [random_faults(11) for _ in range(2)]
    one, other = (run(faults=plan, rounds=6) for plan in plans)
    assert one.records == other.records
    assert plans[0].struck == plans[1].struck


# -- plans that are none --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["drop", "duplicate", "delay", "link", "dropout", "crash"])
@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_rates_that_are_none_are_refused(name: str, rate: float) -> None:
    bad: dict[str, Any] = {name: rate}
    with pytest.raises(InvalidSetting, match=f"{name} is {rate}; expected a rate from 0 to 1"):
        FaultPlan(**bad)


@pytest.mark.parametrize("name", ["latency", "longest_delay", "longest_outage"])
@pytest.mark.parametrize("time", [-0.1, float("inf"), float("nan")])
def test_times_that_are_none_are_refused(name: str, time: float) -> None:
    bad: dict[str, Any] = {name: time}
    with pytest.raises(InvalidSetting, match=f"{name} is {time}; expected a time, 0 or more"):
        FaultPlan(**bad)
