"""Only the shares of all members open, only what they were given for, and only once a scalar."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from eris.protocol.enccluster import shares
from eris.protocol.enccluster.content import content
from eris.protocol.enccluster.encrypt import ClientScalars, encrypt
from eris.protocol.enccluster.group import ORDER, added, negated, parsed
from eris.protocol.enccluster.labels import BookLabel
from eris.protocol.enccluster.opening import NoLogarithm, open_by_differences, open_fully
from eris.protocol.enccluster.sets import SetStatement
from eris.protocol.enccluster.shares import KeyShare, ShareDesk
from support.enccluster import (
    LABEL,
    REACH,
    Contributor,
    key_of,
    known_bytes,
    packed,
    plain_sums,
    random_clients,
    statement_of,
    table,
)


def opens(
    parts: Sequence[Contributor], key: Sequence[int], label: BookLabel = LABEL
) -> list[int] | None:
    """What both paths agree on, if it opens."""
    found: list[list[int] | None] = []
    for path in (open_fully, open_by_differences):
        try:
            found.append(path([p.book() for p in parts], key, label, table(), REACH).tolist())
        except NoLogarithm:
            found.append(None)
    assert found[0] == found[1]
    return found[0]


def number(share: KeyShare) -> int:
    return int.from_bytes(share.data, "big")


def logarithms(one: bytes, other: bytes) -> list[int | None]:
    """Of the differences of two rows of ciphertexts."""
    pairs = [(one[a : a + 33], other[a : a + 33]) for a in range(0, len(one), 33)]
    points = [added([parsed(a), negated(parsed(b))]) for a, b in pairs]
    values, found = table().find(points, REACH)
    return [v if f else None for v, f in zip(values.tolist(), found.tolist(), strict=True)]


def subsets(count: int) -> list[tuple[int, ...]]:
    return [c for n in range(1, count + 1) for c in itertools.combinations(range(count), n)]


def test_of_all_subsets_of_shares_and_ciphertexts_one_pair_opens() -> None:
    parts = random_clients(4, size=2)
    statement = statement_of(parts)
    given = [number(one.share(statement)) for one in parts]
    opened = [
        (of_shares, of_texts)
        for of_shares in subsets(4)
        for of_texts in subsets(4)
        if opens([parts[i] for i in of_texts], [sum(given[i] for i in of_shares) % ORDER])
    ]
    assert opened == [((0, 1, 2, 3), (0, 1, 2, 3))]


@pytest.mark.parametrize("count", [2, 3, 10, 30])
def test_what_is_not_the_sum_of_the_set_does_not_open(count: int) -> None:
    parts = random_clients(count)
    statement, key = statement_of(parts), key_of(parts)
    assert opens(parts, key) == plain_sums(parts)
    given = [number(one.share(statement)) for one in parts]
    assert opens(parts, [(key[0] - given[0]) % ORDER]) is None
    assert opens(parts, key, replace(LABEL, round=LABEL.round + 1)) is None
    assert opens(parts[1:], key) is None
    for one, own in zip(parts, given, strict=True):
        assert opens([one], [own]) is None
        assert opens([one], key) is None


@pytest.mark.parametrize("field", ["epoch", "round", "shard", "segment", "book"])
def test_a_key_opens_one_label_and_no_neighbour(field: str) -> None:
    here = random_clients(3)
    beside = replace(LABEL, **{field: getattr(LABEL, field) + 1})
    there = [replace(one, label=beside) for one in here]
    assert opens(there, key_of(there), beside) == plain_sums(there)
    assert opens(there, key_of(here), beside) is None
    assert opens([*here[:2], there[2]], key_of(here)) is None


def test_two_federations_of_equal_settings_share_no_label() -> None:
    other = replace(LABEL, federation=known_bytes("another"))
    there = [replace(one, label=other) for one in random_clients(3)]
    assert opens(there, key_of(random_clients(3)), other) is None


def mixtures(parts: Sequence[Contributor]) -> list[list[int] | None]:
    """Sums under every proper mixture of the shares of two statements on the same members."""
    first = statement_of(parts)
    liar = replace(first.members[-1], contribution=known_bytes("another of its own"))
    second = SetStatement(first.label, (*first.members[:-1], liar))
    rows = [[number(one.share(s)) for one in parts] for s in (first, second)]
    choices = [c for c in itertools.product((0, 1), repeat=len(parts)) if 0 < sum(c) < len(parts)]
    return [
        opens(parts, [sum(rows[c][i] for i, c in enumerate(choice)) % ORDER]) for choice in choices
    ]


def test_shares_of_two_statements_do_not_mix() -> None:
    assert set(map(str, mixtures(random_clients(4)))) == {"None"}


def test_seeded_bug_a_mask_without_the_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = shares.mask_info
    monkeypatch.setattr(
        shares, "mask_info", lambda label, statement, *rest: bound(label, b"", *rest)
    )
    parts = random_clients(4)
    assert mixtures(parts) == [plain_sums(parts)] * 14


def test_a_wrong_share_opens_nothing() -> None:
    parts = random_clients(3)
    statement = statement_of(parts)
    desk = ShareDesk(statement)
    for one in parts[:2]:
        desk.take(one.number, one.share(statement))
    honest = number(parts[2].share(statement))
    wrong = ((honest + 1) % ORDER).to_bytes(32, "big")
    desk.take(parts[2].number, KeyShare(statement.name, wrong))
    assert opens(parts, desk.key()[0]) is None


# -- a scalar twice ---------------------------------------------------------------------------


def two_contents(bound: bool) -> list[int | None]:
    """A client is brought back and encrypts another update under the same label and randomness."""
    mapping, rng = np.zeros(4, np.uint32), np.random.default_rng(0)
    before = rng.integers(-500, 500, 32).tolist()
    after = (np.array(before) + rng.integers(1, 9, 32)).tolist()
    sent = []
    for messages in (before, after):
        said = content(messages, packed(mapping, 32)) if bound else bytes(32)
        scalars = ClientScalars.drawn(known_bytes("s"), known_bytes("f"), LABEL, said)
        sent.append(encrypt(messages, LABEL, scalars))
    found = logarithms(sent[1], sent[0])
    if not bound:
        assert found == [a - b for a, b in zip(after, before, strict=True)]
    return found


def test_a_client_that_was_brought_back_gives_no_change_away() -> None:
    assert two_contents(bound=True) == [None] * 32


def test_control_scalars_of_secret_and_label_alone_give_all_changes() -> None:
    assert None not in two_contents(bound=False)


def test_the_second_lock_an_equal_scalar_at_two_labels_gives_nothing() -> None:
    part = random_clients(1, clusters=32)[0]
    scalars, next_round = part.scalars(), replace(LABEL, round=LABEL.round + 1)
    now = encrypt(part.messages, LABEL, scalars)
    later = encrypt([m + 1 for m in part.messages], next_round, scalars)
    assert logarithms(later, now) == [None] * 32
    # Pads of a ring, which hide as well while they are used once, give the difference at once.
    pad = scalars.values()[0] % 2**32
    ring = [((m + 1 + pad) - (m + pad)) % 2**32 for m in part.messages]
    assert ring == [1] * 32
