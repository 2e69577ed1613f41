"""Whose word a member takes: an owner's of its shards, two members' of anything, nobody else's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eris.core.compress import encode_values
from eris.core.shards import RandomPlan
from eris.protocol.agreement import networked
from eris.protocol.authority.standing import Scheduled, Standing
from eris.protocol.messages import CatchUp, Holding, Message, Outgoing, Payload, Result, Snapshot
from eris.protocol.round.ending import Phase
from eris.protocol.round.member import AHEAD, Member
from eris.protocol.settings import Settings
from eris.protocol.view import View
from eris.testing import assert_same_bits, initial_model

N = 24
NAMES = ("anna", "ben", "cleo", "dora", "emil")
VIEW = View(NAMES, clients=(0, 1, 2, 3, 4), owners=(0, 1), epoch=1)
ABSURD = 10**6
TIMES: dict[str, Any] = {"close_after": 1.0, "catch_up_after": 2.0, "retry_every": 0.5}


def member(me: int, *, rounds: int = 40, round: int = 0, **options: Any) -> Member:
    plan = RandomPlan(2)
    settings = Settings(n=N, plan=plan, min_included=2, quorum=2, **TIMES)
    told = Standing(me, (Scheduled(VIEW, 1),), NAMES, 10, round)
    one = Member(settings, told, initial_model(N, 1), rounds=rounds, **options)
    one.start(0.0)
    return one


def trained(one: Member) -> None:
    one.trained(np.full(N, 0.5, np.float32), 1, 1, 0.1)
    while one.pull(0.1) is not None:
        pass


def values(number: float) -> Payload:
    return Payload(encode_values(np.full(N // 2, number, np.float32)))


def result(one: Member, round: int, *, previous: int | None = None, shard: int = 0) -> Result:
    before = round - 1 if previous is None else previous
    header = one.agreement.header(VIEW.owners[shard], round, (shard, 0))
    return Result(header, before, frozenset(range(5)), 5, 5, values(0.5))


def snapshot(one: Member, source: int, at: int, number: float = 0.25, shard: int = 0) -> Snapshot:
    header = one.agreement.header(source, max(1, at), (shard, 0))
    return Snapshot(header, at, at, values(number), None, ())


def asks(one: Member) -> list[Outgoing]:
    """Let a member ask for what is missing, three times: the owners, then two others at a time."""
    out: list[Outgoing] = []
    for time in (2.2, 2.8, 3.4):
        out += one.tick(time)
    return [said for said in out if isinstance(said.message, CatchUp)]


# -- results ----------------------------------------------------------------------------------


def test_a_result_is_taken_from_its_owner_alone() -> None:
    one = member(2)
    one.receive(result(one, 1), 3, 0.2)
    assert "claims to be from member 0" in one.node.refused[-1]
    mine = replace(result(one, 1), header=one.agreement.header(3, 1, (0, 0)))
    one.receive(mine, 3, 0.2)
    assert "member 3 does not own shard 0" in one.node.refused[-1]
    assert one.node.replica.versions[0, 0] == 0
    one.receive(result(one, 1), 0, 0.3)
    assert one.node.replica.versions[0, 0] == 1


def test_a_result_of_a_round_that_only_its_owner_has_reached_waits() -> None:
    one = member(2)
    for round in (1, 2, 3, 4):
        one.receive(result(one, round), 0, 0.2)
    assert one.node.replica.versions[0, 0] == 2
    assert one.highest == 2, "one word is worth one round"
    assert one.renewal_due, "the authority may know better"
    one.receive(CatchUp(one.agreement.header(3, 3, (0, 0)), 2), 3, 0.3)
    assert one.node.replica.versions[0, 0] == 4, "so two have reached the third"
    one.receive(result(one, 4 + 1 + AHEAD, previous=4), 0, 0.4)
    assert "nobody else has reached round" in one.node.refused[-1]
    one.receive(result(one, ABSURD, previous=4), 0, 0.4)
    assert "training ends after round 40" in one.node.refused[-1]
    assert one.node.replica.versions[0, 0] == 4


def test_what_the_authority_says_is_believed() -> None:
    one = member(2)
    for round in (1, 2, 3):
        one.receive(result(one, round), 0, 0.2)
    one.stand(Standing(2, (Scheduled(VIEW, 1),), NAMES, 10, 2), 0.3)
    assert one.node.replica.versions[0, 0] == 3


def test_a_result_too_far_ahead_does_not_keep_the_true_one_out() -> None:
    one = member(2)
    one.receive(result(one, 5, previous=0), 0, 0.2)
    one.receive(result(one, 1), 0, 0.3)
    assert one.node.replica.versions[0, 0] == 1


@pytest.mark.parametrize("kind", [CatchUp, Holding])
def test_one_member_in_an_absurd_round_ends_nobodys_training(kind: type[Message]) -> None:
    one = member(2)
    trained(one)
    for round in (40, 41, ABSURD):
        header = one.agreement.header(4, round, (0, 0))
        told = CatchUp(header, 0) if kind is CatchUp else Holding(header, round, bytes(16))
        for time in range(20):
            one.receive(told, 4, 0.2 + time / 10)
    assert one.highest == 2
    assert one.evidence.reached == 0
    assert one.phase is Phase.EXCHANGING


# -- states -----------------------------------------------------------------------------------


def test_a_state_that_nobody_asked_for_is_refused() -> None:
    one = member(2)
    one.receive(snapshot(one, 4, 1), 4, 0.2)
    assert "nobody asked it for the state of segment (0, 0)" in one.node.refused[-1]
    one.receive(snapshot(one, 0, 1), 0, 0.2)
    assert one.node.replica.versions[0, 0] == 0, "not even of the owner"


def test_a_state_of_a_round_that_nobody_has_reached_is_refused() -> None:
    one = member(2)
    trained(one)
    asks(one)
    for at in (3, ABSURD):
        one.receive(snapshot(one, 0, at), 0, 3.5)
        assert one.node.replica.versions[0, 0] == 0


def test_a_state_is_taken_from_the_owner_or_from_two_members_that_hold_the_same() -> None:
    one = member(2)
    trained(one)
    assert {to for said in asks(one) for to in said.to} == {0, 1, 3, 4}
    one.receive(snapshot(one, 3, 1), 3, 3.5)
    one.receive(snapshot(one, 3, 1), 3, 3.5)
    one.receive(snapshot(one, 4, 1, number=0.75), 4, 3.5)
    assert one.node.replica.versions[0, 0] == 0
    one.receive(snapshot(one, 4, 1), 4, 3.6)
    assert one.node.replica.versions[0, 0] == 1
    assert one.node.refused.count_of_all == 0, "to wait for a second word is nothing unusual"
    one.receive(snapshot(one, 1, 1, shard=1), 1, 3.6)
    assert one.node.replica.versions[1, 0] == 1


def test_an_owner_believes_nobody_about_what_it_would_have_published() -> None:
    owner = member(0)
    trained(owner)
    owner.receive(snapshot(owner, 3, 1), 3, 3.5)
    for peer in (3, 4):
        owner.evidence.asks([Outgoing((peer,), CatchUp(owner.agreement.header(0, 1, (0, 0)), 0))])
        owner.receive(snapshot(owner, peer, 1), peer, 3.5)
    assert owner.node.replica.versions[0, 0] == 0


def test_where_everybody_is_needed_an_owner_takes_one_word() -> None:
    """A result that died with its owner, and that one client has: without it there is no quorum."""
    small = View(NAMES[:3], clients=(0, 1), owners=(0, 1), epoch=2)
    owner = member(0, abstain_through=3, round=2)
    views = (Scheduled(VIEW, 1), Scheduled(small, 3))
    owner.stand(Standing(0, views, NAMES, 10, 3), 0.2)
    ask = CatchUp(owner.agreement.header(0, 1, (0, 0)), 0)
    owner.evidence.asks([Outgoing((1,), ask)])
    owner.receive(snapshot(owner, 1, 2), 1, 0.3)
    assert owner.node.replica.versions[0, 0] == 2


# -- quorums ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("clients", "enough"), [(3, 3), (5, 3), (6, 4), (9, 5)])
def test_a_result_needs_most_of_the_clients_there_are(clients: int, enough: int) -> None:
    """Of the view of its round: the same on every member, however many joined since the start."""
    names = tuple(f"m{number}" for number in range(9))
    first = View(names, (0, 1, 2), owners=(0,), epoch=1)
    later = View(names, tuple(range(clients)), owners=(0,), epoch=2)
    settings = Settings(n=N, quorum=2, min_included=3)
    agreement = networked(settings, (Scheduled(first, 1), Scheduled(later, 4)))
    assert [agreement.enough(round) for round in (1, 3, 4, 9)] == [3, 3, enough, enough]


def test_one_absurd_word_does_not_silence_an_owner_that_is_unsure() -> None:
    owner = member(0, unsure=True)

    def tell(client: int, round: int) -> None:
        other = member(client)
        header = other.agreement.header(client, round, (0, 0))
        contribution = replace(_contribution(other), header=header)
        owner.receive(contribution, client, 0.2)

    for client, round in ((4, 39), (1, 3), (2, 4)):
        tell(client, round)
        assert owner.ownership.unsure
    tell(3, 3)
    assert owner.ownership.abstain_through == 6


def _contribution(one: Member) -> Any:
    out = one.trained(np.full(N, 0.5, np.float32), 1, 1, 0.1)
    while (more := one.pull(0.1)) is not None:
        out += more
    return next(said.message for said in out if said.message.header.key == (0, 0))


# -- what is astray ---------------------------------------------------------------------------


def test_what_is_astray_is_asked_for_when_it_is_due_whatever_else_comes() -> None:
    one = member(2)
    trained(one)
    one.receive(result(one, 1), 0, 0.2)
    one.receive(replace(result(one, 2), previous=0), 0, 0.3)
    assert one.node.replica.astray == {(0, 0)}
    assert one.wakes_at <= 0.3
    one.receive(result(one, 1, shard=1), 1, 0.4)
    assert one.round == 2
    trained(one)
    assert one.wakes_at <= 0.4
    whole = [said.message for said in one.tick(0.5) if isinstance(said.message, CatchUp)]
    assert [(ask.header.key, ask.whole) for ask in whole if ask.whole] == [((0, 0), True)]


# -- the end ----------------------------------------------------------------------------------


def ended(*, trained_to: int = 0, rounds: int = 2) -> Member:
    """A member that is through without the last results of the first shard."""
    one = member(2, rounds=rounds, round=rounds + 1)
    for round in range(1, trained_to + 1):
        one.receive(result(one, round), 0, 0.1)
    for round in range(1, rounds + 1):
        one.receive(result(one, round, shard=1), 1, 0.1)
    for time in range(4):
        one.tick(3.0 + time)
    assert one.phase is Phase.DONE
    return one


def wait(one: Member, times: int, start: float = 10.0) -> list[Outgoing]:
    out: list[Outgoing] = []
    for time in range(times):
        out += one.tick(start + time)
    return out


def hold(one: Member, source: int, *, round: int = 3) -> None:
    state = one.node.replica.state_of((0, 0))
    one.receive(Holding(one.agreement.header(source, round, (0, 0)), *state), source, 20.0)


def test_who_finds_nobody_is_not_finished_and_says_what_is_missing() -> None:
    one = ended(trained_to=1)
    asked = wait(one, 12)
    assert {to for said in asked for to in said.to} == {0, 1, 3, 4}
    assert one.exhausted
    assert not one.finished
    assert one.ending.missing() == (
        "the model is not complete after 2 rounds: shard 0 (of anna) is known up to round 1; "
        "0 of 24 coordinates were never trained; asked in vain: anna, ben, dora, emil"
    )


@pytest.mark.parametrize(("words", "finished"), [((0,), True), ((1, 3), True), ((3,), False)])
def test_that_there_is_no_last_result_is_known_from_the_owner_or_most_members(
    words: tuple[int, ...], finished: bool
) -> None:
    # Only clients and owners matter, five; with itself three hold the same.
    one = ended(trained_to=1)
    for source in words:
        hold(one, source)
    assert not one.finished, "before all have been asked somebody may have more"
    wait(one, 6)
    assert one.finished is finished
    assert bool(one.ending.missing()) is not finished


def test_what_was_never_trained_is_not_complete_whoever_says_so() -> None:
    one = ended()
    for source in (0, 1, 3, 4):
        hold(one, source)
    wait(one, 12)
    assert not one.finished
    assert "12 of 24 coordinates were never trained" in one.ending.missing()


def test_a_result_that_comes_late_completes_the_model() -> None:
    one = ended(trained_to=1)
    wait(one, 12)
    assert not one.finished
    one.receive(result(one, 2), 0, 30.0)
    assert one.finished
    assert one.ending.missing() == ""


def test_one_that_is_through_tells_what_it_holds() -> None:
    one = ended(trained_to=2)
    ask = CatchUp(one.agreement.header(3, 3, (0, 0)), 2)
    (answer,) = one.receive(ask, 3, 20.0)
    assert answer.to == (3,)
    assert isinstance(answer.message, Holding)
    assert (answer.message.at, answer.message.digest) == one.node.replica.state_of((0, 0))


def test_a_last_result_that_only_one_member_has_gives_way_to_what_the_others_hold() -> None:
    others = ended(trained_to=1)
    one = ended(trained_to=2)
    assert one.finished
    before = others.node.replica.state_of((0, 0))
    state = others.node.replica.snapshot((0, 0), 3)
    one.receive(CatchUp(one.agreement.header(3, 3, (0, 0)), 1), 3, 20.0)
    for source in (1, 3, 4):
        header = one.agreement.header(source, 3, (0, 0))
        one.receive(Holding(header, *before), source, 20.0)
    wait(one, 12, start=21.0)
    assert one.node.replica.orphaned == {(0, 0)}
    assert not one.finished
    for source in (3, 4):
        header = replace(state.header, sender=source)
        one.receive(replace(state, header=header), source, 40.0)
    assert_same_bits(one.model, others.model)
    assert one.node.replica.versions[0, 0] == 1
