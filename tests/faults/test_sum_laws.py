"""Laws 5, 9 and 10 of secure sums in simulated worlds, and the bugs that break them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eris.core.ring import Words, to_wire
from eris.core.streams import Stream
from eris.protocol.secure import escrow as escrow_module
from eris.protocol.secure import pads, sending, sums
from eris.protocol.secure.collecting import SecureDesk
from eris.protocol.secure.escrow import Root
from eris.protocol.secure.helper import Helper
from eris.protocol.secure.labels import ShardRound
from eris.protocol.secure.opening import Opening
from eris.protocol.secure.sending import SecureSender
from eris.protocol.secure.sums import MaskedSum, MaskedWords
from eris.protocol.secure.terms import RINGS
from eris.testing.shape import Shape
from eris.testing.weather import Incident, Trouble
from eris.testing.wire_laws import WireBytes
from eris.testing.world import World
from support.bugs import catch, opened_unchecked

SHAPE = Shape(members=6, shards=3, rounds=6, min_included=4, kept=1.0, secure="2 of 3")
BACK = replace(SHAPE, clients_only=1)
REWIND = [Incident(Trouble.REWIND, 0.8, 1.15, frozenset({5}))]
"""A client that trains is brought back when it has sent, and trains again."""
LIE = [Incident(Trouble.LIE, 0.5, 12.0, frozenset({2}))]


def test_all_sizes_of_words_are_among_the_worlds() -> None:
    assert {Shape.secured(seed).ring_bytes for seed in range(20)} == set(RINGS)


# -- law 5 ------------------------------------------------------------------------------------


def test_law_5_a_client_that_is_brought_back_with_its_memory_uses_no_pad_twice() -> None:
    world = World(0, shape=BACK, kinds=frozenset(), incidents=REWIND)
    world.run()
    back = world.hosts[5].member
    assert world.weather.struck[Trouble.REWIND] == 1
    assert back is not None
    sent = set(world.witness._sent[(0, 0), 1][back.me])
    assert len(sent) == 2, "two contents of one round have left"
    assert len({one.payload.encoded.data[:16] for one in sent}) == 2, "under two nonces"


def test_a_machine_that_is_brought_back_is_found_out_at_its_next_renewal() -> None:
    later = [replace(REWIND[0], end=3.0)]
    world = World(0, shape=BACK, kinds=frozenset(), incidents=later)
    world.run()
    assert [host.starts for host in world.hosts] == [1, 1, 1, 1, 1, 2]


def test_law_5_a_nonce_without_the_content(monkeypatch: pytest.MonkeyPatch) -> None:
    true = pads.nonce

    def of_the_place(
        root: Root, place: ShardRound, segment: int, based_on: int, size: int, head: Words,
        words: Words,
    ) -> bytes:  # fmt: skip
        nothing = np.zeros_like(head), np.zeros_like(words)
        return true(root, place, segment, based_on, size, *nothing)

    monkeypatch.setattr(sums, "nonce", of_the_place)
    catch(monkeypatch, "one pad hides two contents", shape=BACK, incidents=REWIND)


# -- law 9 ------------------------------------------------------------------------------------


def test_law_9_a_sum_that_is_published_before_it_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MaskedSum, "opened", opened_unchecked)
    catch(monkeypatch, "whose check words do not fit", shape=SHAPE, incidents=LIE)


def test_law_9_an_owner_that_blames_the_first_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(self: Opening, *_: Any) -> list[frozenset[int]]:
        assert self.statement is not None
        return [frozenset({self.statement.included[0].client})]

    monkeypatch.setattr(Opening, "blamed", first)
    catch(monkeypatch, "who did not lie", shape=SHAPE, incidents=LIE)


def test_law_9_with_all_seats_there_the_liar_is_named_and_nobody_else() -> None:
    """Over all sizes of words; a client that holds a seat may take another down with it."""
    alone = 0
    for number in range(2 * len(RINGS)):
        shape = replace(SHAPE, ring_bytes=RINGS[number % len(RINGS)])
        world = World(number, shape=shape, kinds=frozenset(), incidents=LIE)
        world.run()
        liar = world.hosts[2].member
        assert liar is not None
        for host in world.hosts:
            assert host.member is not None
            desk = host.member.node.aggregator.desk
            assert isinstance(desk, SecureDesk)
            if host.member is liar:
                continue
            assert all(liar.me in group for group in desk.blamed)
            alone += sum(len(group) == 1 for group in desk.blamed)
    assert alone > 3


# -- law 10 -----------------------------------------------------------------------------------


def test_law_10_a_high_plane_that_is_not_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    masked = sums.mask

    def low_only(head: Words, words: Words, *about: Any) -> MaskedWords:
        made = masked(head, words, *about)
        plain, count = bytes(to_wire(words, 5)), len(words)
        return replace(made, wire=bytes(made.wire)[: 4 * count] + plain[4 * count :])

    monkeypatch.setattr(sending, "mask", low_only)
    monkeypatch.setattr(SecureDesk, "blame", lambda *_: None)
    law = "byte 4 of the words of a contribution is not uniform"
    catch(monkeypatch, law, shape=replace(SHAPE, ring_bytes=5))


def test_law_10_samples_in_the_clear_before_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    masked = sums.mask

    def clear(head: Words, words: Words, *about: Any) -> MaskedWords:
        made = masked(head, words, *about)
        return replace(made, head=np.concatenate([head[:1], made.head[1:]]))

    monkeypatch.setattr(sending, "mask", clear)
    catch(monkeypatch, "head word 0 of a contribution is not uniform", shape=SHAPE)


def test_law_10_samples_in_the_clear_beside_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SecureSender, "tells_weight", True)
    catch(monkeypatch, "tells its weight", shape=SHAPE)


def test_law_10_words_that_go_with_what_they_hide() -> None:
    """A pad that a value shifts by a little: uniform in every byte, and it tells all the same."""
    plain = np.tile(np.array([0, 1 << 28], np.uint64), 5000)
    drawn = Stream(1, "pads").words(0, 10_000).astype(np.uint64)
    head = np.zeros(4, np.uint64)

    def telling(words: Words) -> str:
        wire = WireBytes(4)
        wire.add("contribution", head, to_wire(words, 4), hides=(head, plain))
        return wire.telling()

    assert telling(plain + drawn) == ""
    heavy = np.where(plain > 0, np.maximum(drawn, drawn[::-1]), np.minimum(drawn, drawn[::-1]))
    assert "the words of a contribution go with what they hide" in telling(heavy)


# -- an owner that lies, and helpers that lack a rule -----------------------------------------

OWNED = replace(SHAPE, shards=6)
"""Everyone owns a shard."""


def test_two_statements_of_a_lying_owner_and_helpers_without_a_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admit = Helper._admit

    def forgetful(self: Helper, *asked: Any) -> Any:
        self._log.clear()
        return admit(self, *asked)

    monkeypatch.setattr(Helper, "_admit", forgetful)
    catch(monkeypatch, "sums of two sets are opened", shape=OWNED, incidents=LIE)


def test_a_set_of_two_of_a_lying_owner_and_helpers_that_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Helper, "_check", lambda *_: None)
    law = "masked clients is opened|a sum of too few clients"
    catch(monkeypatch, law, shape=OWNED, incidents=LIE)


def test_old_escrows_of_a_lying_owner_and_boxes_that_do_not_say_where_they_belong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(escrow_module, "_about", lambda *_: b"")
    monkeypatch.setattr(escrow_module, "commitment", lambda place, client, part, seed: seed)
    law = "has opened an escrow of client . that was not made for it"
    catch(monkeypatch, law, shape=OWNED, incidents=LIE)
