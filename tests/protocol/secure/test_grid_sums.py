"""Masked sums on a common grid: what opens is the sum of integers, wraps are seen, e is bound."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.core.errors import MalformedMessage
from eris.core.grid import CommonGrid, Integers, exponent_for
from eris.core.ring import add_wire, packed_form, signed, wire_bytes, word_bits
from eris.protocol.secure import pads, sums
from eris.protocol.secure.seats import Threshold
from eris.protocol.secure.sums import MaskedSum, MaskedWords, Misfit, SegmentShape, audit, misfit_of
from eris.protocol.secure.wire import escrow_bytes, read_closing, write_closing, write_masked
from support.masking import OWNER, PLACE, THRESHOLDS, MaskingCrowd

Given = dict[int, Integers]


def shape_of(count: int, bits: int = 12, exponent: int | None = 11) -> SegmentShape:
    return SegmentShape(PLACE, 1, 2, count, packed_form(bits, exponent))


def masked(crowd: MaskingCrowd, words: Given, shape: SegmentShape) -> dict[int, MaskedWords]:
    return {k: crowd.masked(k, w.view(np.uint64), 1, shape) for k, w in words.items()}


def summed(sent: dict[int, MaskedWords], shape: SegmentShape) -> MaskedSum:
    total = MaskedSum(shape.count, shape.form)
    for one in sent.values():
        total.add(one.head, one.wire)
    return total


def most(shape: SegmentShape) -> float:
    return float(1 << word_bits(shape.form) - 1)


@settings(max_examples=20)
@given(
    threshold=st.sampled_from(THRESHOLDS),
    bits=st.sampled_from([8, 11, 12, 16, 17, 32]),
    exponent=st.none() | st.integers(-63, 63),
    count=st.sampled_from([0, 1, 7, 40, 4100]),
    seed=st.integers(0, 2**32 - 1),
)
def test_what_opens_is_the_sum_of_the_integers_whoever_answers(
    threshold: Threshold, bits: int, exponent: int | None, count: int, seed: int
) -> None:
    """Only the sum must fit: single clients are far beyond what words hold."""
    crowd, shape, draw = MaskingCrowd(threshold, 5), shape_of(count, bits, exponent), seed
    drawn = np.random.default_rng(draw)
    words = {k: drawn.integers(-(2**40), 2**40, count) for k in range(4)}
    total = drawn.integers(-(1 << bits - 1), 1 << bits - 1, count)
    words[4] = total - np.sum([*words.values()], axis=0)
    sent = masked(crowd, words, shape)
    statement, added = crowd.statement(shape, sent), summed(sent, shape)
    for asked in combinations(range(threshold.seats), threshold.need):
        opened = added.opened(crowd.answers(statement, asked), 0, most(shape))
        assert opened.total.tolist() == total.tolist()
        assert opened.samples == 5


@pytest.mark.parametrize("wrapped", [1, 2, 3])
def test_a_sum_that_wraps_is_seen_and_nobody_is_named(wrapped: int) -> None:
    """Up to three coordinates always; and the audit fits, for it works modulo 2^b."""
    crowd, shape = MaskingCrowd(Threshold(2, 3), 4), shape_of(40)
    words = {k: np.full(40, 3 * k - 4, np.int64) for k in range(4)}
    for at in range(wrapped):
        words[at][7 * at] = 2048 * (-1) ** at
    sent = masked(crowd, words, shape)
    statement = crowd.statement(shape, sent)
    with pytest.raises(Misfit, match="check words"):
        summed(sent, shape).opened(crowd.answers(statement, (0, 2)), 0, most(shape))
    told: dict[Any, Any] = {}
    for seat in range(3):
        told |= audit(statement, crowd.seeds(seat))
    for k, one in sent.items():
        plain = np.zeros(40, np.uint64)
        add_wire(plain, one.wire, shape.form)
        pads = [told[k, part] for part in (1, 2, 4)]
        fits = tuple(sum(pad[n] for pad in pads) % 4096 for n in range(2))
        assert misfit_of(one.head, plain, shape.form) == fits


def test_what_travels_is_b_bits_a_word_and_400_bytes() -> None:
    crowd, count = MaskingCrowd(Threshold(2, 3), 4), 1001
    for bits in (8, 12, 16):
        shape = shape_of(count, bits)
        sent = masked(crowd, {0: np.zeros(count, np.int64)}, shape)[0]
        assert len(write_masked(sent, crowd.escrow(0))) == 400 + -(-bits * count // 8)
        answer = crowd.answer(crowd.statement(shape, {0: sent}), (0, 1), 0)
        assert len(answer.wire) == wire_bytes(count, shape.form) == -(-bits * count // 8)
    assert escrow_bytes(Threshold(2, 3)) == 352


# -- the exponent is bound ------------------------------------------------------------------------

N, CLIENTS, VICTIM = 20_000, 10, 3


def lied_to(crowd: MaskingCrowd) -> tuple[np.ndarray[Any, Any], Integers]:
    """A lying owner tells one client an exponent that is larger by four; what it opens then, and
    that client's update."""
    updates = np.random.default_rng(4).normal(0, 0.01, (CLIENTS, N)).astype(np.float32)
    exponent = exponent_for(12, CLIENTS, 4 * float(np.abs(updates.mean(axis=0)).max()))
    shape, sent = shape_of(N, 12, exponent), dict[int, MaskedWords]()
    for k, update in enumerate(updates):
        told = exponent + 4 * (k == VICTIM)
        draws = np.random.default_rng(k).uniform(size=N)
        words = CommonGrid(2.0**told, CLIENTS).integers(update, 1, draws)
        sent |= masked(crowd, {k: words}, shape_of(N, 12, told))
    statement = crowd.statement(shape, sent)
    masks, added = np.zeros(N, np.uint64), summed(sent, shape)
    for one in crowd.answers(statement, (0, 1)):
        add_wire(masks, one.wire, shape.form)
    return updates[VICTIM], signed(added.words - masks, shape.form)


def explained(update: np.ndarray[Any, Any], opened: Integers) -> float:
    return float(np.corrcoef(update, opened)[0, 1] ** 2)


def test_an_owner_that_tells_a_victim_another_exponent_gets_noise() -> None:
    update, opened = lied_to(MaskingCrowd(Threshold(2, 3), CLIENTS))
    assert explained(update, opened) < 0.001
    spread = opened.std() / (4096 / np.sqrt(12))
    assert abs(spread - 1) < 0.02, "uniform words"


def test_without_the_exponent_in_the_labels_it_would_get_the_victim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bound = pads.pad_key

    def unbound(seed: bytes, segment: int, count: int, form: int, nonce: bytes) -> bytes:
        return bound(seed, segment, count, form & 0xFFFF, nonce)

    monkeypatch.setattr(sums, "pad_key", unbound)
    assert explained(*lied_to(MaskingCrowd(Threshold(2, 3), CLIENTS))) >= 0.9


# -- the statement --------------------------------------------------------------------------------


def test_the_statement_names_the_form_and_a_closing_the_exponent() -> None:
    crowd = MaskingCrowd(Threshold(2, 3), 4)
    words = {k: np.arange(9) for k in range(4)}
    said = {}
    for exponent in (11, -3):
        shape = shape_of(9, 12, exponent)
        statement = crowd.statement(shape, masked(crowd, words, shape))
        said[exponent] = statement.digest
        data = write_closing(statement, bytes(64), 3)
        known = shape_of(9, 12, 0)
        found = read_closing(data, frozenset(range(4)), known, OWNER, crowd.helpers)
        assert found.statement == statement
        assert len(data) == 1 + 86 + 1 + 4 * 48
        for wrong in (64, 128):  # 64 and −128
            bad = data[:87] + bytes([wrong]) + data[88:]
            with pytest.raises(MalformedMessage, match="exponent"):
                read_closing(bad, frozenset(range(4)), known, OWNER, crowd.helpers)
        with pytest.raises(MalformedMessage):
            read_closing(data[:87], frozenset(), known, OWNER, crowd.helpers)
    assert len(set(said.values())) == 2
