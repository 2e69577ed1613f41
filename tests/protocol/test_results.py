"""Results, message by message: who takes them and when, and how a member that missed some, or an
owner that was away, catches up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eris.core.compress import Compressor, RandP, encode_values
from eris.core.rules import FedAdam, FedAvg, FedAvgM
from eris.core.shards import RandomPlan
from eris.protocol.messages import CatchUp, Payload, Result, Snapshot
from eris.protocol.round.replica import Replica
from eris.protocol.schemes import Independent, scheme_for
from eris.testing import assert_same_bits
from support.machines import begin, catch_up, federation, only_answer, play, result_at, to_owner

# -- results --------------------------------------------------------------------------------------


def a_result() -> Result:
    nodes = federation()
    play(nodes, 1)
    return result_at(nodes[0])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda r: replace(r, header=replace(r.header, sender=1)), "claims to be from member 1"),
        (lambda r: replace(r, header=replace(r.header, shard=1)), "does not own shard 1"),
        (lambda r: replace(r, header=replace(r.header, epoch=1)), "is of epoch 1"),
        (lambda r: replace(r, included=frozenset({0, 1, 9})), "names a client that is not in"),
        (lambda r: replace(r, payload=Payload(encode_values(np.ones(3, np.float32)))), "count"),
        (
            lambda r: replace(r, payload=Payload(encode_values(np.full(12, np.nan, np.float32)))),
            "result.payload.data",
        ),
    ],
)
def test_results_that_make_no_sense_change_nothing(
    change: Callable[[Result], Result], reason: str
) -> None:
    nodes = federation()
    before = nodes[3].model.copy()
    assert nodes[3].receive(change(a_result()), 0) == []
    assert reason in nodes[3].refused[-1]
    assert nodes[3].replica.versions == {(0, 0): 0, (1, 0): 0}
    assert_same_bits(nodes[3].model, before)


def test_where_references_are_weighed_a_result_has_the_weight_of_its_clients() -> None:
    """By that weight the common reference moves: without the rule by as much as an owner likes."""
    nodes = federation(scheme=Independent(RandP(0.5)))
    play(nodes, 1)
    right, late = result_at(nodes[0]), federation(scheme=Independent(RandP(0.5)))[3]
    for samples in (right.samples - 1, right.samples + 1, 2**46):
        late.receive(replace(right, samples=samples), 0)
        assert f"result.samples: are {samples}; those of its clients" in late.refused[-1]
        assert late.replica.versions[0, 0] == 0
    late.receive(right, 0)
    assert late.replica.versions[0, 0] == 1
    assert late.replica.state_of((0, 0)) == nodes[1].replica.state_of((0, 0))


def test_a_result_is_applied_once_and_in_order() -> None:
    nodes = federation()
    play(nodes, 1)
    play(nodes, 2)
    play(nodes, 3)
    results = [result_at(nodes[0], round) for round in (1, 2, 3)]
    for order in ([0, 1, 2], [2, 1, 0], [1, 1, 2, 0, 0, 1], [2, 0, 2, 1]):
        late = federation()[3]
        for index in order:
            late.receive(results[index], 1)  # not from whoever passes it on
            late.receive(results[index], 0)
        assert late.replica.digest((0, 0)) == nodes[0].replica.digest((0, 0))
        assert late.replica.updates[0, 0] == 3
    waiting = federation()[3]
    waiting.receive(results[1], 0)
    assert waiting.replica.versions[0, 0] == 0, "it waits for the one before"


def test_who_was_included_is_unknown_where_results_are_no_longer_kept() -> None:
    nodes = federation(history=2)
    for round in (1, 2, 3):
        play(nodes, round, [0, 1, 2] if round == 3 else None)
    replica = nodes[3].replica
    assert [replica.included_in(round) for round in (1, 2, 3, 4)] == [None, 1.0, 0.75, 0.0]


def test_a_round_that_had_no_result_is_known_to_have_had_none() -> None:
    nodes = federation()
    play(nodes, 1)
    for node in nodes:
        node.client.begin(2)  # no owner enters round 2
    play(nodes, 3)
    assert [nodes[3].replica.included_in(round) for round in (1, 2, 3)] == [1.0, 0.0, 1.0]


def test_only_the_owner_speaks_of_rounds_it_may_still_close() -> None:
    nodes = federation()
    begin(nodes, 1)
    claimed = a_result()
    assert nodes[0].receive(claimed, 3) == []
    assert "of a shard that only this node publishes" in nodes[0].refused[-1]
    assert nodes[0].replica.versions[0, 0] == 0


# -- catching up ----------------------------------------------------------------------------------


def test_a_client_asks_the_owner_first_and_then_others() -> None:
    nodes = federation()
    begin(nodes, 1)
    client = nodes[3].client
    asked = []
    for _ in range(6):
        out = client.ask([(0, 0), (1, 0)])
        assert {type(o.message) for o in out} == {CatchUp}
        asked.append({o.message.header.key: o.to[0] for o in out})
    assert asked[0] == {(0, 0): 0, (1, 0): 1}
    for key in ((0, 0), (1, 0)):
        assert {ask[key] for ask in asked} == {0, 1, 2}
    assert all(3 not in ask.values() for ask in asked)
    # An owner asks like all others; for its own shard there is nobody to prefer.
    first = {out.message.header.key: out.to for out in nodes[0].client.ask([(0, 0), (1, 0)])}
    assert first[1, 0] == (1,)
    assert first[0, 0] != (0,)


@pytest.mark.parametrize("peer", [0, 1, 2])
def test_an_owner_tells_its_results_and_anybody_else_a_state(peer: int) -> None:
    nodes = federation()
    for round in range(1, 6):
        play(nodes, round)
    late = federation()[3]
    for key in late.replica.versions:
        answers = catch_up(late, nodes[peer], key, 0)
        owned = nodes[peer].agreement.view.owners[key[0]] == peer
        assert [type(answer) for answer in answers] == ([Result] * 5 if owned else [Snapshot])
        assert (late.replica.versions[key] == 5) == owned, "one word is not enough for a state"
        catch_up(late, nodes[2 - peer // 2], key, 0)
    assert_same_bits(late.model, nodes[0].model)


@pytest.mark.parametrize("rule", [FedAvg(0.5), FedAvgM(0.5), FedAdam(0.1, bias_correction=True)])
@pytest.mark.parametrize("compressor", [None, RandP(0.5)], ids=["dense", "compressed"])
def test_catching_up_by_snapshot_when_results_are_gone(
    rule: FedAvg | FedAvgM | FedAdam, compressor: Compressor | None
) -> None:
    nodes = federation(history=2, rule=rule, scheme=scheme_for(compressor))
    for round in range(1, 7):
        play(nodes, round)
    late = federation(history=2, rule=rule, scheme=scheme_for(compressor))[3]
    for key in late.replica.versions:
        owner = nodes[nodes[0].agreement.view.owners[key[0]]]
        (snapshot,) = catch_up(late, owner, key, 0)
        assert isinstance(snapshot, Snapshot)
        assert (snapshot.at, snapshot.updates) == (6, 6)
        assert late.replica.digest(key) == nodes[0].replica.digest(key)
    # Where the results are still kept they are enough; of a plain model the state is as small.
    ask = CatchUp(late.agreement.header(3, 6, (0, 0)), 4)
    kinds = [type(out.message) for out in nodes[0].receive(ask, 3)]
    assert kinds == ([Result, Result] if compressor or rule.initial else [Snapshot])
    # And it goes on from there like everyone else.
    late_again = [*nodes[:3], late]
    play(late_again, 7)
    assert_same_bits(late.model, nodes[0].model)
    assert result_at(nodes[0], 7).included == {0, 1, 2, 3}


def test_a_known_digest_is_that_of_the_state_whatever_has_led_to_it() -> None:
    def same(replica: Replica) -> bool:
        return all(replica.known_digest(key) == replica.digest(key) for key in replica.versions)

    nodes = federation(history=2)
    late, again = (federation(history=2)[3] for _ in range(2))
    for round in range(1, 5):
        assert all(same(node.replica) for node in nodes)
        play(nodes, round)
        assert all(same(node.replica) for node in nodes), "results"
    assert same(late.replica)
    for key in late.replica.versions:
        catch_up(late, nodes[nodes[0].agreement.view.owners[key[0]]], key, 0)
    assert same(late.replica), "snapshots"
    assert same(again.replica)
    again.replica.restore(nodes[0].replica.state())
    assert same(again.replica), "a checkpoint"
    assert again.replica.known_digest((0, 0)) == nodes[0].replica.known_digest((0, 0))


def test_a_snapshot_older_than_what_is_here_changes_nothing() -> None:
    nodes = federation(history=2)
    play(nodes, 1)
    old = nodes[0].replica.snapshot((0, 0), 0)
    play(nodes, 2)
    digest = nodes[3].replica.digest((0, 0))
    nodes[3].receive(old, 0)
    assert nodes[3].replica.digest((0, 0)) == digest


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s: replace(s, slots=()), "snapshot.slots: has 0 vectors; this server rule has 1"),
        (lambda s: replace(s, slots=s.slots * 2), "snapshot.slots: has 2 vectors"),
        (lambda s: replace(s, reference=None), "snapshot.reference: is there only with shifted"),
        (lambda s: replace(s, model=short()), "payload.count: is 3; expected 12"),
        (lambda s: replace(s, slots=(short(),)), "payload.count: is 3; expected 12"),
        (
            lambda s: replace(s, reference=None, slots=(s.reference, *s.slots)),
            "snapshot.reference: is there only with shifted",
        ),
    ],
)
def test_a_snapshot_of_another_shape_is_refused(
    change: Callable[[Snapshot], Snapshot], reason: str
) -> None:
    rule, compressor = FedAvgM(0.5), RandP(0.5)
    nodes = federation(history=2, rule=rule, scheme=scheme_for(compressor))
    play(nodes, 1)
    late = federation(history=2, rule=rule, scheme=scheme_for(compressor))[3]
    digest = late.replica.digest((0, 0))
    late.evidence.asks(late.client.ask([(0, 0)]))
    late.receive(change(nodes[0].replica.snapshot((0, 0), 0)), 0)
    assert reason in late.refused[-1]
    assert late.replica.digest((0, 0)) == digest
    assert late.replica.versions[0, 0] == 0


def short() -> Payload:
    return Payload(encode_values(np.ones(3, np.float32)))


@pytest.mark.parametrize("mode", ["rotating", "paper"])
def test_where_every_result_counts_no_snapshot_is_taken(mode: str) -> None:
    changes: dict[str, Any] = {"plan": RandomPlan(2, rotate=2)}
    if mode == "paper":
        changes = {"scheme": Independent(RandP(0.5))}
    nodes = federation(history=1, **changes)
    for round in range(1, 6):
        play(nodes, round)
    late = federation(history=1, **changes)[3]
    assert late.replica.adopt(nodes[0].replica.snapshot((0, 0), 0)) is False
    # It need not be: these nodes keep all results.
    answers = nodes[2].receive(CatchUp(late.agreement.header(3, 5, (0, 0)), 0), 3)
    assert [type(out.message) for out in answers] == [Result] * 5


def test_a_node_that_took_a_snapshot_does_not_pass_on_a_chain_with_a_gap() -> None:
    nodes = federation(history=2)
    for round in range(1, 7):
        play(nodes, round)
        if round == 2:
            chain = [result_at(nodes[0], 1), result_at(nodes[0], 2)]
    late = federation(history=2)[3]
    for result in chain:
        late.receive(result, 0)
    late.evidence.asks(late.client.ask([(0, 0)]))
    late.receive(nodes[0].replica.snapshot((0, 0), 0), 0)
    assert late.replica.versions[0, 0] == 6
    for have, kind in ((0, Snapshot), (3, Snapshot)):
        ask = CatchUp(late.agreement.header(1, 6, (0, 0)), have)
        only_answer(late.receive(ask, 1), kind, 1)
    assert late.receive(CatchUp(late.agreement.header(1, 6, (0, 0)), 6), 1) == []


def test_somebody_who_asks_for_nothing_new_is_told_nothing() -> None:
    nodes = federation()
    play(nodes, 1)
    for have in (1, 2, 1000):
        assert nodes[0].receive(CatchUp(nodes[0].agreement.header(3, 1, (0, 0)), have), 3) == []


# -- turns ----------------------------------------------------------------------------


def test_what_is_open_closes_before_the_next_round_begins() -> None:
    for rotate in (0, 1):
        nodes = federation(plan=RandomPlan(2, rotate=rotate))
        begin(nodes, 1)
        for member in (1, 2, 3):
            nodes[0].receive(to_owner(nodes[member]), member)
        results = [out.message for out in nodes[0].open(2, 1.0)]
        assert [(r.header.round, r.previous) for r in results if isinstance(r, Result)] == [(1, 0)]
        assert result_at(nodes[0]).included == {1, 2, 3}


def test_an_owner_that_comes_back_settles_every_turn_it_missed() -> None:
    nodes = federation(plan=RandomPlan(2, rotate=2))
    play(nodes, 1)
    out = nodes[0].open(8, 0.0)
    results = [o.message for o in out if isinstance(o.message, Result)]
    assert [(r.header.round, r.previous, r.payload) for r in results] == [
        (2, 1, None), (4, 2, None), (6, 4, None),
    ]  # fmt: skip
    # Said again it is said in the same words.
    again = [o.message for o in nodes[0].open(9, 0.0)]
    assert again[: len(results) - 1] == results[1:]


def test_nobody_trains_on_shards_that_are_not_settled() -> None:
    nodes = federation(plan=RandomPlan(2, rotate=1))
    begin(nodes, 1)
    assert nodes[3].replica.ready(1)
    assert not nodes[3].replica.ready(2)
    play(nodes, 1)
    assert nodes[3].replica.ready(2)
