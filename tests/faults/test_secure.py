"""Secure sums in simulated worlds: the laws of docs/secure-sums.md, and bugs that break them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eris.protocol.agreement import Agreement, Key
from eris.protocol.messages import RevealRequest
from eris.protocol.round.aggregator import Aggregator
from eris.protocol.round.helping import Helping
from eris.protocol.round.member import Member
from eris.protocol.round.ownership import Ownership
from eris.protocol.round.roles import Node
from eris.protocol.schemes.collector import Asking
from eris.protocol.secure import collecting, sending
from eris.protocol.secure.collecting import MOST_PAIRS, SecureCollector, SecureDesk
from eris.protocol.secure.helper import Helper
from eris.protocol.secure.keys import MemberKeys
from eris.protocol.secure.opening import Opening
from eris.protocol.secure.seats import Threshold
from eris.protocol.secure.sums import Answer, MaskedSum, OpenedSum
from eris.protocol.secure.terms import SecureSums
from eris.protocol.secure.wire import write_deposits
from eris.testing.shape import Shape
from eris.testing.weather import Trouble
from eris.testing.world import World
from support.bugs import catch

# What is masked cannot be looked at: a client is trusted for its values, as in any mean.
KINDS = frozenset(Trouble) - {Trouble.POISON}
SHAPE = Shape(members=6, shards=3, rounds=10, min_included=4, kept=1.0, secure="2 of 3")
PASSING = (Trouble.CRASH, Trouble.LEAVE, Trouble.DROP, Trouble.DELAY, Trouble.OUTAGE)


@pytest.mark.parametrize("first", range(0, 8, 4))
def test_the_laws_hold_whatever_fails(first: int) -> None:
    opened = 0
    for seed in range(first, first + 4):
        world = World(seed, shape=Shape.secured(seed), kinds=KINDS)
        world.run()
        opened += world.witness.saw["a sum is opened"]
    assert opened > 60


@pytest.mark.parametrize("secure", ["2 of 3", "3 of 4", "3 of 3"])
def test_in_fine_weather_every_sum_is_opened_and_is_the_mean_of_all(secure: str) -> None:
    world = World(3, shape=replace(SHAPE, secure=secure, rounds=6), kinds=frozenset())
    world.run()
    results = world.witness.results.values()
    assert len(results) == 6 * 3
    assert all(result.included == frozenset(range(6)) for result in results)


def test_a_round_that_nobody_has_reached_is_not_answered() -> None:
    """One owner that asks about an absurd round would keep a member from answering all others."""
    world = World(3, shape=SHAPE, kinds=frozenset())
    world.run_until(1.0)
    member = next(h.member for h in world.hosts if h.member and h.member.me == 1)
    owner = member.agreement.view.owners[0]
    header = replace(member.agreement.header(owner, 1, (0, 0)), round=member.rounds)
    request = RevealRequest(header, frozenset(), b"\x01")
    assert member.receive(request, owner, 1.0) == []
    assert "nobody else has reached round 10" in list(member.node.refused)[-1]


# -- bugs -------------------------------------------------------------------------------------


def again_with_fewer(self: SecureCollector, silent: frozenset[int]) -> Asking:
    """The set shrinks where somebody is silent, and is signed once more."""
    opening, statement = self._closing
    if len(statement.included) > self._desk.terms.least_masked + 1:
        opening.statement = replace(statement, included=statement.included[:-1])
        opening.signature = opening._keys.signing.sign(opening.statement.encode())
    return self._ask()


def test_law_1_an_owner_that_closes_again_and_helpers_that_forget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = Helper.answer

    def forgetful(self: Helper, *asked: Any, **more: Any) -> Any:
        self._log.clear()
        return answer(self, *asked, **more)

    ask = Aggregator._ask

    def ask_about_what_is_left(self: Aggregator, key: Key, state: Any, asking: Asking) -> None:
        statement = state.collector._closing[1]
        named = {one.client for one in statement.included}
        state.included = frozenset(named | ({statement.owner} if statement.own else set()))
        ask(self, key, state, asking)

    monkeypatch.setattr(SecureCollector, "again", again_with_fewer)
    monkeypatch.setattr(Helper, "answer", forgetful)
    monkeypatch.setattr(Aggregator, "_ask", ask_about_what_is_left)
    law = "sums of two sets are opened"
    catch(monkeypatch, law, Trouble.DROP, Trouble.DELAY, shape=SHAPE)


def test_law_2_a_sum_of_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Agreement, "enough", lambda self, round: 1)
    monkeypatch.setattr(SecureSums, "least_masked", 1)
    law = "masked clients is opened|a sum of too few clients"
    catch(monkeypatch, law, *PASSING, most=60, shape=SHAPE)


def test_law_3_a_sum_that_is_published_without_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = MaskedSum.opened

    def unchecked(self: MaskedSum, *given: Any) -> OpenedSum:
        found = opened(self, *given)
        found.total[:1] += 1 << 30
        return found

    monkeypatch.setattr(MaskedSum, "opened", unchecked)
    catch(monkeypatch, "is not the mean", shape=SHAPE)


def test_law_4_a_box_that_holds_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Threshold, "known_to", lambda self, seat: self.parts)
    catch(monkeypatch, "knows parts of other seats", shape=SHAPE)


def test_law_6_an_owner_that_passes_on_an_escrow_of_another_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[Any] = []

    def replayed(escrows: Any) -> bytes:
        kept.extend(escrows)
        return write_deposits(kept)

    monkeypatch.setattr(collecting, "write_deposits", replayed)
    catch(monkeypatch, "did not make for it", shape=SHAPE)


def test_law_7_clients_that_do_not_say_what_they_trained_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "model_name", lambda *_: bytes(16))
    law = "a sum over different models is opened"
    catch(monkeypatch, law, Trouble.CRASH, Trouble.TORN, Trouble.DROP, Trouble.DELAY, shape=SHAPE)


def test_law_8_a_helper_that_opens_what_has_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Helper.answer

    def heedless(self: Helper, *asked: Any, over: Callable[[], bool]) -> Any:
        return answer(self, *asked, over=lambda: False)

    monkeypatch.setattr(Helper, "answer", heedless)
    law = "opens what it knows the result of"
    catch(monkeypatch, law, *PASSING, Trouble.DUPLICATE, most=60, shape=SHAPE)


def test_law_8_a_result_that_names_another_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SecureCollector, "closed", bytes(32))
    catch(monkeypatch, "ends in a sum that was not opened", shape=SHAPE)


def test_a_helper_that_answers_whoever_asks_after_a_takeover(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = Node._check

    def check_no_epoch(self: Node, message: object, source: int) -> None:
        if not isinstance(message, RevealRequest):
            check(self, message, source)  # type: ignore[arg-type]

    monkeypatch.setattr(Node, "_check", check_no_epoch)
    monkeypatch.setattr(Ownership, "permits", lambda self, round: not self.abstains(round))
    law = "that is not its own|published without a permit|in epochs|belongs to|two sets"
    catch(monkeypatch, law, Trouble.DEATH, Trouble.OUTAGE, Trouble.DROP, most=40, shape=SHAPE)


def world_with_a_liar(lie: Callable[[Answer], Answer]) -> tuple[World, int, Member]:
    """A world in fine weather, over, and the first helper of shard 0, who lied, and its owner."""
    world = World(5, shape=SHAPE, kinds=frozenset())
    world.run_until(1.0)
    members = {h.member.me: h.member for h in world.hosts if h.member}
    view = next(iter(members.values())).agreement.view
    assert view.seating is not None
    liar, owner = view.seating.helpers[0][0], members[view.owners[0]]
    assert world.witness.sums is not None
    world.witness.sums.lying.add(liar)
    helping = members[liar].node.helping
    assert isinstance(helping, Helping)
    given = helping.helper.answer

    def wrong(*asked: Any, **more: Any) -> Answer:
        return lie(given(*asked, **more))

    helping.helper.answer = wrong  # type: ignore[method-assign]
    world.run()
    return world, liar, owner


def test_a_helper_that_lies_is_named_and_the_sum_is_opened_by_others() -> None:
    """A wrong answer is found by the check words, and the audit says whose it is."""

    def lie(made: Answer) -> Answer:
        return replace(made, wire=bytes([made.wire[0] ^ 1]) + made.wire[1:])

    world, liar, owner = world_with_a_liar(lie)
    desk = owner.node.aggregator.desk
    assert isinstance(desk, SecureDesk)
    assert desk.left_out(10) == {liar}
    assert any(f"member {liar} lied" in note for note in owner.node.refused)
    assert len(world.witness.results) == 10 * 3, "and nothing is withheld for that"


def misfitted() -> int:
    """How many openings of one owner fail where a helper blinds wrongly, which no audit finds.

    Words of (1, -2, 1) times anything leave both check words as they are.
    """

    def lie(made: Answer) -> Answer:
        words = np.frombuffer(made.wire, "<u8").copy()
        words[:3] += np.array([1 << 62, 1 << 63, 1 << 62], np.uint64)
        return replace(made, wire=words.tobytes())

    world, liar, owner = world_with_a_liar(lie)
    desk = owner.node.aggregator.desk
    assert isinstance(desk, SecureDesk)
    assert len(world.witness.results) == 10 * 3
    assert not desk.named
    assert not desk.blamed
    assert all(liar in pair for pair in desk.misfitted)
    return sum(desk.misfitted.values())


def test_seats_that_cannot_open_together_are_asked_last_and_nobody_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others open the sum at once, if they hold the escrows by then."""
    few, asked = misfitted(), Opening.asked
    monkeypatch.setattr(Opening, "asked", lambda self, without, _: asked(self, without))
    assert 0 < few < misfitted()


def test_a_name_ends_with_the_keys_that_it_was_found_under() -> None:
    world = World(5, shape=SHAPE, kinds=frozenset())
    world.run_until(1.0)
    member = next(h.member for h in world.hosts if h.member)
    desk, agreement = member.node.aggregator.desk, member.agreement
    assert isinstance(desk, SecureDesk)
    view = agreement.view_at(1)
    assert view.seating is not None
    desk.blame([frozenset({3}), frozenset({4, 5})], 1)
    assert desk.left_out(1) == {3}, "a pair is written down"
    for _ in range(MOST_PAIRS - 1):
        desk.blame([frozenset({4, 5})], 1)
    assert desk.left_out(1) == {3, 4, 5}
    stated = list(view.seating.statements)
    assert stated[3] is not None
    stated[3] = replace(stated[3], keys=MemberKeys.of(bytes(96)).public)
    renewed = replace(view, seating=replace(view.seating, statements=tuple(stated)))
    desk.agreement = Agreement(agreement.settings, renewed)
    assert desk.left_out(1) == {4, 5}, "of another start, or with new keys"
    desk.blame([frozenset({3})], 1)
    assert desk.left_out(1) == {3, 4, 5}
