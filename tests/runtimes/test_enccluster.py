"""Encrypted sums in the simulator: real ciphertexts, and the bits of plain integers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from eris.core.clustering import clustered
from eris.core.errors import ErisError
from eris.core.fuse import HEAD_BYTES, Layout
from eris.protocol.codec import encode
from eris.protocol.enccluster import collecting
from eris.protocol.enccluster.mapped import Box
from eris.protocol.enccluster.sending import EncryptingSender
from eris.protocol.enccluster.wire import write_statement
from eris.protocol.messages import Contribution, Result, Reveal, RevealRequest
from eris.runtimes.cohort import Cohort
from eris.runtimes.faults import Fault, FaultPlan
from eris.runtimes.station import Stations
from eris.testing import assert_same_bits
from support.crowd import Crowd
from support.encrypted import (
    CLIENTS,
    CLUSTERS,
    ROUNDS,
    START,
    N,
    Still,
    damage,
    fitted,
    in_clusters,
    messages,
    plain_model,
)

EXACT = [
    {"coding": "sealed"},
    {"coding": "huffman"},
    {"coding": "filter8"},
    {"coding": "filter16"},
    {"coding": "filter32"},
]


def test_the_model_is_that_of_the_plain_integers() -> None:
    fit, crowd, made = fitted()
    assert_same_bits(fit.model, plain_model(fit, crowd, made))
    assert not np.array_equal(fit.model, START)


@pytest.mark.parametrize("form", EXACT, ids=lambda form: form["coding"])
def test_every_exact_coding_of_the_mapping_gives_the_same_bits(form: dict[str, Any]) -> None:
    assert_same_bits(fitted(**form)[0].model, fitted()[0].model)


@pytest.mark.parametrize("policy", ["first", "populous"])
def test_a_small_filter_without_exceptions_does_not(policy: str) -> None:
    """With 8 bits some coordinates have two hits, and 300 · 9 · 3 of them are asked for."""
    short = fitted(coding="filter8", policy=policy)[0]
    assert not short.history[-1].refused
    assert not np.array_equal(short.model, fitted()[0].model)


def test_owners_that_train_encrypt_and_answer_like_all_others() -> None:
    fit, crowd, made = fitted(aggregators=3, clusters=4, agreed={"min_included": 4})

    def cut(weights: Any) -> Any:
        return clustered(weights, 4, fewer="allow").values()

    assert_same_bits(fit.model, plain_model(fit, crowd, made, cut))
    assert {len(one.included) for one in messages(fit, Result)} == {CLIENTS}


def test_a_plain_average_counts_every_client_once() -> None:
    fit, crowd, made = fitted(average="plain")
    expected = plain_model(fit, crowd, made, weigh=lambda client: 1)
    assert_same_bits(fit.model, expected)
    assert not np.array_equal(fit.model, fitted()[0].model)


def test_every_weight_encrypted_is_the_mean_without_clusters() -> None:
    start = START[:40].copy()
    fit, crowd, made = fitted("detrust", 2, Crowd(5, 40, momentum=0.5), start=start)
    assert_same_bits(fit.model, plain_model(fit, crowd, made, lambda weights: weights, start))


def test_who_is_late_before_the_closing_costs_nothing() -> None:
    fit, crowd, made = fitted(faults=FaultPlan(seed=1, straggle=0.25), rounds=5)
    sets = [one.included for one in messages(fit, Result) if one.payload is not None]
    assert min(map(len, sets)) < CLIENTS
    assert_same_bits(fit.model, plain_model(fit, crowd, made))


def test_too_few_for_the_law_of_the_set_are_not_opened() -> None:
    """K = 9 and one colluder: ⌊10/2⌋ + 1 = 6."""
    fit = fitted(faults=FaultPlan(seed=1, straggle=0.6), rounds=8)[0]
    sets = [len(one.included) for one in messages(fit, Result)]
    assert 0 in sets
    assert min(size for size in (*sets, CLIENTS) if size) >= 6
    said = [text for one in fit.history for text in one.refused]
    assert any("the law of the set asks for 6 of 9" in text for text in said)


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Client 3 is there when it contributes to round 2, and gone when it is asked."""
    reveal = EncryptingSender.reveal

    def silent(self: EncryptingSender, request: RevealRequest, permitted: bool) -> bytes:
        if self.me == 3 and request.header.round == 2:
            raise ErisError("gone")
        return reveal(self, request, permitted)

    monkeypatch.setattr(EncryptingSender, "reveal", silent)


@pytest.mark.usefixtures("gone")
def test_who_is_gone_after_the_closing_is_named_and_the_round_goes_on() -> None:
    fit, crowd, made = fitted()
    second = [one for one in messages(fit, Result) if one.header.round == 2]
    assert [one.payload for one in second] == [None]
    name = made.names[3]
    assert any(f"the key shares of {name} are missing" in text for text in fit.history[1].refused)
    assert [one.included for one in fit.history] == [1.0, 0.0, 1.0]
    assert_same_bits(fit.model, plain_model(fit, crowd, made))
    asked = [one for one in messages(fit, RevealRequest) if one.header.round == 2]
    assert len({one.data for one in asked}) == 1, "one set a segment and round, asked for once"
    assert len(asked) == CLIENTS


def test_who_gives_no_share_twice_in_a_row_is_left_out_for_two_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reveal = EncryptingSender.reveal

    def silent(self: EncryptingSender, request: RevealRequest, permitted: bool) -> bytes:
        if self.me == 3:
            raise ErisError("gone")
        return reveal(self, request, permitted)

    monkeypatch.setattr(EncryptingSender, "reveal", silent)
    fit, crowd, made = fitted(rounds=7)
    sets = {one.header.round: one.included for one in messages(fit, Result)}
    others = frozenset(range(CLIENTS)) - {3}
    assert [round for round in range(1, 8) if not sets[round]] == [1, 2, 5, 6]
    assert [sets[round] for round in (3, 4, 7)] == [others] * 3
    notes = fit.history[2].refused
    assert any(f"closed without {made.names[3]}, who gave no key shares" in n for n in notes)
    assert_same_bits(fit.model, plain_model(fit, crowd, made))


# -- bad input ------------------------------------------------------------------------------------


def damaged(monkeypatch: pytest.MonkeyPatch, change: Any, **method: Any) -> Any:
    """A training in which the bytes of client 4 are others on their way."""
    damage(monkeypatch, EncryptingSender, change)
    return fitted(rounds=1, **method)


def no_point(data: bytes) -> bytes:
    return data[:4] + b"\x05" + data[5:]


def one_point_less(data: bytes) -> bytes:
    return data[:37] + data[70:]


def too_many(data: bytes) -> bytes:
    return (CLUSTERS + 1).to_bytes(4, "little") + data[4:]


def all_ones(data: bytes) -> bytes:
    """Cluster 7 of five for everyone; 900 bits end in the middle of a byte."""
    return data[: 4 + 33 * 5] + bytes([255]) * (len(data) - 5 - 33 * 5) + b"\x0f"


def one_bit(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def empty_filter(data: bytes) -> bytes:
    start, slots = 4 + 33 * CLUSTERS + HEAD_BYTES, 2 * Layout.of(N).slots
    return data[:start] + bytes(slots) + data[start + slots :]


@pytest.mark.parametrize(
    ("change", "method", "reason"),
    [
        (no_point, {}, "ciphertext 0"),
        (one_point_less, {}, "bytes"),
        (too_many, {}, "has 9 clusters; expected 2 to 8"),
        (lambda data: b"", {}, "ends before codebook 0"),
        (all_ones, {"clusters": 5}, "which its book lacks"),
        (one_bit, {"coding": "sealed"}, "sealed index"),
        (empty_filter, {"coding": "filter16"}, "has no cluster for coordinate"),
        (one_bit, {"coding": "filter16"}, "sealed exceptions"),
    ],
)
def test_a_contribution_that_is_none_is_refused_by_name_and_the_others_go_on(
    change: Any, method: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit, _, _ = damaged(monkeypatch, change, **method)
    (result,) = messages(fit, Result)
    assert result.included == frozenset(range(CLIENTS)) - {4}
    assert any(reason in text for text in fit.history[0].refused), fit.history[0].refused


def test_a_client_whose_key_is_no_key_is_refused_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    between = Box.between

    def refused(keys: Any, other: int, theirs: bytes, *about: Any) -> Box:
        """As with a point of small order in client 4's place, which X25519 refuses."""
        return between(keys, other, bytes(32) if other == 4 else theirs, *about)

    monkeypatch.setattr(Box, "between", refused)
    fit = fitted(rounds=1)[0]
    (result,) = messages(fit, Result)
    assert result.included == frozenset(range(CLIENTS)) - {4}
    expected = "the exchange key of member 4 is no key"
    assert any(expected in text for text in fit.history[0].refused), fit.history[0].refused


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:32] + b"\xff" * 32, "not below the group's order"),
        (lambda data: bytes(32) + data[32:], "it is for statement 0000"),
        (lambda data: data + bytes(32), "expected 32"),
        (lambda data: data[:5], "expected 32 and scalars"),
    ],
)
def test_a_share_that_is_none_counts_as_missing(
    change: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reveal = EncryptingSender.reveal

    def other(self: EncryptingSender, request: RevealRequest, permitted: bool) -> bytes:
        made = reveal(self, request, permitted)
        return change(made) if self.me == 4 else made

    monkeypatch.setattr(EncryptingSender, "reveal", other)
    fit, _, made = fitted(rounds=1)
    assert [one.payload for one in messages(fit, Result)] == [None]
    said = fit.history[0].refused
    assert any(reason in text for text in said), said
    assert any(f"the key shares of {made.names[4]} are missing" in text for text in said)
    assert_same_bits(fit.model, START)


def test_a_wrong_share_opens_no_wrong_value(monkeypatch: pytest.MonkeyPatch) -> None:
    reveal = EncryptingSender.reveal

    def other(self: EncryptingSender, request: RevealRequest, permitted: bool) -> bytes:
        made = reveal(self, request, permitted)
        return made[:-1] + bytes([made[-1] ^ 1]) if self.me == 4 else made

    monkeypatch.setattr(EncryptingSender, "reveal", other)
    fit = fitted(rounds=1)[0]
    assert [one.payload for one in messages(fit, Result)] == [None]
    assert any("no logarithm within" in text for text in fit.history[0].refused)
    assert_same_bits(fit.model, START)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: bytes(64) + data[64:], "not signed by the shard's owner"),
        (lambda data: data[:64] + data[96:] + data[64:96], "not signed by the shard's owner"),
        (lambda data: data[:-1], "statement: has"),
    ],
)
def test_a_statement_that_its_owner_did_not_sign_is_answered_by_nobody(
    change: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        collecting, "write_statement", lambda *about: change(write_statement(*about))
    )
    fit = fitted(rounds=1)[0]
    assert not messages(fit, Reveal)
    assert sum(reason in text for text in fit.history[0].refused) == CLIENTS
    assert_same_bits(fit.model, START)


def test_weights_out_of_range_are_refused_before_they_are_encrypted() -> None:
    far = START.copy()
    far[17] = 9.0
    fit = fitted(rounds=1, start=far)[0]
    assert not messages(fit, Contribution)
    said = fit.history[0].refused
    assert len(said) == CLIENTS
    assert all("coordinate 17 is" in text and "at most ±8" in text for text in said)


# -- bytes ----------------------------------------------------------------------------------------


def mapping_law(coding: str) -> int:
    """Section 7's bytes of a mapping whose length does not depend on what it maps."""
    packed = -(-N * 3 // 8)
    return {"packed": packed, "sealed": packed + 28}[coding]


@pytest.mark.parametrize("coding", ["packed", "sealed"])
def test_messages_have_the_bytes_that_they_must_have(coding: str) -> None:
    fit = fitted(coding=coding)[0]
    law = {
        Contribution: 4 + 33 * CLUSTERS + mapping_law(coding),
        RevealRequest: 2 + 32 * CLIENTS + 64,
        Reveal: 32 + 32,
        Result: 4 * N + 2 + 16,
    }
    for kind, least in law.items():
        sent = messages(fit, kind)
        assert len(sent) == ROUNDS * (1 if kind is Result else CLIENTS)
        sizes = [len(encode(one)) for one in sent]
        assert min(sizes) >= least
        assert sum(sizes) <= 1.05 * len(sizes) * (least + 128)


def test_every_weight_costs_a_point_and_a_share_two_scalars() -> None:
    fit = fitted("detrust", 1, Crowd(5, 40, momentum=0.5), start=START[:40].copy())[0]
    for kind, least in ((Contribution, 33 * 40), (Reveal, 32 + 64)):
        sizes = [len(encode(one)) for one in messages(fit, kind)]
        assert len(sizes) == 5
        assert least <= min(sizes)
        assert sum(sizes) <= 1.05 * len(sizes) * (least + 128)


# -- faults in mid-round --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "method"), [("enccluster", {}), ("enccluster", {"aggregators": 3}), ("detrust", {})]
)
def test_members_under_a_clock_come_to_the_bits_of_those_in_step(
    name: str, method: dict[str, Any]
) -> None:
    small = {"rounds": 2, "crowd": Crowd(5, 60, momentum=0.5), "start": START[:60].copy()}
    more = {} if name == "detrust" else {"clusters": 2}
    doubled = FaultPlan(seed=3, duplicate=0.2)
    there = fitted(name, faults=doubled, **small, **method, **more)[0]  # type: ignore[arg-type]
    here = fitted(name, **small, **method, **more)[0]  # type: ignore[arg-type]
    assert doubled.struck[Fault.DUPLICATE] > 5
    assert_same_bits(there.model, here.model)
    for kind in (RevealRequest, Reveal, Result):
        assert {encode(m) for m in messages(there, kind)} == {
            encode(m) for m in messages(here, kind)
        }


def test_where_messages_are_lost_sums_are_of_one_set_or_are_withheld() -> None:
    lossy = FaultPlan(seed=3, drop=0.25)
    fit, crowd, made = fitted(rounds=10, faults=lossy, aggregators=3)
    assert lossy.struck[Fault.DROP] > 100
    assert_same_bits(fit.model, plain_model(fit, crowd, made))
    revealed: dict[tuple[int, tuple[int, int]], set[bytes]] = {}
    for answer in messages(fit, Reveal):
        place = answer.header.round, answer.header.key
        revealed.setdefault(place, set()).add(answer.data[:32])
    assert all(len(statements) == 1 for statements in revealed.values())
    published = [result for result in messages(fit, Result) if result.payload is not None]
    assert {one.closed for one in published} <= {s for found in revealed.values() for s in found}
    notes = [note for record in fit.history for note in record.refused if "withheld" in note]
    assert notes
    assert all(re.search("the key shares of client-[0-9, client-]* are missing", n) for n in notes)


# -- secrets --------------------------------------------------------------------------------------


def test_the_same_weights_are_other_ciphertexts_in_every_round() -> None:
    """Clients that do not move send the same centroids: no point comes twice."""

    fit = fitted(crowd=Still(CLIENTS, N))[0]
    found = [
        one.payload.encoded.data[4 + 33 * j : 37 + 33 * j]
        for one in messages(fit, Contribution)
        for j in range(CLUSTERS)
    ]
    assert len(set(found)) == len(found) == ROUNDS * CLIENTS * CLUSTERS


def test_scalars_are_forgotten_once_a_result_is_known() -> None:
    _, _, made = fitted(rounds=1)
    session = made.start(2)
    session.step()
    assert isinstance(session.engine, Stations)
    (cohort,) = session.engine._stations
    assert isinstance(cohort, Cohort)
    for client in cohort._clients.values():
        sender = client.sender
        assert isinstance(sender, EncryptingSender)
        assert not sender.answerer._waiting
        assert not sender._made


def test_the_oracle_would_see_a_weight_that_is_off_by_one() -> None:
    fit, crowd, made = fitted()

    def off(weights: Any) -> Any:
        found = in_clusters(weights).copy()
        found[0] += np.float32(2.0**-6)
        return found

    assert not np.array_equal(fit.model, plain_model(fit, crowd, made, off))
