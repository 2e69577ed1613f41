"""Bugs put in on purpose in modes that only members in step have, caught in what they said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eris.core.compress import RandP
from eris.core.shards import RandomPlan
from eris.core.vectors import Vector
from eris.protocol.agreement import Key
from eris.protocol.codec import encode
from eris.protocol.messages import Outgoing, Payload, Result
from eris.protocol.round.aggregator import Aggregator
from eris.protocol.round.client import Client, Prepared
from eris.protocol.schemes import Collector, Independent
from eris.protocol.transcript import Record
from eris.runtimes.faults import FaultPlan
from eris.testing import LawBroken
from support.faulty import Run, dense, run
from support.machines import begin, contributions, federation
from support.oracle import check_messages


def test_two_results_at_the_turn_of_the_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    # If what is still open and what settles the old turn came of one call, both would be named
    # after the same predecessor.
    def both_at_once(self: Aggregator, round: int, now: float) -> list[Result]:
        finished = [result for key in self._unclosed() for result in self._close(key)]
        self._enter(round, now)
        return finished + self._settle_turns()

    assert [sorted(result.included) for result in said_at_the_turn()] == [[0, 1, 2]]
    monkeypatch.setattr(Aggregator, "close", lambda self: [])
    monkeypatch.setattr(Aggregator, "begin", both_at_once)
    with pytest.raises(LawBroken, match=r"round 1, segment \(0, 0\) has two results"):
        said_at_the_turn()


def said_at_the_turn() -> list[Result]:
    """Three of four have contributed when the owner enters the next round, with new shards."""
    nodes = federation(aggregators=1, plan=RandomPlan(1, rotate=1))
    begin(nodes, 1)
    said: list[tuple[int, Outgoing]] = []
    for node in nodes[:3]:
        said += [(node.me, out) for out in contributions(node, 1)]
        said += [(node.me, Outgoing((0,), message)) for message in node.stayed]
    for sender, out in said:
        nodes[0].receive(out.message, sender)
    said += [(0, out) for out in nodes[0].open(2, 1.0)]
    records = [Record(0.0, sender, out.to, encode(out.message)) for sender, out in said]
    return check_messages(nodes[0].agreement, records)


def test_a_reference_that_moves_without_being_included(monkeypatch: pytest.MonkeyPatch) -> None:
    follow = Client.follow

    def follow_always(self: Client, result: Result) -> None:
        follow(self, replace(result, included=result.included | {self.me}))

    def paper() -> Run:
        agreed = dense(scheme=Independent(RandP(0.5)))
        return run(agreed, FaultPlan(seed=4, link=0.3), rounds=6, clock=False)

    paper().check()
    monkeypatch.setattr(Client, "follow", follow_always)
    with pytest.raises(LawBroken, match="off the mean of the included clients"):
        paper().check()


# -- what the oracle is for -----------------------------------------------------------------------


def test_counting_somebody_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    result_of = Aggregator._result

    def twice(self: Aggregator, key: Key, collector: Collector, payload: Payload) -> Result:
        result = result_of(self, key, collector, payload)
        return replace(result, samples=result.samples + 3)

    monkeypatch.setattr(Aggregator, "_result", twice)
    with pytest.raises(LawBroken, match="does not count every included client exactly once"):
        run(rounds=1, clock=False).check()


def test_including_somebody_who_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    result_of = Aggregator._result

    def of_all(self: Aggregator, key: Key, collector: Collector, payload: Payload) -> Result:
        return replace(result_of(self, key, collector, payload), included=frozenset(range(4)))

    monkeypatch.setattr(Aggregator, "_result", of_all)
    with pytest.raises(LawBroken, match="who sent nothing"):
        run(faults=FaultPlan(seed=2, straggle=0.3), clock=False).check()


def test_a_mean_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = Client.prepare

    def prepare_twice(self: Client, update: Vector, *given: Any, **more: Any) -> Prepared:
        return prepare(self, 2 * update, *given, **more)

    monkeypatch.setattr(Client, "prepare", prepare_twice)
    with pytest.raises(LawBroken, match="off the mean of the included clients"):
        run(rounds=1, clock=False).check()
