"""The published test vectors of EncCluster's cryptography, value by value.

Three programs agreed on them: one on libsecp256k1, one with curves, HKDF and X25519 of its own, and
one written from the text alone.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eris.protocol.enccluster.content import content
from eris.protocol.enccluster.encrypt import ClientScalars, encrypt, pad
from eris.protocol.enccluster.group import (
    ORDER,
    MaybeInfinite,
    added,
    encoded,
    parsed,
    times_public,
)
from eris.protocol.enccluster.labels import DOM, BookLabel, extracted, point, scalar, tried_point
from eris.protocol.enccluster.logarithms import LogarithmTable
from eris.protocol.enccluster.opening import ReceivedBook, open_by_differences, open_fully
from eris.protocol.enccluster.sets import SetMember, SetStatement, contribution_digest
from eris.protocol.enccluster.shares import KeyShare, ShareDesk, key_share, mask_info
from eris.protocol.secure.keys import MemberKeys
from eris.protocol.secure.labels import derived, prf
from support.enccluster import packed, table

V: dict[str, Any] = json.loads(Path(__file__).with_name("vectors.json").read_text())
EXAMPLES = pytest.mark.parametrize("example", V["examples"], ids=lambda one: one["name"])


def of(text: str) -> bytes:
    return bytes.fromhex(text)


def label_of(data: bytes) -> BookLabel:
    numbers = data[56:]
    sizes, found, at = (8, 8, 4, 4, 4), [], 0
    for size in sizes:
        found.append(int.from_bytes(numbers[at : at + size], "big"))
        at += size
    return BookLabel(data[24:56], *found)


def keys_of(client: dict[str, Any]) -> MemberKeys:
    return MemberKeys.of(of(client["x25519_private"]) + bytes(31) + b"\x01" + of(client["secret"]))


def test_hkdf_beyond_one_block() -> None:
    """RFC 5869, test case 2."""
    key = prf(bytes(range(0x60, 0xB0)), bytes(range(0x50)))
    assert key.hex() == "06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244"
    assert derived(key, bytes(range(0xB0, 0x100)), 82).hex() == (
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c6"
        "5e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"
    )


def test_the_domain_and_the_group() -> None:
    assert V["domain"].encode() == DOM
    assert int(V["group_order"], 16) == ORDER


@pytest.mark.parametrize("case", V["labels"], ids=lambda one: f"round {one['round']}")
def test_labels_and_their_points(case: dict[str, Any]) -> None:
    place = {name: case[name] for name in ("epoch", "round", "shard", "segment", "book")}
    label = BookLabel(of(case["federation"]), **place)
    assert label.encoded.hex() == case["label"]
    assert label_of(label.encoded) == label
    for one in case["points"]:
        found, tries = tried_point(label.encoded, one["slot"], one["coordinate"])
        assert (encoded(found).hex(), tries) == (one["point"], one["tries"])


@EXAMPLES
def test_what_clients_send(example: dict[str, Any]) -> None:
    label, slots = label_of(of(example["label"])), example["slots"]
    assert [encoded(point(label.encoded, a)).hex() for a in range(slots)] == example["points"]
    for client in example["clients"]:
        mapping = packed(np.array(client["mapping"], np.uint32), example["kappa"])
        assert mapping.hex() == client["mapping_packed"]
        said = content(client["messages"], mapping)
        assert said.hex() == client["content"]
        scalars = ClientScalars.drawn(of(client["secret"]), of(client["fresh"]), label, said, slots)
        assert [f"{value:064x}" for value in scalars.values()] == client["scalars"]
        assert encoded(pad(label, scalars.values())).hex() == client["pad"]
        sent = encrypt(client["messages"], label, scalars)
        assert sent.hex() == "".join(client["ciphertexts"])
        digest = contribution_digest(label, client["id"], [sent], mapping)
        assert digest.hex() == client["contribution_digest"]
        assert keys_of(client).public.exchange.hex() == client["x25519_public"]


def statement_of(example: dict[str, Any]) -> SetStatement:
    members = tuple(
        SetMember(c["id"], c["weight"], of(c["contribution_digest"]), of(c["x25519_public"]))
        for c in example["clients"]
    )
    return SetStatement(label_of(of(example["label"])).first, members)


@EXAMPLES
def test_the_set_and_its_shares(example: dict[str, Any]) -> None:
    statement, label = statement_of(example), label_of(of(example["label"]))
    assert statement.encoded.hex() == example["statement"]
    assert statement.name.hex() == example["sigma"]
    keys = {client["id"]: of(client["x25519_public"]) for client in example["clients"]}
    for mask in example["masks"]:
        assert extracted(of(mask["shared"])) == prf(DOM, of(mask["shared"]))
        low, high = (mask["low"], keys[mask["low"]]), (mask["high"], keys[mask["high"]])
        info = mask_info(label.encoded, statement.name, mask["slot"], high, low)
        assert f"{scalar(extracted(of(mask['shared'])), info):064x}" == mask["mask"]
    desk = ShareDesk(statement, slots=example["slots"])
    for client, expected in zip(example["clients"], example["shares"], strict=True):
        secrets = [int(value, 16) for value in client["scalars"]]
        share = key_share(keys_of(client), client["id"], statement, [label], [secrets])
        assert share == KeyShare(statement.name, of("".join(expected["share"])))
        desk.take(client["id"], share)
    (key,) = desk.key()
    assert [f"{value:064x}" for value in key] == example["key"]


def books_of(example: dict[str, Any]) -> list[ReceivedBook]:
    return [
        ReceivedBook.read(
            client["id"],
            of("".join(client["ciphertexts"])),
            example["kappa"],
            np.array(client["mapping"], np.uint32),
            client["weight"],
        )
        for client in example["clients"]
    ]


def left_over(
    books: list[ReceivedBook], key: list[int], label: BookLabel, coordinate: int
) -> MaybeInfinite:
    """What is left of a sum under a key: the definition, without the package's opening."""
    sums = [times_public(b.weight, b.points[int(b.mapping[coordinate])]) for b in books]
    locks = [times_public(-k, point(label.encoded, a)) for a, k in enumerate(key)]
    return added([*sums, *locks])


@EXAMPLES
def test_what_is_opened(example: dict[str, Any]) -> None:
    label, books = label_of(of(example["label"])), books_of(example)
    key = [int(value, 16) for value in example["key"]]
    expected = [one["sum"] for one in example["opened"]]
    for path in (open_fully, open_by_differences):
        assert path(books, key, label, table(), table().reach).tolist() == expected
    for coordinate, one in enumerate(example["opened"]):
        found = left_over(books, key, label, coordinate)
        assert (None if found is None else encoded(found).hex()) == one["point"]


@EXAMPLES
def test_what_is_refused(example: dict[str, Any]) -> None:
    label, books = label_of(of(example["label"])), books_of(example)
    key = [int(value, 16) for value in example["key"]]
    first = [int(value, 16) for value in example["shares"][0]["share"]]
    without = [(k - s) % ORDER for k, s in zip(key, first, strict=True)]
    found = [
        left_over(books, without, label, 0),
        left_over(books, key, replace(label, round=label.round + 1), 0),
        left_over(books[1:], key, label, 0),
        left_over(books[:1], first, label, 0),
    ]
    for one, expected in zip(found, example["refused"], strict=True):
        assert one is not None
        assert encoded(one).hex() == expected["point"]
        assert not table().find([parsed(of(expected["point"]))], table().reach)[1][0]


def test_the_table_holds_the_vectors_points() -> None:
    assert isinstance(table(), LogarithmTable)
    for example in V["examples"]:
        for one in example["opened"]:
            opened = None if one["point"] is None else parsed(of(one["point"]))
            values, found = table().find([opened], table().reach)
            assert (values.tolist(), found.tolist()) == ([one["sum"]], [True])
