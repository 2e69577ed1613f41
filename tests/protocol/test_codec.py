"""The codec: what is encoded comes back, and what is malformed is named."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from eris.core.combine import MOST_SAMPLES
from eris.core.compress import (
    Encoded,
    Encoding,
    encode_values,
)
from eris.core.errors import MalformedMessage
from eris.protocol import eris_pb2 as pb
from eris.protocol.codec import (
    LONGEST_REASON,
    MOST_FIELDS,
    MOST_STEPS,
    VERSION,
    Limits,
    decode,
    encode,
    pack_included,
    unpack_included,
)
from eris.protocol.messages import (
    CatchUp,
    Contribution,
    Header,
    Holding,
    Message,
    Payload,
    Refusal,
    Result,
    Share,
    Snapshot,
)

Vector = NDArray[np.float32]
U32, U64 = (1 << 32) - 1, (1 << 64) - 1


# Messages of every kind, at random.

uint32 = st.integers(0, U32)
uint64 = st.integers(0, U64)
headers = st.builds(Header, uint64, uint32, uint32, uint32, uint32, uint32)
payloads = st.builds(
    Payload,
    st.builds(
        Encoded,
        st.sampled_from(Encoding),
        uint32,
        st.binary(max_size=64),
        st.floats(0, width=32, allow_nan=False, allow_infinity=False),
    ),
    uint64,
)
contributions = st.builds(
    Contribution,
    headers,
    uint32,
    st.integers(1, MOST_SAMPLES),
    st.integers(1, MOST_STEPS),
    payloads,
).map(
    # A masked sum holds its weights.
    lambda one: (
        replace(one, samples=0, steps=0) if one.payload.encoded.encoding is Encoding.RING else one
    )
)
catch_ups = st.builds(CatchUp, headers, uint32)
snapshots = st.builds(
    Snapshot,
    headers,
    uint32,
    uint32,
    payloads,
    st.none() | payloads,
    st.lists(payloads, max_size=8).map(tuple),
    st.sampled_from([b"", bytes(range(32))]),
    st.lists(uint32, max_size=9).map(tuple),
)
refusals = st.builds(
    Refusal, headers, st.text(st.characters(codec="utf-8"), max_size=LONGEST_REASON)
)


shares = st.builds(Share, headers, payloads, st.binary(max_size=40))
holdings = st.builds(Holding, headers, uint32, st.binary(min_size=16, max_size=16))


@st.composite
def results(draw: st.DrawFn) -> Result:
    numbers = [draw(uint32) for _ in range(4)]
    round = draw(st.integers(1, U32))
    header = Header(draw(uint64), numbers[0], numbers[1], round, numbers[2], numbers[3])
    previous = draw(st.integers(0, round - 1))
    if draw(st.booleans()):
        return Result(header, previous, frozenset(), 0, 0, None)
    included = draw(st.frozensets(st.integers(0, 9_999), min_size=1, max_size=50))
    samples = draw(st.integers(len(included), U64))
    return Result(header, previous, included, samples, draw(uint64), draw(payloads))


KINDS: dict[str, st.SearchStrategy[Message]] = {
    "contribution": contributions,
    "result": results(),
    "catch_up": catch_ups,
    "snapshot": snapshots,
    "refusal": refusals,
    "share": shares,
    "holding": holdings,
}
messages: st.SearchStrategy[Message] = st.one_of(*KINDS.values())


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_encoded_comes_back(kind: str) -> None:
    @settings(max_examples=150, deadline=None)
    @given(KINDS[kind])
    def identity(message: Message) -> None:
        data = encode(message)
        assert decode(data) == message
        assert encode(decode(data)) == data

    identity()


def test_a_message_of_zeros_keeps_its_kind() -> None:
    """proto3 does not send zeros; an empty body must still say what it is."""
    header = Header(0, 0, 0, 0, 0, 0)
    empty = Payload(Encoded(Encoding.DENSE, 0, b""))
    for message in (
        CatchUp(header, 0),
        Refusal(header, ""),
        Snapshot(header, 0, 0, empty, None, ()),
        Snapshot(header, 0, 0, empty, empty, (empty, empty)),
        Contribution(header, 0, 1, 1, empty),
        Share(header, empty),
        Holding(header, 0, b""),
    ):
        assert decode(encode(message)) == message


@given(st.frozensets(st.integers(0, 12_000)))
def test_included_sets_have_one_encoding(included: frozenset[int]) -> None:
    bitmap = pack_included(included)
    assert unpack_included(bitmap) == included
    assert len(bitmap) == (max(included) // 8 + 1 if included else 0)
    assert not bitmap.endswith(b"\0")


def test_a_long_reason_is_cut() -> None:
    long = Refusal(Header(1, 0, 0, 1, 0, 0), "é" * (LONGEST_REASON + 100))
    cut = decode(encode(long))
    assert isinstance(cut, Refusal)
    assert cut.reason == "é" * LONGEST_REASON
    raw = pb.Message()
    raw.ParseFromString(encode(long))
    raw.refusal.reason = long.reason
    assert decode(raw.SerializeToString()) == cut


# Malformed fields.

HEADER = Header(federation=9, epoch=1, sender=2, round=7, shard=1, segment=3)
VALUES = Payload(encode_values(np.ones(4, np.float32)), stream=5)
VALID: dict[str, Message] = {
    "contribution": Contribution(HEADER, 6, 10, 2, VALUES),
    "result": Result(HEADER, 6, frozenset({0, 3, 9}), 30, 60, VALUES),
    "catch_up": CatchUp(HEADER, 6),
    "snapshot": Snapshot(HEADER, 6, 6, VALUES, VALUES, (VALUES, VALUES), b"", (0, 6, 5)),
    "refusal": Refusal(HEADER, "too late"),
    "share": Share(HEADER, VALUES),
    "holding": Holding(HEADER, 6, bytes(range(16))),
}


@dataclass(frozen=True)
class Case:
    """A change to a valid message, the field the error must name and what it must say."""

    kind: str
    change: Callable[[pb.Message], object]
    field: str
    says: str

    @property
    def data(self) -> bytes:
        parsed = pb.Message()
        parsed.ParseFromString(encode(VALID[self.kind]))
        self.change(parsed)
        return parsed.SerializeToString()


def setting(path: str, value: object) -> Callable[[pb.Message], None]:
    """Set the field at a dotted path."""

    def change(message: pb.Message) -> None:
        *parents, name = path.split(".")
        target: object = message
        for parent in parents:
            target = getattr(target, parent)
        setattr(target, name, value)

    return change


def clearing(path: str, name: str) -> Callable[[pb.Message], None]:
    """Remove a field of a body."""
    return lambda message: getattr(message, path).ClearField(name)


def withheld(**numbers: int | bytes) -> Callable[[pb.Message], None]:
    """A result without payload, but with these fields."""

    def change(message: pb.Message) -> None:
        message.result.Clear()
        for name, value in numbers.items():
            setattr(message.result, name, value)

    return change


def payload_cases(kind: str, payload: str) -> list[Case]:
    parameter, bad = f"{payload}.parameter", "expected 0 or more"
    return [
        Case(kind, setting(f"{payload}.encoding", 0), f"{payload}.encoding", "0 is not known"),
        Case(kind, setting(f"{payload}.encoding", 99), f"{payload}.encoding", "99 is not known"),
        Case(kind, setting(f"{payload}.encoding", -1), f"{payload}.encoding", "-1 is not known"),
        Case(kind, setting(parameter, -1.0), parameter, bad),
        Case(kind, setting(parameter, -1e-45), parameter, bad),
        Case(kind, setting(parameter, math.nan), parameter, bad),
        Case(kind, setting(parameter, math.inf), parameter, bad),
        Case(kind, setting(parameter, -math.inf), parameter, bad),
    ]


def bodiless(message: pb.Message) -> None:
    header = message.header
    message.Clear()
    message.header.CopyFrom(header)


def bad_slot(message: pb.Message) -> None:
    message.snapshot.slots[1].encoding = pb.ENCODING_UNSPECIFIED


CASES = [
    *(
        case
        for kind in VALID
        for case in (
            Case(kind, lambda m: m.ClearField("header"), "header", "is missing"),
            Case(kind, setting("header.version", 0), "header.version", "is 0; this node speaks"),
            Case(kind, setting("header.version", 2), "header.version", "is 2; this node speaks"),
            Case(kind, setting("header.version", U32), "header.version", f"version {VERSION}"),
            Case(kind, bodiless, "body", "is missing"),
        )
    ),
    *payload_cases("contribution", "contribution.payload"),
    *payload_cases("result", "result.payload"),
    *payload_cases("snapshot", "snapshot.model"),
    *payload_cases("snapshot", "snapshot.reference"),
    *payload_cases("share", "share.payload"),
    Case("snapshot", bad_slot, "snapshot.slots.encoding", "0 is not known"),
    Case("contribution", clearing("contribution", "payload"), "contribution.payload", "missing"),
    Case("contribution", setting("contribution.samples", 0), "contribution.samples", "is 0"),
    Case(
        "contribution",
        setting("contribution.samples", MOST_SAMPLES + 1),
        "contribution.samples",
        f"expected 1 to {MOST_SAMPLES}",
    ),
    Case("contribution", setting("contribution.steps", 0), "contribution.steps", "is 0"),
    Case("result", setting("result.previous", 7), "result.previous", "expected less than round 7"),
    Case("result", setting("result.previous", U32), "result.previous", f"is {U32}"),
    Case("result", setting("header.round", 0), "result.previous", "expected less than round 0"),
    Case("result", setting("result.included", b"\x09\x00"), "result.included", "a zero byte"),
    Case("result", setting("result.included", b"\x00"), "result.included", "a zero byte"),
    Case("result", clearing("result", "payload"), "result.payload", "is missing although"),
    Case("result", withheld(previous=6, included=b"\1"), "result.payload", "is missing"),
    Case("result", withheld(previous=6, samples=1), "result.payload", "is missing"),
    Case("result", withheld(previous=6, sample_steps=1), "result.payload", "is missing"),
    Case("result", clearing("result", "included"), "result.included", "does not fit"),
    Case("result", setting("result.samples", 2), "result.included", "the number of samples"),
    Case("snapshot", clearing("snapshot", "model"), "snapshot.model", "is missing"),
    Case("share", clearing("share", "payload"), "share.payload", "is missing"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}-{case.field}")
def test_a_malformed_field_is_named(case: Case) -> None:
    with pytest.raises(MalformedMessage) as caught:
        decode(case.data)
    assert caught.value.field == case.field
    assert case.says in caught.value.reason


def test_a_withheld_result_is_valid() -> None:
    case = Case("result", withheld(previous=6), "", "")
    assert decode(case.data) == Result(HEADER, 6, frozenset(), 0, 0, None)


def test_the_limits_of_a_receiver_hold() -> None:
    data = encode(VALID["result"])
    assert decode(data, Limits(message_bytes=len(data))) == VALID["result"]
    with pytest.raises(MalformedMessage, match=f"message: has {len(data)} bytes; at most") as big:
        decode(data, Limits(message_bytes=len(data) - 1))
    assert big.value.field == "message"
    # Nine clients fill two bytes, eight fill one.
    assert decode(data, Limits(members=9)) == VALID["result"]
    with pytest.raises(MalformedMessage, match="names more than 8 clients") as crowd:
        decode(data, Limits(members=8))
    assert crowd.value.field == "result.included"
    snapshot = encode(VALID["snapshot"])
    assert decode(snapshot, Limits(slots=2)) == VALID["snapshot"]
    with pytest.raises(MalformedMessage, match="has more than 1 vectors") as slots:
        decode(snapshot, Limits(slots=1))
    assert slots.value.field == "snapshot.slots"
    with pytest.raises(MalformedMessage, match="has more than 2 members") as members:
        decode(snapshot, Limits(members=2))
    assert members.value.field == "snapshot.last_included"


@pytest.mark.parametrize(
    "fields",
    [
        b"\x12\x00\x1a\x00" * 500,  # one body after another
        b"\x0a\x00" * 500,  # header after header
        b"\x3a\x00" * 500,  # share after share
        b"\x78\x01" * 500,  # unknown numbers
        b"\x7b\x7c" * 500,  # unknown groups
        b"\x79" + bytes(8) + b"\x7d" + bytes(4) + b"\x42\x00" * 500,  # unknown widths
        b"\x2a\xe8\x07" + b"\x2a\x00" * 500,  # slots of one snapshot
        b"\xaa\x00\xe8\x07" + b"\x2a\x00" * 500,  # with the tag in two bytes
        b"\x2a\x28" + b"\x2a\x00" * 20 + b"\x2a\x28" + b"\x2a\x00" * 20,  # of two snapshots
    ],
)
def test_a_flood_of_fields_is_refused_unparsed(fields: bytes) -> None:
    """Every two bytes of such a message would become an object of the parser."""
    with pytest.raises(MalformedMessage, match="more fields than a message of this schema"):
        decode(b"\x0a\x02\x08\x01" + fields)


def test_an_honest_message_has_far_fewer_fields_than_the_most() -> None:
    full = Snapshot(HEADER, 6, 6, VALUES, VALUES, (VALUES,) * 8, bytes(32), (6,) * 500)
    parsed = pb.Message()
    parsed.ParseFromString(encode(full))
    fields = len(parsed.ListFields()) + len(parsed.snapshot.ListFields()) - 1
    assert 2 * fields <= MOST_FIELDS
    assert decode(encode(full), Limits(slots=8)) == full


@given(st.binary(max_size=300))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(data)


@settings(max_examples=60, deadline=None)
@given(messages)
def test_every_truncation_is_refused(message: Message) -> None:
    data = encode(message)
    for length in range(len(data)):
        with pytest.raises(MalformedMessage):
            decode(data[:length])


def test_text_that_is_not_utf8_is_refused() -> None:
    data = encode(VALID["refusal"]).replace(b"too late", b"too \xff\xfete")
    with pytest.raises(MalformedMessage, match="message: is not a message of this schema"):
        decode(data)
