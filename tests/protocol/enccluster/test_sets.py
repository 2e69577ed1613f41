"""The law of the set, statements, and shares as they come in."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from eris.core.errors import InvalidSetting
from eris.protocol.enccluster.group import ORDER
from eris.protocol.enccluster.labels import BookLabel, UnusableFresh, federation_name, scalar
from eris.protocol.enccluster.sets import SetLaw, contribution_digest
from eris.protocol.enccluster.shares import KeyShare, NoKey, RefusedShare, ShareDesk, masks
from eris.protocol.secure.keys import RefusedKeys
from support.enccluster import LABEL, known_bytes, member_keys, random_clients, statement_of


@pytest.mark.parametrize(
    ("eligible", "adversaries", "least"),
    [(4, 2, 4), (6, 2, 5), (10, 1, 6), (10, 2, 7), (30, 2, 17)],
)
def test_the_least_set(eligible: int, adversaries: int, least: int) -> None:
    assert SetLaw(eligible, adversaries, owner_trains=False).least == least
    assert SetLaw(eligible, adversaries - 1, owner_trains=True).least == least


@pytest.mark.parametrize("eligible", range(2, 10))
def test_sets_that_keep_the_law_share_an_honest_member_and_isolate_nobody(eligible: int) -> None:
    for adversaries in range(eligible - 1):
        law = SetLaw(eligible, adversaries, owner_trains=False)
        assert law.least <= eligible
        assert law.least - adversaries >= 2
        # Two sets overlap least if they cover all; the overlap may be adversaries first.
        assert 2 * law.least - eligible > adversaries
        # And the law asks for no more than that: one fewer would break one of both.
        fewer = law.least - 1
        assert fewer - adversaries < 2 or 2 * fewer - eligible <= adversaries


def test_two_sets_of_the_least_size_share_an_honest_member_in_all_cases() -> None:
    law = SetLaw(6, 2, owner_trains=False)
    sets = [set(one) for one in itertools.combinations(range(6), law.least)]
    assert all((one & other) - {0, 1} for one in sets for other in sets)


def test_a_federation_that_cannot_keep_it_is_refused_with_the_numbers() -> None:
    expected = (
        "eligible clients is 3; expected at least 4: 1 colluders and an owner that trains must "
        "leave two honest clients in every set that opens"
    )
    with pytest.raises(InvalidSetting) as found:
        SetLaw(3)
    assert str(found.value) == expected
    assert SetLaw(3, colluders=0).least == 3
    with pytest.raises(InvalidSetting, match="min_included is 11; expected at most the 10"):
        SetLaw(10, min_included=11)
    with pytest.raises(InvalidSetting, match="colluders is -1"):
        SetLaw(10, colluders=-1)
    assert SetLaw(10, min_included=9).least == 9


# -- labels and statements --------------------------------------------------------------------


def test_a_federations_name_tells_settings_model_and_nonce_apart() -> None:
    one, other = known_bytes(1), known_bytes(2)
    names = {
        federation_name(b"settings", one, other),
        federation_name(b"settings", other, one),
        federation_name(b"setting", one, other),
    }
    assert len(names) == 3
    for model, nonce in ((b"short", one), (one, b"short")):
        with pytest.raises(InvalidSetting, match="expected 32 bytes"):
            federation_name(b"settings", model, nonce)


def test_labels_out_of_range_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="label shard"):
        BookLabel(bytes(32), 0, 0, 1 << 32, 0)
    with pytest.raises(InvalidSetting, match="label round is -1"):
        BookLabel(bytes(32), 0, -1, 0, 0)
    with pytest.raises(InvalidSetting, match="federation"):
        BookLabel(bytes(31), 0, 0, 0, 0)


def test_a_scalar_of_zero_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    zero = ORDER.to_bytes(48, "big")
    monkeypatch.setattr("eris.protocol.enccluster.labels.derived", lambda *_: zero)
    with pytest.raises(UnusableFresh, match="a scalar is 0"):
        scalar(bytes(32), b"")


def test_books_cannot_be_read_in_two_ways() -> None:
    books = [b"a" * 66, b"b" * 66]
    digests = {
        contribution_digest(LABEL, 1, books, b"m"),
        contribution_digest(LABEL, 1, [books[0] + books[1]], b"m"),
        contribution_digest(LABEL, 1, books[::-1], b"m"),
        contribution_digest(LABEL, 2, books, b"m"),
        contribution_digest(LABEL, 1, books, b"n"),
        contribution_digest(replace(LABEL, segment=6), 1, books, b"m"),
    }
    assert len(digests) == 6
    assert contribution_digest(LABEL.of_book(3), 1, books, b"m") in digests


def test_a_statement_is_the_owners_and_no_other() -> None:
    statement, owner = statement_of(random_clients(3)), member_keys(77)
    signature = statement.signed_by(owner)
    assert statement.is_signed(owner.public, signature)
    assert not statement.is_signed(member_keys(78).public, signature)
    other = replace(statement, members=statement.members[:2])
    assert not other.is_signed(owner.public, signature)
    assert not statement.is_signed(owner.public, signature[:-1])
    assert statement.ascends()
    assert not replace(statement, members=statement.members[::-1]).ascends()
    assert not replace(statement, members=(statement.members[0],) * 2).ascends()


# -- shares -----------------------------------------------------------------------------------


def test_every_share_that_is_no_part_of_the_key_is_refused_by_its_sender() -> None:
    parts = random_clients(3)
    statement, desk = statement_of(parts), ShareDesk(statement_of(parts))
    good = parts[0].share(statement)
    other = replace(statement, label=replace(LABEL, round=18))
    for client, share, reason in (
        (9, good, "it is not in the set"),
        (1, parts[0].share(other), "it is for statement"),
        (1, replace(good, data=good.data[:-1]), "31 bytes; expected 32"),
        (1, replace(good, data=good.data * 2), "64 bytes; expected 32"),
        (1, replace(good, data=ORDER.to_bytes(32, "big")), "not below the group's order"),
    ):
        with pytest.raises(RefusedShare, match=f"member {client}: .*{reason}") as found:
            desk.take(client, share)
        assert found.value.client == client
    assert desk.missing == [1, 2, 3]
    desk.take(1, good)
    desk.take(1, good)  # the same again
    with pytest.raises(RefusedShare, match="it has sent another one before"):
        desk.take(1, KeyShare(statement.name, bytes(31) + b"\x01"))
    desk.take(3, parts[2].share(statement))
    with pytest.raises(NoKey, match="the shares of members 2 are missing") as missing:
        desk.key()
    assert missing.value.missing == (2,)
    desk.take(2, parts[1].share(statement))
    expected = sum(part.scalars().values()[0] for part in parts) % ORDER
    assert desk.key() == ((expected,),)


def test_a_key_of_zero_is_no_key() -> None:
    parts = random_clients(3)
    statement, desk = statement_of(parts), ShareDesk(statement_of(parts))
    known = [int.from_bytes(p.share(statement).data, "big") for p in parts[:2]]
    for part, value in zip(parts, [*known, -sum(known) % ORDER], strict=True):
        desk.take(part.number, KeyShare(statement.name, value.to_bytes(32, "big")))
    with pytest.raises(NoKey, match="add up to 0"):
        desk.key()


@pytest.mark.parametrize("key", [bytes(32), b"\x01" + bytes(31)])
def test_an_exchange_key_of_small_order_is_refused(key: bytes) -> None:
    with pytest.raises(RefusedKeys, match="the exchange key of member 2 is no key"):
        masks(member_keys(1), 1, [(2, key)], LABEL.encoded, bytes(32), 0)
