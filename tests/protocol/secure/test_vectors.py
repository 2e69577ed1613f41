"""The published test vectors of masked sums (format ``eris secure sums 1``), value by value.

Two programs that share no code agreed on them; every intermediate value is compared.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eris.core.ring import Words, add_wire, to_wire
from eris.core.vectors import Vector
from eris.protocol.secure.escrow import Root, commitment, seal, unseal
from eris.protocol.secure.keys import MemberKeys, PairSecret
from eris.protocol.secure.labels import ShardRound
from eris.protocol.secure.pads import add_pads, pad_key
from eris.protocol.secure.seats import Threshold
from eris.protocol.secure.sums import (
    Included,
    MaskedSum,
    SegmentShape,
    Statement,
    answer,
    audit,
    mask,
    plain_head,
    plain_words,
)

V: dict[str, Any] = json.loads(Path(__file__).with_name("vectors.json").read_text())
PLACE = ShardRound(int(V["federation"]), V["epoch"], V["round"], V["shard"])
CLIENTS = V["clients"]
MODEL = bytes.fromhex(V["model"])
KEYS = {
    int(number): MemberKeys.of(
        bytes.fromhex(keys["x25519_private"])
        + bytes.fromhex(keys["ed25519_private"])
        + bytes.fromhex(V["process_secret"].get(number, "00" * 32))
    )
    for number, keys in V["members"].items()
}
ROOTS = {k: Root.drawn(bytes.fromhex(V["fresh"][str(k)]), KEYS[k].process_secret) for k in CLIENTS}


def pair(one: int, other: int) -> PairSecret:
    return KEYS[one].shared(PLACE.federation, one, other, KEYS[other].public)


def values(client: int) -> Vector:
    return np.frombuffer(bytes.fromhex(V["values_float32_hex"][CLIENTS.index(client)]), "<f4")


def words(texts: list[str]) -> list[int]:
    return [int(text) for text in texts]


def test_keys_and_pairs() -> None:
    for number, keys in KEYS.items():
        assert keys.public.exchange.hex() == V["members"][str(number)]["x25519_public"]
        assert keys.public.signing.hex() == V["members"][str(number)]["ed25519_public"]
    for name, secret in V["pair_secrets"].items():
        one, other = map(int, name.split("-"))
        assert pair(one, other).secret.hex() == pair(other, one).secret.hex() == secret
    assert {str(k): root.secret.hex() for k, root in ROOTS.items()} == V["roots"]


@pytest.mark.parametrize("case", V["cases"], ids=lambda case: case["scheme"])
def test_escrows(case: dict[str, Any]) -> None:
    threshold, helpers = Threshold.parse(case["scheme"]), case["helpers"]
    assert list(threshold.parts) == case["parts"]
    for name, key in case["blind_keys"].items():
        one, other = map(int, name.split("-"))
        assert pair(one, other).blind_key(PLACE.epoch, other, one).hex() == key
    for k in CLIENTS:
        seeds = ROOTS[k].seeds(PLACE, threshold)
        assert [seed.hex() for seed in seeds.values()] == case["seeds"][str(k)]
        keys = {j: pair(k, j).escrow_key(PLACE.epoch, k, j) for j in helpers}
        assert {f"{k}>{j}": key.hex() for j, key in keys.items()}.items() <= case[
            "escrow_keys"
        ].items()
        escrow = seal(PLACE, k, helpers, MODEL, seeds, keys, threshold)
        assert [c.hex() for c in escrow.commitments] == case["commitments"][str(k)]
        assert (
            commitment(PLACE, k, threshold.parts[0], seeds[threshold.parts[0]]).hex()
            == (case["commitments"][str(k)][0])
        )
        assert [box.hex() for box in escrow.boxes] == case["boxes"][str(k)]
        assert escrow.digest.hex() == case["escrow_digests"][str(k)]
        for seat, j in enumerate(helpers):
            known = unseal(escrow, PLACE, k, helpers, seat, keys[j], threshold)
            assert known == {part: seeds[part] for part in threshold.known_to(seat)}


RINGS = [(case, ring) for case in V["cases"] for ring in case["rings"]]


@pytest.mark.parametrize(
    ("case", "ring"), RINGS, ids=[f"{c['scheme']}, {r['ring_bytes']} bytes" for c, r in RINGS]
)
def test_sums(case: dict[str, Any], ring: dict[str, Any]) -> None:
    threshold, helpers, size = Threshold.parse(case["scheme"]), case["helpers"], ring["ring_bytes"]
    count = len(values(CLIENTS[0]))
    shape = SegmentShape(PLACE, V["segment"], V["based_on"], count, size)
    total, included = MaskedSum(count, size), []
    for k, expected in zip(CLIENTS, ring["contributions"], strict=True):
        place = CLIENTS.index(k)
        plain = plain_words(values(k), V["samples"][place], ring["fraction_bits"])
        head = plain_head(plain, V["samples"][place], V["steps"][place])
        assert head.tolist() == words(expected["plain_head"])
        assert plain.view(np.int64).tolist() == words(expected["plain_words"])
        seeds = ROOTS[k].seeds(PLACE, threshold)
        sent = mask(head, plain, ROOTS[k], shape, seeds)
        assert sent.nonce.hex() == expected["nonce"]
        keys = [pad_key(s, shape.segment, count, size, sent.nonce).hex() for s in seeds.values()]
        assert keys == expected["pad_keys"]
        assert sent.head.tolist() == words(expected["head"])
        assert sent.wire.hex() == expected["wire"]
        total.add(sent.head, sent.wire)
        escrow = bytes.fromhex(case["escrow_digests"][str(k)])
        included.append(Included(k, sent.nonce, escrow))
    statement = Statement(shape, V["owner"], False, tuple(helpers), MODEL, tuple(included))
    assert statement.encode().hex() == ring["statement"]
    assert statement.digest.hex() == ring["statement_digest"]
    owner = KEYS[V["owner"]]
    assert owner.signing.sign(statement.encode()).hex() == ring["signature"]
    assert owner.public.signed(statement.encode(), bytes.fromhex(ring["signature"]))
    assert not owner.public.signed(statement.encode(), bytes(64))
    for asked in ring["answers"]:
        seats = asked["seats"]
        duties = threshold.duties(seats, shape.segment)
        assert {str(seat): list(parts) for seat, parts in duties.items()} == asked["duties"]
        answers = []
        for seat in seats:
            blinds = {
                other: pair(helpers[seat], helpers[other]).blind_key(
                    PLACE.epoch, helpers[seat], helpers[other]
                )
                for other in seats
                if other != seat
            }
            given = answer(statement, threshold, seat, seats, known(threshold, seat), blinds)
            assert given.head.tolist() == words(asked["by_seat"][str(seat)]["head"])
            assert given.wire.hex() == asked["by_seat"][str(seat)]["wire"]
            answers.append(given)
        opened = total.opened(answers, bound=1 << ring["fraction_bits"])
        assert opened.total.tolist() == words(ring["opened"]["sum"])
        assert opened.samples == int(ring["opened"]["samples"])
        assert opened.sample_steps == int(ring["opened"]["sample_steps"])
        mean = opened.mean(ring["fraction_bits"])
        assert mean.tobytes().hex() == ring["opened"]["mean_float32_hex"]
    told = audit(statement, known(threshold, 0))
    assert {f"{k}/{part}": list(pair_) for (k, part), pair_ in told.items()} == {
        name: words(found) for name, found in ring["audit_seat_0"].items()
    }


def known(threshold: Threshold, seat: int) -> dict[int, dict[int, bytes]]:
    return {
        k: {part: ROOTS[k].seeds(PLACE, threshold)[part] for part in threshold.known_to(seat)}
        for k in CLIENTS
    }


@pytest.mark.parametrize("ring", V["tile"]["rings"], ids=lambda ring: f"{ring['ring_bytes']} bytes")
def test_the_edge_of_a_tile(ring: dict[str, Any]) -> None:
    count, size = V["tile"]["count"], ring["ring_bytes"]
    head: Words = np.zeros(4, np.uint64)
    pad: Words = np.zeros(count, np.uint64)
    add_pads(head, pad, [bytes.fromhex(V["tile"]["pad_key"])], size)
    assert head.tolist() == words(ring["head"])
    assert [int(pad[i]) for i in (0, 4095, 4096)] == words(ring["words_0_4095_4096"])
    wire = to_wire(pad, size)
    assert hashlib.sha256(wire).hexdigest() == ring["sha256_of_wire"]
    again = np.zeros(count, np.uint64)
    add_wire(again, wire, size)
    assert np.array_equal(again, pad)
