"""The machines, message by message: what they take, what they refuse and what they say to it, and
what the members of a federation cannot agree on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eris.core.combine import FixedPoint
from eris.core.compress import (
    QSGD,
    Compressor,
    Encoded,
    Encoding,
    Natural,
    RandK,
    RandP,
    TopK,
    UniformQuantiser,
    encode_values,
)
from eris.core.errors import ErisError, InvalidSetting
from eris.core.rules import CoordinateMedian, FedAdam, FedAvg, FedAvgM, TrimmedMean
from eris.core.shards import ContiguousPlan, RandomPlan, WeightedPlan
from eris.protocol.agreement import Agreement
from eris.protocol.membership import View
from eris.protocol.messages import (
    CatchUp,
    Contribution,
    Header,
    Message,
    Outgoing,
    Payload,
    Refusal,
    Result,
    Snapshot,
)
from eris.protocol.node import Node
from eris.protocol.settings import Settings
from eris.testing import SyntheticTraining, assert_same_bits, initial_model

Vector = NDArray[np.float32]
N = 24
TRAINING = SyntheticTraining(N, 1)


def federation(clients: int = 4, aggregators: int = 2, **changes: Any) -> list[Node]:
    """Nodes that nobody has spoken to yet; the first two own a shard each."""
    chosen: dict[str, Any] = {"n": N, "plan": RandomPlan(aggregators), "rule": FedAvg(0.5)}
    settings = Settings(**(chosen | changes))
    view = View.serverless(
        [f"client-{k}" for k in range(clients)],
        aggregators=aggregators,
        samples=tuple(TRAINING.samples(k) for k in range(clients)),
    )
    agreement = Agreement(settings, view)
    return [Node(agreement, me, initial_model(N, 1)) for me in range(clients)]


def begin(nodes: list[Node], round: int, now: float = 0.0) -> None:
    for node in nodes:
        deliver(nodes, node.me, node.begin(round, now))


def deliver(nodes: list[Node], sender: int, outgoing: list[Outgoing]) -> None:
    """Carry messages and what is said in reply, at once."""
    for out in outgoing:
        for receiver in out.to:
            deliver(nodes, receiver, nodes[receiver].receive(out.message, sender))


def contributions(node: Node, round: int) -> list[Outgoing]:
    """What a node sends others; its own shards' segments have been counted by then."""
    return node.contribute(*TRAINING(node.me, node.model, round))


def play(nodes: list[Node], round: int, who: list[int] | None = None) -> None:
    """A round in which some clients take part; the owners close it at its deadline."""
    begin(nodes, round, 100.0 * round)
    for member in range(len(nodes)) if who is None else who:
        deliver(nodes, member, contributions(nodes[member], round))
    for node in nodes:
        deliver(nodes, node.me, node.tick(100.0 * round + 11))


def to_owner(node: Node, round: int = 1) -> Contribution:
    """The node's contribution to the first shard."""
    for out in contributions(node, round):
        if out.to == (0,) and isinstance(out.message, Contribution):
            return out.message
    raise AssertionError("nothing for the owner of shard 0")


def only_answer(outgoing: list[Outgoing], kind: type[Message], receiver: int) -> Any:
    assert len(outgoing) == 1
    assert outgoing[0].to == (receiver,)
    assert isinstance(outgoing[0].message, kind)
    return outgoing[0].message


def result_at(node: Node, round: int = 1, shard: int = 0) -> Result:
    result = node.replica.result_of((shard, 0), round)
    assert result is not None
    return result


def untouched(node: Node) -> bool:
    """Whether nothing has been counted in the node's first segment."""
    assert node.aggregator is not None
    state = node.aggregator._open.get((0, 0))
    return state is None or not state.included


# -- an owner -------------------------------------------------------------------------------------


def test_a_segment_closes_as_soon_as_everyone_is_in() -> None:
    nodes = federation()
    begin(nodes, 1)
    first = [out for node in nodes for out in contributions(node, 1) if out.to == (0,)]
    for out in first[:-1]:
        assert nodes[0].receive(out.message, out.message.header.sender) == []
    published = nodes[0].receive(first[-1].message, first[-1].message.header.sender)
    assert [out.to for out in published] == [(1, 2, 3)]
    result = published[0].message
    assert isinstance(result, Result)
    assert result.included == {0, 1, 2, 3}
    assert result.samples == 3 + 4 + 5 + 6
    assert result.sample_steps == 3 * 1 + 4 * 2 + 5 * 3 + 6 * 1
    assert nodes[0].replica.versions[0, 0] == 1, "applied before it leaves"


def test_a_duplicate_counts_once() -> None:
    nodes, again = federation(), federation()
    for group, copies in ((nodes, 1), (again, 3)):
        begin(group, 1)
        for member in (1, 2, 3):
            message = to_owner(group[member])
            for _ in range(copies):
                group[0].receive(message, member)
        group[0].tick(11.0)
    assert result_at(again[0]) == result_at(nodes[0])


def test_two_different_contributions_of_one_client_count_once() -> None:
    nodes, other = federation(), federation()
    for group in (nodes, other):
        begin(group, 1)
    for member in (1, 2, 3):
        message = to_owner(nodes[member])
        for group in (nodes, other):
            group[0].receive(message, member)
    changed = replace(to_owner(nodes[3]), samples=100)
    assert nodes[0].receive(changed, 3) == []
    for group in (nodes, other):
        group[0].tick(11.0)
    assert result_at(nodes[0]) == result_at(other[0])


def test_what_comes_late_is_answered_with_the_result() -> None:
    nodes = federation()
    begin(nodes, 1)
    late = to_owner(nodes[3])
    for member in (1, 2):
        nodes[0].receive(to_owner(nodes[member]), member)
    contributions(nodes[0], 1)
    assert nodes[0].tick(9.9) == []
    nodes[0].tick(10.0)
    before = nodes[0].model.copy()
    answer = only_answer(nodes[0].receive(late, 3), Result, 3)
    assert answer.included == {0, 1, 2}
    assert_same_bits(nodes[0].model, before)
    nodes[3].receive(answer, 0)
    assert nodes[3].client.left_out == [(1, (0, 0))], "the client learns that it was not included"


def test_a_contribution_to_a_round_that_is_not_open_changes_nothing() -> None:
    nodes = federation()
    play(nodes, 1)
    begin(nodes, 2, 200.0)
    message = to_owner(nodes[2], 2)
    for round in (1, 3, 77):
        old = replace(message, header=replace(message.header, round=round))
        assert nodes[0].receive(old, 2) == []
        assert untouched(nodes[0])
    nodes[0].receive(message, 2)
    assert not untouched(nodes[0])


@pytest.mark.parametrize("compressor", [None, RandP(0.5)], ids=["dense", "compressed"])
def test_a_contribution_to_an_old_state_is_not_counted(compressor: Compressor | None) -> None:
    nodes = federation(compressor=compressor)
    begin(nodes, 1)
    for member in range(3):
        for out in contributions(nodes[member], 1):
            nodes[out.to[0]].receive(out.message, member)
    lost = [out for node in nodes[:2] for out in node.tick(11.0)]  # client 3 never gets these
    assert len(lost) == 2
    for node in nodes:
        node.begin(2, 200.0)
    stale = to_owner(nodes[3], 2)
    assert stale.based_on == 0
    answer = only_answer(nodes[0].receive(stale, 3), Result, 3)
    assert answer == result_at(nodes[0])
    assert untouched(nodes[0])
    # With what it was told the client is where the others are.
    nodes[3].receive(answer, 0)
    assert nodes[3].replica.digest((0, 0)) == nodes[0].replica.digest((0, 0))


def test_a_contribution_from_the_future_of_the_owner_is_not_counted() -> None:
    nodes = federation()
    begin(nodes, 1)
    ahead = replace(to_owner(nodes[3]), based_on=5)
    assert nodes[0].receive(ahead, 3) == []
    assert untouched(nodes[0])


def test_a_segment_of_someone_elses_shard_is_refused() -> None:
    nodes = federation()
    begin(nodes, 1)
    message = to_owner(nodes[2])
    refusal = only_answer(nodes[1].receive(message, 2), Refusal, 2)
    assert "does not own the segment's shard" in refusal.reason
    nodes[2].receive(refusal, 1)
    assert "does not own" in nodes[2].refused[-1]
    assert nodes[3].receive(message, 2) == []
    assert nodes[3].refused[-1] == "contribution from member 2: this node owns no shard"


def test_a_member_without_data_may_not_contribute() -> None:
    settings = Settings(n=N, plan=RandomPlan(1))
    agreement = Agreement(settings, View.central(["anna", "ben", "cleo"]))
    nodes = [Node(agreement, me, initial_model(N, 1)) for me in range(4)]
    begin(nodes, 1)
    own = Contribution(
        agreement.header(3, 1, (0, 0)), 0, 1, 1, Payload(encode_values(np.ones(N, np.float32)))
    )
    assert nodes[3].receive(own, 3) == []
    assert "the sender is not a client of this federation" in nodes[3].refused[-1]
    with pytest.raises(AssertionError, match="only a client contributes"):
        nodes[3].contribute(np.ones(N, np.float32), 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"federation": 7}, "belongs to a federation with other settings"),
        ({"epoch": 3}, "is of epoch 3; this node is in 0"),
        ({"sender": 1}, "claims to be from member 1"),
        ({"sender": 99}, "claims to be from member 99"),
        ({"shard": 9}, r"names round 1, segment \(9, 0\): there is none"),
        ({"segment": 4}, r"names round 1, segment \(0, 4\): there is none"),
        ({"round": 0}, r"names round 0, segment \(0, 0\): there is none"),
    ],
)
def test_headers_that_make_no_sense_are_noted_and_ignored(
    change: dict[str, int], reason: str
) -> None:
    nodes = federation()
    begin(nodes, 1)
    message = to_owner(nodes[2])
    wrong = replace(message, header=replace(message.header, **change))
    assert nodes[0].receive(wrong, 2) == []
    with pytest.raises(ErisError, match=f"contribution from member 2: .*{reason}"):
        raise ErisError(nodes[0].refused[-1])
    assert untouched(nodes[0])


@pytest.mark.parametrize("message", [0, 1, 2], ids=["catch-up", "snapshot", "refusal"])
def test_nobody_speaks_for_another(message: int) -> None:
    nodes = federation()
    play(nodes, 1)
    header = nodes[0].agreement.header(1, 1, (0, 0))
    forged: Message = (
        CatchUp(header, 0),
        replace(nodes[0].replica.snapshot((0, 0), 1), at=9),
        Refusal(header, "you are out"),
    )[message]
    before = nodes[3].model.copy()
    assert nodes[3].receive(forged, 2) == []
    assert "claims to be from member 1" in nodes[3].refused[-1]
    assert_same_bits(nodes[3].model, before)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (Payload(encode_values(np.ones(5, np.float32))), "payload.count: is 5; expected 12"),
        (Payload(encode_values(np.ones(12, np.float32), Encoding.KEPT)), "payload.encoding"),
        (Payload(Encoded(Encoding.DENSE, 12, b"1234")), "payload.data: has 4 bytes; expected 48"),
    ],
)
def test_a_payload_of_another_shape_is_refused(payload: Payload, reason: str) -> None:
    nodes = federation()
    begin(nodes, 1)
    wrong = replace(to_owner(nodes[2]), payload=payload)
    refusal = only_answer(nodes[0].receive(wrong, 2), Refusal, 2)
    assert reason in refusal.reason
    assert untouched(nodes[0])


def test_the_kept_set_of_another_round_is_refused() -> None:
    nodes = federation(compressor=RandP(0.5))
    begin(nodes, 1)
    message = to_owner(nodes[2])
    wrong = replace(message, payload=replace(message.payload, stream=message.payload.stream ^ 1))
    refusal = only_answer(nodes[0].receive(wrong, 2), Refusal, 2)
    assert "contribution.payload.stream: names another kept set" in refusal.reason


# -- an update that is none -----------------------------------------------------------------------

COMPRESSORS: list[Compressor | None] = [
    None, RandP(0.9), RandK(20), QSGD(8), UniformQuantiser(6), Natural(),
]  # fmt: skip


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 65.0])
@pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)
def test_one_bad_update_is_named_and_leaves_the_others_mean_alone(
    compressor: Compressor | None, bad: float
) -> None:
    nodes, without = federation(compressor=compressor), federation(compressor=compressor)
    for group in (nodes, without):
        begin(group, 1)
    for member in range(3):
        deliver(nodes, member, contributions(nodes[member], 1))
        deliver(without, member, contributions(without[member], 1))
    update, samples, steps = TRAINING(3, nodes[3].model, 1)
    update[:] = np.float32(bad)
    deliver(nodes, 3, nodes[3].contribute(update, samples, steps))
    for group in (nodes, without):
        for node in group:
            deliver(group, node.me, node.tick(11.0))
    for node, other in zip(nodes, without, strict=True):
        assert_same_bits(node.model, other.model)
    assert result_at(nodes[0]) == result_at(without[0])
    assert len(nodes[3].refused) == 2, "one for each segment"
    for note in nodes[3].refused:
        assert "contribution of client client-3" in note
        assert "are not finite or beyond ±64" in note
    assert not any(node.refused for node in nodes[:3])


@pytest.mark.parametrize("policy", ["clip", "zero"])
@pytest.mark.parametrize("compressor", [None, RandP(1.0), QSGD(2000)], ids=repr)
def test_other_policies_keep_the_rest_of_the_update(
    compressor: Compressor | None, policy: str
) -> None:
    nodes = federation(compressor=compressor, non_finite=policy, rule=FedAvg(1.0))
    start = nodes[0].model.copy()
    begin(nodes, 1)
    for node in nodes:
        update = np.full(N, 2.0, np.float32)
        if node.me == 3:
            update[5], update[6] = np.nan, np.inf
        deliver(nodes, node.me, node.contribute(update, node.agreement.view.samples[node.me]))  # type: ignore[index]
    moved = start - nodes[0].model
    assert result_at(nodes[0]).included == {0, 1, 2, 3}
    others = np.delete(np.arange(N), [5, 6])
    tolerance = 0.1 if isinstance(compressor, QSGD) else 1e-5
    assert np.allclose(moved[others], 2.0, atol=tolerance)
    assert moved[5] == pytest.approx(2 * 12 / 18, abs=tolerance)
    stands_for = 64 if policy == "clip" else 0
    assert moved[6] == pytest.approx((2 * 12 + stands_for * 6) / 18, abs=tolerance)


def test_more_samples_than_agreed_are_refused_by_name() -> None:
    nodes = federation(precision=FixedPoint(total_samples=10))
    begin(nodes, 1)
    for member in (1, 2):  # 4 + 5
        assert nodes[0].receive(to_owner(nodes[member]), member) == []
    refusal = only_answer(nodes[0].receive(to_owner(nodes[3]), 3), Refusal, 3)
    assert "client client-3: 6 samples would raise the sum" in refusal.reason


@pytest.mark.parametrize(
    ("update", "samples", "steps", "message"),
    [
        (np.ones(N - 1, np.float32), 1, 1, "update is 'float32 array of shape .*; expected 24"),
        (np.ones(N), 1, 1, "update is 'float64 array of shape .*; expected 24 float32"),
        (np.ones((1, N), np.float32), 1, 1, "update is 'float32 array of shape"),
        (np.ones(N, np.float32), 0, 1, "samples is 0; expected at least 1"),
        (np.ones(N, np.float32), -2, 1, "samples is -2; expected at least 1"),
        (np.ones(N, np.float32), 1, 0, "steps is 0; expected at least 1 local step"),
    ],
)
def test_a_client_refuses_what_is_no_update(
    update: Any, samples: int, steps: int, message: str
) -> None:
    nodes = federation()
    begin(nodes, 1)
    with pytest.raises(InvalidSetting, match=message):
        nodes[2].contribute(update, samples, steps)


# -- withholding ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "enough"),
    [({}, 3), ({"min_included": 2}, 2), ({"quorum": 4}, 4), ({"min_included": 1, "quorum": 2}, 2)],
)
@pytest.mark.parametrize("present", [0, 1, 2, 3, 4])
def test_too_few_contributions_are_not_published(
    rules: dict[str, int], enough: int, present: int
) -> None:
    nodes = federation(**rules)
    start = nodes[0].model.copy()
    play(nodes, 1, list(range(present)))
    for node in nodes:
        result = result_at(node)
        assert node.replica.versions == {(0, 0): 1, (1, 0): 1}, "the round is settled either way"
        if present < enough:
            assert result.payload is None
            assert (result.included, result.samples, result.sample_steps) == (frozenset(), 0, 0)
            assert_same_bits(node.model, start)
            assert node.replica.updates == {(0, 0): 0, (1, 0): 0}, "not counted as an update"
        else:
            assert result.included == set(range(present))
            assert not np.array_equal(node.model, start)


def test_those_who_were_withheld_learn_that_they_were_left_out() -> None:
    nodes = federation()
    play(nodes, 1, [0, 3])
    assert nodes[3].client.left_out == [(1, (0, 0)), (1, (1, 0))]
    play(nodes, 2)
    assert result_at(nodes[1], 2).previous == 1
    assert len(nodes[3].client.left_out) == 2


def test_a_round_without_a_result_is_not_counted_by_adams_t() -> None:
    rule = FedAdam(0.1, bias_correction=True)
    nodes = federation(rule=rule, aggregators=1)
    x = nodes[0].model.copy()
    slots = tuple(np.full(N, value, np.float32) for value in rule.initial)
    play(nodes, 1)
    play(nodes, 2, [0, 3])  # too few
    play(nodes, 3)
    segment = nodes[0].agreement.segments(1)[0, 0]
    for t, round in ((1, 1), (2, 3)):
        payload = result_at(nodes[0], round).payload
        assert payload is not None
        mean = np.empty(N, np.float32)
        segment.scatter(mean, np.frombuffer(payload.encoded.data, np.float32).copy())
        x, slots = rule.step(x, mean, slots, t, 1.0)
    for node in nodes:
        assert_same_bits(node.model, x)
        assert node.replica.updates == {(0, 0): 2}


def test_members_refuse_a_result_with_fewer_than_agreed() -> None:
    nodes = federation()
    play(nodes, 1)
    good = result_at(nodes[0])
    fresh = federation()
    weak = replace(good, included=frozenset({1, 2}))
    assert fresh[3].receive(weak, 0) == []
    assert "result.included: names 2 clients; expected at least 3" in fresh[3].refused[-1]
    assert fresh[3].replica.versions[0, 0] == 0


# -- results --------------------------------------------------------------------------------------


def a_result() -> Result:
    nodes = federation()
    play(nodes, 1)
    return result_at(nodes[0])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda r: replace(r, header=replace(r.header, sender=1)), "member 1 does not own shard 0"),
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


def test_a_result_is_applied_once_and_in_order() -> None:
    nodes = federation()
    play(nodes, 1)
    play(nodes, 2)
    play(nodes, 3)
    results = [result_at(nodes[0], round) for round in (1, 2, 3)]
    for order in ([0, 1, 2], [2, 1, 0], [1, 1, 2, 0, 0, 1], [2, 0, 2, 1]):
        late = federation()[3]
        for index in order:
            late.receive(results[index], 1)  # any peer may pass a result on
        assert late.replica.digest((0, 0)) == nodes[0].replica.digest((0, 0))
        assert late.replica.updates[0, 0] == 3
    waiting = federation()[3]
    waiting.receive(results[1], 0)
    assert waiting.replica.versions[0, 0] == 0, "it waits for the one before"


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
    node = nodes[3]
    node.begin(1, 0.0)
    assert node.tick(14.9) == []
    asked = []
    for attempt in range(6):
        out = node.tick(15.0 + 2 * attempt)
        assert {type(o.message) for o in out} == {CatchUp}
        asked.append({o.message.header.key: o.to[0] for o in out})
        assert node.tick(15.5 + 2 * attempt) == [], "not before it is time again"
    assert asked[0] == {(0, 0): 0, (1, 0): 1}
    for key in ((0, 0), (1, 0)):
        assert {ask[key] for ask in asked} == {0, 1, 2}
    assert all(3 not in ask.values() for ask in asked)
    # An owner asks like all others; for its own shard there is nobody to prefer.
    nodes[0].begin(1, 0.0)
    first = {out.message.header.key: out.to for out in nodes[0].client.tick(15.0)}
    assert first[1, 0] == (1,)
    assert first[0, 0] != (0,)


def test_nobody_asks_once_all_is_known() -> None:
    nodes = federation()
    play(nodes, 1)
    assert all(node.client.tick(1000.0) == [] for node in nodes)


def test_catching_up_by_results_from_any_peer() -> None:
    nodes = federation()
    for round in range(1, 6):
        play(nodes, round)
    for peer in range(3):
        late = federation()[3]
        for key in late.replica.versions:
            ask = CatchUp(late.agreement.header(3, 5, key), 0)
            answers = nodes[peer].receive(ask, 3)
            assert [type(out.message) for out in answers] == [Result] * 5
            for out in answers:
                late.receive(out.message, peer)
        assert_same_bits(late.model, nodes[0].model)


@pytest.mark.parametrize("rule", [FedAvg(0.5), FedAvgM(0.5), FedAdam(0.1, bias_correction=True)])
@pytest.mark.parametrize("compressor", [None, RandP(0.5)], ids=["dense", "compressed"])
def test_catching_up_by_snapshot_when_results_are_gone(
    rule: FedAvg | FedAvgM | FedAdam, compressor: Compressor | None
) -> None:
    nodes = federation(history=2, rule=rule, compressor=compressor)
    for round in range(1, 7):
        play(nodes, round)
    late = federation(history=2, rule=rule, compressor=compressor)[3]
    for key in late.replica.versions:
        ask = CatchUp(late.agreement.header(3, 6, key), 0)
        snapshot = only_answer(nodes[2].receive(ask, 3), Snapshot, 3)
        assert (snapshot.at, snapshot.updates) == (6, 6)
        late.receive(snapshot, 2)
        assert late.replica.digest(key) == nodes[0].replica.digest(key)
    # Where the results are still kept they are enough.
    ask = CatchUp(late.agreement.header(3, 6, (0, 0)), 4)
    kinds = [type(out.message) for out in nodes[2].receive(ask, 3)]
    assert kinds == [Result, Result]
    # And it goes on from there like everyone else.
    late_again = [*nodes[:3], late]
    play(late_again, 7)
    assert_same_bits(late.model, nodes[0].model)
    assert result_at(nodes[0], 7).included == {0, 1, 2, 3}


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
    nodes = federation(history=2, rule=rule, compressor=compressor)
    play(nodes, 1)
    late = federation(history=2, rule=rule, compressor=compressor)[3]
    digest = late.replica.digest((0, 0))
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
        changes = {"compressor": RandP(0.5), "masks": "independent"}
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


# -- crashes and turns ----------------------------------------------------------------------------


def test_a_restarted_owner_withholds_the_round_and_goes_on_with_the_next() -> None:
    nodes = federation()
    begin(nodes, 1)
    for member in (1, 2, 3):
        nodes[0].receive(to_owner(nodes[member]), member)
    published = nodes[0].restart(1, 5.0)
    assert [type(out.message) for out in published] == [Result]
    result = published[0].message
    assert isinstance(result, Result)
    assert result.payload is None
    answers = nodes[0].receive(to_owner(nodes[1]), 1)
    assert answers[0].message == result, "what comes in now is too late"
    assert nodes[0].restart(1, 6.0) == [], "and there is no second result"


def test_a_restart_after_the_result_publishes_nothing() -> None:
    nodes = federation()
    play(nodes, 1)
    assert nodes[0].restart(1, 150.0) == []
    assert nodes[0].tick(500.0) == []


def test_what_is_open_closes_before_the_next_round_begins() -> None:
    for rotate in (0, 1):
        nodes = federation(plan=RandomPlan(2, rotate=rotate))
        begin(nodes, 1)
        for member in (1, 2, 3):
            nodes[0].receive(to_owner(nodes[member]), member)
        results = [out.message for out in nodes[0].begin(2, 1.0)]
        assert [(r.header.round, r.previous) for r in results if isinstance(r, Result)] == [(1, 0)]
        assert result_at(nodes[0]).included == {1, 2, 3}


def test_an_owner_that_comes_back_settles_every_turn_it_missed() -> None:
    nodes = federation(plan=RandomPlan(2, rotate=2))
    play(nodes, 1)
    out = nodes[0].begin(8, 0.0)
    results = [o.message for o in out if isinstance(o.message, Result)]
    assert [(r.header.round, r.previous, r.payload) for r in results] == [
        (2, 1, None), (4, 2, None), (6, 4, None),
    ]  # fmt: skip
    # Said again it is said in the same words.
    again = [o.message for o in nodes[0].begin(9, 0.0)]
    assert again[: len(results) - 1] == results[1:]


def test_nobody_trains_on_shards_that_are_not_settled() -> None:
    nodes = federation(plan=RandomPlan(2, rotate=1))
    begin(nodes, 1)
    assert nodes[3].replica.ready(1)
    assert not nodes[3].replica.ready(2)
    play(nodes, 1)
    assert nodes[3].replica.ready(2)


# -- what members agree on ------------------------------------------------------------------------


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
        ({"masks": "own"}, "masks is 'own'; expected one of shared, independent"),
        ({"estimate": "best"}, "estimate is 'best'; expected one of renormalised, unbiased"),
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
        ({"compressor": TopK(0.1)}, "compressor is 'top-k'; expected an unbiased compressor"),
        (
            {"compressor": RandP(0.1), "rule": CoordinateMedian()},
            "rule is 'coordinate-median'; expected a mean: order statistics of compressed values",
        ),
        (
            {"compressor": QSGD(), "rule": TrimmedMean()},
            "rule is 'trimmed-mean'; expected a mean: order statistics of compressed values",
        ),
        ({"compressor": RandK(101)}, "kept_count is 101; expected at most n = 100 coordinates"),
        ({"masks": "independent"}, "masks is 'independent'; expected rand-p or rand-k as the"),
        (
            {"masks": "independent", "compressor": QSGD()},
            "masks is 'independent'; expected rand-p or rand-k as the compressor",
        ),
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
        (lambda: TopK(-0.5), r"kept_fraction is -0.5; expected a number in \(0, 1\]"),
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
        (lambda: View(("a", "b"), (0, 1), (-1,)), "owners is -1; expected a member's number"),
        (lambda: View(("a", "b"), (0, 5), (0,)), "clients is 5; expected a member's number"),
        (lambda: View(("a", "b"), (0, 0), (0,)), r"clients is \(0, 0\); expected every client"),
        (lambda: View(("a",), (), (0,)), "view is .*; expected at least one client and one owner"),
        (lambda: View(("a",), (0,), ()), "view is .*; expected at least one client and one owner"),
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
    paper = agreed(plan=RandomPlan(3), compressor=RandP(0.1), masks="independent")
    with pytest.raises(InvalidSetting, match="samples is None; expected every client's weight"):
        Agreement(paper, view)


def test_a_model_that_does_not_fit_the_settings() -> None:
    agreement = Agreement(Settings(n=N), View.serverless(["a", "b", "c"], aggregators=1))
    with pytest.raises(InvalidSetting, match=r"initial model is \(5,\); expected \(24,\)"):
        Node(agreement, 0, np.zeros(5, np.float32))


def test_every_setting_changes_the_fingerprint() -> None:
    base = agreed(compressor=RandP(0.1))
    others = [
        agreed(compressor=RandP(0.2)),
        agreed(compressor=RandK(10)),
        agreed(),
        replace(base, n=101),
        replace(base, plan=RandomPlan(5)),
        replace(base, plan=ContiguousPlan(4)),
        replace(base, plan=RandomPlan(4, rotate=1)),
        replace(base, rule=FedAvg(0.5)),
        replace(base, rule=FedAvgM()),
        replace(base, masks="independent"),
        replace(base, estimate="unbiased"),
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
    assert agreed(compressor=RandP(0.1)).fingerprint == base.fingerprint
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
    nodes = federation(compressor=RandP(0.5), masks="independent")
    begin(nodes, 1)
    message = to_owner(nodes[2])
    refusal = only_answer(nodes[0].receive(replace(message, samples=99), 2), Refusal, 2)
    assert "its samples are not those agreed in the view" in refusal.reason
    assert untouched(nodes[0])
    assert nodes[0].receive(message, 2) == []
    assert not untouched(nodes[0])
