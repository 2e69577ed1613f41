"""Attacks on EncCluster's keys and pads, on recorded messages; each with its control.

docs/enccluster.md has the table: which attack, which test. What holds whatever is recorded is
tested beside the cryptography (tests/protocol/enccluster).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from eris.core.clustering import clustered
from eris.core.vectors import Vector
from eris.experiments.audits.opened_sums import Late
from eris.protocol.enccluster import encrypt as encrypting
from eris.protocol.enccluster import shares as sharing
from eris.protocol.enccluster.answering import Answerer
from eris.protocol.enccluster.collecting import EncryptedCollector
from eris.protocol.enccluster.encrypt import ClientScalars, encrypt
from eris.protocol.enccluster.group import (
    ORDER,
    MaybeInfinite,
    added,
    negated,
    of_public,
    parsed,
    times_public,
)
from eris.protocol.enccluster.labels import DOM, extracted, point, scalar
from eris.protocol.enccluster.opening import NoLogarithm
from eris.protocol.enccluster.sets import SetStatement
from eris.protocol.messages import Contribution
from eris.protocol.schemes.encrypted_clusters import EncryptedClusterCoding
from support.command import Eris
from support.crowd import Crowd
from support.enccluster import LABEL, random_clients, statement_of
from support.encrypted import CLIENTS, CLUSTERS, START, N, fitted
from support.recorded import (
    SERVER,
    Patch,
    Recorded,
    centroids_of,
    points,
    recorded,
    scalars,
    usual,
)

# -- 1: isolation without collusion ---------------------------------------------------------------


def test_no_share_and_no_sum_of_shares_opens_a_single_client() -> None:
    run = usual()
    label, shares, books = run.label(1), run.shares(1), run.books(1)
    lock = point(label.encoded)
    own = {client: scalars(one)[0] for client, one in shares.items()}
    subsets = [one for size in range(1, CLIENTS + 1) for one in combinations(own, size)]
    assert len(subsets) == 2**CLIENTS - 1
    for book in books.values():
        tried = [
            added([book.points[0], times_public(-sum(own[client] for client in subset), lock)])
            for subset in subsets
        ]
        assert run.logarithms(tried) == []
    expected = np.sum([np.take(run.own(1, c), books[c].mapping) for c in sorted(books)], axis=0)
    assert run.sums(1, run.key(1), books.values()) == expected.tolist()


# -- 2: collusion ---------------------------------------------------------------------------------


def test_all_but_one_colluders_read_the_last_ones_clustered_model_exactly() -> None:
    run, victim = usual(), 3
    books = run.books(1)
    left = np.array(run.sums(1, run.key(1), books.values()))
    for client in set(books) - {victim}:
        left -= np.take(run.own(1, client), books[client].mapping)
    model, update = run.crowd.given[victim, 1]
    scale = run.coding.scale(1)
    weights = (model - run.coding.rate * update.astype(np.float64)).astype(np.float32)
    book = clustered(weights, CLUSTERS, fewer="allow")
    expected = scale.scaled(book.centroids, run.crowd.samples(victim))[book.assignment]
    assert np.array_equal(left, expected)


def test_with_two_honest_clients_two_worlds_give_the_same_bits(monkeypatch: Patch) -> None:
    """One client's centroids are a higher, the other's a lower. With a test's own U = u·G scalars
    and their common mask make up for it, in all that anyone else sees: so no attacker can tell."""
    u, a = 0x1234567, 41
    monkeypatch.setattr(encrypting, "point", lambda *about: of_public(u))
    clients = random_clients(4)
    statement: SetStatement = statement_of(clients)
    shift = a * pow(u, -1, ORDER) % ORDER
    one, other = clients[0], clients[1]
    mask = sharing.masks

    def seen(moved: int) -> list[bytes]:
        by = {one.number: moved, other.number: -moved}

        def masked(keys: Any, me: int, others: Any, *about: Any) -> int:
            return (mask(keys, me, others, *about) + by.get(me, 0) * shift) % ORDER

        monkeypatch.setattr(sharing, "masks", masked)
        found = []
        for part in clients:
            offset = by.get(part.number, 0)
            (own,) = part.scalars().values()
            secret = (own - offset * shift) % ORDER
            messages = [message + offset * a for message in part.messages]
            found.append(encrypt(messages, LABEL, ClientScalars([secret])))
            share = sharing.key_share(part.keys, part.number, statement, [LABEL], [[secret]])
            found.append(share.data)
        return found

    assert seen(0) == seen(1)


# -- 3: isolation by statements, and partition ----------------------------------------------------


class Lawless:
    """A lying server's own idea of the law."""

    def __init__(self, coding: Any) -> None:
        self._coding = coding

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coding, name)

    def law(self, round: int, shard: int) -> Any:
        return replace(self._coding.law(round, shard), min_included=1, colluders=0, eligible=2)


def closing_on(members: Collection[int], monkeypatch: Patch, *, law: bool) -> None:
    """The server closes on some clients only; clients keep the law, or are seeded not to."""
    finish = EncryptedCollector.finish

    def chosen(self: EncryptedCollector) -> Any:
        self._encrypting = Lawless(self._encrypting)  # type: ignore[assignment]
        self._books = {client: book for client, book in self._books.items() if client in members}
        return finish(self)

    monkeypatch.setattr(EncryptedCollector, "finish", chosen)
    if not law:
        monkeypatch.setattr(Answerer, "_check_law", lambda *_: None)


SETS = {"isolation": ([3], [5, 6]), "partition": ([3, 4], [5, 6])}


@pytest.mark.parametrize("name", SETS)
def test_a_set_that_isolates_or_partitions_is_refused_by_name(
    name: str, monkeypatch: Patch
) -> None:
    victims, colluders = SETS[name]
    closing_on([*victims, *colluders], monkeypatch, law=True)
    run = recorded(1, colluders=2)
    assert not run.shares(1)
    size = len(victims) + len(colluders)
    reason = f"the set has {size} members; the law of the set asks for 6 of 9"
    assert sum(reason in text for text in run.fit.history[0].refused) == size


@pytest.mark.parametrize("name", SETS)
def test_with_the_law_seeded_out_the_server_reads_the_victims(
    name: str, monkeypatch: Patch
) -> None:
    victims, colluders = SETS[name]
    closing_on([*victims, *colluders], monkeypatch, law=False)
    run = recorded(1, colluders=2)
    assert set(run.shares(1)) == {*victims, *colluders}
    books = {client: run.books(1)[client] for client in sorted(run.shares(1))}
    left = np.array(run.sums(1, run.key(1), books.values()))
    for client in colluders:
        left -= np.take(run.own(1, client), books[client].mapping)
    expected = np.sum([np.take(run.own(1, c), books[c].mapping) for c in victims], axis=0)
    assert np.array_equal(left, expected)


# -- 4 and 5: replay, and two sets that subtract --------------------------------------------------


@pytest.fixture
def paper_keys(monkeypatch: Patch) -> None:
    """The paper's keys: two scalars a client, for all rounds, in shares that know no label."""

    def lasting(
        cls: type[ClientScalars], secret: bytes, fresh: bytes, label: Any, said: bytes, slots: int
    ) -> ClientScalars:
        key = extracted(secret)
        return cls([scalar(key, DOM + b"/paper" + bytes([a])) for a in range(slots)])

    monkeypatch.setattr(EncryptedClusterCoding, "slots", 2)
    monkeypatch.setattr(ClientScalars, "drawn", classmethod(lasting))


def replayed(run: Recorded) -> int:
    """Sums of round 2 that round 1's key opens."""
    try:
        return len(run.sums(2, run.key(1), run.books(2).values()))
    except NoLogarithm:
        return 0


def test_a_rounds_key_opens_no_later_round() -> None:
    assert replayed(usual()) == 0


@pytest.mark.usefixtures("paper_keys")
def test_control_with_the_papers_keys_it_opens_all_of_it() -> None:
    run = recorded()
    assert replayed(run) == N
    assert run.sums(2, run.key(1), run.books(2).values()) == run.sums(
        2, run.key(2), run.books(2).values()
    )


def test_old_ciphertexts_among_new_ones_do_not_open() -> None:
    run = usual()
    mixed = run.books(2) | {client: run.books(1)[client] for client in (2, 5)}
    for round in (1, 2):
        with pytest.raises(NoLogarithm):
            run.sums(2, run.key(round), mixed.values())


def isolated(run: Recorded, victim: int, round: int) -> list[int]:
    """What the keys of two rounds, with the victim and without it, open of its ciphertexts."""
    own = [(a - b) % ORDER for a, b in zip(run.key(1), run.key(2), strict=True)]
    label = run.label(round).encoded
    lock = added([times_public(-k, point(label, a)) for a, k in enumerate(own)])
    (message,) = [m for m in run.messages(round, Contribution) if m.header.sender == victim]
    return run.logarithms([added([one, lock]) for one in points(message)])


@pytest.mark.usefixtures("paper_keys")
def test_with_the_papers_keys_two_sets_give_a_clients_key_for_all_rounds() -> None:
    run = recorded(3, faults=Late(4, 2))
    assert set(run.shares(1)) - set(run.shares(2)) == {4}
    for round in (1, 3):
        assert isolated(run, 4, round) == centroids_of(run, 4, round)


def test_two_rounds_keys_subtract_to_nothing() -> None:
    run = recorded(3, faults=Late(4, 2))
    assert set(run.shares(1)) - set(run.shares(2)) == {4}
    assert isolated(run, 4, 1) == isolated(run, 4, 3) == []


# -- 6: one pad -----------------------------------------------------------------------------------


def test_all_differences_of_centroids_are_on_the_wire() -> None:
    run = usual()
    tap = run.transcript.link(5, SERVER)
    (message,) = run.messages(1, Contribution, tap)
    first, *others = points(message)
    own = run.own(1, 5)
    found = run.logarithms([added([one, negated(first)]) for one in others])
    assert found == [one - own[0] for one in own[1:]]


def test_control_pads_of_their_own_show_no_difference() -> None:
    run = Recorded(*fitted("detrust", 1, Crowd(5, 40, momentum=0.5), start=START[:40].copy()))
    seen = run.transcript.seen_by(run.transcript.link(3, 5))
    (message,) = [one for one in seen.messages() if isinstance(one, Contribution)]
    data = message.payload.encoded.data
    first, *others = [parsed(data[33 * t : 33 * (t + 1)]) for t in range(40)]
    values, found = (
        usual()
        .coding.table(1 << 13)
        .find([added([one, negated(first)]) for one in others], 1 << 14)
    )
    assert not found.any(), values


# -- 9: a third party -----------------------------------------------------------------------------


@pytest.mark.usefixtures("paper_keys")
def test_the_papers_third_party_opens_every_centroid_and_with_a_mapping_the_model() -> None:
    run = recorded(1, coding="sealed")
    for message in run.messages(1, Contribution):
        client = message.header.sender
        key = extracted(run.reader._vaults[client].newest.process_secret)
        held = [scalar(key, DOM + b"/paper" + bytes([a])) for a in range(2)]
        label = run.label(1).encoded
        lock = added([times_public(-s, point(label, a)) for a, s in enumerate(held)])
        found = run.logarithms([added([one, lock]) for one in points(message)])
        assert found == centroids_of(run, client, 1)
        assert run.reader.read(message, frozenset(), {}) is None, "it has no mapping"
        book = run.books(1)[client]
        weights = np.take(found, book.mapping) * run.read(1, SERVER)[client].unit
        model, update = run.crowd.given[client, 1]
        true = model - run.coding.rate * update.astype(np.float64)
        best = clustered(true.astype(np.float32), CLUSTERS).values()
        np.testing.assert_allclose(weights, best, atol=0.05)


def test_an_authoritys_files_hold_no_key_that_opens_anything(
    tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no third party here; who admits members has keys for certificates alone."""
    monkeypatch.chdir(tmp_path)
    eris = Eris(monkeypatch, capsys)
    assert eris("ca", "init", "ca", "--federation", "clinics") == 0, eris.err
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    keys = [load_pem_private_key(one, None) for one in files if b"PRIVATE KEY" in one]
    assert keys
    assert not any(isinstance(key, X25519PrivateKey) for key in keys)


# -- 11: a client that was brought back -----------------------------------------------------------


class Other(Crowd):
    """Client 4 has other data than before."""

    def target(self, client: int) -> Vector:
        return super().target(client) * np.float32(1 + (client == 4))


def two_contributions(monkeypatch: Patch | None = None) -> tuple[Recorded, list[MaybeInfinite]]:
    """A client sends for one label, is brought back to before, and sends something else: process
    secret and randomness are the same, as a simulation's follow from its seed."""
    if monkeypatch is not None:
        drawn = ClientScalars.drawn.__func__  # type: ignore[attr-defined]

        def unbound(
            cls: Any, secret: bytes, fresh: bytes, label: Any, said: bytes, slots: int
        ) -> Any:
            return drawn(cls, secret, bytes(32), label, bytes(32), slots)

        monkeypatch.setattr(ClientScalars, "drawn", classmethod(unbound))
    runs = recorded(1), recorded(1, crowd=Other(CLIENTS, N, momentum=0.5))
    assert runs[0].label(1) == runs[1].label(1)
    sent = [{one.header.sender: one for one in run.messages(1, Contribution)} for run in runs]
    assert sent[0][3] == sent[1][3]
    pairs = zip(points(sent[0][4]), points(sent[1][4]), strict=True)
    return runs[0], [added([new, negated(old)]) for old, new in pairs]


def test_a_client_that_was_brought_back_gives_no_change_away() -> None:
    run, differences = two_contributions()
    assert run.logarithms(differences) == []


def test_control_scalars_of_secret_and_label_alone_give_all_changes(monkeypatch: Patch) -> None:
    run, differences = two_contributions(monkeypatch)
    assert len(run.logarithms(differences)) == CLUSTERS


# -- 13: the second lock --------------------------------------------------------------------------


@pytest.mark.usefixtures("paper_keys")
def test_an_equal_scalar_in_two_rounds_gives_no_difference() -> None:
    """The point U is another in every round; pads of a ring would be the same (the control is in
    tests/protocol/enccluster/test_only_the_full_key.py)."""
    run = recorded()
    by_round: list[Mapping[int, Any]] = [
        {one.header.sender: one for one in run.messages(round, Contribution)} for round in (1, 2)
    ]
    for client in range(CLIENTS):
        pairs = zip(*(points(sent[client]) for sent in by_round), strict=True)
        assert run.logarithms([added([new, negated(old)]) for old, new in pairs]) == []
