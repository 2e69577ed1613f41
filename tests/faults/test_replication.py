"""Whatever goes wrong, the replicas do not: two nodes at the same version of a segment hold the
same bits, there is one result per segment and round, and nobody is counted twice.

The campaign runs random fault plans through every mode of the protocol and checks its laws after
every round (:mod:`eris.testing.laws`). ``ERIS_FAULT_PLANS`` sets how many (500 unless it is given).
Then each kind of fault is shown to do what it says, and bugs put in on purpose are shown to be
caught.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from eris.core.compress import QSGD, Natural, RandK, RandP
from eris.core.errors import InvalidSetting
from eris.core.rules import CoordinateMedian, FedAdam, FedAvg, FedAvgM, FedYogi
from eris.core.shards import ContiguousPlan, InterleavedPlan, RandomPlan, ShardPlan
from eris.core.streams import Stream
from eris.protocol.aggregator import Aggregator
from eris.protocol.agreement import Key
from eris.protocol.client import Client
from eris.protocol.codec import encode
from eris.protocol.messages import CatchUp, Contribution, Outgoing, Result, Snapshot
from eris.protocol.replica import Replica
from eris.protocol.settings import Settings
from eris.runtimes.faults import Fault, FaultPlan
from eris.runtimes.local import LocalRuntime
from eris.testing import (
    ChosenFaults,
    LawBroken,
    Laws,
    SyntheticTraining,
    assert_same_bits,
    federate,
    initial_model,
    random_faults,
)

PLANS = int(os.environ.get("ERIS_FAULT_PLANS", "500"))


@dataclass(frozen=True)
class Mode:
    """One way of running the protocol."""

    name: str
    plan: Callable[[int], ShardPlan]
    servers: int = 0
    settings: dict[str, Any] = field(default_factory=dict)


MODES = [
    Mode("dense", RandomPlan),
    Mode("dense, shards turn every round", lambda a: InterleavedPlan(a, rotate=1),
         settings={"rule": FedAvgM(0.1)}),
    Mode("dense, shards turn every other round", lambda a: RandomPlan(a, rotate=2),
         settings={"rule": FedAdam(0.1)}),
    Mode("median", ContiguousPlan, settings={"rule": CoordinateMedian(0.1)}),
    Mode("shared rand-p", RandomPlan,
         settings={"compressor": RandP(0.3), "rule": FedAdam(0.1, bias_correction=True)}),
    Mode("shared rand-k, shards turn every round", lambda a: RandomPlan(a, rotate=1),
         settings={"compressor": RandK(12), "rule": FedYogi(0.1)}),
    Mode("short memory", RandomPlan,
         settings={"compressor": RandP(0.3), "rule": FedAvgM(0.1), "history": 1}),
    Mode("quantiser", RandomPlan, settings={"compressor": QSGD(8)}),
    Mode("quantiser, shards turn", lambda a: RandomPlan(a, rotate=2),
         settings={"compressor": Natural()}),
    Mode("paper", RandomPlan, settings={"compressor": RandP(0.3), "masks": "independent"}),
    Mode("paper, unbiased, shards turn", lambda a: RandomPlan(a, rotate=3),
         settings={"compressor": RandK(12), "masks": "independent", "estimate": "unbiased"}),
    Mode("two servers", RandomPlan, servers=2, settings={"compressor": RandP(0.3), "quorum": 4}),
    Mode("two servers, shards turn", lambda a: RandomPlan(a, rotate=1), servers=2),
]  # fmt: skip


@dataclass
class Campaign:
    """What a number of runs of one mode amounted to."""

    struck: Counter[Fault] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    published: int = 0
    withheld: int = 0
    partly: int = 0

    def run(self, mode: Mode, seed: int) -> None:
        """One random federation under one random fault plan."""
        draw = Stream(seed, "test-shape").words(0, 5).tolist()
        n, shards, rounds = 40 + draw[0] % 20, 1 + draw[2] % 4, draw[3]
        clients = max(3 + draw[1] % 4, mode.settings.get("quorum", 1))
        size = (None, 7, 13)[draw[4] % 3]
        agreed = Settings(
            n=n, plan=mode.plan(shards), segment_size=size, seed=seed, **mode.settings
        )
        training = SyntheticTraining(n, seed)
        faults = random_faults(seed)
        runtime = federate(
            agreed, training, clients=clients, servers=mode.servers, faults=faults, record=True
        )
        laws = Laws(runtime)
        for _ in range(4 + rounds % 3):
            runtime.run_round(training)
            laws.after_round()
        runtime.heal()
        for _ in range(2):
            runtime.run_round(training)
            laws.after_round()
        for node in runtime.nodes:
            assert node.replica.settled(runtime.round), f"node {node.me} has not caught up"
        laws.at_end(training.given)
        self._note(runtime, laws, faults)

    def _note(self, runtime: LocalRuntime, laws: Laws, faults: FaultPlan) -> None:
        assert runtime.transcript is not None
        clients = len(runtime.agreement.view.clients)
        for result in laws.check_messages():
            self.withheld += result.payload is None
            self.published += result.payload is not None
            self.partly += 0 < len(result.included) < clients
            if result.header.round == runtime.round:
                assert len(result.included) == clients, "after two clean rounds nobody is missing"
        self.struck += faults.struck
        self.kinds.update(type(r.message).__name__ for r in runtime.transcript.records)


@pytest.mark.parametrize("number", range(len(MODES)), ids=[mode.name for mode in MODES])
def test_replicas_agree_under_random_faults(number: int) -> None:
    mode, campaign = MODES[number], Campaign()
    runs = -(-(PLANS - number) // len(MODES))
    for seed in range(number, number + runs * len(MODES), len(MODES)):
        try:
            campaign.run(mode, seed)
        except AssertionError as error:
            raise AssertionError(f"{mode.name}, fault plan {seed}: {error}") from error
    # The campaign is worth something only if everything happened in it.
    for fault in Fault:
        assert campaign.struck[fault] > 0, f"{fault} never struck"
    assert campaign.partly > runs
    assert campaign.withheld > runs
    assert campaign.published > runs
    assert campaign.kinds["CatchUp"] > runs
    assert (campaign.kinds["Snapshot"] > 0) == (mode.name == "short memory")


# -- each fault does what it says -----------------------------------------------------------------

N, ROUNDS = 60, 5


def dense(**changes: Any) -> Settings:
    return replace(Settings(n=N, plan=RandomPlan(2), rule=FedAvg(0.1)), **changes)


def run(
    settings: Settings | None = None,
    faults: FaultPlan | None = None,
    *,
    clients: int = 4,
    rounds: int = ROUNDS,
    heal: bool = False,
) -> tuple[LocalRuntime, Laws, SyntheticTraining]:
    """A federation after some rounds, its states watched."""
    training = SyntheticTraining(N, 1)
    runtime = federate(settings or dense(), training, clients=clients, faults=faults, record=True)
    laws = Laws(runtime)
    for round in range(1, rounds + 1 + 2 * heal):
        if round == rounds + 1:
            runtime.heal()
        runtime.run_round(training)
        laws.after_round()
    return runtime, laws, training


def versions(runtime: LocalRuntime) -> list[dict[Key, int]]:
    return [node.replica.versions for node in runtime.nodes]


def included(laws: Laws) -> dict[tuple[int, Key], set[int]]:
    return {(r.header.round, r.header.key): set(r.included) for r in laws.check_messages()}


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
    assert runtime.nodes[3].client.left_out == [(1, (0, 0)), (2, (0, 0))]
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


# -- bugs put in on purpose are caught ------------------------------------------------------------


class Forgetful(set[int]):
    """A set that does not know what it holds."""

    def __contains__(self, member: object) -> bool:
        return False


def test_counting_a_duplicate_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Aggregator._begin_segment

    def begin_forgetful(self: Aggregator, key: Key) -> object:
        state = begin(self, key)
        state.heard = Forgetful()
        return state

    monkeypatch.setattr(Aggregator, "_begin_segment", begin_forgetful)
    _, laws, training = run(faults=FaultPlan(seed=2, duplicate=1, longest_delay=0.2))
    with pytest.raises(LawBroken, match="does not count every included client exactly once"):
        laws.check_messages()
    # And even if the owner lied about the weight, the values would tell.
    results = [replace(r, samples=18) for r in run()[1].check_messages()]
    honest = laws.run.transcript
    assert honest is not None
    twice = [
        r.message for r in honest.records if isinstance(r.message, Result) and r.message.payload
    ]
    laws.check_values(results[:1], training.given)
    with pytest.raises(LawBroken, match="off the mean of the included clients"):
        laws.check_values(sorted(set(twice), key=lambda r: r.header.round)[:2], training.given)


def test_a_second_result_after_a_restart_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: Aggregator, round: int, now: float) -> list[Result]:
        """Withhold the round, although its result may have left."""
        self._enter(round, now)
        results = []
        for key in self.keys:
            before = self.replica.result_of(key, round)
            results.append(self._withheld(key, round, before.previous if before else 0))
        return results

    monkeypatch.setattr(Aggregator, "abstain", forget)
    _, laws, _ = run(faults=ChosenFaults(crashes={(0, 2): (0.15, 0.02)}), rounds=3)
    with pytest.raises(LawBroken, match=r"round 2, segment \(0, 0\) has two results"):
        laws.check_messages()


def test_too_few_included_are_caught() -> None:
    # Nodes that agreed on one, watched by someone who expects three.
    cut = ChosenFaults(lost_links=lambda sender, receiver, round: sender in (2, 3))
    runtime, laws, _ = run(dense(min_included=1), cut)
    laws.check_messages()
    object.__setattr__(runtime.agreement.settings, "min_included", 3)
    with pytest.raises(LawBroken, match="includes 2 clients, fewer than 3"):
        laws.check_messages()


def test_a_contribution_to_an_old_reference_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = Aggregator.receive

    def receive_anyway(
        self: Aggregator, contribution: Contribution
    ) -> tuple[list[Result], list[Outgoing]]:
        version = self.replica.versions[contribution.header.key]
        return receive(self, replace(contribution, based_on=version))

    agreed = dense(compressor=RandP(0.5))

    # Client 3 hears of no result of shard 0 for a while and so compresses against an old state.
    def deaf(sender: int, receiver: int, round: int) -> bool:
        return receiver == 3 and round < 4

    _, laws, training = run(agreed, ChosenFaults(lost_links=deaf))
    laws.check_values(laws.check_messages(), training.given)
    monkeypatch.setattr(Aggregator, "receive", receive_anyway)
    _, laws, training = run(agreed, ChosenFaults(lost_links=deaf))
    with pytest.raises(LawBroken, match="off the mean of the included clients"):
        laws.check_values(laws.check_messages(), training.given)


def test_applying_results_out_of_order_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def any_that_waits(self: Replica, key: Key) -> Result | None:
        waiting = sorted(self._waiting[key].values(), key=lambda result: result.header.round)
        return waiting[0] if waiting else None

    monkeypatch.setattr(Replica, "_next", any_that_waits)
    # Node 3 is deaf in round 1, and nobody hears it in round 2 and could tell it what it missed.
    faults = ChosenFaults(lost_links=lambda s, r, round: (s if round == 2 else r) == 3)
    with pytest.raises(LawBroken, match=r"node 3, segment \(0, 0\): version 2 has two states"):
        run(faults=faults, rounds=2)


def test_including_someone_who_sent_nothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    close = Aggregator._close

    def close_with_all(self: Aggregator, key: Key) -> Result:
        result = close(self, key)
        return replace(result, included=frozenset({0, 1, 2, 3})) if result.payload else result

    monkeypatch.setattr(Aggregator, "_close", close_with_all)
    faults = ChosenFaults(crashes={(3, 1): (0.0, 500.0)})
    _, laws, _ = run(faults=faults, rounds=3)
    with pytest.raises(LawBroken, match=r"includes \[3\], who sent nothing"):
        laws.check_messages()


def test_two_results_at_the_turn_of_the_shards_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # If what is still open and what settles the old turn came of one call, both would be named
    # after the same predecessor.
    def both_at_once(self: Aggregator, round: int, now: float) -> list[Result]:
        finished = self._close_all() if self.round else []
        self._enter(round, now)
        return finished + self._settle_turns()

    laws = _open_at_the_turn()
    assert [sorted(result.included) for result in laws.check_messages()] == [[0, 1, 2]]
    monkeypatch.setattr(Aggregator, "finish", lambda self: [])
    monkeypatch.setattr(Aggregator, "begin", both_at_once)
    with pytest.raises(LawBroken, match=r"round 1, segment \(0, 0\) has two results"):
        _open_at_the_turn().check_messages()


def _open_at_the_turn() -> Laws:
    """Three of four have contributed when the owner enters the next round, with new shards."""
    training = SyntheticTraining(N, 1)
    runtime = federate(dense(plan=RandomPlan(1, rotate=1)), training, clients=4, record=True)
    laws, owner = Laws(runtime), runtime.nodes[0]
    assert runtime.transcript is not None
    for node in runtime.nodes[:3]:
        node.begin(1, 0.0)
        for out in node.contribute(*training(node.me, node.model, 1)):
            runtime.transcript.record(0.0, node.me, out.to, encode(out.message))
            owner.receive(out.message, node.me)
    for out in owner.begin(2, 1.0):
        runtime.transcript.record(1.0, 0, out.to, encode(out.message))
    return laws


def test_a_reference_that_moves_without_being_included_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    follow = Client.follow

    def follow_always(self: Client, result: Result) -> None:
        follow(self, replace(result, included=result.included | {self.me}))

    monkeypatch.setattr(Client, "follow", follow_always)
    agreed = dense(compressor=RandP(0.5), masks="independent")
    with pytest.raises(LawBroken, match=r"s and the mean of the s_k are .* apart"):
        run(agreed, FaultPlan(seed=4, drop=0.3), rounds=6)


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
