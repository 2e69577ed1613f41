"""Bugs put in on purpose are caught by the laws that the campaign checks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eris.core.compress import RandP
from eris.core.shards import RandomPlan
from eris.protocol.aggregator import Aggregator
from eris.protocol.agreement import Key
from eris.protocol.client import Client
from eris.protocol.codec import encode
from eris.protocol.messages import Contribution, Outgoing, Result
from eris.protocol.replica import Replica
from eris.protocol.schemes import Independent, Masked
from eris.runtimes.faults import FaultPlan
from eris.testing import ChosenFaults, LawBroken, Laws, SyntheticTraining, federate
from support.faulty import N, dense, run


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

    agreed = dense(scheme=Masked(RandP(0.5)))

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
    agreed = dense(scheme=Independent(RandP(0.5)))
    with pytest.raises(LawBroken, match=r"s and the mean of the s_k are .* apart"):
        run(agreed, FaultPlan(seed=4, drop=0.3), rounds=6)
