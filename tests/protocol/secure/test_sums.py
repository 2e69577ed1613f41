"""Laws of masked sums: what opens is the plain sum, and nothing else opens."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.core.combine import ExactMean, FixedPoint
from eris.core.errors import InvalidSetting
from eris.core.ring import (
    RING_BYTES,
    add_wire,
    packed_form,
    pad_bytes,
    word_bits,
)
from eris.protocol.secure.escrow import DisputedEscrow, seal, unseal
from eris.protocol.secure.keys import MemberKeys, PublicKeys, RefusedKeys
from eris.protocol.secure.labels import digest
from eris.protocol.secure.pads import REACH, add_pads
from eris.protocol.secure.seats import Threshold
from eris.protocol.secure.sums import (
    Answer,
    MaskedSum,
    MaskedWords,
    Misfit,
    SegmentShape,
    audit,
    misfit_of,
    plain_head,
    plain_words,
)
from support.masking import MODEL, PLACE, THRESHOLDS, MaskingCrowd


@settings(max_examples=25)
@given(
    threshold=st.sampled_from(THRESHOLDS),
    ring_bytes=st.sampled_from(RING_BYTES),
    count=st.sampled_from([0, 1, 7, 40, 4100]),
    chosen=st.sets(st.integers(0, 5), min_size=1),
    segment=st.integers(0, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_what_opens_is_the_plain_mean_whoever_answers(
    threshold: Threshold, ring_bytes: int, count: int, chosen: set[int], segment: int, seed: int
) -> None:
    crowd, f = MaskingCrowd(threshold, 6), {4: 20, 5: 28, 6: 33, 8: 33}[ring_bytes]
    shape = SegmentShape(PLACE, segment, 2, count, ring_bytes)
    drawn = np.random.default_rng(seed)
    values = {k: drawn.uniform(-1, 1, count).astype(np.float32) for k in chosen}
    samples = {k: int(drawn.integers(1, 60)) for k in chosen}
    sent = {k: crowd.sent(k, values[k], samples[k], shape, f) for k in chosen}
    statement = crowd.statement(shape, sent)
    total = MaskedSum(count, ring_bytes)
    for one in sent.values():
        total.add(one.head, one.wire)
    plain = ExactMean(count, FixedPoint(value_range=2.0 ** (39 - f)))
    for k in chosen:
        plain.add(values[k], samples[k], k)
    for asked in combinations(range(threshold.seats), threshold.need):
        opened = total.opened(crowd.answers(statement, asked), bound=1 << f)
        assert opened.samples == sum(samples.values()) == opened.sample_steps
        assert opened.mean(f).tobytes() == plain.result().tobytes()


def masked(crowd: MaskingCrowd, clients: list[int], shape: SegmentShape) -> dict[int, MaskedWords]:
    return {
        k: crowd.sent(k, np.full(shape.count, (k + 1) / 8, np.float32), 1, shape, 20)
        for k in clients
    }


def opens(
    crowd: MaskingCrowd, sent: dict[int, MaskedWords], shape: SegmentShape, given: list[Answer]
) -> bool:
    total = MaskedSum(shape.count, shape.form)
    for one in sent.values():
        total.add(one.head, one.wire)
    try:
        total.opened(given, bound=1 << 20)
    except Misfit:
        return False
    return True


SHAPE = SegmentShape(PLACE, 0, 2, 16, 8)


def test_helpers_that_were_told_different_sets_give_noise() -> None:
    crowd = MaskingCrowd(Threshold(2, 3), 6)
    sent = masked(crowd, [0, 1, 2, 3], SHAPE)
    fewer = {k: sent[k] for k in (0, 1, 2)}
    one, other = crowd.statement(SHAPE, sent), crowd.statement(SHAPE, fewer)
    assert opens(crowd, sent, SHAPE, crowd.answers(one, (0, 1)))
    assert opens(crowd, fewer, SHAPE, crowd.answers(other, (0, 1)))
    mixed = [crowd.answer(one, (0, 1), 0), crowd.answer(other, (0, 1), 1)]
    assert not opens(crowd, sent, SHAPE, mixed)
    assert not opens(crowd, fewer, SHAPE, mixed)
    pairs = [crowd.answer(one, (0, 1), 0), crowd.answer(one, (1, 2), 1)]
    assert not opens(crowd, sent, SHAPE, pairs), "two sets of seats"


def test_a_sum_that_wrapped_or_is_out_of_range_is_not_taken() -> None:
    crowd, shape = MaskingCrowd(Threshold(2, 3), 6), replace(SHAPE, form=4)
    sent = {k: crowd.sent(k, np.full(16, 1000, np.float32), 1, shape, 20) for k in range(4)}
    total = MaskedSum(16, 4)
    for one in sent.values():
        total.add(one.head, one.wire)
    given = crowd.answers(crowd.statement(shape, sent), (0, 2))
    with pytest.raises(Misfit, match="check words"):
        total.opened(given, bound=1 << 30)
    sent = {k: crowd.sent(k, np.full(16, 2, np.float32), 1, SHAPE, 20) for k in range(4)}
    total = MaskedSum(16, 8)
    for one in sent.values():
        total.add(one.head, one.wire)
    given = crowd.answers(crowd.statement(SHAPE, sent), (0, 2))
    with pytest.raises(Misfit, match="beyond"):
        total.opened(given, bound=1 << 20)


def test_the_least_word_there_is_is_beyond_any_range() -> None:
    crowd = MaskingCrowd(Threshold(2, 3), 6)
    sent = masked(crowd, [0, 1, 2], SHAPE)
    total, given = MaskedSum(16, 8), crowd.answers(crowd.statement(SHAPE, sent), (0, 1))
    for one in sent.values():
        total.add(one.head, one.wire)
    opened = total.opened(given, bound=1 << 20)
    lie = np.zeros(16, np.uint64)
    lie[5] = (-(1 << 63) - int(opened.total[5])) % (1 << 64)  # the sum there is −2⁶³, then
    with pytest.raises(Misfit, match="beyond"):
        total.opened(given, bound=1 << 20, own=(plain_head(lie, 1, 1), lie))


PACKED = [packed_form(bits, exponent) for bits, exponent in ((8, 30), (12, 11), (16, -5), (17, 0),
                                                             (32, None))]  # fmt: skip


@pytest.mark.parametrize("form", [*RING_BYTES, *PACKED])
@pytest.mark.parametrize("count", [0, 1, REACH - 1, REACH, REACH + 1, 2 * REACH + 4097])
def test_pads_are_the_bytes_of_their_streams(form: int, count: int) -> None:
    keys = [digest(bytes([n]))[:16] for n in range(3)]
    head, words = np.full(4, 7, np.uint64), np.full(count, 9, np.uint64)
    add_pads(head, words, keys, form)
    for key in keys:
        size = 32 + pad_bytes(form) * count
        stream = Cipher(AES(key), CTR(bytes(16))).encryptor().update(bytes(size))
        pad = np.zeros(count, np.uint64)
        if form in RING_BYTES:
            add_wire(pad, stream[32:], form)
        else:  # the low bits of whole words
            whole = np.frombuffer(stream[32:], f"<u{pad_bytes(form)}").astype(np.uint64)
            pad = whole & np.uint64((1 << word_bits(form)) - 1)
        words -= pad
        head -= np.frombuffer(stream[:32], "<u8")
    assert (head == 7).all()
    assert (words == 9).all()


def test_the_owners_own_words_are_added_in_the_clear() -> None:
    crowd = MaskingCrowd(Threshold(2, 3), 6)
    sent = masked(crowd, [0, 1, 2], SHAPE)
    total = MaskedSum(16, 8)
    for one in sent.values():
        total.add(one.head, one.wire)
    own = plain_words(np.full(16, 0.5, np.float32), 2, 20)
    given = crowd.answers(crowd.statement(SHAPE, sent), (0, 1))
    assert total.opened(given, bound=1 << 20).samples == 3, "they are not in what is kept"
    opened = total.opened(given, bound=1 << 20, own=(plain_head(own, 2, 1), own))
    assert opened.samples == 5
    assert opened.mean(20)[0] == np.float32((1 / 8 + 2 / 8 + 3 / 8 + 1.0) / 5)


def test_an_escrow_opens_in_its_place_and_nowhere_else() -> None:
    crowd, other = MaskingCrowd(Threshold(2, 3), 6), MaskingCrowd(Threshold(2, 3), 7)
    escrow, key, helpers = crowd.escrow(4), crowd.escrow_key(4, 1), crowd.helpers
    threshold = crowd.threshold
    assert unseal(escrow, PLACE, 4, helpers, 1, key, threshold)
    others = [
        (escrow, replace(PLACE, federation=8), 4, helpers, 1, key),
        (escrow, replace(PLACE, epoch=2), 4, helpers, 1, key),
        (escrow, replace(PLACE, round=4), 4, helpers, 1, key),
        (escrow, replace(PLACE, shard=1), 4, helpers, 1, key),
        (escrow, PLACE, 5, helpers, 1, key),
        (escrow, PLACE, 4, helpers, 2, key),
        (escrow, PLACE, 4, (0, 1, 3), 1, key),
        (replace(escrow, model=bytes(16)), PLACE, 4, helpers, 1, key),
        (replace(escrow, commitments=escrow.commitments[::-1]), PLACE, 4, helpers, 1, key),
        (escrow, PLACE, 4, helpers, 1, other.escrow_key(6, 1)),
        (replace(escrow, boxes=(escrow.boxes[0], escrow.boxes[0], escrow.boxes[2])),
         PLACE, 4, helpers, 1, key),
        (replace(escrow, boxes=escrow.boxes[:2]), PLACE, 4, helpers, 1, key),
        (replace(escrow, model=MODEL + b"\0"), PLACE, 4, helpers, 1, key),
    ]  # fmt: skip
    for case in others:
        with pytest.raises(DisputedEscrow):
            unseal(*case, threshold)


def test_a_seed_other_than_the_committed_one_is_disputed() -> None:
    crowd = MaskingCrowd(Threshold(2, 3), 6)
    threshold, helpers = crowd.threshold, crowd.helpers
    seeds = crowd.roots[4].seeds(PLACE, threshold)
    keys = {j: crowd.escrow_key(4, j) for j in helpers}
    false = seal(PLACE, 4, helpers, MODEL, {**seeds, 4: bytes(32)}, keys, threshold)
    honest = seal(PLACE, 4, helpers, MODEL, seeds, keys, threshold)
    assert false.boxes[2] != honest.boxes[2], "the list of commitments is bound to every box"
    mixed = replace(honest, boxes=(false.boxes[0], *honest.boxes[1:]))
    with pytest.raises(DisputedEscrow, match="does not open"):
        unseal(mixed, PLACE, 4, helpers, 0, keys[0], threshold)


@pytest.mark.parametrize("threshold", THRESHOLDS, ids=str)
def test_one_seat_too_few_lacks_a_part_and_enough_have_all(threshold: Threshold) -> None:
    def together(seats: tuple[int, ...]) -> set[int]:
        return {part for seat in seats for part in threshold.known_to(seat)}

    for seats in combinations(range(threshold.seats), threshold.need - 1):
        assert len(set(threshold.parts) - together(seats)) == 1
    for seats in combinations(range(threshold.seats), threshold.need):
        assert together(seats) == set(threshold.parts)
        for segment in range(7):
            duties = threshold.duties(seats, segment)
            given = sorted(part for parts in duties.values() for part in parts)
            assert given == sorted(threshold.parts), "every part once"
            assert all(set(parts) <= set(threshold.known_to(s)) for s, parts in duties.items())


def test_other_content_has_other_pads_and_the_same_content_the_same_bytes() -> None:
    crowd = MaskingCrowd(Threshold(2, 3), 6)
    first = crowd.sent(0, np.zeros(16, np.float32), 1, SHAPE, 20)
    again = crowd.sent(0, np.zeros(16, np.float32), 1, SHAPE, 20)
    other = crowd.sent(0, np.full(16, 0.25, np.float32), 1, SHAPE, 20)
    assert (first.nonce, first.wire) == (again.nonce, again.wire)
    difference = np.frombuffer(first.wire, "<u8") - np.frombuffer(other.wire, "<u8")
    assert len(set(difference.tolist())) == 16, "not the difference of the two updates"


def test_an_audit_adds_up_for_the_honest_and_names_a_mask_that_does_not_fit() -> None:
    crowd = MaskingCrowd(Threshold(2, 3), 6)
    sent = masked(crowd, [0, 1, 2], SHAPE)
    statement = crowd.statement(SHAPE, sent)
    told = {**audit(statement, crowd.seeds(0)), **audit(statement, crowd.seeds(1))}
    for k, one in sent.items():
        found = misfit_of(one.head, np.frombuffer(one.wire, "<u8").copy(), 8)
        parts = [told[k, part] for part in crowd.threshold.parts]
        assert found == tuple(sum(p[n] for p in parts) % 2**64 for n in range(2))
        off = misfit_of(one.head + np.uint64(1), np.frombuffer(one.wire, "<u8").copy(), 8)
        assert off != found


def test_keys_that_hide_nothing_are_refused() -> None:
    keys = MemberKeys.of(bytes(range(96)))
    with pytest.raises(RefusedKeys, match="the exchange key of member 3 is no key"):
        keys.shared(7, 0, 3, PublicKeys(bytes(32), bytes(32)))
    with pytest.raises(RefusedKeys, match="96 random bytes; there are 5"):
        MemberKeys.of(b"short")
    assert "secret" not in repr(keys)
    assert not keys.public.signed(b"x", b"")


@pytest.mark.parametrize("words", ["1 of 3", "2 of 4", "6 of 6", "1 of 1", "two of three", "2/3"])
def test_other_thresholds_are_refused(words: str) -> None:
    with pytest.raises(InvalidSetting, match="expected 2 of 3, 3 of 4, or 2 of 2 to 5 of 5"):
        Threshold.parse(words)


def test_a_copy_of_a_members_memory_holds_the_same_words() -> None:
    crowd = MaskingCrowd(Threshold(2, 3), 6)
    sent = masked(crowd, [0, 1, 2], SHAPE)
    given = crowd.answers(crowd.statement(SHAPE, sent), (0, 1))
    wires = [one.wire for one in sent.values()] + [one.wire for one in given]
    again = deepcopy((list(sent.values()), given))
    assert [bytes(one.wire) for some in again for one in some] == [*map(bytes, wires)]
