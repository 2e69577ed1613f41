"""What must hold of secure sums whatever fails: the ten laws of docs/secure-sums.md.

Beside the messages this looks into members' memory, which nobody else can.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from eris.core.vectors import Vector
from eris.protocol.agreement import Key
from eris.protocol.messages import Contribution, Result, Reveal, RevealRequest
from eris.protocol.round.giving import Job
from eris.protocol.round.member import Member
from eris.protocol.secure.escrow import Escrow
from eris.protocol.secure.labels import ShardRound, digest
from eris.protocol.secure.pads import pad_key
from eris.protocol.secure.sending import SecureSender
from eris.protocol.secure.sums import SegmentShape, Statement
from eris.protocol.secure.terms import SecureSums
from eris.protocol.secure.wire import CLOSE, DEPOSIT, read_closing, read_deposits, read_masked

if TYPE_CHECKING:
    from eris.testing.witness import Witness

Place = tuple[Key, int]
"""A segment and a round."""


class LawBroken(AssertionError):
    """A law of the protocol does not hold; says which and where."""


class SumLaws:
    """Checks the laws of secure sums; a part of the witness."""

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
        """By round, segment and nonce: the model that a contribution was trained on."""
        self._escrows: dict[tuple[int, int, int], set[bytes]] = defaultdict(set)
        """By client, round and shard: the escrows that it made."""
        self.lying: set[int] = set()
        """Helpers that may have answered anything."""

    def begun(self, member: Member, job: Job) -> None:
        """A member trains on a model."""
        self._jobs[member, job.round] = digest(job.model.tobytes())

    # -- contributions ------------------------------------------------------------------------

    def contributed(self, sent: Contribution, values: Vector, member: Member) -> None:
        """Laws 4, 5, 7: one pad hides one content; a box holds what its seat may know."""
        header, encoded = sent.header, sent.payload.encoded
        owner = self._witness.views[header.epoch].view.owners[header.shard]
        if owner == header.sender:
            return
        size = self._terms.ring_bytes
        masked, escrow = read_masked(encoded.data, encoded.count * size, self._terms.threshold)
        sender = member.node.client.sender
        assert isinstance(sender, SecureSender)
        training, seeds = sender.training, dict[int, bytes]()
        if training is not None and training.round == header.round:  # it may be in the next
            seeds, _ = training.escrows[header.shard]
        content = digest(values.tobytes(), str(sent.based_on).encode())
        for seed in seeds.values():
            key = pad_key(seed, header.segment, encoded.count, size, masked.nonce)
            if self._pads.setdefault(key, content) != content:
                raise LawBroken(f"round {header.round}, segment {header.key}: one pad hides two "
                                f"contents of member {header.sender}")  # fmt: skip
        self._models[header.round, header.key, masked.nonce] = self._jobs[member, header.round]
        self._escrows[header.sender, header.round, header.shard].add(escrow.digest)

    # -- questions and answers ----------------------------------------------------------------

    def said(self, message: RevealRequest | Reveal, to: int, member: Member) -> None:
        """An owner asks, or a helper answers."""
        if isinstance(message, RevealRequest):
            if message.data[:1] == CLOSE:
                self._closed(message)
            elif message.data[:1] == DEPOSIT:
                for client, escrow in read_deposits(message.data, self._terms.threshold):
                    self._deposited(client, escrow, message)
        elif message.data[:1] == CLOSE:
            self._answered(message.data[1:33], message, to, member)

    def _deposited(self, client: int, escrow: Escrow, asked: RevealRequest) -> None:
        """Law 6: an escrow is passed on in its own place and time."""
        header = asked.header
        if escrow.digest not in self._escrows[client, header.round, header.shard]:
            raise LawBroken(f"round {header.round}, shard {header.shard}: an escrow that client "
                            f"{client} did not make for it is passed on")  # fmt: skip

    def _closed(self, asked: RevealRequest) -> None:
        header, view = asked.header, self._witness.view_of(asked.header.round)
        where = f"round {header.round}, segment {header.key}"
        if view.owners[header.shard] != header.sender or header.epoch != view.epoch:
            raise LawBroken(f"{where}: member {header.sender} opens a sum that is not its own")
        assert view.seating is not None
        shape = SegmentShape(
            place_of_header(asked), header.segment, 0, self._count(asked), self._terms.ring_bytes
        )
        helpers = view.seating.helpers[header.shard]
        closing = read_closing(asked.data, asked.included, shape, header.sender, helpers)
        statement = closing.statement
        self._statements[statement.digest] = statement
        self._witness.saw["a sum is closed"] += 1

    def _count(self, asked: RevealRequest) -> int:
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
        if len({self._models.get((*at, one.nonce)) for one in statement.included}) > 1:
            raise LawBroken(f"{where}: a sum over different models is opened")
        place = (header.key, header.round)
        if member.node.replica.versions[header.key] >= header.round:
            raise LawBroken(f"{where}: member {header.sender} opens what it knows the result of")
        self._answers[named].add(header.sender)
        self._check_knowledge(member, where)
        if len(self._answers[named] | self.lying) >= self._terms.threshold.need:
            self._witness.saw["a sum is opened"] += named not in self._opened[place]
            self._opened[place].add(named)
            if len(self._opened[place]) > 1:
                raise LawBroken(f"{where}: sums of two sets are opened")

    def _check_knowledge(self, member: Member, where: str) -> None:
        """Law 4: with one seat fewer than are needed a part of every mask is missing."""
        assert member.node.helping is not None
        for (place, _), escrows in member.node.helping.helper._seeds.items():
            view = self._witness.views[place.epoch].view
            assert view.seating is not None
            seat = view.seating.helpers[place.shard].index(member.me)
            for _, seeds in escrows.values():
                if any(part >> seat & 1 for part in seeds):
                    raise LawBroken(f"{where}: member {member.me} knows parts of other seats")

    # -- results ------------------------------------------------------------------------------

    def published(self, result: Result) -> None:
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


def place_of_header(message: RevealRequest) -> ShardRound:
    """Where what a message is about belongs."""
    header = message.header
    return ShardRound(header.federation, header.epoch, header.round, header.shard)
