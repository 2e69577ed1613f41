"""The record of a run: every message as it was sent, and what an observer sees of it.

An adversary is given an :class:`Observation` cut from a transcript, never the inside of a run
(:mod:`eris.protocol.observers` says who sees what).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from google.protobuf.message import DecodeError

from eris.core.errors import InvalidSetting, MalformedMessage
from eris.core.vectors import Vector
from eris.protocol import eris_pb2 as pb
from eris.protocol.codec import VERSION, decode
from eris.protocol.messages import Contribution, Message, Result, Share
from eris.protocol.observers import ANYBODY, Observer
from eris.protocol.view import NOBODY
from eris.protocol.view import View as Membership

_MAGIC = b"ERIS-TRANSCRIPT\n"
_LARGEST_RECORD = 1 << 30


@dataclass
class Record:
    """One message as it left its sender, and whom it reached.

    A member's contributions to its own shards are recorded as sent to itself.
    """

    time: float
    sender: int
    receivers: tuple[int, ...]
    data: bytes
    arrived: set[int] = field(default_factory=set)

    def __hash__(self) -> int:
        return hash((self.time, self.sender, self.receivers, self.data))

    @property
    def message(self) -> Message:
        """The decoded message."""
        return decode(self.data)


@dataclass(frozen=True)
class Observation:
    """What one observer has: records in the order they were sent, or the final model alone."""

    observer: str
    records: tuple[Record, ...]
    members: frozenset[int] = frozenset()
    """Who observes: their own contributions are no news to them."""
    final_model: Vector | None = None

    def messages(self) -> Iterator[Message]:
        """The decoded messages."""
        return (record.message for record in self.records)

    def contributions(self) -> Iterator[Contribution]:
        """Other clients' contributions that the observer saw."""
        foreign = (record.message for record in self.records if record.sender not in self.members)
        return (message for message in foreign if isinstance(message, Contribution))

    def own(self) -> Iterator[Contribution]:
        """The observers' own contributions, those to their own shards among them."""
        mine = (record.message for record in self.records if record.sender in self.members)
        return (message for message in mine if isinstance(message, Contribution))

    def shares(self) -> Iterator[Share]:
        """Pieces of other nodes' models that reached the observer (gossip)."""
        foreign = (record.message for record in self.records if record.sender not in self.members)
        return (message for message in foreign if isinstance(message, Share))

    def results(self) -> Iterator[Result]:
        """Published results that the observer received or made."""
        return (m for m in self.messages() if isinstance(m, Result))


@dataclass
class Transcript:
    """All messages of a run, with who was who.

    >>> transcript = Transcript(Membership.serverless(["anna", "ben"], aggregators=1))
    >>> transcript.as_aggregator(1)
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: observer is 1; expected a member that owns a shard: 0
    """

    membership: Membership
    settings: str = ""
    records: list[Record] = field(default_factory=list)
    final_model: Vector | None = None
    epochs: dict[int, Membership] = field(default_factory=dict)
    """Where members are sampled: who did what in which epoch."""

    def record(self, time: float, sender: int, receivers: tuple[int, ...], data: bytes) -> Record:
        """Note a message that was sent; the runtime adds to ``arrived`` whom it reaches."""
        record = Record(time, sender, receivers, data)
        self.records.append(record)
        return record

    # -- observers ----------------------------------------------------------------------------

    def as_aggregator(self, member: int) -> Observation:
        """All that a member that owns shards sends and receives."""
        return self.seen_by(self.aggregator(member))

    def as_server(self) -> Observation:
        """All that the one owner of everything sees (central methods)."""
        return self.seen_by(self.server())

    def as_member(self, member: int) -> Observation:
        """A plain member: what everyone gets (results), and what it sends itself."""
        return self.seen_by(self.member(member))

    def as_helper(self, member: int) -> Observation:
        """A member with a seat: seeds sealed to it, the sets it is asked about, and results."""
        return self.seen_by(self.helper(member))

    def as_neighbour(self, member: int) -> Observation:
        """A node that gossips: what reaches it, through its virtual nodes too, and what it sends.

        Virtual nodes pass on what they receive, so their owner's view holds it.
        """
        return self.seen_by(self.neighbour(member))

    def as_coalition(self, members: Iterable[int]) -> Observation:
        """Several members that put together all they send and receive."""
        return self.seen_by(self.coalition(members))

    def as_link(self, sender: int, receiver: int) -> Observation:
        """An eavesdropper on what one member sends another."""
        return self.seen_by(self.link(sender, receiver))

    def aggregator(self, member: int) -> Observer:
        """The owner of shards of that number."""
        owners = self.owners
        if member not in owners:
            known = ", ".join(map(str, sorted(owners))) or "none; this run had no owners"
            raise InvalidSetting("observer", member, f"a member that owns a shard: {known}")
        return Observer("aggregator", frozenset({member}))

    def server(self) -> Observer:
        """The one owner of everything."""
        owners = self.owners
        if len(owners) != 1:
            raise InvalidSetting("observer", "server", f"one owner; this run had {len(owners)}")
        return Observer("server", frozenset(owners))

    def member(self, member: int) -> Observer:
        """A member as one that owns nothing."""
        self._known(member)
        return Observer("member", frozenset({member}))

    def helper(self, member: int) -> Observer:
        """A member that holds a seat of a shard, and owns nothing."""
        self._known(member)
        return Observer("helper", frozenset({member}))

    def neighbour(self, member: int) -> Observer:
        """A node that gossips."""
        self._known(member)
        if self.owners:
            raise InvalidSetting("observer", "neighbour", "a run in which nodes gossip")
        return Observer("neighbour", frozenset({member}))

    def coalition(self, members: Iterable[int]) -> Observer:
        """Members that put together what they have."""
        group = frozenset(members)
        for member in group:
            self._known(member)
        return Observer("coalition", group)

    def link(self, sender: int, receiver: int, *, both_ways: bool = False) -> Observer:
        """A tap on what one member sends another (or ``ANYBODY``), and on what comes back."""
        self._known(sender)
        if receiver != ANYBODY:
            self._known(receiver)
        return Observer("link", link=(sender, receiver), both_ways=both_ways)

    def as_final_model(self) -> Observation:
        """Someone who is given the trained model and nothing else."""
        if self.final_model is None:
            raise InvalidSetting("observer", "final model", "a transcript of a finished run")
        return Observation("final model", (), final_model=self.final_model)

    @property
    def owners(self) -> set[int]:
        """Everyone who ever owned a shard."""
        views = self.epochs.values() if self.epochs else (self.membership,)
        return {owner for view in views for owner in view.owners} - {NOBODY}

    def view_of(self, epochs: Iterable[int] = ()) -> Membership:
        """Who was who in these epochs (in all of them by default), in one view."""
        views = [self.epochs[epoch] for epoch in sorted(epochs) if epoch in self.epochs]
        views = views or list(self.epochs.values())
        if not views:
            return self.membership
        clients = {client for view in views for client in view.clients}
        return views[-1].in_epoch(views[-1].epoch, tuple(sorted(clients)), views[-1].owners)

    def _known(self, member: int) -> None:
        count = len(self.membership.members)
        if not 0 <= member < count:
            raise InvalidSetting("observer", member, f"a member's number, 0 to {count - 1}")

    def seen_by(self, observer: Observer) -> Observation:
        """What an observer has of this run."""
        seen = tuple(filter(observer.sees, self.records))
        return Observation(observer.name, seen, observer.members)

    # -- files --------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the transcript: a header and length-prefixed records (``eris.proto``).

        Only its owner may read the file: it holds what members sent each other.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.touch(0o600, exist_ok=False)
        with path.open("wb") as file:
            file.write(encoded_header(self))
            for record in self.records:
                file.write(encoded_record(record))

    @classmethod
    def load(cls, path: str | Path) -> Transcript:
        """Read a transcript back; says what is wrong with a file that is not one."""
        path = Path(path)
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise MalformedMessage(str(path), "is not a transcript of this package")
            try:
                header = pb.TranscriptHeader.FromString(_read(file, path) or b"")
                if header.version != VERSION:
                    raise MalformedMessage(
                        f"{path}: version", f"is {header.version}; this package reads {VERSION}"
                    )
                if len(header.final_model) % 4:
                    raise MalformedMessage(f"{path}: final model", "is not made of float32 values")
                membership = Membership(
                    tuple(header.members),
                    tuple(header.clients),
                    tuple(header.owners),
                    tuple(header.samples) or None,
                    header.epoch,
                )
                model = np.frombuffer(header.final_model, "<f4").astype(np.float32)
                transcript = cls(
                    membership, header.settings, final_model=model if len(model) else None
                )
                for roles in header.epochs:
                    transcript.epochs[roles.epoch] = membership.in_epoch(
                        roles.epoch,
                        tuple(roles.clients),
                        tuple(roles.owners),
                        tuple(roles.samples) or None,
                    )
                while (line := _read(file, path)) is not None:
                    record = pb.Record.FromString(line)
                    read = transcript.record(
                        record.time, record.sender, tuple(record.receivers), record.message
                    )
                    read.arrived.update(record.arrived)
            except DecodeError as error:
                raise MalformedMessage(str(path), f"is damaged ({error})") from None
        return transcript


def encoded_header(transcript: Transcript) -> bytes:
    """The beginning of a transcript's file: all of it but the records."""
    membership = transcript.membership
    header = pb.TranscriptHeader(
        version=VERSION,
        settings=transcript.settings,
        members=membership.members,
        clients=membership.clients,
        owners=membership.owners,
        samples=membership.samples or (),
        epoch=membership.epoch,
        epochs=[
            pb.Roles(
                epoch=epoch,
                clients=view.clients,
                owners=view.owners,
                samples=view.samples or (),
            )
            for epoch, view in transcript.epochs.items()
        ],
    )
    if transcript.final_model is not None:
        header.final_model = transcript.final_model.astype("<f4").tobytes()
    return _MAGIC + _prefixed(header.SerializeToString())


def encoded_record(record: Record) -> bytes:
    """A record as it stands in a transcript's file."""
    line = pb.Record(
        time=record.time,
        sender=record.sender,
        receivers=record.receivers,
        message=record.data,
        arrived=sorted(record.arrived),
    )
    return _prefixed(line.SerializeToString())


def end_of_records(file: BinaryIO) -> int:
    """Where the last whole record ends, in a file of records alone; a crash may leave more."""
    end, size = 0, file.seek(0, 2)
    while end + 8 <= size:
        file.seek(end)
        length = int.from_bytes(file.read(8), "little")
        # No record is empty: zeros are what a file system puts where it had no time for data.
        if not 0 < length <= min(_LARGEST_RECORD, size - end - 8):
            break
        end += 8 + length
    return end


def _prefixed(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + data


def _read(file: BinaryIO, path: Path) -> bytes | None:
    prefix = file.read(8)
    if not prefix:
        return None
    size = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or size > _LARGEST_RECORD:
        raise MalformedMessage(str(path), "is damaged: a record's length is cut off or too large")
    data = file.read(size)
    if len(data) < size:
        raise MalformedMessage(str(path), "ends in the middle of a record")
    return data
