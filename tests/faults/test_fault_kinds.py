"""Each kind of fault does what it says, and costs no more than that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eris.core.errors import InvalidSetting
from eris.core.shards import RandomPlan
from eris.protocol.client import Client
from eris.protocol.messages import CatchUp, Result, Snapshot
from eris.runtimes.faults import Fault, FaultPlan
from eris.testing import (
    ChosenFaults,
    Laws,
    SyntheticTraining,
    assert_same_bits,
    federate,
    initial_model,
    random_faults,
)
from support.faulty import ROUNDS, N, dense, included, run, versions


def test_without_faults_nothing_is_left_out() -> None:
    runtime, laws, training = run()
    laws.at_end(training.given)
    assert all(who == {0, 1, 2, 3} for who in included(laws).values())
    assert len(included(laws)) == 2 * ROUNDS
    assert not any(node.client.left_out or node.refused for node in runtime.nodes)
    assert not any(runtime.faults.struck.values())


def test_dropout_of_all_aggregators_moves_no_shard() -> None:
    faults = FaultPlan(seed=1, dropout=1)
    runtime, laws, _ = run(faults=faults)
    assert faults.struck[Fault.DROPOUT] == 2 * ROUNDS
    for node in runtime.nodes:
        assert_same_bits(node.model, initial_model(N, 1))
    assert set().union(*(v.values() for v in versions(runtime))) == {0}
    assert included(laws) == {}


def test_dropout_of_one_aggregator_stops_its_shard_alone() -> None:
    faults = ChosenFaults(absent={(1, 2), (1, 3)})
    runtime, laws, training = run(faults=faults, rounds=3)
    for node in runtime.nodes:
        assert node.replica.versions == {(0, 0): 3, (1, 0): 1}
    runtime.run_round(training)
    assert versions(runtime)[3] == {(0, 0): 4, (1, 0): 4}
    laws.at_end(training.given)
    assert (2, (1, 0)) not in included(laws)


@pytest.mark.parametrize("rotate", [1, 2, 3])
def test_an_aggregator_away_for_whole_turns_does_not_stop_the_rest_for_good(rotate: int) -> None:
    # Shards drawn anew need the old ones settled: the owner settles every turn it was away in.
    agreed = dense(plan=RandomPlan(2, rotate=rotate))
    faults = ChosenFaults(absent={(0, round) for round in range(2, 9)})
    runtime, laws, training = run(agreed, faults, rounds=10)
    assert all(node.replica.settled(10) for node in runtime.nodes)
    laws.at_end(training.given)
    assert included(laws)[10, (0, 0)] == {0, 1, 2, 3}


def test_lost_messages_are_caught_up_with() -> None:
    faults = FaultPlan(seed=5, drop=0.3)
    runtime, laws, training = run(faults=faults, rounds=8)
    assert faults.struck[Fault.DROP] > 20
    assert runtime.transcript is not None
    messages = [(record, record.message) for record in runtime.transcript.records]
    assert any(isinstance(message, CatchUp) for _, message in messages)
    passed_on = [
        record
        for record, message in messages
        if isinstance(message, Result) and record.sender != message.header.sender
    ]
    assert passed_on, "no peer ever passed a result on"
    assert all(node.replica.settled(8) for node in runtime.nodes), "repaired within the round"
    assert any(node.client.left_out for node in runtime.nodes)
    laws.at_end(training.given)


def test_without_catching_up_lost_results_stay_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "tick", lambda self, now: [])
    runtime, _, _ = run(faults=FaultPlan(seed=5, drop=0.3), rounds=8)
    assert not all(node.replica.settled(8) for node in runtime.nodes)


def test_duplicates_are_counted_once() -> None:
    faults = FaultPlan(seed=2, duplicate=1)
    runtime, laws, training = run(faults=faults)
    clean, _, _ = run()
    assert faults.struck[Fault.DUPLICATE] > 50
    for node in runtime.nodes:
        assert_same_bits(node.model, clean.nodes[0].model)
    laws.at_end(training.given)


def test_delays_within_the_round_change_nothing() -> None:
    faults = FaultPlan(seed=2, delay=1, longest_delay=9.5)
    runtime, laws, training = run(faults=faults)
    clean, _, _ = run()
    assert faults.struck[Fault.DELAY] > 50
    for node in runtime.nodes:
        assert_same_bits(node.model, clean.nodes[0].model)
    laws.at_end(training.given)


def test_what_comes_after_its_segment_closed_is_dropped() -> None:
    faults = FaultPlan(seed=2, delay=0.4, longest_delay=60)
    runtime, laws, training = run(faults=faults, heal=True)
    assert faults.struck[Fault.DELAY] > 20
    missing = {
        (client, name) for name, who in included(laws).items() for client in {0, 1, 2, 3} - who
    }
    assert missing
    told = {(node.me, name) for node in runtime.nodes for name in node.client.left_out}
    assert missing == told, "everyone learns what of theirs was not included, and nothing else"
    laws.at_end(training.given)


def test_a_crashed_client_is_missing_until_it_is_back() -> None:
    faults = ChosenFaults(crashes={(3, 2): (0.0, 60.0)})
    runtime, laws, training = run(faults=faults, rounds=3)
    assert runtime.down == {3}
    who = included(laws)
    # What it sent before it stopped still counts; after that it sends nothing.
    assert who[1, (0, 0)] == who[2, (1, 0)] == {0, 1, 2, 3}
    assert who[3, (0, 0)] == who[3, (1, 0)] == {0, 1, 2}
    assert versions(runtime)[3] == {(0, 0): 1, (1, 0): 1}
    runtime.heal()
    runtime.run_round(training)
    runtime.run_round(training)
    assert included(laws)[5, (0, 0)] == {0, 1, 2, 3}
    laws.at_end(training.given)


def test_a_crashed_owner_publishes_nothing_of_what_it_had_collected() -> None:
    faults = ChosenFaults(crashes={(0, 2): (0.05, 5.0)})
    _, laws, training = run(faults=faults, rounds=3)
    results = {(r.header.round, r.header.key): r for r in laws.check_messages()}
    assert results[2, (0, 0)].payload is None, "on its return it withholds the round it crashed in"
    assert results[2, (1, 0)].payload is not None
    assert results[3, (0, 0)].included == {0, 1, 2, 3}
    laws.at_end(training.given)


@pytest.mark.parametrize("outage", [0.02, 5.0])  # back in the same round, in the next one
def test_a_crash_after_the_result_does_not_make_a_second_one(outage: float) -> None:
    faults = ChosenFaults(crashes={(0, 2): (0.15, outage)})
    _, laws, training = run(faults=faults, rounds=3)
    assert included(laws)[2, (0, 0)] == {0, 1, 2, 3}
    laws.at_end(training.given)


def test_random_crashes_strike_and_are_survived() -> None:
    faults = FaultPlan(seed=3, crash=1, longest_outage=20)
    _, laws, training = run(faults=faults, rounds=6, heal=True)
    assert faults.struck[Fault.CRASH] >= 4
    laws.at_end(training.given)


def test_time_goes_on_when_everyone_is_down() -> None:
    faults = ChosenFaults(crashes={(member, 1): (0.0, 2.0 + member) for member in range(4)})
    runtime, laws, training = run(faults=faults, rounds=2)
    assert runtime.now > 2
    assert runtime.down == set()
    runtime.run_round(training)
    assert included(laws)[3, (0, 0)] == {0, 1, 2, 3}


def test_a_healed_federation_has_no_crash_left_over() -> None:
    # The crash was to come after the round had ended; heal() ends what has not struck yet, too.
    faults = ChosenFaults(crashes={(2, 1): (0.9, 1000.0)})
    runtime, laws, training = run(faults=faults, rounds=1)
    runtime.heal()
    for _ in range(10):
        runtime.run_round(training)
    assert runtime.down == set()
    assert runtime.now > 0.9
    laws.at_end(training.given)


def test_a_broken_link_costs_one_contribution_to_one_shard() -> None:
    faults = ChosenFaults(lost_links=lambda sender, receiver, round: {sender, receiver} == {0, 3})
    runtime, laws, training = run(faults=faults, rounds=2)
    assert included(laws)[1, (0, 0)] == {0, 1, 2}
    assert included(laws)[1, (1, 0)] == {0, 1, 2, 3}
    # Client 3 gets the result of shard 0 from a peer all the same.
    assert all(node.replica.settled(2) for node in runtime.nodes)
    assert list(runtime.nodes[3].client.left_out) == [(1, (0, 0)), (2, (0, 0))]
    laws.at_end(training.given)


def test_no_link_at_all_withholds_everything() -> None:
    faults = FaultPlan(seed=1, link=1)
    runtime, laws, _ = run(faults=faults)
    assert faults.struck[Fault.LINK] > 0
    assert all(who == set() for who in included(laws).values())
    for node in runtime.nodes:
        assert_same_bits(node.model, initial_model(N, 1))


def test_owners_without_data_catch_up_too() -> None:
    training = SyntheticTraining(N, 1)
    # In round 1 the two servers do not hear each other.
    faults = ChosenFaults(lost_links=lambda s, r, round: round == 1 and {s, r} == {4, 5})
    agreed = dense(plan=RandomPlan(2, rotate=1))
    runtime = federate(agreed, training, clients=4, servers=2, faults=faults, record=True)
    laws = Laws(runtime)
    for _ in range(3):
        runtime.run_round(training)
        laws.after_round()
        assert all(node.replica.settled(runtime.round) for node in runtime.nodes)
    laws.at_end(training.given)


def test_a_plan_replays_exactly() -> None:
    runs = [run(faults=random_faults(11), rounds=6)[0] for _ in range(2)]
    one, other = (runtime.transcript for runtime in runs)
    assert one is not None
    assert other is not None
    assert one.records == other.records
    assert runs[0].faults.struck == runs[1].faults.struck


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


def test_a_snapshot_is_used_only_where_results_are_gone() -> None:
    def deaf(sender: int, receiver: int, round: int) -> bool:
        return receiver == 3 and round < 5

    for history, snapshots in ((1, True), (64, False)):
        runtime, laws, training = run(
            dense(history=history), ChosenFaults(lost_links=deaf), rounds=7
        )
        assert runtime.transcript is not None
        found = [r for r in runtime.transcript.records if isinstance(r.message, Snapshot)]
        assert bool(found) is snapshots
        assert all(node.replica.settled(7) for node in runtime.nodes)
        laws.at_end(training.given)


def test_numbers_stay_finite() -> None:
    runtime, _, _ = run(faults=random_faults(3), rounds=8)
    assert all(np.isfinite(node.model).all() for node in runtime.nodes)
