"""An owner of a shard, message by message: what it counts, what it refuses and what it says to it,
and what it withholds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eris.core.compress import (
    Compressor,
    Encoded,
    Encoding,
    RandP,
    encode_values,
)
from eris.core.errors import ErisError
from eris.core.rules import FedAdam
from eris.core.shards import RandomPlan
from eris.protocol.agreement import Agreement
from eris.protocol.messages import (
    CatchUp,
    Contribution,
    Message,
    Payload,
    Refusal,
    Result,
    Share,
)
from eris.protocol.round.roles import Node
from eris.protocol.schemes import Masked, scheme_for
from eris.protocol.settings import Settings
from eris.protocol.view import View
from eris.testing import assert_same_bits, initial_model
from support.machines import (
    N,
    begin,
    contributions,
    federation,
    only_answer,
    play,
    result_at,
    to_owner,
    untouched,
)

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
        group[0].close(11.0)
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
        group[0].close(11.0)
    assert result_at(nodes[0]) == result_at(other[0])


def test_what_comes_late_is_answered_with_the_result() -> None:
    nodes = federation()
    begin(nodes, 1)
    late = to_owner(nodes[3])
    for member in (1, 2):
        nodes[0].receive(to_owner(nodes[member]), member)
    contributions(nodes[0], 1)
    assert nodes[0].close(9.9) == []
    nodes[0].close(10.0)
    before = nodes[0].model.copy()
    answer = only_answer(nodes[0].receive(late, 3), Result, 3)
    assert answer.included == {0, 1, 2}
    assert_same_bits(nodes[0].model, before)
    nodes[3].receive(answer, 0)
    assert list(nodes[3].client.left_out) == [(1, (0, 0))], (
        "the client learns that it was not included"
    )


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
    nodes = federation(scheme=scheme_for(compressor))
    begin(nodes, 1)
    for member in range(3):
        for out in contributions(nodes[member], 1):
            nodes[out.to[0]].receive(out.message, member)
    lost = [out for node in nodes[:2] for out in node.close(11.0)]  # client 3 never gets these
    assert len(lost) == 2
    begin(nodes, 2, 200.0)
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
    refusal = only_answer(nodes[3].receive(message, 2), Refusal, 2)
    assert "does not own the segment's shard" in refusal.reason


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


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"federation": 7}, "belongs to a federation with other settings"),
        ({"epoch": 3}, "is of epoch 3; round 1 belongs to epoch 0 here"),
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


@pytest.mark.parametrize("message", range(4), ids=["catch-up", "snapshot", "refusal", "share"])
def test_nobody_speaks_for_another(message: int) -> None:
    nodes = federation()
    play(nodes, 1)
    header = nodes[0].agreement.header(1, 1, (0, 0))
    forged: Message = (
        CatchUp(header, 0),
        replace(nodes[0].replica.snapshot((0, 0), 1), at=9),
        Refusal(header, "you are out"),
        Share(header, nodes[0].replica.snapshot((0, 0), 1).model),
    )[message]
    before = nodes[3].model.copy()
    assert nodes[3].receive(forged, 2) == []
    assert "claims to be from member 1" in nodes[3].refused[-1]
    assert_same_bits(nodes[3].model, before)


def test_a_share_has_no_place_where_owners_aggregate() -> None:
    nodes = federation()
    play(nodes, 1)
    before = [node.model.copy() for node in nodes]
    share = Share(
        nodes[2].agreement.header(2, 1, (0, 0)), nodes[2].replica.snapshot((0, 0), 1).model
    )
    for node, model in zip(nodes[:2], before, strict=False):
        assert node.receive(share, 2) == []
        assert "share from member 2: this federation aggregates" in node.refused[-1]
        assert_same_bits(node.model, model)


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
    nodes = federation(scheme=Masked(RandP(0.5)))
    begin(nodes, 1)
    message = to_owner(nodes[2])
    wrong = replace(message, payload=replace(message.payload, stream=message.payload.stream ^ 1))
    refusal = only_answer(nodes[0].receive(wrong, 2), Refusal, 2)
    assert "contribution.payload.stream: names another kept set" in refusal.reason


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
    assert list(nodes[3].client.left_out) == [(1, (0, 0)), (1, (1, 0))]
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
