"""Owner, helpers and clients of one shard: one set opens, once, and liars are named.

Every rule is shown twice: that it holds, and that without it the attack it prevents succeeds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from eris.core.ring import Words, to_wire
from eris.protocol.secure.escrow import Root, seal
from eris.protocol.secure.helper import (
    Helper,
    LacksEscrow,
    RefusedClosing,
)
from eris.protocol.secure.pads import add_pads, nonce, pad_key
from eris.protocol.secure.sums import (
    Answer,
    Included,
    MaskedSum,
    Misfit,
    Statement,
    mask,
    plain_head,
    plain_words,
)
from support.sum_shard import (
    COUNT,
    MODEL,
    OTHER_MODEL,
    OWNER,
    PLACE,
    SHAPE,
    F,
    Shard,
    closed,
    fewer,
)


@pytest.mark.parametrize("words", ["2 of 3", "3 of 4", "2 of 2", "3 of 3"])
def test_the_sum_of_those_it_was_closed_on_opens_whoever_of_the_seats_answers(words: str) -> None:
    shard = Shard(words)
    shard.give([0, 1, 3, 5])
    shard.opening.add_own(MODEL, *shard.plain(OWNER))
    shard.pass_on()
    statement = shard.opening.close(4)
    assert statement is not None
    assert shard.opening.included == {0, 1, 3, 5, OWNER}
    for asked in combinations(range(shard.threshold.seats), shard.threshold.need):
        assert shard.opened(asked).total.tolist() == shard.total([0, 1, 3, 5, OWNER])


def test_words_wait_until_enough_seats_hold_their_seeds() -> None:
    shard = Shard()
    shard.give(range(5))
    shard.pass_on([1])
    assert shard.opening.close(4) is None, "one seat cannot open"
    shard.pass_on([2])
    assert shard.opening.close(4) is not None
    assert shard.opening.asked() == (1, 2)


def test_all_of_a_set_are_held_by_the_same_seats_whatever_these_say_later() -> None:
    shard = Shard()
    shard.give(range(4))
    shard.pass_on([0, 1])
    assert shard.opening.included == {0, 1, 2, 3}
    shard.give([4])
    shard.deposits.accepted[shard.escrow(4).digest] |= {1, 2}
    shard.opening.settle()
    assert 4 not in shard.opening.included, "only seat 1 holds them all"
    for k in range(4):
        shard.deposits.accepted[shard.escrow(k).digest].add(2)
    shard.opening.settle()
    assert shard.opening.included == {0, 1, 2, 3, 4}
    shard.deposits.accepted[shard.escrow(0).digest].discard(1)
    assert shard.opening.close(4) is not None
    assert shard.opening.asked() is None, "of seats 1 and 2 one lacks an escrow"


def test_what_comes_after_closing_is_not_in_the_sum() -> None:
    shard = Shard()
    shard.give(range(4))
    shard.pass_on()
    shard.opening.close(4)
    assert not shard.opening.add(5, shard.sent(5), shard.escrow(5))
    assert shard.opened().total.tolist() == shard.total(range(4))


def test_a_dead_seat_is_asked_last() -> None:
    shard = Shard()
    shard.give(range(4))
    shard.pass_on()
    shard.opening.close(4)
    assert shard.opening.asked() == (0, 1)
    shard.deposits.silent.add(0)
    assert shard.opening.asked() == (1, 2)
    assert shard.opened((1, 2)).total.tolist() == shard.total(range(4))


@pytest.mark.parametrize("words", ["2 of 3", "3 of 4"])
def test_over_the_segments_of_a_shard_all_seats_are_asked_as_often(words: str) -> None:
    asked: Counter[int] = Counter()
    for segment in range(12):
        shard = Shard(words, replace(SHAPE, segment=segment))
        shard.give(range(5))
        shard.pass_on()
        shard.opening.close(4)
        way = shard.opening.asked()
        assert way is not None
        assert shard.opening.asked() == way, "whoever is asked again is asked the same"
        asked.update(way)
    need, seats = shard.threshold.need, shard.threshold.seats
    assert asked == dict.fromkeys(range(seats), 12 * need // seats)


def difference(shard: Shard, statement: Statement, without: int) -> list[int]:
    """What an owner learns that opens a set and the same without one."""
    sums = []
    for said in (statement, fewer(statement, without)):
        total = MaskedSum(COUNT, 8)
        for one in said.included:
            total.add(shard.sent(one.client).head, shard.sent(one.client).wire)
        given = [shard.answer(seat, (0, 1), said) for seat in (0, 1)]
        sums.append(total.opened(given, 1 << F).total)
    return [int(word) for word in sums[0] - sums[1]]


def test_a_second_set_of_a_segment_and_round_is_not_answered() -> None:
    shard, statement = closed()
    shard.opened((0, 1))
    with pytest.raises(RefusedClosing, match="another set of that segment and round"):
        shard.answer(0, (0, 1), fewer(statement, 3))
    assert shard.answer(0, (0, 2)), "the same set with other seats"
    for helper in shard.at.values():
        helper._log.clear()
    found = difference_without_log(shard, statement, 3)
    assert found == shard.total([3]), "without the log a client is read"


def difference_without_log(shard: Shard, statement: Statement, without: int) -> list[int]:
    class Forgetful(dict[tuple[int, int, int], bytes]):
        def __setitem__(self, key: tuple[int, int, int], value: bytes) -> None:
            pass

    for helper in shard.at.values():
        helper._log = Forgetful()
    return difference(shard, statement, without)


def test_the_log_is_by_round_whatever_the_epoch() -> None:
    shard, statement = closed()
    shard.answer(0, (0, 1))
    later = replace(SHAPE, place=replace(PLACE, epoch=2))
    said = replace(statement, shape=later)
    with pytest.raises(RefusedClosing, match="another set of that segment and round"):
        shard.answer(0, (0, 1), said, later)


def test_sets_below_the_floor_are_not_answered() -> None:
    shard, statement = closed()
    rows = statement.included
    with pytest.raises(RefusedClosing, match="a sum hides 3 clients at least"):
        shard.answer(0, (0, 1), replace(statement, included=rows[:2], own=True))
    with pytest.raises(RefusedClosing, match="a sum is of 4 clients at least"):
        shard.answer(0, (0, 1), replace(statement, included=rows[:3]))
    few = Shard()
    few.give(range(2))
    few.opening.add_own(MODEL, *few.plain(OWNER))
    few.pass_on()
    assert few.opening.close(3) is None, "the owner's own contribution hides nobody"


def test_an_owner_cannot_invent_clients_around_a_victim() -> None:
    shard, statement = closed()
    forged = Root.drawn(bytes(32), bytes(32))
    pair = shard.keys[OWNER].shared(7, OWNER, 0, shard.keys[0].public)
    for client in (4, 5):
        seeds = forged.seeds(PLACE, shard.threshold)
        keys = dict.fromkeys(shard.helpers, pair.escrow_key(1, client, 0))
        false = seal(PLACE, client, shard.helpers, MODEL, seeds, keys, shard.threshold)
        with pytest.raises(Exception, match="does not open"):
            shard.at[0].deposit(PLACE, shard.views[0], client, false)
        rows = (*statement.included[:4], Included(client, bytes(16), false.digest))
        with pytest.raises(LacksEscrow, match=f"the escrow of client {client}"):
            shard.answer(0, (0, 1), replace(statement, included=rows))


def test_a_statement_is_of_the_owner_about_what_is_agreed_on() -> None:
    shard, statement = closed()
    signature = shard.keys[3].signing.sign(statement.encode())
    with pytest.raises(RefusedClosing, match="not signed by the shard's owner"):
        shard.at[0].answer(statement, signature, (0, 1), shard.views[0], SHAPE, over=lambda: False)
    signature = shard.keys[OWNER].signing.sign(statement.encode())
    with pytest.raises(RefusedClosing, match="a result of that segment and round is known"):
        shard.at[0].answer(statement, signature, (0, 1), shard.views[0], SHAPE, over=lambda: True)
    for said, why in (
        (replace(statement, owner=3), "not of the shard's owner"),
        (replace(statement, helpers=(0, 1, 3)), "another segment"),
        (replace(statement, shape=replace(SHAPE, segment=1)), "another segment"),
        (replace(statement, included=statement.included[::-1]), "each once"),
        (
            replace(statement, included=(*statement.included, Included(OWNER, b"", b""))),
            "each once",
        ),
        (replace(statement, model=OTHER_MODEL), "another model"),
    ):
        with pytest.raises(RefusedClosing, match=why):
            shard.answer(0, (0, 1), said)
    with pytest.raises(RefusedClosing, match="seat 0 is not among those asked"):
        shard.answer(0, (1, 2))
    with pytest.raises(RefusedClosing, match="has no seat"):
        Helper(5, shard.terms).deposit(PLACE, shard.views[0], 1, shard.escrow(1))


def test_clients_of_different_models_are_not_added_up() -> None:
    shard = Shard()
    shard.give([0, 1], OTHER_MODEL)
    shard.give([2, 3, 4, 5])
    shard.pass_on()
    assert shard.opening.close(4) is not None
    assert shard.opening.included == {2, 3, 4, 5}
    assert shard.opened().total.tolist() == shard.total([2, 3, 4, 5])
    split = Shard()
    split.give([0, 1, 2], OTHER_MODEL)
    split.give([3, 4, 5])
    split.pass_on()
    assert split.opening.close(4) is None, "enough were heard, and no model has enough: withheld"


def test_a_helper_keeps_two_escrows_of_a_client_and_forgets_rounds_that_are_over() -> None:
    shard, statement = closed()
    assert shard.at[0].deposit(PLACE, shard.views[0], 4, shard.escrow(4, OTHER_MODEL))
    with pytest.raises(RefusedClosing, match="has deposited 2 times"):
        shard.at[0].deposit(PLACE, shard.views[0], 4, shard.escrow(4, bytes([1] * 16)))
    shard.answer(0, (0, 1))
    shard.at[0].forget(PLACE.round)
    assert shard.audit(0) is shard.audit(0), "made once"
    with pytest.raises(RefusedClosing, match="another set of that segment and round"):
        shard.audit(0, fewer(statement, 3))
    shard.at[0].forget(PLACE.round + 1)
    assert not shard.at[0]._answers
    assert not shard.at[0]._audits
    with pytest.raises(LacksEscrow):
        shard.audit(0)
    with pytest.raises(LacksEscrow):
        shard.answer(0, (0, 1))


@pytest.mark.parametrize("words", ["2 of 3", "3 of 4"])
@pytest.mark.parametrize("ring_bytes", [4, 5, 6, 8])
def test_one_liar_is_named_and_nothing_is_published(words: str, ring_bytes: int) -> None:
    shape = replace(SHAPE, form=ring_bytes)
    asked = (0, 1) if words == "2 of 3" else (0, 1, 2)

    def begun(false: int | None = None) -> Shard:
        shard = Shard(words, shape)
        for k in range(6):
            shard.opening.add(k, shard.sent(k, off=5 if k == false else 0), shard.escrow(k))
        shard.pass_on()
        assert shard.opening.close(4) is not None
        return shard

    client = begun(false=5)
    with pytest.raises(Misfit):
        client.opened(asked)
    assert client.opening.blamed(asked, client.audits()) == [frozenset({5})]

    helper = begun()
    given = {seat: helper.answer(seat, asked) for seat in asked}
    spoilt = np.frombuffer(given[1].wire, np.uint8).copy()
    spoilt[0] ^= 1
    given[1] = Answer(given[1].head, spoilt.tobytes())
    for seat in asked[:-1]:
        assert helper.opening.answered(seat, asked, given[seat], 1 << F) is None
    with pytest.raises(Misfit):
        helper.opening.answered(asked[-1], asked, given[asked[-1]], 1 << F)
    assert helper.opening.blamed(asked, helper.audits()) == [frozenset({1})]
    assert helper.opening.asked() != asked, "another way to open the same set is tried"

    lying = begun()
    lying.opened(asked)
    said = lying.audits()
    part = lying.threshold.known_to(1)[0]
    said[1] = {**said[1], (5, part): (1, 1)}
    assert lying.opening.blamed(asked, said) == [frozenset({1})]


def test_a_sum_of_fewer_samples_than_clients_is_not_taken() -> None:
    """Five clients of one sample each, and one that says it has minus two: its check words fit."""
    shard = Shard()
    shard.give(range(5))
    head, words = shard.plain(5)
    head[0] = 2**64 - 2
    seeds = shard.roots[5].seeds(PLACE, shard.threshold)
    shard.opening.add(5, mask(head, words, shard.roots[5], SHAPE, seeds), shard.escrow(5))
    shard.pass_on()
    assert shard.opening.close(4) is not None
    with pytest.raises(Misfit, match="beyond what its samples can amount to"):
        shard.opened((0, 1))
    assert shard.opening.blamed((0, 1), shard.audits()) == []


def test_a_client_that_is_a_seat_cannot_have_an_honest_seat_named_alone() -> None:
    shard = Shard()
    for k in range(6):
        shard.opening.add(k, shard.sent(k, off=5 if k == 0 else 0), shard.escrow(k))
    shard.pass_on()
    assert shard.opening.close(4) is not None
    with pytest.raises(Misfit):
        shard.opened((0, 1))
    said = {seat: dict(words) for seat, words in shard.audits().items()}
    part = 4  # known to seats 0 and 1
    plain, weighted = said[0][0, part]
    said[0][0, part] = ((plain - 5) % 2**64, weighted)  # so that its own false word fits
    assert shard.opening.blamed((0, 1), said) == [frozenset({0, 1})]


def test_a_nonce_without_the_content_would_show_the_difference_of_two_updates() -> None:
    shard = Shard()
    seeds = shard.roots[1].seeds(PLACE, shard.threshold)

    def wire(value: float, fixed: bool) -> Words:
        words = plain_words(np.full(COUNT, value, np.float32), 1, F)
        head = plain_head(words, 1, 1)
        if not fixed:
            return np.frombuffer(mask(head, words, shard.roots[1], SHAPE, seeds).wire, "<u8")
        chosen = nonce(
            shard.roots[1], PLACE, 0, 2, 8, np.zeros(4, np.uint64), np.zeros(COUNT, np.uint64)
        )
        masked = words.copy()
        add_pads(head, masked, [pad_key(s, 0, COUNT, 8, chosen) for s in seeds.values()], 8)
        return np.frombuffer(to_wire(masked, 8), "<u8")

    update = plain_words(np.full(COUNT, 0.5, np.float32), 1, F)
    assert np.array_equal(wire(0.5, fixed=True) - wire(0.0, fixed=True), update)
    assert not np.isin(wire(0.5, fixed=False) - wire(0.0, fixed=False), update).any()
