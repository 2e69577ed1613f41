"""Feeds damaged messages to the codec and to live nodes: ``python -m eris.testing.fuzz``.

Valid messages of several federations are damaged in ways that follow the wire format, each by
draws from the stream of its own number, so that any case can be repeated alone. The laws:

- decoding gives a message or :class:`MalformedMessage`, and what it gives encodes and decodes to
  an equal message;
- a node takes any such message without an error; what it refuses changes nothing, nothing
  changes outside the segment that was named, no version goes back, its state stays finite, it
  publishes one result of a segment and round, and what it says can be encoded.
"""

from __future__ import annotations

import argparse
import copy
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from eris.core.compress import QSGD, Natural, RandK, RandP
from eris.core.errors import MalformedMessage
from eris.core.rules import CoordinateMedian, FedAdam, FedNova
from eris.core.shards import ContiguousPlan, RandomPlan, WeightedPlan
from eris.core.streams import Stream
from eris.protocol import eris_pb2 as pb
from eris.protocol.agreement import Agreement
from eris.protocol.codec import decode, encode
from eris.protocol.membership import View
from eris.protocol.messages import CatchUp, Message, Outgoing, Refusal, Result
from eris.protocol.node import Node
from eris.protocol.settings import Settings
from eris.protocol.transcript import Transcript
from eris.runtimes.local import LocalRuntime

Vector = NDArray[np.float32]
Option = TypeVar("Option")

BATCH = 32
"""Messages fed to one node before a fresh one takes its place."""
MOST_FINDINGS = 20


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


# -- federations to attack --------------------------------------------------------------------

MEMBERS = 4


@dataclass(frozen=True)
class World:
    """A small federation in its second round: messages that belong there, and a node."""

    agreement: Agreement
    node: Node
    corpus: tuple[bytes, ...]

    @classmethod
    def of(cls, settings: Settings) -> World:
        """Run one round, keep a node as it is then, and record what the next ones say."""
        names = [f"member {number}" for number in range(MEMBERS)]
        view = View.serverless(
            names, aggregators=2, shards=settings.plan.shards, samples=(5,) * MEMBERS
        )
        agreement = Agreement(settings, view)
        runtime = LocalRuntime(agreement, np.zeros(settings.n, np.float32))

        def train(member: int, model: Vector, round: int) -> tuple[Vector, int, int]:
            draws = Stream(settings.seed, "fuzz-update", round, member).normal(0, settings.n)
            return draws.astype(np.float32), 5, 1 + member

        runtime.run_round(train)
        node = _twin(runtime.nodes[0], agreement)
        node.begin(2, 0.0)
        node.contribute(*train(0, node.model, 2))
        runtime.transcript = Transcript(view)
        for _ in range(2):
            runtime.run_round(train)
        key = agreement.keys[-1]
        header = agreement.header(1, 2, key)
        said: list[Message] = [CatchUp(header, 0), CatchUp(header, 1), Refusal(header, "late")]
        said += [runtime.nodes[1].replica.snapshot(key, 1) for key in agreement.keys]
        said += [Result(agreement.header(view.owners[key[0]], 2, key), 1, frozenset(), 0, 0, None)]
        recorded = [record.data for record in runtime.transcript.records]
        return cls(agreement, node, (*recorded, *map(encode, said)))

    @cached_property
    def coordinates(self) -> dict[tuple[int, int], NDArray[np.int64]]:
        """Where the segments lie, for plans that stay as they are."""
        return {
            key: segment.shard_map.coordinates(segment.shard, segment.start, segment.stop)
            for key, segment in self.agreement.segments(1).items()
        }


def _twin(node: Node, agreement: Agreement) -> Node:
    return copy.deepcopy(node, {id(agreement): agreement})


def worlds() -> list[World]:
    """Federations that between them use every encoding and every kind of state."""
    common = {"n": 40, "segment_size": 12, "min_included": 2}
    kinds = (
        {"plan": WeightedPlan((1, 2)), "rule": FedNova()},
        {"plan": RandomPlan(2), "compressor": RandP(0.5), "rule": FedAdam(bias_correction=True)},
        {"plan": RandomPlan(2, rotate=2), "compressor": QSGD(8)},
        {"plan": RandomPlan(3), "compressor": RandK(20), "masks": "independent"},
        {"plan": ContiguousPlan(2), "rule": CoordinateMedian(), "non_finite": "clip"},
        {"plan": RandomPlan(2), "compressor": Natural(), "non_finite": "zero", "history": 1},
    )
    return [World.of(Settings(**common, **kind)) for kind in kinds]  # type: ignore[arg-type]


def case(corpus: Sequence[bytes], seed: int, number: int) -> tuple[str, bytes]:
    """The name of the damage and the bytes of one case."""
    dice = Dice(seed, number)
    data, other = dice.pick(corpus), dice.pick(corpus)
    first = dice.pick((*TO_BYTES, *TO_FIELDS))
    name, damaged = first.__name__, first(data, other, dice)
    if first in TO_FIELDS and dice.below(4) == 0:
        second = dice.pick(TO_BYTES)
        name, damaged = f"{name}, {second.__name__}", second(damaged, other, dice)
    return name, damaged


# -- laws -------------------------------------------------------------------------------------


class Broken(Exception):
    """A law does not hold."""


@dataclass(frozen=True)
class Finding:
    """A case that broke a law."""

    number: int
    damage: str
    data: bytes
    problem: str

    def __str__(self) -> str:
        return f"case {self.number} ({self.damage}): {self.problem}\n  {self.data.hex()}"


@dataclass
class Tally:
    """What came of the cases."""

    cases: int = 0
    decoded: Counter[str] = field(default_factory=Counter)
    malformed: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    moved: int = 0
    findings: list[Finding] = field(default_factory=list)

    def __str__(self) -> str:
        decoded, malformed = sum(self.decoded.values()), sum(self.malformed.values())
        return (
            f"{self.cases} cases: {malformed} malformed ({len(self.malformed)} different fields), "
            f"{decoded} decoded, of which nodes refused {self.refused} and moved their state "
            f"for {self.moved}; {len(self.findings)} findings"
        )


def check_codec(data: bytes) -> Message | MalformedMessage:
    """The message in ``data`` or its refusal; raises :class:`Broken` for anything else."""
    try:
        message = decode(data)
    except MalformedMessage as refusal:
        return refusal
    if decode(encode(message)) != message:
        raise Broken("the message does not survive being encoded again")
    return message


class Subject:
    """A node under attack, watched."""

    def __init__(self, world: World) -> None:
        self.world, self.node = world, _twin(world.node, world.agreement)
        self.published: dict[tuple[int, int, int], Result] = {}

    def _state(self) -> list[Vector]:
        replica = self.node.replica
        references = (replica.reference, self.node.client.own_reference)
        present = [vector for vector in references if vector is not None]
        return [replica.model, *replica.slots, *present]

    def feed(self, message: Message, source: int) -> tuple[bool, bool]:
        """Let the node receive a message; returns (refused, state moved)."""
        before = [vector.copy() for vector in self._state()]
        versions, notes = dict(self.node.replica.versions), len(self.node.refused)
        self._sensible(self.node.receive(message, source))
        after = self._state()
        changed = [
            a.view(np.uint32) != b.view(np.uint32) for a, b in zip(before, after, strict=True)
        ]
        now = self.node.replica.versions
        moved = versions != now or any(part.any() for part in changed)
        refused = len(self.node.refused) > notes
        if any(now[key] < version for key, version in versions.items()):
            raise Broken("a version went back")
        if moved and (refused or isinstance(message, CatchUp | Refusal)):
            raise Broken(f"a {type(message).__name__} that was refused or asks moved the state")
        if moved and not self.world.agreement.settings.plan.rotate:
            key = message.header.key
            if any(now[other] != version for other, version in versions.items() if other != key):
                raise Broken("the version of another segment moved")
            for part in changed:
                part[self.world.coordinates[key]] = False
                if part.any():
                    raise Broken("coordinates of another segment moved")
        return refused, moved

    def finish(self) -> None:
        """Let deadlines pass and the next round begin on what was collected."""
        for now, round in ((100.0, 3), (200.0, 4)):
            self._sensible(self.node.tick(now))
            self._sensible(self.node.begin(round, now))

    def _sensible(self, said: list[Outgoing]) -> None:
        for out in said:
            if decode(encode(out.message)) != out.message:
                raise Broken("the node says what cannot be encoded")
            if isinstance(out.message, Result) and out.message.header.sender == self.node.me:
                header = out.message.header
                name = (header.round, *header.key)
                if self.published.setdefault(name, out.message) != out.message:
                    raise Broken("there are two results of one segment and round")
        if not all(np.isfinite(vector).all() for vector in self._state()):
            raise Broken("the state is not finite")


def batches(count: int) -> Iterator[range]:
    """The numbers of the cases, as they share a node."""
    return (range(start, min(start + BATCH, count)) for start in range(0, count, BATCH))


def run(count: int, seed: int = 0, advance: Callable[[int], object] = int) -> Tally:
    """Check ``count`` cases; ``advance`` is told how many more are done.

    >>> run(100).findings
    []
    """
    tally, attacked = Tally(), worlds()
    for number, batch in enumerate(batches(count)):
        world = attacked[number % len(attacked)]
        _attack(world, batch, seed, tally)
        advance(len(batch))
    return tally


def _attack(world: World, batch: range, seed: int, tally: Tally) -> None:
    subject = Subject(world)
    damage, data, number = "", b"", batch.start
    try:
        # Overflow shows as a state that is not finite, whatever the caller does about warnings.
        with np.errstate(all="ignore"):
            for number in batch:
                tally.cases += 1
                damage, data = case(world.corpus, seed, number)
                message = check_codec(data)
                if isinstance(message, MalformedMessage):
                    tally.malformed[message.field] += 1
                    continue
                tally.decoded[type(message).__name__] += 1
                sender = message.header.sender
                refused, moved = subject.feed(message, sender if sender < MEMBERS else 1)
                tally.refused += refused
                tally.moved += moved
            damage, data = "time passes after this batch", b""
            subject.finish()
    except Exception as error:
        if len(tally.findings) < MOST_FINDINGS:
            problem = f"{type(error).__name__}: {error}"
            tally.findings.append(Finding(number, damage, data, problem))


def main() -> int:
    """Run a campaign, with a progress bar; the exit status says whether a law was broken."""
    parser = argparse.ArgumentParser(prog="python -m eris.testing.fuzz", description=run.__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="how many cases")
    parser.add_argument("--seed", type=int, default=0, help="of the stream they are drawn from")
    wanted = parser.parse_args()
    console = Console(stderr=True)
    with Progress(console=console) as progress:
        task = progress.add_task("damaged messages", total=wanted.count)
        tally = run(wanted.count, wanted.seed, lambda more: progress.advance(task, more))
    for finding in tally.findings:
        print(finding)
    print(tally)
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
