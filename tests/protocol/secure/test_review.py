"""What a review of secure sums found: each attack fails, and succeeds without the rule against it.

The table in docs/secure-sums.md says which finding is which.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eris.core.errors import RefusedContribution
from eris.core.ring import add_wire
from eris.protocol.secure import escrow as escrow_module
from eris.protocol.secure import pads, sums
from eris.protocol.secure.escrow import DisputedEscrow, Escrow, Root, seal, unseal
from eris.protocol.secure.helper import LacksEscrow, RefusedClosing
from eris.protocol.secure.labels import ShardRound, digest, label
from eris.protocol.secure.noise_terms import SharedNoise
from eris.protocol.secure.noising import ALARM, SharedNoising, spread
from eris.protocol.secure.opening import Deposits
from eris.protocol.secure.sums import (
    Answer,
    MaskedSum,
    Misfit,
    Statement,
    mask,
    misfit_of,
    plain_head,
    plain_words,
)
from eris.protocol.secure.vault import Vault
from support.sum_shard import COUNT, MODEL, OTHER_MODEL, PLACE, SHAPE, F, Shard, closed, fewer

VICTIM = 5


def opens(shard: Shard, statement: Statement, asked: tuple[int, ...], sent: Any) -> list[int]:
    """The sum that an owner gets who asks these seats about this set of what was sent."""
    total = MaskedSum(COUNT, 8)
    for one in statement.included:
        total.add(sent[one.client].head, sent[one.client].wire)
    given = [shard.answer(seat, asked, statement, statement.shape) for seat in asked]
    return [int(word) for word in total.opened(given, 1 << F).total]


def less(one: list[int], other: list[int]) -> list[int]:
    return [a - b for a, b in zip(one, other, strict=True)]


class NoLog(dict[tuple[int, int, int], bytes]):
    """A helper's log that forgets."""

    def __setitem__(self, key: tuple[int, int, int], value: bytes) -> None:
        pass


# -- the two attacks by name ------------------------------------------------------------------


def test_late_value() -> None:
    """A contribution that comes after closing is in the owner's hands, and stays masked."""
    shard, statement = closed(clients=range(5))
    late = shard.sent(VICTIM)
    shard.opening.add(VICTIM, late, shard.escrow(VICTIM))
    shard.at[0].deposit(PLACE, shard.views[0], VICTIM, shard.escrow(VICTIM))
    shard.at[1].deposit(PLACE, shard.views[1], VICTIM, shard.escrow(VICTIM))
    assert shard.opened((0, 1)).total.tolist() == shard.total(range(5))
    row = sums.Included(VICTIM, late.nonce, shard.escrow(VICTIM).digest)
    more = replace(statement, included=(*statement.included, row))
    with pytest.raises(RefusedClosing, match="another set of that segment and round"):
        shard.answer(0, (0, 1), more)
    for helper in shard.at.values():  # without the log
        helper._log = NoLog()
    sent = {k: shard.sent(k) for k in range(6)}
    found = less(opens(shard, more, (0, 1), sent), opens(shard, statement, (0, 1), sent))
    assert found == shard.total([VICTIM])


def test_two_time_pad(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client restored with its memory sends another update: the difference stays uniform."""
    shard, count = Shard(), 20_000
    seeds, shape = shard.roots[1].seeds(PLACE, shard.threshold), replace(SHAPE, count=count)
    updates = [plain_words(np.full(count, v, np.float32), 1, F) for v in (0.25, 0.75)]

    def difference() -> NDArray[np.uint64]:
        made = [mask(plain_head(w, 1, 1), w, shard.roots[1], shape, seeds) for w in updates]
        first, second = (np.frombuffer(one.wire, np.uint64) for one in made)
        return second - first

    counts = np.bincount(difference().view(np.uint8), minlength=256)
    expected = 8 * count / 256
    chi_square = float(np.square(counts - expected).sum() / expected)
    assert abs(chi_square - 255) < 5 * math.sqrt(2 * 255)
    monkeypatch.setattr(sums, "nonce", lambda *_: bytes(16))  # of the place alone
    assert np.array_equal(difference(), updates[1] - updates[0])


# -- 8.2: one round under two epochs ----------------------------------------------------------


@pytest.mark.parametrize("successor", [6, 0], ids=["a new owner", "one that held a seat"])
def test_one_round_under_two_epochs(successor: int) -> None:
    """All helpers are honest, and their logs hold over epochs: the client's rule is what helps.

    It sends a round under one epoch (tests/faults/test_sum_review.py).
    """
    old = Shard()
    later = replace(SHAPE, place=replace(PLACE, epoch=2))
    new = Shard(shape=later, owner=successor, helpers=(2, 3, 4))
    new.at[0] = old.at[2]  # member 2 sits at both, with one log
    sent = {}
    for shard in (old, new):
        clients = [k for k in range(1, 6) if k != shard.owner]
        shard.give(clients)
        shard.pass_on()
        statement = shard.opening.close(4)
        assert statement is not None
        sent[shard.shape.place.epoch] = {k: shard.sent(k) for k in clients}, statement
    without = fewer(sent[1][1], VICTIM)
    few = opens(old, without, (0, 1), sent[1][0])
    all_of_them = opens(new, sent[2][1], (1, 2), sent[2][0])
    assert less(all_of_them, few) == old.total([VICTIM]), "sent twice, it is read"


# -- 8.3: words that are not bound to the model -----------------------------------------------


@pytest.mark.parametrize("one_root", [False, True])
def test_a_root_belongs_to_one_training(one_root: bool) -> None:
    """The owner lists the nonce of words trained on a crafted model with the next escrow."""
    shard = Shard()
    crafted = shard.sent(VICTIM)
    if not one_root:  # as every training draws another
        shard.roots[VICTIM] = Root.drawn(digest(b"again"), shard.keys[VICTIM].process_secret)
    shard.give(range(6))
    shard.pass_on()
    statement = shard.opening.close(4)
    assert statement is not None
    rows = tuple(replace(one, nonce=crafted.nonce) if one.client == VICTIM else one
                 for one in statement.included)  # fmt: skip
    sent = {k: shard.sent(k) for k in range(5)} | {VICTIM: crafted}
    mixed = replace(statement, included=rows)
    if one_root:
        assert opens(shard, mixed, (0, 1), sent) == shard.total(range(6))
    else:
        with pytest.raises(Misfit):
            opens(shard, mixed, (0, 1), sent)


# -- 8.6: framing -----------------------------------------------------------------------------


def lied(ring_bytes: int = 8, off: int = 5) -> Shard:
    """Client 0, who holds seat 0, has sent check words that are off."""
    shard = Shard(shape=replace(SHAPE, form=ring_bytes))
    for k in range(6):
        shard.opening.add(k, shard.sent(k, off=off if k == 0 else 0), shard.escrow(k))
    shard.pass_on()
    assert shard.opening.close(4) is not None
    return shard


@pytest.mark.parametrize("ring_bytes", [4, 5, 6, 8])
def test_a_client_with_a_seat_that_mends_its_word_is_named_in_a_pair(ring_bytes: int) -> None:
    shard = lied(ring_bytes)
    with pytest.raises(Misfit):
        shard.opened((0, 1))
    said = {seat: dict(words) for seat, words in shard.audits().items()}
    plain, weighted = said[0][0, 4]
    said[0][0, 4] = (plain - 5) % (1 << 8 * ring_bytes), weighted
    assert shard.opening.blamed((0, 1), said) == [frozenset({0, 1})]
    shard.opening.helpers = (10, 11, 12)  # as if nobody knew that client 0 holds a seat
    assert shard.opening.blamed((0, 1), said) == [frozenset({11})], "the honest one is named"


@pytest.mark.parametrize("ring_bytes", [4, 5, 6, 8])
def test_a_helper_that_lies_about_two_pads_is_named_alone(ring_bytes: int) -> None:
    """Its two false words make up for each other: every sum with one of them fits."""
    shard = lied(ring_bytes, off=0)
    given = {seat: shard.answer(seat, (0, 1)) for seat in (0, 1)}
    wire = bytes([given[0].wire[0] ^ 1]) + given[0].wire[1:]
    shard.opening.answered(0, (0, 1), Answer(given[0].head, wire), 1 << F)
    with pytest.raises(Misfit):
        shard.opening.answered(1, (0, 1), given[1], 1 << F)
    said = {seat: dict(words) for seat, words in shard.audits().items()}
    whole = 1 << 8 * ring_bytes
    for part, shift in ((2, 7), (4, -7)):
        plain, weighted = said[0][VICTIM, part]
        said[0][VICTIM, part] = (plain + shift) % whole, weighted
    assert shard.opening.blamed((0, 1), said) == [frozenset({0})]
    sent = shard.sent(VICTIM)
    words = np.zeros(COUNT, np.uint64)
    add_wire(words, sent.wire, ring_bytes)
    right = misfit_of(sent.head, words, ring_bytes)[0]
    for part, honest in ((2, 2), (4, 1)):  # by sums alone, of the words that came first
        first = {p: next(said[s][VICTIM, p][0] for s in (0, 1, 2) if not p >> s & 1)
                 for p in shard.threshold.parts}  # fmt: skip
        assert sum(first.values()) % whole == right, f"seat {honest} would be named for {part}"
        assert said[honest][VICTIM, part][0] != first[part]
    del said[0][VICTIM, 2]  # nor does it help to leave a word out
    assert shard.opening.blamed((0, 1), said) == [frozenset({0})]


def test_a_wrong_blind_names_nobody_and_other_seats_open_the_sum() -> None:
    shard = lied(off=0)
    seat = shard.views[1]
    strange = Shard().keys[6]
    shard.views[1] = replace(seat, mine=strange)
    given = shard.answer(1, (0, 1))
    shard.views[1] = seat
    shard.opening.answered(0, (0, 1), shard.answer(0, (0, 1)), 1 << F)
    with pytest.raises(Misfit):
        shard.opening.answered(1, (0, 1), given, 1 << F)
    assert shard.opening.blamed((0, 1), shard.audits()) == []
    asked = shard.opening.asked()
    assert asked == (0, 2)
    assert shard.opened(asked).total.tolist() == shard.total(range(6))


def test_seats_in_which_two_ways_differ_need_not_hold_the_liar() -> None:
    """So they are not named: whose blind was wrong may sit in both, and be right the next time."""
    shard = lied(off=0)
    liar, seat = 0, shard.views[0]
    shard.views[liar] = replace(seat, mine=Shard().keys[6])
    given = shard.answer(liar, (0, 1))
    shard.views[liar] = seat
    shard.opening.answered(1, (0, 1), shard.answer(1, (0, 1)), 1 << F)
    with pytest.raises(Misfit):
        shard.opening.answered(liar, (0, 1), given, 1 << F)
    assert shard.opening.blamed((0, 1), shard.audits()) == []
    assert shard.opened((0, 2)).total.tolist() == shard.total(range(6))
    assert liar not in {0, 1} ^ {0, 2}


def test_seats_whose_sums_did_not_fit_are_asked_last() -> None:
    shard = lied(off=0)
    assert shard.opening.asked() == (0, 1)
    before: dict[tuple[int, ...], int] = {(0, 1): 2, (0, 2): 1, (1, 2): 1}
    assert shard.opening.asked((), before.__getitem__) == (0, 2)
    assert shard.opening.asked({0}, before.__getitem__) == (1, 2)
    shard.opening.deposits.silent.add(2)
    assert shard.opening.asked((), before.__getitem__) == (0, 1), "rather than one that is silent"


# -- 8.7: one seat after another --------------------------------------------------------------


@pytest.mark.parametrize("kept", [False, True])
def test_keys_that_are_erased_open_nothing_older(kept: bool) -> None:
    """A thief gets one helper's memory before all draw new keys, and another's after it."""
    vaults = {k: Vault.simulated(3, k) for k in range(6)}
    shard = Shard()
    shard.keys = {k: vault.newest for k, vault in vaults.items()}
    box = shard.escrow(VICTIM)
    public = {k: vault.newest.public for k, vault in vaults.items()}
    stolen = [vaults[0].newest]
    for vault in vaults.values():
        vault.renew(20)
        if not kept:
            vault.erase(())
    stolen += vaults[1]._keys
    parts = set[int]()
    for seat in (0, 1):
        for keys in stolen:
            pair = keys.shared(7, seat, VICTIM, public[VICTIM])
            try:
                key = pair.escrow_key(1, VICTIM, seat)
                known = unseal(box, PLACE, VICTIM, shard.helpers, seat, key, shard.threshold)
                parts |= known.keys()
            except DisputedEscrow:
                continue
    assert (parts == set(shard.threshold.parts)) is kept


# -- 8.8: escrow again ------------------------------------------------------------------------

FIELDS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "federation": lambda at: {**at, "place": replace(at["place"], federation=8)},
    "epoch": lambda at: {**at, "place": replace(at["place"], epoch=2)},
    "round": lambda at: {**at, "place": replace(at["place"], round=4)},
    "shard": lambda at: {**at, "place": replace(at["place"], shard=1)},
    "client": lambda at: {**at, "client": 4},
    "seat": lambda at: {**at, "seat": 1, "boxes": (1, 0, 2)},
    "helpers": lambda at: {**at, "helpers": (0, 1, 3)},
    "model": lambda at: {**at, "model": OTHER_MODEL},
}


@pytest.mark.parametrize("field", FIELDS)
def test_an_escrow_is_bound_to_each_field_of_its_place(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = Shard()
    seeds = shard.roots[VICTIM].seeds(PLACE, shard.threshold)
    key = bytes(range(32))
    keys = dict.fromkeys((0, 1, 2, 3), key)

    def opened() -> bool:
        made = seal(PLACE, VICTIM, shard.helpers, MODEL, seeds, keys, shard.threshold)
        at: dict[str, Any] = {"place": PLACE, "client": VICTIM, "seat": 0, "model": MODEL,
                              "helpers": shard.helpers, "boxes": (0, 1, 2)}  # fmt: skip
        other = FIELDS[field](at)
        boxes = tuple(made.boxes[n] for n in other["boxes"])
        shown = Escrow(other["model"], made.commitments, boxes)
        try:
            unseal(shown, other["place"], other["client"], other["helpers"], other["seat"], key,
                   shard.threshold)  # fmt: skip
        except DisputedEscrow as disputed:
            return "another seed" in str(disputed)  # the box itself has opened
        return True

    assert not opened()

    def about(
        place: ShardRound, client: int, seat: int, helpers: tuple[int, ...], model: bytes
    ) -> bytes:
        told = {"federation": place.federation, "epoch": place.epoch, "round": place.round,
                "shard": place.shard, "client": client, "seat": seat}  # fmt: skip
        numbers = [number for name, number in told.items() if name != field]
        listed = () if field == "helpers" else helpers
        return label("box", *numbers, *listed) + (b"" if field == "model" else model)

    monkeypatch.setattr(escrow_module, "_about", about)
    assert opened(), "without the field"


# -- 8.10: who knows whose noise --------------------------------------------------------------


@pytest.mark.parametrize("right", [True, False])
def test_what_a_reader_and_its_colluder_cannot_subtract_is_sigma(right: bool) -> None:
    """Four clients: the owner reads, one colludes, and two noises are left."""
    noise = SharedNoise.planned("sample", 8, clip=1.0, rounds=160, clients=4, samples=64,
                                min_included=4, colluders=1)  # fmt: skip
    sigma = float.fromhex(noise.sigma)
    if not right:  # σ/√(m − c): the reader's own noise is forgotten
        noise = replace(noise, of_a_client=(sigma / math.sqrt(3)).hex())
    grid, content = noise.grid(8), np.full(30_000, 12345)
    words = [SharedNoising(noise, grid, "wards", bytes([k]) * 32, lambda *_: None).words(content, 0)
             for k in range(4)]  # fmt: skip
    left = sum(words) - words[0] - words[1] - 2 * content * 2.0**-grid.fine_bits
    off = spread(left, math.ldexp(sigma, grid.places))
    assert abs(off) < 5 if right else off < -ALARM


# -- 8.12: what one member can cost others ----------------------------------------------------


def test_a_false_box_for_one_seat_costs_nobody_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    def settled() -> Shard:
        shard = Shard()
        shard.give(range(5))
        good = shard.escrow(VICTIM)
        false = replace(good, boxes=(bytes(len(good.boxes[0])), *good.boxes[1:]))
        shard.opening.add(VICTIM, shard.sent(VICTIM), false)
        for named, (client, escrow) in shard.deposits.escrows.items():
            for seat, helper in shard.at.items():
                try:
                    helper.deposit(PLACE, shard.views[seat], client, escrow)
                    shard.deposits.accepted[named].add(seat)
                except DisputedEscrow:
                    shard.deposits.disputed[named].add(seat)
        assert shard.deposits.disputed == {false.digest: {0}}
        shard.opening.settle()
        return shard

    shard = settled()
    assert not shard.opening.waiting
    assert shard.opening.close(4) is not None
    assert shard.opened((1, 2)).total.tolist() == shard.total(range(6))

    def of_all(self: Deposits, named: bytes) -> set[int]:
        seats = self.accepted[named]
        return seats if len(seats) == self.threshold.seats else set()

    monkeypatch.setattr(Deposits, "holding", of_all)
    assert settled().opening.waiting, "were all seats to accept, one box would hold the shard up"


def test_asking_again_costs_a_helper_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shard, _ = closed()
    expanded, add = list[int](), pads.add_pads

    def counted(head: Any, words: Any, keys: Any, size: int) -> None:
        expanded.append(len(keys))
        add(head, words, keys, size)

    monkeypatch.setattr(sums, "add_pads", counted)
    for _ in range(20):
        shard.answer(0, (0, 1))
        shard.audit(0)
    once = sum(expanded)
    assert once <= 6 * 2 + 6 * 2, "two parts of six clients, for the answer and the audit"
    for _ in range(3):  # without what it has kept
        shard.at[0]._answers.clear()
        shard.at[0]._audits.clear()
        shard.answer(0, (0, 1))
        shard.audit(0)
    assert sum(expanded) == 4 * once


def test_a_client_with_a_seat_cannot_send_the_escrow_of_another_as_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has seen it as a helper; an owner that closed on both could open nothing."""
    thief = 0

    def copied() -> Shard:
        shard = Shard()
        shard.give(range(1, 6))
        shard.pass_on()
        shard.opening.add(thief, shard.sent(thief), shard.escrow(VICTIM))
        return shard

    with pytest.raises(RefusedContribution, match="an escrow of another client"):
        copied()

    def by_digest_alone(self: Deposits, client: int, escrow: Escrow) -> bool:
        self.escrows.setdefault(escrow.digest, (client, escrow))
        return True

    monkeypatch.setattr(Deposits, "offer", by_digest_alone)
    shard = copied()
    assert shard.opening.close(4) is not None
    assert thief in shard.opening.included
    for seat in shard.at:
        with pytest.raises(LacksEscrow):
            shard.answer(seat, tuple(sorted({seat, (seat + 1) % 3})))


def test_a_flood_of_escrows_is_not_kept() -> None:
    shard, good = Shard(), Shard().escrow(VICTIM)
    for number in range(300):
        false = replace(good, boxes=(bytes([number % 256]) * len(good.boxes[0]), *good.boxes[1:]))
        with pytest.raises(DisputedEscrow):
            shard.at[0].deposit(PLACE, shard.views[0], VICTIM, false)
    for number in range(20):  # and of those that open two
        made = shard.escrow(VICTIM, bytes([number]) * 16)
        if number < 2:
            shard.at[0].deposit(PLACE, shard.views[0], VICTIM, made)
        else:
            with pytest.raises(RefusedClosing, match="has deposited 2 times"):
                shard.at[0].deposit(PLACE, shard.views[0], VICTIM, made)
    assert sum(map(len, shard.at[0]._seeds.values())) == 2
