"""What must hold of secure sums whatever fails: the ten laws of docs/secure-sums.md.

Beside the messages this looks into members' memory, which nobody else can.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import MalformedMessage
from eris.core.ring import (
    Words,
    add_wire,
    check_sums,
    packed_form,
    signed,
    to_wire,
    wire_bytes,
)
from eris.protocol.agreement import Key
from eris.protocol.messages import Contribution, Header, Message, Result, Reveal, RevealRequest
from eris.protocol.round.giving import Job
from eris.protocol.round.helping import Helping
from eris.protocol.round.member import Member
from eris.protocol.schemes.grid import Grid
from eris.protocol.secure.collecting import SecureDesk
from eris.protocol.secure.escrow import Escrow
from eris.protocol.secure.labels import ShardRound, digest
from eris.protocol.secure.pads import HEAD, pad_key
from eris.protocol.secure.sending import SecureSender
from eris.protocol.secure.sums import Answer, SegmentShape, Statement, plain_head, plain_words
from eris.protocol.secure.terms import SecureSums
from eris.protocol.secure.wire import (
    AUDIT,
    CLOSE,
    DEPOSIT,
    read_answer,
    read_closing,
    read_deposits,
    read_masked,
    read_own,
)
from eris.protocol.view import View
from eris.testing.wire_laws import WireBytes

if TYPE_CHECKING:
    from eris.testing.witness import Witness

Place = tuple[Key, int]
"""A segment and a round."""
Hidden = NDArray[Any]
"""What is masked: float32 values, or integers on a common grid."""


class LawBroken(AssertionError):
    """A law of the protocol does not hold; says which and where."""


class SumLaws:
    """Checks the laws of secure sums; a part of the witness."""

    checks_values = False
    """What a sum is of, the witness itself looks at."""

    def __init__(self, witness: Witness, terms: SecureSums) -> None:
        self._witness, self._terms = witness, terms
        self._statements: dict[bytes, Statement] = {}
        self._answers: dict[bytes, set[int]] = defaultdict(set)
        """By statement: the members that have answered it."""
        self._opened: dict[Place, set[bytes]] = defaultdict(set)
        """By segment and round: the statements with answers enough."""
        self._pads: dict[bytes, bytes] = {}
        """What was hidden under a pad, by its key."""
        self._jobs: dict[tuple[Member, int], bytes] = {}
        self._models: dict[tuple[int, Key, bytes], bytes] = {}
        """By round, segment and nonce, or escrow: the model that a contribution was trained on."""
        self._escrows: dict[tuple[int, int, int], set[bytes]] = defaultdict(set)
        """By client, round and shard: the escrows that it made."""
        scheme = witness.settings.scheme
        self._form = terms.ring_bytes
        """Of all words, but for an exponent."""
        if isinstance(scheme, Grid):
            self._form = packed_form(scheme.bits, 0 if scheme.follows else None)
        self._wire, self._noted = WireBytes(self._form), set[bytes]()
        self._heard: dict[tuple[Place, int, bytes], set[tuple[bytes, bytes]]] = defaultdict(set)
        """By segment and round, client and nonce: heads and words as they reached the owner."""
        self._owned: dict[Place, set[tuple[bytes, bytes]]] = defaultdict(set)
        """By segment and round: heads and words of owners, which never travel."""
        self._given: dict[tuple[bytes, int], dict[int, set[tuple[bytes, bytes]]]] = defaultdict(
            lambda: defaultdict(set)
        )
        """By statement and seats that were asked: what reached the owner, by helper."""
        self._audits: dict[bytes, set[int]] = {}
        """By statement: who has told the owner what fits of its pads, since that was asked."""
        self.lying: set[int] = set()
        """Members that may have said anything: they lie, or have forgotten what they said."""
        self._named: set[int] = set()
        """Who was left out by an owner that does not lie."""

    def begun(self, member: Member, job: Job) -> None:
        """A member trains on a model."""
        self._jobs[member, job.round] = digest(job.model.tobytes())

    def rewound(self, before: Member, member: Member) -> None:
        """A member goes on from a snapshot of itself."""
        self.lying.add(member.me)
        jobs = {round: job for (who, round), job in self._jobs.items() if who is before}
        self._jobs |= {(member, round): job for round, job in jobs.items()}

    @property
    def excused(self) -> set[int]:
        """Whom owners need not include."""
        return self.lying | self._named

    def conclude(self) -> None:
        """Law 10: nothing that has travelled tells of values."""
        if telling := self._wire.telling():
            raise LawBroken(f"what travels tells of values: {telling}")

    # -- contributions ------------------------------------------------------------------------

    def contributed(
        self, sent: Contribution, values: Hidden, samples: int, member: Member
    ) -> None:  # fmt: skip
        """Laws 5, 7, 10: one pad hides one content, and nothing beside it tells of it."""
        header, encoded = sent.header, sent.payload.encoded
        if sent.samples or sent.steps:
            raise LawBroken(f"round {header.round}, segment {header.key}: member {header.sender} "
                            f"tells its weight")  # fmt: skip
        owner = self._witness.views[header.epoch].view.owners[header.shard]
        if owner == header.sender:
            _, head, words = read_own(encoded.data, encoded.count)
            own = head.tobytes(), bytes(to_wire(words, self._form))
            self._owned[header.key, header.round].add(own)
            return
        size = wire_bytes(encoded.count, self._form)
        masked, escrow = read_masked(encoded.data, size, self._terms.threshold)
        if masked.nonce not in self._noted:
            self._noted.add(masked.nonce)
            if self._witness.grid is None:
                words = plain_words(values, samples, self._witness.places)
            else:
                words, samples = values.view(np.uint64), 1
            hides = plain_head(words, samples, 1), words
            self._wire.add("contribution", masked.head, masked.wire, hides=hides)
        sender = member.node.client.sender
        assert isinstance(sender, SecureSender)
        training, seeds = sender.training, dict[int, bytes]()
        if training is not None and training.round == header.round:  # it may be in the next
            seeds, _ = training.escrows[header.shard]
        content = digest(values.tobytes(), str(sent.based_on).encode())
        for seed in seeds.values():
            form = int(encoded.parameter) or self._form
            key = pad_key(seed, header.segment, encoded.count, form, masked.nonce)
            if self._pads.setdefault(key, content) != content:
                raise LawBroken(f"round {header.round}, segment {header.key}: one pad hides two "
                                f"contents of member {header.sender}")  # fmt: skip
        for name in (masked.nonce, escrow.digest):
            self._models[header.round, header.key, name] = self._jobs[member, header.round]
        made = self._escrows[header.sender, header.round, header.shard]
        made.add(escrow.digest)
        if len(made) > 1 and header.sender not in self.lying:
            raise LawBroken(f"round {header.round}, shard {header.shard}: member {header.sender} "
                            f"contributes of two trainings")  # fmt: skip

    # -- questions and answers ----------------------------------------------------------------

    def said(self, message: RevealRequest | Reveal, to: int, member: Member) -> None:
        """An owner asks, or a helper answers."""
        if isinstance(message, RevealRequest):
            if message.data[:1] == CLOSE:
                self._closed(message)
            elif message.data[:1] == DEPOSIT:
                for client, escrow in read_deposits(message.data, self._terms.threshold):
                    self._deposited(client, escrow, message)
            elif message.data[:1] == AUDIT:
                self._audits.setdefault(self.claimed(message).digest, set())
        elif message.data[:1] == CLOSE:
            self._answered(message.data[1:33], message, to, member)
            _, seats, given = self._read(message)
            name = message.data[1:33] + bytes([seats, message.header.sender])
            if name not in self._noted:
                self._noted.add(name)
                self._wire.add("answer", given.head, given.wire)

    def heard(self, message: Message, member: Member) -> None:
        """Something has reached a member: what an owner makes of it is for law 9."""
        header = message.header
        place = header.key, header.round
        try:
            if isinstance(message, Contribution):
                encoded = message.payload.encoded
                words = wire_bytes(encoded.count, self._form)
                masked, _ = read_masked(encoded.data, words, self._terms.threshold)
                came = self._heard[place, header.sender, masked.nonce]
                came.add((masked.head.tobytes(), bytes(masked.wire)))
            elif isinstance(message, Reveal) and message.data[:1] == CLOSE:
                named, seats, given = self._read(message)
                came = self._given[named, seats][header.sender]
                came.add((given.head.tobytes(), bytes(given.wire)))
            elif isinstance(message, Reveal) and message.data[:1] == AUDIT:
                self._audits.get(message.data[1:33], set()).add(header.sender)
        except MalformedMessage:
            return  # no owner makes anything of it

    def _read(self, answer: Reveal) -> tuple[bytes, int, Answer]:
        return read_answer(answer.data, wire_bytes(self._count(answer), self._form))

    def look(self, member: Member) -> None:
        """Law 9: where one member lies, nobody else is named alone."""
        desk, threshold = member.node.aggregator.desk, self._terms.threshold
        assert isinstance(desk, SecureDesk)
        if member.me in self.lying:
            return
        self._witness.saw["an owner names who lied in a sum"] += len({*desk.named} - self._named)
        self._named |= desk.named.keys()
        if threshold.need == threshold.seats:
            return
        alone = {who for group in desk.blamed if len(group) == 1 for who in group}
        if alone <= self.lying:
            return
        told = (self._audits[n] for n, s in self._statements.items()
                if n in self._audits and s.owner == member.me)  # fmt: skip
        if all(len(seats) == threshold.seats for seats in told):
            raise LawBroken(f"owner {member.me} names {sorted(alone - self.lying)}, who did not "
                            f"lie")  # fmt: skip

    def _deposited(self, client: int, escrow: Escrow, asked: RevealRequest) -> None:
        """Law 6: an escrow is passed on in its own place and time."""
        header = asked.header
        known = self._escrows[client, header.round, header.shard]
        if escrow.digest not in known and client not in self.lying:
            raise LawBroken(f"round {header.round}, shard {header.shard}: an escrow that client "
                            f"{client} did not make for it is passed on")  # fmt: skip

    def _closed(self, asked: RevealRequest) -> None:
        header, view = asked.header, self._witness.view_of(asked.header.round)
        where = f"round {header.round}, segment {header.key}"
        if view.owners[header.shard] != header.sender or header.epoch != view.epoch:
            raise LawBroken(f"{where}: member {header.sender} opens a sum that is not its own")
        self.claimed(asked)
        self._witness.saw["a sum is closed"] += 1

    def claimed(self, asked: RevealRequest) -> Statement:
        """Somebody asks about a set, who may lie."""
        header, view = asked.header, self._witness.view_of(asked.header.round)
        assert view.seating is not None
        shape = SegmentShape(
            place_of_header(asked), header.segment, 0, self._count(asked), self._form
        )
        helpers = view.seating.helpers[header.shard]
        closing = read_closing(asked.data, asked.included, shape, header.sender, helpers)
        statement = closing.statement
        self._statements[statement.digest] = statement
        return statement

    def opened_by(self, header: Header) -> list[frozenset[int]]:
        """The sets over which the sender of a result has what it takes to open the sum."""
        place, found = (header.shard, header.segment, header.round), []
        for (named, seats), given in self._given.items():
            said = self._statements[named]
            where = said.shape.place.shard, said.shape.segment, said.shape.place.round
            asked = {h for seat, h in enumerate(said.helpers) if seats >> seat & 1}
            if where == place and said.owner == header.sender and asked <= given.keys():
                clients = {one.client for one in said.included}
                found.append(frozenset(clients | ({said.owner} if said.own else set())))
        return found

    def _count(self, asked: RevealRequest | Reveal) -> int:
        return self._witness.count(asked.header.round, asked.header.key)

    def _answered(self, named: bytes, answer: Reveal, to: int, member: Member) -> None:
        """Laws 1, 2, 7, 8: what a helper opens."""
        header = answer.header
        where = f"round {header.round}, segment {header.key}"
        statement = self._statements.get(named)
        if statement is None:
            raise LawBroken(f"{where}: member {header.sender} answers what nobody asked")
        view = self._witness.view_of(header.round)
        if view.owners[header.shard] != to:
            raise LawBroken(f"{where}: member {header.sender} answers {to}, who does not own it")
        if len(statement.included) < self._terms.least_masked:
            raise LawBroken(f"{where}: a sum of {len(statement.included)} masked clients is opened")
        if len(statement.included) + statement.own < self._witness.least(view):
            raise LawBroken(f"{where}: a sum of too few clients is opened")
        at = header.round, header.key
        names = {name for one in statement.included for name in (one.nonce, one.escrow)}
        if len({self._models[*at, name] for name in names if (*at, name) in self._models}) > 1:
            raise LawBroken(f"{where}: a sum over different models is opened")
        place = (header.key, header.round)
        if member.node.replica.versions[header.key] >= header.round:
            raise LawBroken(f"{where}: member {header.sender} opens what it knows the result of")
        self._answers[named].add(header.sender)
        self._check_knowledge(member, where)
        threshold, liars = self._terms.threshold, self.lying & set(statement.helpers)
        if len(self._answers[named] | liars) >= threshold.need:
            self._witness.saw["a sum is opened"] += named not in self._opened[place]
            self._opened[place].add(named)
            # An honest helper answers one set: so many liars it takes to open another.
            if len(self._opened[place]) > 1 and len(liars) < 2 * threshold.need - threshold.seats:
                raise LawBroken(f"{where}: sums of two sets are opened")

    def _check_knowledge(self, member: Member, where: str) -> None:
        """Laws 4 and 6: with one seat fewer than are needed a part of every mask is missing, and
        what is held was made for its place."""
        assert isinstance(member.node.helping, Helping)
        for (place, client), escrows in member.node.helping.helper._seeds.items():
            view = self._witness.views[place.epoch].view
            assert view.seating is not None
            seat = view.seating.helpers[place.shard].index(member.me)
            made = self._escrows[client, place.round, place.shard]
            if client not in self.lying and not escrows.keys() <= made:
                raise LawBroken(f"{where}: member {member.me} has opened an escrow of client "
                                f"{client} that was not made for it")  # fmt: skip
            for _, seeds in escrows.values():
                if any(part >> seat & 1 for part in seeds):
                    raise LawBroken(f"{where}: member {member.me} knows parts of other seats")

    # -- results ------------------------------------------------------------------------------

    def least(self, view: View, shard: int | None) -> int:
        """The fewest clients of a sum, beside what holds of all results."""
        return 0

    def published(self, result: Result, member: Member) -> None:
        """Laws 3 and 8: a result is of the set that was opened (the witness looks at its value)."""
        header = result.header
        where = f"round {header.round}, segment {header.key}"
        if result.payload is None:
            return
        statement = self._statements.get(result.closed)
        if statement is None or result.closed not in self._opened[header.key, header.round]:
            raise LawBroken(f"{where} ends in a sum that was not opened")
        named = {one.client for one in statement.included}
        if result.included != named | ({statement.owner} if statement.own else set()):
            raise LawBroken(f"{where} ends in another set than the one that was opened")
        if not self._fits(result, statement):
            raise LawBroken(f"{where} ends in a sum whose check words do not fit")

    def _fits(self, result: Result, statement: Statement) -> bool:
        """Law 9: whether a sum that its owner can have made fits its check words.

        What a liar sent may have come in several forms; what all others sent came in one.
        """
        place = result.header.key, result.header.round
        sent: list[set[tuple[bytes, bytes]]] = [
            self._heard[place, one.client, one.nonce] for one in statement.included
        ]
        if statement.own:
            sent.append(self._owned[place])
        for (named, seats), given in self._given.items():
            asked = [h for seat, h in enumerate(statement.helpers) if seats >> seat & 1]
            if named != statement.digest or not set(asked) <= given.keys():
                continue
            for came in product(*sent, *(given[helper] for helper in asked)):
                if self._fit(came[: len(sent)], came[len(sent) :], statement.shape.count):
                    return True
        return False

    def _fit(
        self, sent: Sequence[tuple[bytes, bytes]], given: Sequence[tuple[bytes, bytes]], count: int
    ) -> bool:
        (head, words), (masks_head, masks) = self._sum(sent, count), self._sum(given, count)
        total = signed(words - masks, self._form).view(np.uint64)
        checks = head - masks_head
        return check_sums(total) == (int(checks[2]), int(checks[3]))

    def _sum(self, rows: Sequence[tuple[bytes, bytes]], count: int) -> tuple[Words, Words]:
        head, words = np.zeros(HEAD, np.uint64), np.zeros(count, np.uint64)
        for its_head, wire in rows:
            head += np.frombuffer(its_head, "<u8")
            add_wire(words, wire, self._form)
        return head, words


def place_of_header(message: RevealRequest) -> ShardRound:
    """Where what a message is about belongs."""
    header = message.header
    return ShardRound(header.federation, header.epoch, header.round, header.shard)
