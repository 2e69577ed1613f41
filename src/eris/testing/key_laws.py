"""What must hold of encrypted sums whatever fails: one answer a segment, to one set, on disk first.

Beside the messages this looks into members' memory and onto their disks, which nobody else can.
"""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eris.core.clustering import clustered
from eris.core.vectors import Vector
from eris.protocol.agreement import Key, Segment
from eris.protocol.enccluster.answering import RevealKey
from eris.protocol.enccluster.coding import Encrypted, EncryptingCoding
from eris.protocol.enccluster.collecting import KeyDesk
from eris.protocol.enccluster.group import ORDER, POINT_BYTES
from eris.protocol.enccluster.labels import BookLabel, UnusableFresh
from eris.protocol.enccluster.logarithms import Integers
from eris.protocol.enccluster.sending import EncryptingSender
from eris.protocol.enccluster.sets import SetStatement, contribution_digest
from eris.protocol.enccluster.wire import read_statement
from eris.protocol.messages import Contribution, Message, Result, Reveal, RevealRequest
from eris.protocol.round.giving import Job
from eris.protocol.round.member import Member
from eris.protocol.schemes.encrypted_clusters import EncryptedClusterCoding
from eris.protocol.schemes.weights import moved
from eris.protocol.view import View
from eris.testing.sum_laws import LawBroken, Place

if TYPE_CHECKING:
    from eris.testing.witness import Witness

COUNT = 4
"""Bytes of κ before the ciphertexts of a codebook."""


@dataclass(frozen=True, eq=False)
class _Sent:
    """What a contribution hides, as whole numbers, and the scalar behind it."""

    integers: Integers
    weight: int
    scalars: tuple[int, ...]


class KeyLaws:
    """Checks the laws of encrypted sums; a part of the witness."""

    checks_values = True

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self._coding: EncryptingCoding | None = None
        self._sent: dict[bytes, _Sent] = {}
        """By digest."""
        self._given: dict[tuple[int, Place], set[bytes]] = defaultdict(set)
        """By client, segment and round: the digests of what it contributed."""
        self._held: dict[tuple[Key, int], Vector] = {}
        """By segment and version: what it held."""
        self._statements: dict[bytes, SetStatement] = {}
        self._asked: dict[Place, set[bytes]] = defaultdict(set)
        """By segment and round: the statements of an owner that does not lie."""
        self._answers: dict[bytes, dict[int, tuple[int, ...]]] = defaultdict(dict)
        """By statement: the shares that were said, by member."""
        self._answered: dict[tuple[int, Place], set[bytes]] = defaultdict(set)
        """By member, segment and round: the statements that it answered."""
        self._opened: dict[Place, set[bytes]] = defaultdict(set)
        self._reached: dict[bytes, set[int]] = defaultdict(set)
        """By statement: whose shares have reached the owner."""
        self.lying: set[int] = set()
        """Members that may have said anything: they lie, or have forgotten what they said."""
        self._struck: set[int] = set()

    @property
    def excused(self) -> set[int]:
        """Whom owners need not include."""
        return self.lying | self._struck

    def least(self, view: View, shard: int | None) -> int:
        """The fewest clients of a set of a shard; of any, where none is named."""
        terms = self._witness.settings.scheme
        assert isinstance(terms, Encrypted)
        trains = shard is None or view.owners[shard] in view.client_set
        clients, adversaries = len(view.clients), terms.colluders + trains
        return max(adversaries + 2, (clients + adversaries) // 2 + 1)

    def begun(self, member: Member, job: Job) -> None:
        """A member trains."""

    def rewound(self, before: Member, member: Member) -> None:
        """A member goes on from a snapshot of itself."""
        self.lying.add(member.me)

    def look(self, member: Member) -> None:
        """Note whom an owner leaves out, since it gave no shares."""
        desk = member.node.aggregator.desk
        assert isinstance(desk, KeyDesk)
        left_out = desk.strikes.left_out(member.node.aggregator.round)
        self._witness.saw["an owner leaves out who gave no shares"] += bool(left_out - self._struck)
        self._struck |= left_out

    def conclude(self) -> None:
        """All has been looked at."""

    # -- contributions ------------------------------------------------------------------------

    def contributed(
        self, sent: Contribution, values: Vector, samples: int, member: Member
    ) -> None:  # fmt: skip
        """What is encrypted, by plain arithmetic."""
        header, coding = sent.header, member.agreement.coding
        assert isinstance(coding, EncryptingCoding)
        self._coding = coding
        segment = member.agreement.segments(header.round)[header.key]
        named, place = self._digest(sent, segment), (header.key, header.round)
        self._given[header.sender, place].add(named)
        if named in self._sent:
            return
        held = member.node.replica.held.piece(segment).copy()
        self._held.setdefault((header.key, sent.based_on), held)
        weights = moved(held, values, coding.rate) if coding.of_weights else values
        if isinstance(coding, EncryptedClusterCoding):
            weights = clustered(weights, coding.terms.clusters, fewer="allow").values()
        weight = coding.weight(samples)
        integers = coding.scale(header.round).scaled(weights, weight)
        sender = member.node.client.sender
        assert isinstance(sender, EncryptingSender)
        waiting = sender.answerer._waiting.get(RevealKey.of(self._label(header.round, segment)))
        drawn: tuple[int, ...] = ()
        if waiting is not None:
            with suppress(UnusableFresh):  # an owner that was the last has answered by now
                drawn = waiting.scalars[0].values()
        self._sent[named] = _Sent(integers, weight, drawn)

    def _label(self, round: int, segment: Segment) -> BookLabel:
        assert self._coding is not None
        epoch = self._witness.view_of(round).epoch
        federation = self._coding.federation
        return BookLabel(federation, epoch, round, segment.shard, segment.number)

    def _digest(self, sent: Contribution, segment: Segment) -> bytes:
        data, clustered = (
            sent.payload.encoded.data,
            isinstance(self._coding, EncryptedClusterCoding),
        )
        points, mapping = data, b""
        if clustered:
            end = COUNT + POINT_BYTES * int.from_bytes(data[:COUNT], "little")
            points, mapping = data[COUNT:end], data[end:]
        label = self._label(sent.header.round, segment)
        return contribution_digest(label, sent.header.sender, (points,), mapping)

    # -- questions and answers ----------------------------------------------------------------

    def said(self, message: RevealRequest | Reveal, to: int, member: Member) -> None:
        """An owner asks, or a client answers."""
        if isinstance(message, Reveal):
            self._check_answer(message, to, member)
            return
        header = message.header
        where, place = _where(message), (header.key, header.round)
        view = self._witness.view_of(header.round)
        if view.owners[header.shard] != header.sender or header.epoch != view.epoch:
            raise LawBroken(f"{where}: member {header.sender} opens a sum that is not its own")
        named = self.claimed(message).name
        self._witness.saw["a set is closed"] += named not in self._asked[place]
        self._asked[place].add(named)
        if len(self._asked[place]) > 1:
            raise LawBroken(f"{where}: its owner closes on two sets")

    def claimed(self, asked: RevealRequest) -> SetStatement:
        """Somebody asks about a set, who may lie."""
        assert self._coding is not None
        header, view = asked.header, self._witness.view_of(asked.header.round)
        segment = self._coding.agreement.segments(header.round)[header.key]
        label = self._label(header.round, segment)
        statement, _ = read_statement(asked.data, sorted(asked.included), label, view)
        self._statements[statement.name] = statement
        return statement

    def heard(self, message: Message, member: Member) -> None:
        """Something has reached a member: what an owner makes of it is for the law of names."""
        if isinstance(message, Reveal):
            self._reached[message.data[:32]].add(message.header.sender)

    def _check_answer(self, answer: Reveal, to: int, member: Member) -> None:
        header, where = answer.header, _where(answer)
        me, place, named = header.sender, (header.key, header.round), answer.data[:32]
        statement = self._statements.get(named)
        if statement is None:
            raise LawBroken(f"{where}: member {me} answers what nobody asked")
        view = self._witness.view_of(header.round)
        if view.owners[header.shard] != to or statement.label.epoch != view.epoch:
            raise LawBroken(f"{where}: member {me} answers {to}, who does not own it")
        own = statement.by_client.get(me)
        if own is None or own.contribution not in self._given[me, place]:
            raise LawBroken(f"{where}: member {me} answers for what it did not contribute")
        if len(statement.members) < self._witness.least(view, header.shard):
            raise LawBroken(f"{where}: member {me} answers for {len(statement.members)} clients")
        self._check_disk(answer, where)
        self._answered[me, place].add(named)
        if len(self._answered[me, place]) > 1 and me not in self.lying:
            raise LawBroken(f"{where}: member {me} answers for two sets")
        if to == me:
            self._reached[named].add(me)
        self._note_share(statement, answer, place, where)

    def _check_disk(self, answer: Reveal, where: str) -> None:
        """An answer is on the disk before it leaves, and no scalar ever is."""
        me, disk = answer.header.sender, self._witness.disk(answer.header.sender)
        if answer.data not in disk:
            raise LawBroken(f"{where}: member {me} answers what is not on its disk")
        for (client, _), digests in self._given.items():
            drawn = [s for one in digests if client == me for s in self._sent[one].scalars]
            if any(scalar.to_bytes(32, "big") in disk for scalar in drawn):
                raise LawBroken(f"{where}: a scalar of member {me} is on its disk")

    def _note_share(
        self, statement: SetStatement, answer: Reveal, place: Place, where: str
    ) -> None:
        """One set is opened at the most, and by shares of one statement only."""
        me, named, data = answer.header.sender, statement.name, answer.data[32:]
        share = tuple(int.from_bytes(data[at : at + 32], "big") for at in range(0, len(data), 32))
        self._answers[named][me] = share
        members, liars = statement.by_client.keys(), self.lying & statement.by_client.keys()
        if members <= self._answers[named].keys() | liars:
            self._witness.saw["a sum is opened"] += named not in self._opened[place]
            self._opened[place].add(named)
            assert self._coding is not None
            if len(self._opened[place]) > 1 and len(liars) <= self._coding.terms.colluders:
                raise LawBroken(f"{where}: sums of two sets are opened")
        self._check_mixed(place, where)

    def _check_mixed(self, place: Place, where: str) -> None:
        """Shares of different statements do not add up to a key."""
        there = {n: s for n, s in self._statements.items() if self._is_of(s, place)}
        if len(there) < 2:
            return
        shares: dict[int, tuple[bytes, tuple[int, ...]]] = {}
        for named in there:
            for member, share in self._answers[named].items():
                shares.setdefault(member, (named, share))
        for statement in there.values():
            rows = statement.by_client
            if not rows.keys() <= shares.keys() or len({shares[m][0] for m in rows}) < 2:
                continue
            drawn = [self._scalars_of(member, place) for member in rows]
            if not all(drawn):
                continue
            for slot in range(len(shares[min(rows)][1])):
                total = sum(shares[member][1][slot] for member in rows) % ORDER
                if total == sum(scalars[slot] for scalars in drawn) % ORDER:
                    raise LawBroken(f"{where}: shares of different statements are a key")

    def _is_of(self, statement: SetStatement, place: Place) -> bool:
        label, (key, round) = statement.label, place
        return (label.round, label.shard, label.segment) == (round, *key)

    def _scalars_of(self, member: int, place: Place) -> tuple[int, ...]:
        return next((self._sent[d].scalars for d in self._given[member, place]), ())

    # -- results ------------------------------------------------------------------------------

    def published(self, result: Result, member: Member) -> None:
        """A result is the mean of plain integers over the set that was opened; or it is withheld,
        and its owner says who was missing."""
        header, where = result.header, _where(result)
        place = header.key, header.round
        if result.payload is None:
            self._check_names(place, where, member)
            return
        statement = self._statements.get(result.closed)
        if statement is None or result.closed not in self._opened[place]:
            raise LawBroken(f"{where} ends in a sum that was not opened")
        if result.included != statement.by_client.keys():
            raise LawBroken(f"{where} ends in another set than the one that was opened")
        coding, held = member.agreement.coding, self._held[header.key, result.previous]
        assert isinstance(coding, EncryptingCoding)
        parts = [self._sent.get(one.contribution) for one in statement.members]
        found = [part for part in parts if part is not None]
        total = np.sum([part.integers for part in found], axis=0)
        weight = sum(part.weight for part in found)
        mean = coding.scale(header.round).mean(total, weight)
        expected = coding.publish(coding.mean_update(mean, lambda: held), header.round)
        if len(found) < len(parts) or expected != result.payload or weight != result.samples:
            raise LawBroken(f"{where} is not the mean of the plain integers of its set")

    def _check_names(self, place: Place, where: str, member: Member) -> None:
        """Who closed on a set and withholds says whose shares have not come."""
        if member.me in self.lying or not self._asked[place]:
            return
        self._witness.saw["a set is not opened, and withheld"] += 1
        (named,) = self._asked[place]
        silent = self._statements[named].by_client.keys() - self._reached[named]
        notes = [note for note in member.node.refused if note.startswith(f"{where}: ")]
        if not silent and notes:
            return  # a share that is none, or a sum without a logarithm
        told = {
            name for note in notes for name in re.findall("[a-z]+", note.split("shares of")[-1])
        }
        names = {name: number for number, name in enumerate(member.agreement.view.members)}
        missing = {names[name] for name in told if name in names}
        if not silent <= missing <= silent | self.lying:
            raise LawBroken(f"{where} is withheld, and its owner names {sorted(missing)}, not "
                            f"{sorted(silent)}")  # fmt: skip


def _where(message: Message) -> str:
    return f"round {message.header.round}, segment {message.header.key}"
