"""SEFL in the simulator: Paillier's ciphertexts, and the bits of the plain mean."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eris.core.combine import ExactMean, FixedPoint
from eris.core.errors import ErisError, InvalidSetting, PrivacyWarning
from eris.core.vectors import Vector
from eris.federation import Federation
from eris.methods.registry import create
from eris.protocol.codec import encode
from eris.protocol.messages import Contribution, Result, Reveal, RevealRequest
from eris.protocol.round.replica import Replica
from eris.protocol.schemes.collector import Asking
from eris.protocol.schemes.encrypted_entries import (
    COMMON_KEY,
    KEPT_ROUNDS,
    MOST_BYTES,
    EncryptedEntries,
    EntryCoding,
    EntrySender,
)
from eris.protocol.schemes.entry_sums import EntryDesk
from eris.protocol.settings import Settings
from eris.runtimes.faults import FaultPlan
from eris.session import Fit
from eris.testing import assert_same_bits
from support.crowd import Crowd
from support.encrypted import CLIENTS, ROUNDS, SAMPLES, START, N, Still, damage, fitted, messages


def kept(update: Vector, fraction: float = 0.3) -> Vector:
    """By sorting: the largest entries, of equal ones the first."""
    order = np.argsort(-np.abs(update), kind="stable")
    out = np.zeros_like(update)
    at = order[: round(fraction * len(update))]
    out[at] = update[at]
    return out


def plain_model(fit: Fit, crowd: Crowd, made: Federation, fraction: float = 0.3) -> Vector:
    """The model of plain means of the largest entries, over the sets that were published."""
    assert made.agreement is not None
    rule, model = made.agreement.settings.rule, START.copy()
    for result in messages(fit, Result):
        if result.payload is None:
            continue
        at = made.agreement.segments(1)[result.header.key].coordinates
        mean = ExactMean(len(at), made.agreement.settings.precision)
        for client in result.included:
            update = kept(crowd.given[client, result.header.round][1], fraction)
            mean.add(update[at], crowd.samples(client), client)
        model[at] = rule.step(model[at], mean.result(), (), result.header.round, 1.0)[0]
    return model


@pytest.mark.parametrize(
    ("method", "agreed", "fraction"),
    [
        ({}, {}, 0.3),
        ({"kept_fraction": 0.05}, {"segment_size": 70}, 0.05),
        ({"kept_fraction": 1.0}, {}, 1.0),
        ({"packing": True}, {}, 0.3),
        ({"packing": True}, {"segment_size": 299}, 0.3),
    ],
)
def test_the_model_is_that_of_the_plain_mean(
    method: dict[str, Any], agreed: dict[str, Any], fraction: float
) -> None:
    fit, crowd, made = fitted("sefl", agreed=agreed, **method)
    assert_same_bits(fit.model, plain_model(fit, crowd, made, fraction))
    assert not np.array_equal(fit.model, START)


def test_a_key_that_is_secure_gives_the_same_bits() -> None:
    """Of the largest three entries: at 2,048 bits an encryption takes 11 ms."""
    small, large = (fitted("sefl", 1, kept_fraction=0.01, key_bits=bits)[0] for bits in (256, 2048))
    assert_same_bits(small.model, large.model)
    sizes = [len(one.payload.encoded.data) for one in messages(large, Contribution)]
    assert sizes == [38 + 3 * 512] * CLIENTS


def test_who_is_late_costs_nothing_and_one_client_opens() -> None:
    fit, crowd, made = fitted("sefl", 5, faults=FaultPlan(seed=1, straggle=0.25))
    sets = [one.included for one in messages(fit, Result) if one.payload is not None]
    assert min(map(len, sets)) < CLIENTS
    assert_same_bits(fit.model, plain_model(fit, crowd, made))
    asked = messages(fit, RevealRequest)
    assert len(asked) == len(messages(fit, Reveal)) == len(sets)


def test_of_nothing_nothing_has_to_be_opened() -> None:
    fit = fitted("sefl", 1, Still(CLIENTS, N))[0]
    assert not messages(fit, RevealRequest)
    assert_same_bits(fit.model, START)


# -- bytes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("packing", [False, True])
def test_messages_have_the_bytes_that_they_must_have(packing: bool) -> None:
    fit = fitted("sefl", 1, packing=packing)[0]
    (union,) = {len(one.data) // 64 for one in messages(fit, RevealRequest)}
    ciphertexts, sums = (N // 3, N) if packing else (90, union)
    law = {
        Contribution: 64 * ciphertexts + (0 if packing else -(-N // 8)),
        RevealRequest: 2 + 64 * (ciphertexts if packing else union),
        Reveal: 2 + 8 * sums,
        Result: 4 * N + 2 + 16,
    }
    for kind, least in law.items():
        sizes = [len(encode(one)) for one in messages(fit, kind)]
        assert min(sizes) >= least
        assert sum(sizes) <= 1.05 * len(sizes) * (least + 128)


def test_a_segment_is_as_long_as_a_message_allows() -> None:
    for packing, each in ((False, 1), (True, 47)):
        scheme = EncryptedEntries(packing=packing)
        assert scheme.longest_segment == MOST_BYTES // 768 * each
    settings = Settings(n=200_000, scheme=EncryptedEntries())
    with pytest.warns(PrivacyWarning, match="one private key in common"):
        made = Federation(Crowd(3, settings.n), np.zeros(settings.n, np.float32), create("sefl"))
    assert made.agreement is not None
    lengths = [segment.size for segment in made.agreement.segments(1).values()]
    assert max(lengths) * 768 <= MOST_BYTES
    with pytest.raises(InvalidSetting, match="segment_size is 50000; expected at most 43690"):
        replace(settings, segment_size=50_000)


# -- secrets --------------------------------------------------------------------------------------


def test_the_same_update_is_other_ciphertexts_in_every_round() -> None:
    class Constant(Crowd):
        def updates(self, *about: Any, **more: Any) -> Any:
            for one in super().updates(*about, **more):
                yield replace(one, vector=np.ones_like(one.vector))

    fit = fitted("sefl", crowd=Constant(CLIENTS, N))[0]
    found = [
        one.payload.encoded.data[38 + 64 * at : 102 + 64 * at]
        for one in messages(fit, Contribution)
        for at in range(90)
    ]
    assert len(set(found)) == len(found) == ROUNDS * CLIENTS * 90


def test_a_client_that_was_brought_back_encrypts_with_other_randomness() -> None:
    """The vault repeats all that it drew; what is encrypted differs in one coordinate."""
    _, _, made = fitted("sefl", 1)
    agreement = made.agreement
    assert agreement is not None
    coding, segment = agreement.coding, next(iter(agreement.segments(1).values()))
    assert isinstance(coding, EntryCoding)

    class Repeating:
        newest = type("Keys", (), {"process_secret": bytes(32)})

        def fresh(self, round: int) -> bytes:
            return bytes(32)

    def randomness(values: Vector) -> bytes:
        sender = EntrySender(coding, 0, Repeating())  # type: ignore[arg-type]
        return sender._entropy(values, segment, 1)(32)

    one, other = np.ones(N, np.float32), np.ones(N, np.float32)
    other[7] = 2
    assert randomness(one) == randomness(one)
    assert randomness(one) != randomness(other)


def test_any_client_opens_what_another_sent() -> None:
    """SEFL's trust model, which users are warned of."""
    fit, crowd, made = fitted("sefl", 1)
    assert made.agreement is not None
    coding = made.agreement.coding
    assert isinstance(coding, EntryCoding)
    for one in messages(fit, Contribution):
        client = one.header.sender
        places, ciphertexts = coding.received(one.payload.encoded.data, N)
        opened = np.zeros(N)
        opened[places] = coding.pair.decrypt(ciphertexts)
        update = kept(crowd.given[client, 1][1]).astype(np.float64)
        scaled = np.rint(update * 2.0**coding.fraction_bits) * crowd.samples(client)
        np.testing.assert_array_equal(opened, scaled)


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "method", "reason"),
    [
        (lambda data: data[:-1], {}, "expected at most 90 ciphertexts of 64"),
        (lambda data: data[:-64], {}, "has 89 ciphertexts; expected 90"),
        (lambda data: data + data[-64:], {}, "expected at most 90 ciphertexts"),
        (lambda data: data[:-64] + bytes(64), {}, "ciphertext 89 is no unit"),
        (lambda data: data[:37] + b"\xff" + data[38:], {}, "has bits behind its end"),
        (lambda data: b"", {}, "index: has 0 bytes; expected 38"),
        (lambda data: data[64:], {"packing": True}, "has 99 ciphertexts; expected 100"),
        (lambda data: data + data, {"packing": True}, "expected at most 100 ciphertexts"),
    ],
)
def test_a_contribution_that_is_none_is_refused_by_name_and_the_others_go_on(
    change: Any, method: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(monkeypatch, EntrySender, change)
    fit, crowd, made = fitted("sefl", 1, **method)
    (result,) = messages(fit, Result)
    assert result.included == frozenset(range(CLIENTS)) - {4}
    assert any(reason in text for text in fit.history[0].refused), fit.history[0].refused
    assert_same_bits(fit.model, plain_model(fit, crowd, made))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:-8], "bytes; expected"),
        (lambda data: bytes(32) + data[32:], "the name of the products"),
        (lambda data: data[:32] + b"\x7f" + data[33:], "sum 0 is"),
        (lambda data: data[:32] + b"\x80" + bytes(7) + data[40:], "sum 0 is"),
    ],
)
def test_what_is_opened_must_be_possible(
    change: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reveal = EntrySender.reveal
    monkeypatch.setattr(EntrySender, "reveal", lambda self, *asked: change(reveal(self, *asked)))
    fit, _, made = fitted("sefl", 1)
    assert [one.payload for one in messages(fit, Result)] == [None]
    said = fit.history[0].refused
    assert any(f"what {made.names[0]} opened: reveal: {reason}"[:30] in text for text in said)
    assert any(reason in text for text in said)
    assert any("withheld: no client opened the sums" in text for text in said)
    assert_same_bits(fit.model, START)


def test_who_says_a_mean_that_nobody_would_take_is_passed_over() -> None:
    """With a range of 10 integers have room for 16: a mean between the two is no mean of values."""
    fit, _, made = fitted("sefl", 1, agreed={"precision": FixedPoint(10.0)})
    agreement = made.agreement
    assert agreement is not None
    coding, segment = agreement.coding, agreement.segments(1)[0, 0]
    assert isinstance(coding, EntryCoding)
    desk = EntryDesk(coding, Replica(agreement, START))
    collector = desk.collector(1, segment)
    for one in messages(fit, Contribution):
        collector.take(one)
    asking = collector.finish()
    assert isinstance(asking, Asking)
    ((first, data),) = asking.members.items()
    honest = collector.closed + np.array(coding.opened(data, N), ">i8").tobytes()
    most = collector.samples << 39
    false = honest[:32] + (most - most // 8).to_bytes(8, "big") + honest[40:]
    asking = collector.reveal(first, false)
    assert isinstance(asking, Asking)
    ((second, again),) = asking.members.items()
    assert (first, second, again) == (0, 1, data)
    assert f"what {made.names[0]} opened: reveal: sum 0 is" in desk.notes[0]
    (result,) = messages(fit, Result)
    assert collector.reveal(second, honest) == result.payload


def test_a_sum_beyond_its_words_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that encrypts 2^64 in place of an entry spoils the segment, and nothing wraps."""
    sealed = EntryCoding.sealed

    def huge(self: EntryCoding, values: Vector, samples: int, entropy: Any) -> bytes:
        made = sealed(self, values, samples, entropy)
        return made[:-64] + self.public.write(self.public.encrypt([1 << 64], os.urandom))

    monkeypatch.setattr(EntryCoding, "sealed", huge)
    fit = fitted("sefl", 1)[0]
    assert [one.payload for one in messages(fit, Result)] == [None]
    assert any("is beyond 64 bits" in text for text in fit.history[0].refused)
    assert_same_bits(fit.model, START)


def request(made: Federation, included: frozenset[int], data: bytes) -> RevealRequest:
    assert made.agreement is not None
    server = made.agreement.view.owners[0]
    return RevealRequest(made.agreement.header(server, 1, (0, 0)), included, data)


def test_a_client_opens_one_sum_a_segment_and_round_and_only_with_itself_in_it() -> None:
    _, _, made = fitted("sefl", 1)
    agreement = made.agreement
    assert agreement is not None
    coding, segment = agreement.coding, agreement.segments(1)[0, 0]
    assert isinstance(coding, EntryCoding)

    class Drawing:
        newest = type("Keys", (), {"process_secret": bytes(32)})

        def fresh(self, round: int) -> bytes:
            return bytes(32)

    sender = EntrySender(coding, 2, Drawing())  # type: ignore[arg-type]
    one, other = (
        coding.public.write(coding.public.encrypt([value], os.urandom)) for value in (5, 6)
    )
    everyone = frozenset(range(CLIENTS))
    with pytest.raises(ErisError, match="has nothing in the sums"):
        sender.reveal(request(made, everyone, one))
    sender._samples = 1
    sender.payload(np.ones(N, np.float32), segment, 1, 0)
    with pytest.raises(ErisError, match="has nothing in the sums"):
        sender.reveal(request(made, everyone - {2}, one))
    with pytest.raises(ErisError, match="sums of 2 clients; at least 3 are agreed"):
        sender.reveal(request(made, frozenset({1, 2}), one))
    with pytest.raises(ErisError, match="sums of 1 clients; at least 3 are agreed"):
        sender.reveal(request(made, frozenset({2, CLIENTS, 90, 91}), one))
    answer = sender.reveal(request(made, everyone, one))
    assert answer == hashlib.sha256(one).digest() + (5).to_bytes(8, "big")
    assert answer == sender.reveal(request(made, everyone, one))
    with pytest.raises(ErisError, match="has opened other sums"):
        sender.reveal(request(made, everyone, other))
    sender.over(1, (0, 0))
    with pytest.raises(ErisError, match="has nothing in the sums"):
        sender.reveal(request(made, everyone, one))


def sending(made: Federation) -> EntrySender:
    """A client's half, of keys that are none."""

    class Drawing:
        newest = type("Keys", (), {"process_secret": bytes(32)})

        def fresh(self, round: int) -> bytes:
            return bytes(32)

    assert made.agreement is not None
    assert isinstance(made.agreement.coding, EntryCoding)
    sender = EntrySender(made.agreement.coding, 2, Drawing())  # type: ignore[arg-type]
    sender._samples = 1
    return sender


def test_asked_again_a_client_opens_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = fitted("sefl", 1)[2]
    sender = sending(made)
    sender.payload(np.ones(N, np.float32), sender.agreement.segments(1)[0, 0], 1, 0)
    public, opened = sender.coding.public, EntryCoding.opened
    calls: list[int] = []

    def counting(self: EntryCoding, data: bytes, size: int) -> list[int]:
        calls.append(size)
        return opened(self, data, size)

    monkeypatch.setattr(EntryCoding, "opened", counting)
    asked = request(made, frozenset(range(CLIENTS)), public.write(public.encrypt([5], os.urandom)))
    assert len({sender.reveal(asked) for _ in range(3)}) == 1
    assert len(calls) == 1


def test_an_owner_that_publishes_nothing_of_a_segment_costs_its_clients_no_memory() -> None:
    made = fitted("sefl", 1)[2]
    sender, piece = sending(made), np.ones(N, np.float32)
    for round in range(1, 3 * KEPT_ROUNDS):
        segment = sender.agreement.segments(round)[0, 0]
        first = sender.payload(piece, segment, round, 0)
        assert sender.payload(piece, segment, round, 0) is first
        assert len(sender._made) == 1
        assert len(sender._asked) <= KEPT_ROUNDS
    data = sender.coding.public.write(sender.coding.public.encrypt([5], os.urandom))
    with pytest.raises(ErisError, match="has nothing in the sums"):
        sender.reveal(request(made, frozenset(range(CLIENTS)), data))


def test_a_server_that_lies_has_every_client_open_anothers_contribution() -> None:
    """What users are told of SEFL's server: no client can tell of what it is asked."""
    fit, crowd, made = fitted("sefl", 1, packing=True)
    assert made.agreement is not None
    coding = made.agreement.coding
    assert isinstance(coding, EntryCoding)
    everyone = frozenset(range(CLIENTS))
    segment = made.agreement.segments(1)[0, 0]
    for one in messages(fit, Contribution):
        victim = one.header.sender
        sender = sending(made)  # another client: each opens one sum of a segment and round
        sender.payload(np.ones(N, np.float32), segment, 1, 0)
        answer = sender.reveal(request(made, everyone, one.payload.encoded.data))
        opened = np.frombuffer(answer, ">i8", offset=32) / 2.0**coding.fraction_bits
        update = kept(crowd.given[victim, 1][1])
        assert np.allclose(opened / crowd.samples(victim), update, atol=1e-9)


@pytest.mark.parametrize("value", [np.nan, np.inf, 65.0])
def test_an_update_out_of_range_is_refused_before_it_is_encrypted(value: float) -> None:
    class Wild(Crowd):
        def updates(self, *about: Any, **more: Any) -> Any:
            for one in super().updates(*about, **more):
                vector = one.vector.copy()
                vector[17] = value
                yield replace(one, vector=vector)

    fit = fitted("sefl", 1, Wild(CLIENTS, N))[0]
    assert not messages(fit, Contribution)
    assert all("at coordinate 17" in text for text in fit.history[0].refused)
    assert len(fit.history[0].refused) == CLIENTS


def federation(agreed: Any = None, **method: Any) -> Federation:
    said = {"samples": SAMPLES} | (agreed or {})
    return Federation(
        Crowd(CLIENTS, N), START, create("sefl", **({"key_bits": 256} | method)), **said
    )


@pytest.mark.filterwarnings("ignore:SEFL's clients have one")
@pytest.mark.parametrize(
    ("method", "agreed", "found"),
    [
        ({"key_bits": 1024}, {}, "key_bits is 1024; expected one of 3072, 2048, 256"),
        ({"kept_fraction": 0.0}, {}, "kept_fraction is 0.0"),
        ({"kept_fraction": 1.5}, {}, "kept_fraction is 1.5"),
        ({}, {"rule": "coordinate-median"}, "order statistics"),
    ],
)
def test_what_does_not_go_together_is_refused(
    method: dict[str, Any], agreed: dict[str, Any], found: str
) -> None:
    with pytest.raises(InvalidSetting, match=found):
        federation(agreed, **method)


def test_an_owner_that_is_a_client_is_refused() -> None:
    made = create("eris", aggregators=2).compose(["anna", "ben", "cleo"], [1, 1, 1])  # type: ignore[union-attr]
    with pytest.raises(InvalidSetting, match="would have the key of all contributions"):
        EncryptedEntries().check_view(made.view)


@pytest.mark.filterwarnings("ignore:SEFL's clients have one")
def test_more_samples_than_sums_have_room_for_are_refused() -> None:
    made = federation()
    assert made.agreement is not None
    coding = made.agreement.coding
    assert isinstance(coding, EntryCoding)
    most = ((1 << 24) - 1) // CLIENTS
    coding.check_samples(0, most, 1)
    with pytest.raises(InvalidSetting, match=f"samples of client-0 .*at most {most}"):
        coding.check_samples(0, most + 1, 1)


@pytest.mark.parametrize(("bits", "told"), [(3072, False), (2048, False), (256, True)])
def test_users_are_told_of_the_common_key_and_of_a_key_that_is_none(bits: int, told: bool) -> None:
    with pytest.warns(PrivacyWarning, match="one private key in common") as found:
        made = federation(key_bits=bits)
    (text,) = [str(one.message) for one in found]
    assert text.startswith(COMMON_KEY)
    assert ("factored on a laptop" in text) == told
    settings = made.settings
    assert isinstance(settings, Settings)
    assert Settings.from_canonical(settings.canonical) == settings
