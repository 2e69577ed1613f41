"""A gossiping member, moved by hand: what it waits for, what it asks, what it never does twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from eris.core.errors import InvalidSetting, RefusedContribution
from eris.core.vectors import Vector
from eris.methods.epidemic import EpidemicLearning
from eris.protocol.authority.standing import Scheduled, Standing
from eris.protocol.gossip.member import MOST_AGAIN, MOST_EARLY, GossipMember
from eris.protocol.gossip.peer import GossipSettings, Nodes
from eris.protocol.messages import CatchUp, Message, Outgoing, Refusal, Share
from eris.protocol.round.ending import Phase
from eris.protocol.settings import model_digest
from eris.protocol.view import View

NAMES = ("anna", "ben", "cleo")
INITIAL = np.zeros(4, np.float32)
SETTINGS = GossipSettings(
    4, 3, "el", (("degree", 2),), initial=model_digest(INITIAL), close_after=10.0, retry_every=2.0
)


def nodes(settings: GossipSettings) -> Nodes:
    return EpidemicLearning(degree=2).among(settings.nodes).nodes(settings)


def standing(
    me: int, clients: Sequence[int] = (0, 1, 2), *, through: int = 99, round: int = 0,
    later: Sequence[Scheduled] = (),
) -> Standing:  # fmt: skip
    view = View(NAMES, tuple(clients), (), epoch=1)
    return Standing(me, (Scheduled(view, 1), *later), NAMES, through, round)


def member(me: int = 0, *, abstain: int = 0, rounds: int = 20, through: int = 99) -> GossipMember:
    return GossipMember(
        SETTINGS,
        standing(me, through=through),
        INITIAL,
        rounds=rounds,
        nodes=nodes,
        abstain_through=abstain,
    )


def begun(me: int = 0, value: float = 0.0, rounds: int = 20) -> tuple[GossipMember, list[Outgoing]]:
    """A member that has trained for round 1, and what it said."""
    one = member(me, rounds=rounds)
    one.start(0.0)
    return one, one.trained(np.full(4, value, np.float32), 1, 1, 0.0)


def share(sender: int, value: float = 0.0, round: int = 1) -> Share:
    """What a member that holds a value everywhere sends."""
    one = GossipMember(SETTINGS, standing(sender), INITIAL, rounds=99, nodes=nodes)
    one._enter(round, 0.0)
    (said,) = one.trained(np.full(4, -value, np.float32), 1, 1, 0.0)
    assert isinstance(said.message, Share)
    return said.message


def messages(out: Sequence[Outgoing], kind: type[Message]) -> list[tuple[int, ...]]:
    return [one.to for one in out if isinstance(one.message, kind)]


def test_a_round_is_over_when_all_neighbours_are_heard() -> None:
    anna, said = begun()
    assert messages(said, Share) == [(1, 2)]
    anna.receive(share(1, 3.0), 1, 0.1)
    assert (anna.round, anna.phase) == (1, Phase.EXCHANGING)
    anna.receive(share(2, 6.0), 2, 0.2)
    assert (anna.round, anna.phase) == (2, Phase.TRAINING)
    assert anna.model.tolist() == [3.0] * 4


def test_what_is_missing_at_the_deadline_is_asked_for_and_then_not_mixed() -> None:
    anna, _ = begun()
    anna.receive(share(1, 3.0), 1, 0.1)
    assert anna.wakes_at == 2.0
    assert messages(anna.tick(2.0), CatchUp) == [(2,)]
    anna.tick(10.0)
    assert (anna.round, anna.mixed, anna.missed) == (2, 1, 1)
    assert anna.model.tolist() == [1.5] * 4
    anna.receive(share(2, 6.0), 2, 10.1)
    assert (anna.late, anna.model.tolist()) == (1, [1.5] * 4)


def test_nobody_goes_on_alone() -> None:
    anna, _ = begun()
    for second in range(1, 60):
        anna.tick(float(second))
    assert anna.round == 1
    question = CatchUp(SETTINGS.in_view(3, 1).header(1, 1, 0, 0), 0)
    anna.receive(question, 1, 60.0)  # ben is as far, and hears nobody either
    assert anna.round == 2


def test_shares_of_later_rounds_wait_for_theirs_and_have_a_limit() -> None:
    anna, _ = begun()
    for round in range(2, 3 + MOST_EARLY):
        anna.receive(share(1, 1.0, round), 1, 0.1)
    assert anna.refused.count_of_all == 1
    for sender in (1, 2):
        anna.receive(share(sender, 1.0), sender, 0.1)
    anna.failed(0.2)
    anna.receive(share(2, 1.0, 2), 2, 0.3)
    assert anna.round == 3


def test_what_comes_twice_counts_once() -> None:
    anna, _ = begun()
    for _ in range(3):
        anna.receive(share(1, 3.0), 1, 0.1)
    anna.receive(share(2, 0.0), 2, 0.2)
    assert anna.model.tolist() == [1.0] * 4


def test_what_was_sent_is_sent_again_to_who_asks_but_not_for_ever() -> None:
    anna, (said,) = begun()
    question = CatchUp(SETTINGS.in_view(3, 1).header(1, 1, 0, 0), 0)
    for _ in range(MOST_AGAIN):
        assert anna.receive(question, 1, 1.0) == [Outgoing((1,), said.message)]
    assert anna.receive(question, 1, 1.0) == []


def test_who_has_gone_on_says_so_and_is_not_waited_for() -> None:
    ben = member(1)
    ben._enter(7, 0.0)
    question = CatchUp(SETTINGS.in_view(3, 1).header(0, 1, 0, 0), 0)
    (answer,) = ben.receive(question, 0, 0.0)
    assert isinstance(answer.message, Refusal)
    anna, _ = begun()
    anna.receive(share(2, 0.0), 2, 0.1)
    anna.receive(answer.message, 1, 0.1)
    assert anna.round == 1, "what ben sent before may be on its way"
    anna.tick(2.1)
    assert anna.round == 2


def test_a_member_that_met_nobody_goes_where_the_others_are() -> None:
    anna, _ = begun()
    for source in (1, 2):
        past = Refusal(SETTINGS.in_view(3, 1).header(source, 9, 0, 0), "gone", no_result=True)
        anna.receive(past, source, 0.1)
    anna.tick(2.1)
    assert anna.round == 9


def test_one_member_alone_cannot_move_another_far() -> None:
    anna, _ = begun()
    past = Refusal(SETTINGS.in_view(3, 1).header(1, 9, 0, 0), "gone", no_result=True)
    anna.receive(past, 1, 0.1)
    anna.tick(10.0)
    assert anna.round == 2


def test_nothing_is_sent_without_a_permit_nor_in_rounds_of_an_earlier_life() -> None:
    anna = member(abstain=5, through=5)
    anna.start(0.0)
    assert (anna.round, anna.job, anna.renewal_due) == (6, None, True)
    anna.stand(standing(0, through=6), 1.0)
    assert anna.job is not None
    assert anna.job.round == 6


def test_a_neighbour_that_is_not_in_the_newest_view_is_not_waited_for() -> None:
    anna, _ = begun()
    anna.receive(share(1, 3.0), 1, 0.1)
    smaller = Scheduled(View(NAMES, (0, 1), (), epoch=2), 4)
    anna.stand(standing(0, later=[smaller]), 0.2)
    assert anna.round == 2


def test_the_graph_is_drawn_over_those_who_are_there() -> None:
    anna = GossipMember(SETTINGS, standing(0, clients=(0, 2)), INITIAL, rounds=9, nodes=nodes)
    anna.start(0.0)
    (said,) = anna.failed(0.0)
    assert said.to == (2,)


def test_a_member_without_others_waits_for_them() -> None:
    anna = GossipMember(SETTINGS, standing(0, clients=(0,)), INITIAL, rounds=9, nodes=nodes)
    anna.start(0.0)
    assert (anna.phase, anna.job) == (Phase.CATCHING_UP, None)
    anna.stand(standing(0, (0,), later=[Scheduled(View(NAMES, (0, 1), (), epoch=2), 4)]), 1.0)
    assert (anna.round, anna.phase) == (4, Phase.TRAINING)


def test_a_state_is_gone_on_from_after_its_round() -> None:
    anna, _ = begun(value=-2.0)
    again = member()
    again.restore(anna.state())
    again.start(0.0)
    assert again.round == 2
    assert again.model.tolist() == anna.model.tolist() == [2.0] * 4
    with pytest.raises(InvalidSetting, match="federation that gossips"):
        member().restore({"round": np.array([1])})


def test_an_update_that_leads_nowhere_is_refused_and_changes_nothing() -> None:
    anna = member()
    anna.start(0.0)
    with pytest.raises(RefusedContribution):
        anna.trained(np.full(4, np.nan, np.float32), 1, 1, 0.0)
    assert messages(anna.failed(0.0), Share) == [(1, 2)]


def test_messages_that_make_no_sense_are_noted_and_change_nothing() -> None:
    anna, _ = begun()
    right = share(1)
    view: Vector = anna.model.copy()
    anna.receive(right, 2, 0.0)  # in another's name
    anna.receive(share(1, 1.0, 90), 1, 0.0)  # of a round that there is not
    other = GossipSettings(4, 3, "el", (("degree", 2),), seed=1).in_view(3, 1)
    anna.receive(CatchUp(other.header(1, 1, 0, 0), 0), 1, 0.0)  # of another federation
    assert anna.refused.count_of_all == 3
    assert anna.awaited() == {1, 2}
    assert anna.model.tolist() == view.tolist()


def test_training_ends_after_the_last_round() -> None:
    anna, _ = begun(rounds=1)
    for sender in (1, 2):
        anna.receive(share(sender), sender, 0.1)
    assert anna.finished
    assert anna.wakes_at == float("inf")
