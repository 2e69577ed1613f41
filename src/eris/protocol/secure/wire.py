"""What members say to each other about secure sums, as bytes.

All sizes follow from what is agreed on, so nothing has a length of its own: what is too short or
too long is refused. A masked contribution is the data of a payload; the rest are questions of an
owner and answers of a helper, which begin with a byte that says what they are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from eris.core.errors import MalformedMessage
from eris.core.ring import EXPONENTS, Wire, Words, exponent_in, packed_form, word_bits
from eris.protocol.secure.escrow import MODEL, SEED, Escrow
from eris.protocol.secure.pads import HEAD, NONCE
from eris.protocol.secure.seats import Threshold
from eris.protocol.secure.sums import (
    Answer,
    Included,
    MaskedWords,
    SegmentShape,
    Statement,
)

DEPOSIT, CLOSE, AUDIT = b"\x01", b"\x02", b"\x03"
"""Questions: keep these escrows; open this sum; say what fits of its pads."""
ACCEPTED, DISPUTED, LACKING = 1, 2, 3
"""What a helper says of an escrow; lacking are also the keys to open it."""
MOST_DEPOSITS = 256
"""Escrows that one message holds at most, and of how many one answer speaks."""
_HEAD_BYTES, _DIGEST, _SIGNATURE = 8 * HEAD, 32, 64
_CLOSING = struct.Struct(f"<IBB{MODEL}s{_SIGNATURE}s")
_ROW, _VERDICT, _EPSILON = struct.Struct("<16s32s"), struct.Struct("<32sB"), struct.Struct("<IBQQ")
_CLIENT, _EXPONENT = struct.Struct("<I"), struct.Struct("<b")


def escrow_bytes(threshold: Threshold) -> int:
    """The size of an escrow.

    >>> escrow_bytes(Threshold(2, 3)), escrow_bytes(Threshold(3, 4))
    (352, 656)
    """
    box = 16 + SEED * len(threshold.known_to(0))
    return MODEL + SEED * len(threshold.parts) + box * threshold.seats


def write_escrow(escrow: Escrow) -> bytes:
    """An escrow as it travels."""
    return b"".join((escrow.model, *escrow.commitments, *escrow.boxes))


@lru_cache(1 << 10)
def read_escrow(data: bytes, threshold: Threshold) -> Escrow:
    """The escrow in so many bytes; of all segments of a client and shard it is read once."""
    if len(data) != escrow_bytes(threshold):
        raise MalformedMessage("escrow", f"has {len(data)} bytes")
    boxes = MODEL + SEED * len(threshold.parts)
    size = (len(data) - boxes) // threshold.seats
    return Escrow(
        data[:MODEL],
        tuple(data[at : at + SEED] for at in range(MODEL, boxes, SEED)),
        tuple(data[at : at + size] for at in range(boxes, len(data), size)),
    )


def write_masked(sent: MaskedWords, escrow: Escrow) -> bytes:
    """A contribution to a sum."""
    return b"".join((sent.nonce, sent.head.tobytes(), sent.wire, write_escrow(escrow)))


def read_masked(data: bytes, words: int, threshold: Threshold) -> tuple[MaskedWords, Escrow]:
    """A contribution whose words have so many bytes."""
    head, end = NONCE + _HEAD_BYTES, NONCE + _HEAD_BYTES + words
    if len(data) != end + escrow_bytes(threshold):
        raise MalformedMessage("contribution.payload.data", "does not hold masked words")
    sent = MaskedWords(data[:NONCE], _words(data[NONCE:head]), memoryview(data)[head:end])
    return sent, read_escrow(data[end:], threshold)


def write_own(model: bytes, head: Words, words: Words) -> bytes:
    """An owner's own contribution: it never travels, and is not masked."""
    return b"".join((model, head.tobytes(), words.tobytes()))


def read_own(data: bytes, count: int) -> tuple[bytes, Words, Words]:
    """The model, head and words of an owner's own contribution."""
    if len(data) != MODEL + _HEAD_BYTES + 8 * count:
        raise MalformedMessage("contribution.payload.data", "does not hold an owner's own words")
    head, words = MODEL, MODEL + _HEAD_BYTES
    return data[:MODEL], _words(data[head:words]), _words(memoryview(data)[words:])


def _words(data: Wire) -> Words:
    return np.frombuffer(data, "<u8").astype(np.uint64, copy=False)


# -- questions --------------------------------------------------------------------------------


def write_deposits(escrows: Iterable[tuple[int, Escrow]]) -> bytes:
    """Escrows of clients, at most :data:`MOST_DEPOSITS`, for a helper to keep."""
    rows = (_CLIENT.pack(client) + write_escrow(escrow) for client, escrow in escrows)
    return DEPOSIT + b"".join(rows)


def read_deposits(data: bytes, threshold: Threshold) -> Iterator[tuple[int, Escrow]]:
    """The client and escrow of each row."""
    for row in _rows(data, _CLIENT.size + escrow_bytes(threshold), MOST_DEPOSITS):
        yield _CLIENT.unpack_from(row)[0], read_escrow(row[_CLIENT.size :], threshold)


def write_closing(statement: Statement, signature: bytes, seats: int) -> bytes:
    """A statement, signed, for the seats of a bitmap; who is included travels beside it."""
    return CLOSE + _statement(statement, signature, seats)


def _statement(statement: Statement, signature: bytes, seats: int) -> bytes:
    shape = statement.shape
    head = _CLOSING.pack(shape.based_on, statement.own, seats, statement.model, signature)
    rows = (_ROW.pack(one.nonce, one.escrow) for one in statement.included)
    exponent = exponent_in(shape.form)
    unit = b"" if exponent is None else _EXPONENT.pack(exponent)
    return b"".join((head, unit, *rows))


@dataclass(frozen=True)
class Closing:
    """A statement as a helper has rebuilt it."""

    statement: Statement
    signature: bytes
    seats: int
    """The bitmap of those that are asked."""


def read_closing(
    data: bytes, included: frozenset[int], shape: SegmentShape, owner: int,
    helpers: tuple[int, ...],
) -> Closing:  # fmt: skip
    """The statement about a segment, whose ``based_on`` is the owner's to say.

    So is the exponent of its words, where ``shape`` names any: pads that were made for another one
    do not come off.
    """
    end, follows = 1 + _CLOSING.size, exponent_in(shape.form) is not None
    if len(data) < end + follows:
        raise MalformedMessage("reveal_request.data", "does not hold a closing")
    based_on, own, seats, model, signature = _CLOSING.unpack_from(data, 1)
    clients = sorted(included - {owner})
    form = shape.form
    if follows:
        form, end = _named_form(form, _EXPONENT.unpack_from(data, end)[0]), end + 1
    rows = list(_rows(data[end - 1 :], _ROW.size))
    if len(rows) != len(clients) or own != (owner in included):
        raise MalformedMessage("reveal_request.data", "does not fit the included clients")
    named = tuple(Included(c, *_ROW.unpack(row)) for c, row in zip(clients, rows, strict=True))
    about = SegmentShape(shape.place, shape.segment, based_on, shape.count, form)
    return Closing(Statement(about, owner, bool(own), helpers, model, named), signature, seats)


def _named_form(form: int, exponent: int) -> int:
    """A form with the exponent that an owner says."""
    least, most = EXPONENTS
    if not least <= exponent <= most:
        raise MalformedMessage("reveal_request.data", f"has an exponent of {exponent}")
    return packed_form(word_bits(form), exponent)


# -- answers ----------------------------------------------------------------------------------


def write_verdicts(verdicts: Mapping[bytes, int]) -> bytes:
    """What a helper says of escrows, by digest."""
    return DEPOSIT + b"".join(_VERDICT.pack(*row) for row in verdicts.items())


def read_verdicts(data: bytes) -> dict[bytes, int]:
    """What a helper says of escrows, by digest."""
    return dict(_VERDICT.unpack(row) for row in _rows(data, _VERDICT.size, MOST_DEPOSITS))


def write_answer(statement: bytes, seats: int, given: Answer) -> bytes:
    """The masks of a closed set."""
    return b"".join((CLOSE, statement, bytes([seats]), given.head.tobytes(), given.wire))


def read_answer(data: bytes, words: int) -> tuple[bytes, int, Answer]:
    """The statement's digest, the seats that were asked, and the masks."""
    head = 1 + _DIGEST + 1
    if len(data) != head + _HEAD_BYTES + words:
        raise MalformedMessage("reveal.data", "does not hold an answer")
    words_at = head + _HEAD_BYTES
    given = Answer(_words(data[head:words_at]), memoryview(data)[words_at:])
    return data[1 : 1 + _DIGEST], data[1 + _DIGEST], given


def write_audit(statement: Statement, signature: bytes) -> bytes:
    """The question what fits of the pads of a statement: to all seats, also those that have not
    been asked about it."""
    return AUDIT + _statement(statement, signature, 0)


def answered(data: bytes) -> bytes | None:
    """The digest of the statement that an answer is about; None where it says what is kept."""
    return data[1 : 1 + _DIGEST] if data[:1] in (CLOSE, AUDIT) else None


def write_audited(statement: bytes, found: Mapping[tuple[int, int], tuple[int, int]]) -> bytes:
    """What fits of the pads of a statement, by client and part."""
    rows = (_EPSILON.pack(*who, *said) for who, said in found.items())
    return AUDIT + statement + b"".join(rows)


def read_audited(data: bytes) -> tuple[bytes, dict[tuple[int, int], tuple[int, int]]]:
    """The statement's digest, and what a seat says of its pads."""
    rows = (_EPSILON.unpack(row) for row in _rows(data[_DIGEST:], _EPSILON.size))
    return data[1 : 1 + _DIGEST], {
        (c, part): (plain, weighted) for c, part, plain, weighted in rows
    }


def _rows(data: bytes, size: int, most: int | None = None) -> Iterator[bytes]:
    """Everything after the first byte, in rows."""
    if (len(data) - 1) % size:
        raise MalformedMessage("data", f"is not made of rows of {size} bytes")
    if most is not None and len(data) > 1 + most * size:
        raise MalformedMessage("data", f"has more than {most} rows")
    return (data[at : at + size] for at in range(1, len(data), size))
