"""Sums that owners open with the help of members, in simulated worlds; and bugs put in there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eris.core.errors import InvalidSetting
from eris.protocol.agreement import Agreement, Key
from eris.protocol.messages import Outgoing, Result, RevealRequest
from eris.protocol.round.aggregator import Aggregator, _Revealing
from eris.protocol.round.ownership import Ownership
from eris.protocol.round.revealed import Revealed
from eris.protocol.round.roles import Node
from eris.protocol.view import View
from eris.runtimes.cohort import Cohort
from eris.testing.synthetic import SyntheticTraining
from eris.testing.weather import Trouble
from eris.testing.world import World
from support.bugs import catch
from support.shares import SharedShape

# What is masked cannot be looked at, so nobody refuses values that are none, or a lie.
KINDS = frozenset(Trouble) - {Trouble.POISON, Trouble.LIE}
MASKED = SharedShape(members=5, shards=3, rounds=14, min_included=2, kept=1.0, shares=True)
PASSING = (Trouble.CRASH, Trouble.LEAVE, Trouble.DROP, Trouble.DELAY, Trouble.OUTAGE)


def drawn(seed: int) -> SharedShape:
    return replace(SharedShape.drawn(seed), shares=True, kept=1.0, roster=False)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_the_laws_hold_where_sums_are_opened(first: int) -> None:
    opened = withheld = 0
    for seed in range(first, first + 20):
        world = World(seed, shape=drawn(seed), kinds=KINDS)
        world.run()
        opened += world.witness.saw["a sum is opened"]
        withheld += world.witness.saw["a result is withheld"]
    assert opened > 500
    assert withheld > 10, "also where answers do not come"


def test_in_fine_weather_every_sum_is_opened_and_is_the_mean_of_all() -> None:
    world = World(3, shape=MASKED, kinds=frozenset())
    world.run()
    results = world.witness.results.values()
    assert len(results) == 14 * 3
    assert all(result.included == frozenset(range(5)) for result in results)


def test_members_in_step_refuse_what_needs_questions() -> None:
    settings = MASKED.settings(seed=1)
    population = SyntheticTraining(settings.n).population(5)
    view = View.serverless(["anna", "ben", "cleo", "dora", "emil"], aggregators=3)
    with pytest.raises(InvalidSetting, match="scheme is 'additive-shares'; expected one without"):
        Cohort(Agreement(settings, view), MASKED.initial(seed=1), population)


def test_a_round_that_nobody_has_reached_is_not_answered() -> None:
    """One owner that asks about an absurd round would keep a member from answering all others."""
    world = World(3, shape=MASKED, kinds=frozenset())
    world.run_until(1.0)
    member = next(h.member for h in world.hosts if h.member and h.member.me == 1)
    owner = member.agreement.view.owners[0]
    header = replace(member.agreement.header(owner, 1, (0, 0)), round=member.rounds)
    request = RevealRequest(header, frozenset(range(5)), b"")
    assert member.receive(request, owner, 1.0) == []
    assert "nobody else has reached round 14" in list(member.node.refused)[-1]
    assert not member.node.revealed._sets.keys() & {(14, (0, 0))}


# -- bugs -------------------------------------------------------------------------------------


def test_an_owner_that_closes_again_without_those_that_are_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Caught by: sums of one set are opened in a segment and round."""
    wait = Aggregator._wait_for_answers

    def close_again(self: Aggregator, now: float) -> list[Result]:
        for key, state in list(self._revealing.items()):
            if now >= state.until and len(state.included) > self._enough:
                state.included = frozenset(sorted(state.included)[:-1])
                state.until = now + 1
                self._ask(key, state)
        return wait(self, now)

    monkeypatch.setattr(Aggregator, "_wait_for_answers", close_again)
    law = "sums of two sets are opened"
    catch(monkeypatch, law, *PASSING, most=60, shape=MASKED)


def test_a_member_that_answers_about_two_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: nobody tells of two sets of a segment and round. The owner is to blame as well,
    so here its question is not looked at."""
    answer, ask = Revealed.answer, Aggregator._ask

    def answer_all(self: Revealed, request: RevealRequest) -> list[Outgoing]:
        self._sets.clear()
        return answer(self, request)

    def ask_about_less(self: Aggregator, key: Key, state: _Revealing) -> None:
        ask(self, key, state)
        if len(state.included) > self._enough:
            less = frozenset(sorted(state.included)[:-1])
            for out in list(self.questions):
                assert isinstance(out.message, RevealRequest)
                if out.message.header.key == key:
                    data = out.message.data[: 16 * len(less)]
                    self.questions.append(
                        replace(out, message=replace(out.message, included=less, data=data))
                    )

    monkeypatch.setattr(Revealed, "answer", answer_all)
    monkeypatch.setattr(Aggregator, "_ask", ask_about_less)
    monkeypatch.setattr("eris.testing.witness.Witness._check_question", lambda *_: None)
    catch(monkeypatch, "has told of two sets", shape=MASKED)


def test_an_owner_that_ends_in_another_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: a result is of the set that was opened."""
    close = Aggregator._close

    def close_and_take_more(self: Aggregator, key: Key) -> list[Result]:
        made = close(self, key)
        if (state := self._revealing.get(key)) is not None:
            state.collector.included.add(max(self.agreement.view.clients))
        return made

    monkeypatch.setattr(Aggregator, "_close", close_and_take_more)
    law = "ends in another set than the one that was opened|who sent nothing|is not the mean"
    catch(monkeypatch, law, *PASSING, most=40, shape=MASKED)


def test_a_member_that_opens_sums_of_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: a sum has a quorum of clients."""
    monkeypatch.setattr(Aggregator, "_may_close", lambda self, key: key in self._open)
    monkeypatch.setattr(Aggregator, "_enough", 1)
    catch(monkeypatch, "a sum of . clients is opened", *PASSING, most=40, shape=MASKED)


def test_an_owner_that_opens_a_sum_after_its_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: nobody does in a round what it may have done before it restarted."""
    monkeypatch.setattr(Ownership, "abstains", lambda self, round: self.unsure)
    law = "sums of two sets|contributed two contents|may have before it restarted|has two results"
    catch(monkeypatch, law, *PASSING, most=60, shape=MASKED)


def test_a_member_that_answers_whoever_asks_after_a_takeover(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Caught by: only the owner of a round's view opens its sums."""
    check = Node._check

    def check_no_epoch(self: Node, message: object, source: int) -> None:
        if not isinstance(message, RevealRequest):
            check(self, message, source)  # type: ignore[arg-type]

    monkeypatch.setattr(Node, "_check", check_no_epoch)
    monkeypatch.setattr(Ownership, "permits", lambda self, round: not self.abstains(round))
    law = "that is not its own|published without a permit|in epochs|belongs to"
    catch(monkeypatch, law, Trouble.DEATH, Trouble.OUTAGE, Trouble.DROP, most=40, shape=MASKED)
