"""One member over the rounds, message by message: when it trains, sends, publishes and goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eris.core.compress import RandP
from eris.core.errors import InvalidSetting, RefusedContribution
from eris.core.shards import RandomPlan
from eris.protocol.authority.standing import Scheduled, Standing
from eris.protocol.messages import CatchUp, Contribution, Refusal, Result
from eris.protocol.round.ending import Phase
from eris.protocol.round.member import Member
from eris.protocol.schemes import Masked
from eris.protocol.settings import Settings
from eris.protocol.view import NOBODY, View
from eris.testing import assert_same_bits, initial_model
from support.members import (
    AGREED,
    NAMES,
    VIEW,
    N,
    contribution_to,
    deliver,
    member,
    of_kind,
    play,
    pulled,
    standing,
    started,
    train,
    update,
)

# -- a round ----------------------------------------------------------------------------------


def test_rounds_follow_each_other_as_results_come_in() -> None:
    members = [member(me) for me in range(3)]
    play(members, 3)
    for one in members:
        assert set(one.node.replica.versions.values()) == {3}
        assert_same_bits(one.model, members[0].model)
        assert one.phase is Phase.TRAINING
        assert not one.node.refused
        assert not one.node.client.left_out
    assert not np.array_equal(members[0].model, initial_model(N, 1))


def test_after_the_last_round_a_member_is_done() -> None:
    members = [member(me, rounds=2) for me in range(3)]
    play(members, 2)
    assert {(one.phase, one.finished, one.job) for one in members} == {(Phase.DONE, True, None)}
    assert members[0].wakes_at == float("inf")


def test_a_job_is_a_copy_of_the_model() -> None:
    one = started(2)
    assert one.job is not None
    one.job.model[:] = 7
    assert_same_bits(one.model, initial_model(N, 1))


def test_a_member_without_data_follows_the_results() -> None:
    view = View(NAMES, clients=(0, 1), owners=(0, 1), epoch=1)
    members = [member(me, Scheduled(view, 1)) for me in range(3)]
    for one in members:
        one.start(0.0)
    assert members[2].phase is Phase.EXCHANGING
    for one in members[:2]:
        deliver(members, one.me, train(one), 0.1)
    assert [one.round for one in members] == [2, 2, 2]


def test_training_that_comes_too_late_is_discarded_and_counted() -> None:
    members = [started(me) for me in range(3)]
    slow = members[2]
    for one in members[:2]:
        deliver(members, one.me, train(one), 0.1)
    for owner in members[:2]:
        deliver(members, owner.me, owner.tick(1.2), 1.2)
    assert (slow.round, slow.phase) == (1, Phase.TRAINING), "nobody interrupts a trainer"
    assert train(slow, 5.0) == []
    assert slow.discarded == 1
    assert slow.round == 2


# -- silence ----------------------------------------------------------------------------------


def test_after_silence_a_member_asks_and_sends_again() -> None:
    one = started(2)
    sent = train(one, 0.1)
    assert len(of_kind(sent, Contribution)) == 2
    assert one.wakes_at == pytest.approx(2.1)
    assert one.tick(2.0) == []
    again = one.tick(2.1)
    assert of_kind(again, Contribution) == sent
    asks = of_kind(again, CatchUp)
    assert [(ask.to, ask.message.header.key) for ask in asks] == [((0,), (0, 0)), ((1,), (1, 0))]
    assert one.wakes_at == pytest.approx(2.6)
    # One word is not enough where it is not the owner's: two others are asked at a time.
    assert [ask.to for ask in of_kind(one.tick(2.6), CatchUp)] == [(0, 1), (1, 0)]


def test_a_member_waits_for_a_round_in_which_nothing_has_happened() -> None:
    one = started(2)
    train(one)
    for tick in range(100):
        one.tick(2.0 + tick)
    assert (one.round, one.phase) == (1, Phase.EXCHANGING)


def test_a_member_goes_on_when_the_others_have() -> None:
    members = [started(me) for me in range(3)]
    behind = members[2]
    train(behind)
    play_without = members[:2]
    for round in (1, 2):
        for one in play_without:
            deliver(play_without, one.me, train(one), 0.1)
        for one in play_without:
            deliver(play_without, one.me, one.tick(1.2), 1.2)
        assert [one.round for one in play_without] == [round + 1] * 2
    assert behind.round == 1
    # One result of round 2 tells that round 1 is over; what is missing is asked for, in vain.
    newest = members[0].node.replica.result_of((0, 0), 2)
    assert newest is not None
    behind.receive(newest, 0, 3.0)
    assert behind.highest == 2
    for tick in range(8):
        behind.tick(3.5 + tick / 2)
    assert behind.round == 2


def test_a_client_that_has_failed_trains_again_if_the_round_stands_still() -> None:
    one = started(2)
    assert one.failed(0.1) == []
    assert (one.phase, one.job) == (Phase.EXCHANGING, None)
    for asked in (2.1, 2.6, 3.1):
        assert one.wakes_at == pytest.approx(asked)
        assert {type(out.message) for out in one.tick(asked)} == {CatchUp}
    assert one.job is None
    assert one.tick(3.6) == []
    assert one.job is not None
    assert one.job.round == 1


def test_an_update_out_of_range_is_refused_before_anything_of_it_is_sent() -> None:
    one = started(2)
    bad = update(one, 1)
    bad[-1] = np.nan
    with pytest.raises(RefusedContribution, match="the first is nan at coordinate"):
        one.trained(bad, 3, 1, 0.1)
    assert one.failed(0.1) == []
    assert one.pull(0.2) is None
    assert one.node.client.unanswered == []


def test_when_every_owner_says_so_nobody_waits_for_a_round() -> None:
    members = [started(me, abstain_through=2) for me in range(3)]
    for now in (0.1, 0.2):
        for one in members:
            assert one.job is None, "it may have contributed before it started again"
            deliver(members, one.me, one.tick(now), now)
    assert [one.round for one in members] == [3, 3, 3]
    assert all(one.job is not None for one in members)


def test_a_segment_that_has_moved_on_since_it_was_trained_is_not_sent() -> None:
    members = [started(me) for me in range(3)]
    out = [train(one) for one in members[:2]]
    client = members[2]
    assert client.job is not None
    for one, sent in zip(members, out, strict=False):
        deliver(members[:2], one.me, sent, 0.2)
    for one in members[:2]:
        deliver(members, one.me, one.tick(5.0), 5.0)  # results of round 1 without it
    versions = client.node.replica.versions
    assert set(versions.values()) == {1}
    assert client.trained(update(client, 1), 3, 1, 5.1) == []
    assert pulled(client, 5.1) == []
    assert client.discarded == 1


def test_a_client_that_gives_nothing_says_so_and_the_round_is_over() -> None:
    members = [started(0), started(1, abstain_through=1), started(2, abstain_through=1)]
    deliver(members, 0, train(members[0]), 0.1)
    assert members[0].round == 1
    for one in members[1:]:
        deliver(members, one.me, one.tick(0.2), 0.2)
    # anna waits for nobody any more: what she had alone is withheld, ben abstains.
    assert [one.round for one in members] == [2, 2, 2]
    result = members[2].node.replica.result_of((0, 0), 1)
    assert result is not None
    assert result.payload is None
    assert not any("gives nothing" in note for note in members[0].node.refused)


# -- owning -----------------------------------------------------------------------------------


def test_without_a_permit_an_owner_does_not_open_a_round() -> None:
    owner, client = started(0, through=0), started(2)
    first = contribution_to(0, client)
    owner.renewal_due = False
    assert owner.receive(first, 2, 0.2) == []
    assert owner.renewal_due
    assert owner.node.aggregator.round == 0
    owner.stand(standing(0, through=1), 0.3)
    assert owner.receive(first, 2, 0.4) == []
    assert owner.node.aggregator.round == 1
    second = replace(first, header=replace(first.header, round=2))
    owner.tick(3.0)
    owner.renewal_due = False
    owner.receive(second, 2, 3.0)
    assert owner.renewal_due
    assert owner.node.aggregator.round == 1


def test_an_owner_opens_a_round_when_it_is_through_with_the_last() -> None:
    owner, client = started(0), started(2)
    first = contribution_to(0, client)
    second = replace(first, header=replace(first.header, round=2))
    owner.receive(first, 2, 0.2)
    owner.receive(second, 2, 0.3)
    assert owner.node.aggregator.round == 1
    owner.tick(1.2)  # the first round's deadline, without a quorum
    owner.receive(second, 2, 1.3)
    assert owner.node.aggregator.round == 2


def test_an_owner_that_restarted_abstains_and_says_so() -> None:
    owner, client = started(0, abstain_through=1), started(2)
    first = contribution_to(0, client)
    (answer,) = owner.receive(first, 2, 0.2)
    assert answer.to == (2,)
    assert isinstance(answer.message, Refusal)
    assert answer.message.no_result
    assert "publishes no result of round 1" in answer.message.reason
    assert owner.node.aggregator.round == 0
    client.receive(answer.message, 0, 0.3)
    assert client.missing(1) == [(1, 0)], "it waits for the other shard alone"
    owner.receive(replace(first, header=replace(first.header, round=2)), 2, 0.4)
    assert owner.node.aggregator.round == 2


def test_an_owner_that_is_unsure_waits_for_the_word_of_enough_others() -> None:
    owner, clients = started(0, unsure=True), [started(1), started(2)]
    assert owner.job is None, "it may have contributed before"
    assert owner.node.aggregator.round == 0, "its own word is not worth anything"
    sent = [contribution_to(0, client) for client in clients]
    assert owner.receive(sent[0], 1, 0.2) == []
    assert owner.receive(sent[0], 1, 0.2) == []
    later = replace(sent[1], header=replace(sent[1].header, round=2))
    (answer,) = owner.receive(later, 2, 0.3)
    assert isinstance(answer.message, Refusal)
    assert answer.message.no_result
    assert owner.ownership.abstain_through == 4
    owner.receive(replace(later, header=replace(later.header, round=5)), 2, 0.4)
    assert owner.node.aggregator.round == 5


def test_who_asks_says_where_it_is() -> None:
    one, other = started(2), started(1)
    ask = CatchUp(other.agreement.header(1, 9, (0, 0)), 0)
    one.receive(replace(ask, header=replace(ask.header, sender=0)), 1, 0.1)
    one.receive(replace(ask, header=replace(ask.header, federation=3)), 1, 0.1)
    assert one.highest == 0
    one.receive(ask, 1, 0.1)
    assert one.highest == 2, "one word is worth one round"


def test_only_the_owner_can_say_that_no_result_will_come() -> None:
    one = started(2)
    train(one)
    header = one.agreement.header(1, 1, (0, 0))  # ben does not own shard 0
    one.receive(Refusal(header, "no", no_result=True), 1, 0.2)
    old = replace(one.agreement.header(0, 1, (0, 0)), round=0)
    one.receive(Refusal(old, "no", no_result=True), 0, 0.2)
    assert one.missing(1) == [(0, 0), (1, 0)]


def test_an_owner_asks_a_client_that_is_further_on() -> None:
    owner, client = started(0), started(2)
    ahead = replace(contribution_to(0, client), based_on=3)
    ahead = replace(ahead, header=replace(ahead.header, round=4))
    (ask,) = owner.receive(ahead, 2, 0.2)
    assert ask.to == (2,)
    assert isinstance(ask.message, CatchUp)
    assert ask.message.have == 0
    assert owner.node.aggregator.round == 0


def test_results_are_published_with_a_quorum_only() -> None:
    owner, clients = started(0), [started(1), started(2)]
    owner.receive(contribution_to(0, clients[0]), 1, 0.2)
    assert of_kind(owner.tick(50.0), Result) == []
    out = owner.receive(contribution_to(0, clients[1]), 2, 50.1)
    (result,) = of_kind(out, Result)
    assert result.to == (1, 2)
    assert isinstance(result.message, Result)
    assert result.message.included == {1, 2}


# -- the authority ----------------------------------------------------------------------------


def test_an_answer_that_is_older_changes_nothing() -> None:
    later = View(NAMES, clients=(0, 1, 2), owners=(2, 1), epoch=2)
    one = started(2, Scheduled(VIEW, 1), Scheduled(later, 4), through=6)
    one.stand(standing(2, through=9), 0.5)
    assert one.agreement.view == later
    assert one.ownership.through == 6
    one.stand(standing(2, Scheduled(VIEW, 1), Scheduled(later, 4), through=3, round=0), 0.6)
    assert one.ownership.through == 6
    assert one.round == 1


def test_no_round_is_taken_backwards() -> None:
    members = [member(me) for me in range(3)]
    play(members, 3)
    one, versions = members[2], dict(members[2].node.replica.versions)
    old = members[0].node.replica.result_of((0, 0), 2)
    assert old is not None
    one.receive(old, 0, 9.0)
    one.stand(standing(2, round=1), 9.0)
    assert (one.round, one.highest) == (4, 3)
    assert one.node.replica.versions == versions


def test_a_later_epoch_in_a_message_is_a_reason_to_ask_the_authority() -> None:
    owner, client = started(0), started(2)
    owner.renewal_due = False
    strange = contribution_to(0, client)
    owner.receive(replace(strange, header=replace(strange.header, epoch=2)), 2, 0.2)
    assert owner.renewal_due
    assert owner.node.aggregator.round == 0
    assert "epoch 2" in owner.node.refused[-1]


@pytest.mark.parametrize(("clients", "goes"), [((1, 2), True), ((2,), False)])
def test_a_member_jumps_to_a_view_in_which_something_can_happen(
    clients: tuple[int, ...], goes: bool
) -> None:
    one = started(2)
    train(one)
    later = View(NAMES, clients, owners=(2, NOBODY), epoch=2)
    one.stand(standing(2, Scheduled(VIEW, 1), Scheduled(later, 5)), 0.5)
    for tick in range(20):
        one.tick(2.0 + tick)
    assert one.round == (5 if goes else 1)


def test_a_shard_that_waits_is_not_waited_for() -> None:
    view = View(NAMES, clients=(0, 1, 2), owners=(0, NOBODY), epoch=1)
    members = [member(me, Scheduled(view, 1)) for me in range(3)]
    play(members, 2)
    assert members[2].node.replica.versions == {(0, 0): 2, (1, 0): 0}


def test_a_newcomer_takes_what_two_members_hold_or_the_owner_does() -> None:
    members = [member(me) for me in range(3)]
    play(members, 3)
    # It is not told who owned the shards in rounds before the ninth.
    later = View((*NAMES, "dora"), clients=(0, 1, 2, 3), owners=(3, 2), epoch=7)
    newcomer = member(3, Scheduled(later, 9), round=9)
    asked = newcomer.start(0.0)
    assert [(ask.to, ask.message.header.key) for ask in of_kind(asked, CatchUp)] == [
        ((0, 1), (0, 0)),
        ((2,), (1, 0)),
    ]
    versions = newcomer.node.replica.versions
    result = members[0].node.replica.result_of((0, 0), 1)
    assert result is not None
    newcomer.receive(result, 0, 0.1)
    assert versions[0, 0] == 0, "anna may have owned the shard then, but who knows"
    for source in (0, 1):
        assert versions[0, 0] == 0
        newcomer.receive(members[source].node.replica.snapshot((0, 0), source), source, 0.1)
    assert versions[0, 0] == 3
    newcomer.receive(members[2].node.replica.snapshot((1, 0), 2), 2, 0.1)
    assert versions[1, 0] == 3, "the word of the owner is enough"
    # Whoever knows the round's view refuses what is not of it.
    fresh = started(2)
    fresh.receive(replace(result, header=replace(result.header, epoch=3)), 0, 0.1)
    assert fresh.node.replica.versions[0, 0] == 0


# -- restarts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("agreed", [{}, {"scheme": Masked(RandP(0.5))}])
def test_a_member_goes_on_from_its_checkpoint(agreed: dict[str, Any]) -> None:
    members = [member(me, agreed=agreed) for me in range(3)]
    play(members, 3)
    state = {name: value.copy() for name, value in members[2].state().items()}
    again = member(2, agreed=agreed, round=4)
    again.restore(state)
    assert again.start(0.0) == []
    assert (again.round, again.phase) == (4, Phase.TRAINING)
    assert_same_bits(again.model, members[2].model)
    assert again.node.replica.versions == members[2].node.replica.versions
    assert not np.shares_memory(again.model, state["model"])


def test_a_member_whose_checkpoint_is_old_catches_up_first() -> None:
    members = [member(me) for me in range(3)]
    state = members[2].state()
    play(members, 3)
    again = member(2, round=4)
    again.restore({name: value for name, value in state.items() if name != "model"} | {
        "model": initial_model(N, 1)})  # fmt: skip
    asked = again.start(0.0)
    assert again.phase is Phase.CATCHING_UP
    assert [ask.message.have for ask in asked if isinstance(ask.message, CatchUp)] == [0, 0]
    deliver([*members[:2], again], 2, asked, 0.1)
    assert (again.round, again.phase) == (4, Phase.TRAINING)
    assert_same_bits(again.model, members[0].model)


def test_one_that_finds_nobody_begins_all_the_same() -> None:
    alone = member(2, round=4)
    alone.start(0.0)
    for tick in range(6):
        alone.tick(3.0 + tick)
    assert alone.round == 4


def test_a_checkpoint_without_a_round_is_refused() -> None:
    one = member(2)
    state = one.state()
    del state["round"]
    with pytest.raises(InvalidSetting, match="checkpoint is 'no round'"):
        one.restore(state)


# -- what is refused --------------------------------------------------------------------------


def test_what_only_the_simulator_can_do_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"rotate is 2; expected 0 where members may fail"):
        member(0, agreed={"plan": RandomPlan(2, rotate=2)})


def test_a_member_needs_a_view_to_begin_in() -> None:
    nothing = Standing(0, (), NAMES, 0, 0)
    with pytest.raises(InvalidSetting, match="standing is 'without a view'"):
        Member(Settings(**AGREED), nothing, initial_model(N, 1), rounds=3)
