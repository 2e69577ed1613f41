"""Escrows travel together: when an owner passes them on, in how many messages, and how many fit."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from eris.core.errors import MalformedMessage, RefusedContribution
from eris.core.shards import RandomPlan
from eris.protocol.authority.standing import Scheduled, Standing
from eris.protocol.messages import Contribution, Outgoing, Result, Reveal, RevealRequest
from eris.protocol.round import aggregator
from eris.protocol.round.member import Member
from eris.protocol.secure.collecting import SecureDesk
from eris.protocol.secure.escrow import Escrow
from eris.protocol.secure.opening import Deposits
from eris.protocol.secure.seats import Threshold
from eris.protocol.secure.simulated import Vaults
from eris.protocol.secure.terms import SecureSums
from eris.protocol.secure.wire import (
    ACCEPTED,
    CLOSE,
    DEPOSIT,
    MOST_DEPOSITS,
    escrow_bytes,
    read_deposits,
    read_escrow,
    read_verdicts,
    write_deposits,
    write_verdicts,
)
from eris.protocol.settings import Settings
from eris.protocol.view import View
from eris.testing import initial_model

TWO_OF_THREE = Threshold(2, 3)
MEMBERS, SHARDS, SEGMENTS, N = 6, 2, 3, 60
SETTINGS = Settings(
    N, RandomPlan(SHARDS), secure=SecureSums(TWO_OF_THREE), segment_size=10, min_included=4,
    quorum=4, close_after=1.0, catch_up_after=3.0, retry_every=0.4,
)  # fmt: skip
VIEW = View.serverless([f"m{k}" for k in range(MEMBERS)], aggregators=SHARDS)
POST = deque[tuple[int, int, Outgoing]]


def rows_of(message: RevealRequest) -> list[int]:
    """The clients whose escrows are passed on."""
    return [client for client, _ in read_deposits(message.data, TWO_OF_THREE)]


def is_deposit(outgoing: Outgoing) -> bool:
    message = outgoing.message
    return isinstance(message, RevealRequest | Reveal) and message.data[:1] == DEPOSIT


class Floor:
    """Members whose messages are carried in the order in which they were said."""

    def __init__(self) -> None:
        vaults = Vaults(SETTINGS)
        views = (Scheduled(vaults.seat(VIEW), 1),)
        self.members = [
            Member(SETTINGS, Standing(me, views, VIEW.members, 10, 0), initial_model(N, 1),
                   rounds=3, vault=vaults[me])
            for me in range(MEMBERS)
        ]  # fmt: skip
        self.post: POST = deque()
        self.now, self.said = 0.0, []
        for member in self.members:
            self.say(member.me, member.start(0.0))

    said: list[Outgoing]
    """All that was ever said, in this order."""

    def say(self, sender: int, out: list[Outgoing]) -> None:
        member = self.members[sender]
        while (more := member.pull(self.now)) is not None:
            out = out + more
        self.said += out
        self.post.extend((sender, to, one) for one in out for to in one.to)

    def train(self, *clients: int) -> None:
        for client in clients:
            member = self.members[client]
            assert member.job is not None
            update = np.full(N, 1 + client, np.float32)
            self.say(client, member.trained(update, 1 + client, 1, self.now))

    def carry(self, lost: Callable[[Outgoing], bool] = lambda one: False) -> None:
        """Carry what was said, and what is said to that."""
        while self.post:
            sender, to, one = self.post.popleft()
            if not lost(one):
                self.say(to, self.members[to].receive(one.message, sender, self.now))

    def tick(self, now: float) -> None:
        self.now = now
        for member in self.members:
            self.say(member.me, member.tick(now))

    def wait(self, now: float) -> None:
        """Let time pass as a runtime does: a member is called when it wants to be."""
        while (next_ := min(member.wakes_at for member in self.members)) <= now:
            self.tick(max(self.now, next_))
            self.carry()
        self.now = now

    def deposits(self) -> list[tuple[int, list[int]]]:
        """The shard and the clients of every message that passes escrows on."""
        return [
            (one.message.header.shard, rows_of(one.message))
            for one in self.said
            if is_deposit(one) and isinstance(one.message, RevealRequest)
        ]

    def results(self) -> dict[tuple[int, int], frozenset[int]]:
        found = [one.message for one in self.said if isinstance(one.message, Result)]
        assert len({one.header.key for one in found}) == len(found)
        return {one.header.key: one.included for one in found}


def test_a_round_has_one_message_of_escrows_a_shard_and_helper_and_one_answer() -> None:
    floor = Floor()
    floor.train(*range(MEMBERS))
    floor.carry()
    assert floor.results() == {
        (shard, number): frozenset(range(MEMBERS))
        for shard in range(SHARDS)
        for number in range(SEGMENTS)
    }
    others = [[k for k in range(MEMBERS) if k != shard] for shard in range(SHARDS)]
    helpers, need = TWO_OF_THREE.seats, TWO_OF_THREE.need
    assert floor.deposits() == [(s, others[s]) for s in range(SHARDS) for _ in range(helpers)]
    kinds = Counter(type(one.message).__name__ for one in floor.said)
    closed = SHARDS * SEGMENTS
    assert kinds == {
        "Contribution": closed * (MEMBERS - 1),
        "RevealRequest": SHARDS * helpers + closed * need,
        "Reveal": SHARDS * helpers + closed * need,
        "Result": closed,
    }


def test_of_many_clients_few_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner's own words, which nobody keeps seeds of, count as a client's."""
    monkeypatch.setattr(aggregator, "GATHERED", 2)
    floor = Floor()
    floor.train(*range(MEMBERS))
    floor.carry()
    for shard in range(SHARDS):
        rows = [rows for where, rows in floor.deposits() if where == shard]
        assert rows == [some for some in ([1 - shard], [2, 3], [4, 5]) for _ in range(3)]
    assert set(floor.results().values()) == {frozenset(range(MEMBERS))}


def test_who_is_late_keeps_escrows_no_longer_than_a_time_of_asking() -> None:
    """Words would wait singly in memory: they are passed on then, the late one's at once."""
    floor = Floor()
    floor.train(0, 1, 2, 3, 4)
    floor.carry()
    assert floor.deposits() == []
    floor.wait(0.39)
    assert floor.deposits() == []
    floor.wait(0.41)
    assert len(floor.deposits()) == 6
    assert {len(rows) for _, rows in floor.deposits()} == {4}
    owner = floor.members[0].node.aggregator
    assert not any(state.collector.waiting for state in owner._open.values())
    assert floor.results() == {}
    floor.now = 0.5
    floor.train(5)
    floor.carry()
    assert floor.deposits()[6:] == [(shard, [5]) for shard in range(SHARDS) for _ in range(3)]
    assert set(floor.results().values()) == {frozenset(range(MEMBERS))}


def test_what_comes_before_the_deadline_counts_though_helpers_hear_of_it_at_the_deadline() -> None:
    floor = Floor()
    floor.train(0, 1)
    floor.carry()
    floor.wait(0.9)
    assert floor.members[0].node.aggregator.round == 1
    floor.train(2, 3)
    floor.carry()
    floor.wait(0.99)
    assert floor.results() == {}
    floor.wait(1.01)
    assert len(floor.results()) == SHARDS * SEGMENTS
    assert set(floor.results().values()) == {frozenset(range(4))}


def test_helpers_that_accept_nothing_by_then_are_asked_once_more_and_given_up() -> None:
    floor = Floor()
    floor.train(0, 1, 2, 3, 4)
    while floor.now < 1.3:
        floor.carry(lost=is_deposit)
        floor.tick(floor.now + 0.05)
    assert floor.results() == {}
    assert {len(rows) for _, rows in floor.deposits()} == {4}
    while floor.now < 1.5:
        floor.carry(lost=is_deposit)
        floor.tick(floor.now + 0.05)
    assert set(floor.results().values()) == {frozenset()}


def test_an_offer_that_is_lost_is_made_again() -> None:
    floor = Floor()
    floor.train(*range(MEMBERS))
    floor.carry(lost=is_deposit)
    assert len(floor.deposits()) == 6
    assert floor.results() == {}
    floor.wait(0.45)
    assert len(floor.deposits()) == 12
    assert set(floor.results().values()) == {frozenset(range(MEMBERS))}


# -- answers ----------------------------------------------------------------------------------


def is_opening(outgoing: Outgoing) -> bool:
    message = outgoing.message
    return isinstance(message, Reveal) and message.data[:1] == CLOSE


def test_an_answer_that_comes_after_others_were_asked_opens_the_sum() -> None:
    """Of every pair of seats one answer is late, and no later question is heard."""
    floor = Floor()
    floor.train(*range(MEMBERS))
    held: list[Outgoing] = []

    def late(one: Outgoing) -> bool:
        seen = {other.message.header.key for other in held}
        if is_opening(one) and one.message.header.key not in seen:
            held.append(one)
            return True
        return False

    floor.carry(lost=late)
    assert floor.results() == {}
    floor.tick(floor.now)  # from now on answers are waited for
    floor.tick(floor.now + SETTINGS.retry_every)
    asked = [one for _, _, one in floor.post if isinstance(one.message, RevealRequest)]
    assert {one.message.header.key for one in asked} == {one.message.header.key for one in held}
    floor.carry(lost=lambda one: isinstance(one.message, RevealRequest))
    assert floor.results() == {}
    floor.post.extend((one.message.header.sender, to, one) for one in held for to in one.to)
    floor.carry()
    assert set(floor.results().values()) == {frozenset(range(MEMBERS))}


def test_a_sum_that_does_not_fit_counts_once_however_often_its_seats_were_asked() -> None:
    """Nobody answers in time, so seats come round again; then one of them lies, twice."""
    floor = Floor()
    floor.train(*range(MEMBERS))
    held: list[Outgoing] = []

    def hold(one: Outgoing) -> bool:
        held.extend([one] if is_opening(one) else [])
        return is_opening(one)

    floor.carry(lost=hold)
    for turn in range(6):  # a wait begins when a member is next called
        floor.tick(turn // 2 * SETTINGS.retry_every)
        floor.carry(lost=hold)
    first = held[0]
    assert isinstance(first.message, Reveal)
    key, seats = first.message.header.key, first.message.data[33]
    answers: dict[int, list[Outgoing]] = {}
    for one in held:
        message = one.message
        assert isinstance(message, Reveal)
        if (message.header.key, message.data[33]) == (key, seats):
            answers.setdefault(message.header.sender, []).append(one)
    assert [len(mine) for mine in answers.values()] == [2, 2]
    liar = max(answers)
    (owner,) = first.to
    desk = floor.members[owner].node.aggregator.desk
    assert isinstance(desk, SecureDesk)
    given: list[Outgoing] = []
    for turn in range(2):
        for sender, mine in answers.items():
            one, message = mine[turn], mine[turn].message
            assert isinstance(message, Reveal)
            if sender == liar:
                false = message.data[:-1] + bytes([message.data[-1] ^ 1])
                one = replace(one, message=replace(message, data=false))
            given.append(one)
            floor.post.append((sender, owner, one))
        floor.carry(lost=lambda one: is_opening(one) and one not in given)
        assert [*desk.misfitted.values()] == [1]
        assert {*desk.named} == {liar}


# -- sizes ------------------------------------------------------------------------------------


def escrow(number: int) -> Escrow:
    data = number.to_bytes(4, "little") + bytes(escrow_bytes(TWO_OF_THREE) - 4)
    return read_escrow(data, TWO_OF_THREE)


def test_a_message_holds_so_many_escrows_and_not_one_more() -> None:
    rows = [(number, escrow(number)) for number in range(MOST_DEPOSITS + 1)]
    assert list(read_deposits(write_deposits(rows[:-1]), TWO_OF_THREE)) == rows[:-1]
    with pytest.raises(MalformedMessage, match=f"has more than {MOST_DEPOSITS} rows"):
        list(read_deposits(write_deposits(rows), TWO_OF_THREE))
    said = {one.digest: ACCEPTED for _, one in rows}
    with pytest.raises(MalformedMessage, match=f"has more than {MOST_DEPOSITS} rows"):
        read_verdicts(write_verdicts(said))
    said.popitem()
    assert read_verdicts(write_verdicts(said)) == said


def test_an_owner_with_more_clients_than_fit_sends_several_messages() -> None:
    desk = Floor().members[0].node.aggregator.desk
    assert isinstance(desk, SecureDesk)
    count = 2 * MOST_DEPOSITS + 1
    for number in range(count):
        desk.deposits(1, 0).offer(number, escrow(number))
    for again in (False, True):
        made = list(desk.offers(1, 0, again=again))
        sizes = [len(list(read_deposits(data, TWO_OF_THREE))) for _, data in made]
        assert sizes == 3 * [MOST_DEPOSITS, MOST_DEPOSITS, 1]
        helpers = desk.helpers(1, 0)
        assert [helper for helper, _ in made] == [h for h in helpers for _ in range(3)]
    assert list(desk.offers(1, 0)) == [], "what was offered is not offered again unasked"


def test_a_client_with_many_escrows_is_refused_by_the_owner_and_spoils_no_message() -> None:
    """A helper keeps two of a client, and refuses a message with a third as a whole."""
    deposits = Deposits(TWO_OF_THREE)
    assert deposits.offer(4, escrow(1))
    assert deposits.offer(4, escrow(2))
    assert not deposits.offer(4, escrow(1)), "the same again"
    with pytest.raises(RefusedContribution, match="more than 2 escrows in a round"):
        deposits.offer(4, escrow(3))
    assert deposits.offer(5, escrow(4))
    assert len(deposits.escrows) == len(deposits.fresh) == 3


def test_contributions_say_which_escrow_is_theirs_in_every_segment() -> None:
    """None depends on another's arrival: any of them brings the escrow to the owner."""
    floor = Floor()

    def first_segment(one: Outgoing) -> bool:
        return isinstance(one.message, Contribution) and one.message.header.segment == 0

    floor.train(*range(MEMBERS))
    floor.carry(lost=first_segment)
    assert len(floor.deposits()) == SHARDS * TWO_OF_THREE.seats
    assert set(floor.results()) == {(s, n) for s in range(SHARDS) for n in (1, 2)}
