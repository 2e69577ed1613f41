"""Ways to damage a message: its bytes, or the fields of its wire format.

Each kind of damage is a pure function of a message, another one, and the draws of one case.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from eris.core.streams import Stream
from eris.protocol import eris_pb2 as pb

Option = TypeVar("Option")


# -- draws ------------------------------------------------------------------------------------


class Dice:
    """The draws of one case."""

    def __init__(self, seed: int, number: int) -> None:
        self._stream = Stream(seed, "fuzz", number)
        self._words: list[int] = []
        self._used = 0

    def below(self, limit: int) -> int:
        """A number from 0 to ``limit`` − 1 (0 if there is none)."""
        if self._used == len(self._words):
            self._words += self._stream.words(self._used, 64).tolist()
        self._used += 1
        return self._words[self._used - 1] % max(1, limit)

    def pick(self, options: Sequence[Option]) -> Option:
        """One of several."""
        return options[self.below(len(options))]

    def bytes(self, count: int) -> bytes:
        """Any bytes."""
        return bytes(self.below(256) for _ in range(count))


# -- the wire format as a tree ----------------------------------------------------------------


@dataclass
class Field:
    """One field of a message: a number, raw bytes, or the fields of a message within."""

    number: int
    wire: int
    value: int | bytes | list[Field]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def parse(data: bytes, schema: Any = pb.Message.DESCRIPTOR) -> list[Field]:
    """The fields of valid bytes.

    >>> parse(bytes.fromhex("0a02 0801 2202 0803"))[1]
    Field(number=4, wire=2, value=[Field(number=1, wire=0, value=3)])
    """
    fields, at = [], 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        value: int | bytes | list[Field]
        if wire == 0:
            value, at = _read_varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(wire, 0)
            if wire == 2:
                size, at = _read_varint(data, at)
            value, at = data[at : at + size], at + size
            known = schema.fields_by_number.get(number)
            if wire == 2 and known is not None and known.message_type is not None:
                value = parse(value, known.message_type)
        fields.append(Field(number, wire, value))
    return fields


def serialise(
    fields: list[Field], wrong: Field | None = None, amiss: Callable[[int], int] = int
) -> bytes:
    """The bytes of fields; the length of the ``wrong`` one is made ``amiss``."""
    out = bytearray()
    for item in fields:
        out += _varint(item.number << 3 | item.wire)
        if isinstance(item.value, int):
            out += _varint(item.value)
            continue
        content = item.value
        if not isinstance(content, bytes):
            content = serialise(content, wrong, amiss)
        if item.wire == 2:
            out += _varint(amiss(len(content)) if item is wrong else len(content))
        out += content
    return bytes(out)


def _places(fields: list[Field]) -> list[tuple[list[Field], int]]:
    """Every field at every depth, as (where it is listed, at which position)."""
    found = []
    for at, item in enumerate(fields):
        found.append((fields, at))
        if isinstance(item.value, list):
            found += _places(item.value)
    return found


# -- damage -----------------------------------------------------------------------------------

NUMBERS = (0, 1, 2, 3, 127, 128, 1 << 24, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 64) - 1)
FLOATS = tuple(
    struct.pack("<f", value)
    for value in (float("nan"), float("inf"), -float("inf"), 3.4e38, -3.4e38, 64.1, 1e-45, -0.0)
)


def flip_bits(data: bytes, other: bytes, dice: Dice) -> bytes:
    """Flip one to eight bits."""
    out = bytearray(data)
    for _ in range(1 + dice.below(8)):
        if out:
            out[dice.below(len(out))] ^= 1 << dice.below(8)
    return bytes(out)


def insert_bytes(data: bytes, other: bytes, dice: Dice) -> bytes:
    """Put up to eight bytes in somewhere."""
    at = dice.below(len(data) + 1)
    return data[:at] + dice.bytes(1 + dice.below(8)) + data[at:]


def delete_bytes(data: bytes, other: bytes, dice: Dice) -> bytes:
    """Take up to eight bytes out somewhere."""
    at = dice.below(len(data))
    return data[:at] + data[at + 1 + dice.below(8) :]


def truncate(data: bytes, other: bytes, dice: Dice) -> bytes:
    """End early."""
    return data[: dice.below(len(data))]


def splice(data: bytes, other: bytes, dice: Dice) -> bytes:
    """The beginning of one message, the end of another."""
    return data[: dice.below(len(data) + 1)] + other[dice.below(len(other) + 1) :]


def random_bytes(data: bytes, other: bytes, dice: Dice) -> bytes:
    """No message at all, or one that turns into noise."""
    return data[: dice.pick((0, 0, 4, 20))] + dice.bytes(dice.below(64))


def corrupt_length(data: bytes, other: bytes, dice: Dice) -> bytes:
    """State the wrong length of a field."""
    fields = parse(data)
    sized = [listed[at] for listed, at in _places(fields) if listed[at].wire == 2]
    return serialise(
        fields,
        dice.pick(sized),
        lambda size: dice.pick((max(0, size - 1), size + 1, dice.pick(NUMBERS))),
    )


def huge_varint(data: bytes, other: bytes, dice: Dice) -> bytes:
    """Make a number larger than its field, or than any number may be."""
    fields = parse(data)
    numbers = [listed[at] for listed, at in _places(fields) if listed[at].wire == 0]
    dice.pick(numbers).value = (1 << 32 + dice.below(48)) + dice.below(1 << 32)
    return serialise(fields)


def change_number(data: bytes, other: bytes, dice: Dice) -> bytes:
    """Give a number a value at some edge, or one next to its own."""
    fields = parse(data)
    numbers = [listed[at] for listed, at in _places(fields) if listed[at].wire == 0]
    chosen = dice.pick(numbers)
    assert isinstance(chosen.value, int)
    chosen.value = dice.pick((*NUMBERS, chosen.value + 1, max(0, chosen.value - 1)))
    return serialise(fields)


def change_bytes(data: bytes, other: bytes, dice: Dice) -> bytes:
    """Write extreme floats over the content of fields that hold bytes."""
    fields = parse(data)
    raw = [listed[at] for listed, at in _places(fields) if isinstance(listed[at].value, bytes)]
    chosen = dice.pick(raw)
    assert isinstance(chosen.value, bytes)
    out, values = bytearray(chosen.value), len(chosen.value) // 4
    for _ in range(1 + dice.below(4) if values else 0):
        at = 4 * dice.below(values)
        out[at : at + 4] = dice.pick(FLOATS)
    chosen.value = bytes(out)
    return serialise(fields)


def leave_alone(data: bytes, other: bytes, dice: Dice) -> bytes:
    """Nothing: what an honest message does after damaged ones matters too."""
    return data


def repeat_field(data: bytes, other: bytes, dice: Dice) -> bytes:
    """Say a field again, as it is or with another message's in between."""
    fields = parse(data)
    listed, at = dice.pick(_places(fields))
    times = 1 + dice.below(1 << dice.below(7))
    foreign, position = dice.pick(_places(parse(other)))
    between = [foreign[position]] if dice.below(2) else []
    listed[at:at] = [listed[at], *between] * times
    return serialise(fields)


def drop_field(data: bytes, other: bytes, dice: Dice) -> bytes:
    """Leave a field out, or say it under another number."""
    fields = parse(data)
    listed, at = dice.pick(_places(fields))
    if dice.below(2):
        listed[at].number = 1 + dice.below(16)
    else:
        del listed[at]
    return serialise(fields)


Damage = Callable[[bytes, bytes, Dice], bytes]
TO_BYTES: tuple[Damage, ...] = (
    flip_bits, insert_bytes, delete_bytes, truncate, splice, random_bytes,
)  # fmt: skip
TO_FIELDS: tuple[Damage, ...] = (
    leave_alone, corrupt_length, huge_varint, change_number, change_bytes, repeat_field, drop_field,
)  # fmt: skip
