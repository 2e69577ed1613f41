"""Mappings as they travel: every form reads what it wrote, and what was sealed stays sealed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eris.core.books import Books, Clusters
from eris.core.errors import InvalidSetting, MalformedMessage
from eris.protocol.enccluster.mapped import NONCE, Box, MappingCoding, MappingForm, Policy
from support.enccluster import LABEL, member_keys

BOOKS = Books((500,), (20,))
NONCE_BYTES = bytes(range(NONCE))
FIRST = 70_000


def mapping() -> Clusters:
    return (np.arange(500) ** 2 % 20).astype(np.uint16)


def boxes(client: int = 3, owner: int = 8) -> tuple[Box, Box]:
    """The same box, as the client and as the owner have it."""
    keys, theirs = member_keys(client), member_keys(owner)
    return (
        Box.between(keys, owner, theirs.public.exchange, client, LABEL),
        Box.between(theirs, client, keys.public.exchange, client, LABEL),
    )


EXACT: list[tuple[MappingCoding, Policy]] = [
    ("packed", "exact"),
    ("sealed", "exact"),
    ("huffman", "exact"),
    ("filter8", "exact"),
    ("filter16", "exact"),
    ("filter32", "exact"),
    ("filter32", "first"),
    ("filter32", "populous"),
]


@pytest.mark.parametrize(("coding", "policy"), EXACT)
def test_an_owner_reads_what_a_client_wrote(coding: MappingCoding, policy: Policy) -> None:
    form, (client, owner) = MappingForm(coding, policy), boxes()
    data = form.written(mapping(), BOOKS, FIRST, client, NONCE_BYTES)
    assert np.array_equal(form.read(data, BOOKS, FIRST, owner), mapping())


def test_an_owner_that_trains_shares_a_box_with_itself() -> None:
    keys = member_keys(8)
    box = Box.between(keys, 8, keys.public.exchange, 8, LABEL)
    form = MappingForm("sealed")
    data = form.written(mapping(), BOOKS, FIRST, box, NONCE_BYTES)
    assert np.array_equal(form.read(data, BOOKS, FIRST, box), mapping())


@pytest.mark.parametrize("coding", ["sealed", "filter16"])
@pytest.mark.parametrize("what", ["label", "client", "keys"])
def test_by_another_label_client_or_key_nothing_is_read(coding: MappingCoding, what: str) -> None:
    form, (client, owner) = MappingForm(coding), boxes()
    data = form.written(mapping(), BOOKS, FIRST, client, NONCE_BYTES)
    other = {
        "label": replace(owner, label=replace(LABEL, round=LABEL.round + 1)),
        "client": replace(owner, client=4),
        "keys": boxes(owner=9)[1],
    }[what]
    with pytest.raises(MalformedMessage):
        form.read(data, BOOKS, FIRST, other)


def test_sealed_bytes_are_28_more_and_other_ones() -> None:
    client, _ = boxes()
    plain = MappingForm("packed").written(mapping(), BOOKS, FIRST, client, NONCE_BYTES)
    sealed = MappingForm("sealed").written(mapping(), BOOKS, FIRST, client, NONCE_BYTES)
    assert len(sealed) == len(plain) + 28
    assert sealed[:NONCE] == NONCE_BYTES
    assert sealed[NONCE:-16] != plain


@pytest.mark.parametrize(
    ("coding", "place"), [("sealed", 0), ("sealed", NONCE), ("sealed", -1), ("filter8", 0),
                          ("filter8", -1), ("filter16", -1)]
)  # fmt: skip
def test_a_changed_byte_is_seen(coding: MappingCoding, place: int) -> None:
    form, (client, owner) = MappingForm(coding), boxes()
    data = bytearray(form.written(mapping(), BOOKS, FIRST, client, NONCE_BYTES))
    data[place] ^= 1
    with pytest.raises(MalformedMessage):
        form.read(bytes(data), BOOKS, FIRST, owner)


@pytest.mark.parametrize("policy", ["exact", "first", "populous"])
def test_bytes_behind_the_end_and_short_ones_are_refused(policy: Policy) -> None:
    form, (client, owner) = MappingForm("filter16", policy), boxes()
    data = form.written(mapping(), BOOKS, FIRST, client, NONCE_BYTES)
    for wrong in (data + b"\0", data[:-1], data[:5], b""):
        with pytest.raises(MalformedMessage):
            form.read(wrong, BOOKS, FIRST, owner)


def test_codings_and_policies_have_names() -> None:
    with pytest.raises(InvalidSetting, match="coding"):
        MappingForm("filter")  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="policy"):
        MappingForm("packed", "any")  # type: ignore[arg-type]
