"""An owner's half of secure sums: words come in masked, one sum a segment is opened with helpers.

The escrows of a shard's clients go to its seats, many in a message; the words of a client count
once enough seats have accepted its escrow. A segment is closed once, on the clients of one model.
If what is opened does not fit, all seats are asked what fits of their pads, and whoever that names
is left out from the next round on; nothing is published unless other seats open the same sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from eris.core.compress import Encoding
from eris.core.errors import ErisError, MalformedMessage, RefusedContribution
from eris.core.ring import wire_bytes
from eris.core.vectors import Vector
from eris.protocol.messages import Contribution, Payload
from eris.protocol.schemes.collector import Asking, Collector, Desk
from eris.protocol.schemes.grid import GridCoding
from eris.protocol.secure import gauge
from eris.protocol.secure.keys import MemberKeys, PublicKeys
from eris.protocol.secure.opening import Deposits, Opening
from eris.protocol.secure.seats import bitmap
from eris.protocol.secure.sending import place_of, told_form
from eris.protocol.secure.sums import Misfit, OpenedSum, SegmentShape, Statement
from eris.protocol.secure.terms import SecureSums
from eris.protocol.secure.vault import Vault
from eris.protocol.secure.wire import (
    ACCEPTED,
    AUDIT,
    DEPOSIT,
    DISPUTED,
    MOST_DEPOSITS,
    read_answer,
    read_audited,
    read_masked,
    read_own,
    read_verdicts,
    write_audit,
    write_closing,
    write_deposits,
)
from eris.protocol.secure.wording import wording

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Segment
    from eris.protocol.round.replica import Replica

MOST_PAIRS = 3
"""Times that two members are found in one misfit before both are left out."""


class SecureDesk(Desk):
    """What one owner knows of the seats of its shards, and of who lied."""

    def __init__(self, agreement: Agreement, me: int, replica: Replica, vault: Vault) -> None:
        super().__init__(agreement, replica)
        self.me, self._vault = me, vault
        self._deposits: dict[tuple[int, int], Deposits] = {}
        """By round and shard."""
        self.named: dict[int, PublicKeys | None] = {}
        """Who lied in a sum of this owner, and the keys that it had then."""
        self.misfitted: Counter[frozenset[int]] = Counter()
        """How often what these helpers opened together did not fit: others are asked first."""
        self.blamed: Counter[frozenset[int]] = Counter()
        """How often one member, or two of whom one lied, were found to be behind a misfit."""

    @property
    def terms(self) -> SecureSums:
        """What is agreed on."""
        assert self.agreement.settings.secure is not None
        return self.agreement.settings.secure

    def keys(self, round: int) -> MemberKeys | None:
        """This owner's keys in a round, if they are of this start."""
        seating = self.agreement.view_at(round).seating
        return None if seating is None else self._vault.of(seating.known.get(self.me))

    def check(self, contribution: Contribution) -> None:
        """Weights are in the sum: the owner does not see a single one."""
        if contribution.samples or contribution.steps:
            raise MalformedMessage(
                "contribution.samples", "are in the clear, where sums are secure"
            )

    def collector(self, round: int, segment: Segment) -> Collector:
        """An owner's half, for one segment and round."""
        return SecureCollector(self, round, segment)

    def deposits(self, round: int, shard: int) -> Deposits:
        """What the seats of a shard hold in a round."""
        place = round, shard
        if place not in self._deposits:
            for old in [known for known in self._deposits if known[0] < round]:
                del self._deposits[old]
            self._deposits[place] = Deposits(self.terms.threshold)
        return self._deposits[place]

    def helpers(self, round: int, shard: int) -> tuple[int, ...]:
        """Who is in the seats of a shard."""
        seating = self.agreement.view_at(round).seating
        return () if seating is None else seating.helpers[shard]

    def offers(self, round: int, shard: int, *, again: bool = False) -> Iterator[tuple[int, bytes]]:
        """Escrows for the helpers of a shard to keep: the new ones, or all without a word yet."""
        deposits = self.deposits(round, shard)
        # By clients, so that it does not matter in which order they were heard.
        kept = list(deposits.escrows) if again else deposits.fresh
        named = sorted(kept, key=lambda one: deposits.escrows[one][0])
        deposits.fresh = []
        for seat, helper in enumerate(self.helpers(round, shard) if named else ()):
            if helper not in self.agreement.view_at(round).roles:
                continue
            rows = [deposits.escrows[one] for one in named
                    if seat not in deposits.accepted[one] | deposits.disputed[one]]  # fmt: skip
            for first in range(0, len(rows), MOST_DEPOSITS):
                yield helper, write_deposits(rows[first : first + MOST_DEPOSITS])

    def said(self, round: int, shard: int, member: int, data: bytes) -> bool:
        """A helper says what it keeps; whether that is what these bytes are about."""
        if data[:1] != DEPOSIT:
            return False
        helpers = self.helpers(round, shard)
        if member not in helpers:
            return True
        deposits, seat = self.deposits(round, shard), helpers.index(member)
        deposits.silent.discard(seat)
        for named, verdict in read_verdicts(data).items():
            if named not in deposits.escrows:
                continue
            if verdict == ACCEPTED:
                deposits.accepted[named].add(seat)
            elif verdict == DISPUTED:
                deposits.disputed[named].add(seat)
                client = deposits.escrows[named][0]
                self.notes.append(f"helper {member} disputes the escrow of client {client}")
            else:  # it lacks it, or has not the keys yet: it is offered again
                deposits.accepted[named].discard(seat)
        return True

    def blame(self, found: list[frozenset[int]], round: int) -> None:
        """Note who is named by a misfit: alone, or two of whom one lied."""
        for group in found:
            who = " or ".join(map(str, sorted(group)))
            self.notes.append(f"round {round}: a sum does not fit; member {who} lied")
            self.blamed[group] += 1
            if len(group) == 1:
                self._name(group, round)
                continue
            partners = {m: {g - {m} for g in self.blamed if m in g and len(g) > 1} for m in group}
            self._name({member for member, others in partners.items() if len(others) > 1}, round)
            if self.blamed[group] >= MOST_PAIRS:
                self._name(group, round)

    def _name(self, members: Iterable[int], round: int) -> None:
        self.named |= {member: self._known(round).get(member) for member in members}

    def left_out(self, round: int) -> set[int]:
        """Whose words are not taken in a round, and who is not asked: whoever was named, as long as
        it has the keys that it had then. A name ends with a start, or a renewal of keys."""
        known = self._known(round)
        return {member for member, keys in self.named.items() if known.get(member) == keys}

    def _known(self, round: int) -> Mapping[int, PublicKeys]:
        seating = self.agreement.view_at(round).seating
        return {} if seating is None else seating.known


class SecureCollector(Collector):
    """One segment and round of an owner, whose words are masked."""

    def __init__(self, desk: SecureDesk, round: int, segment: Segment) -> None:
        coding = desk.agreement.coding
        self._coding, self._round, self._segment, self._desk = coding, round, segment, desk
        self.sample_steps, self._opened = 0, None
        self._count = desk.agreement.count(round, segment.key)
        place = place_of(desk.agreement, round, segment.shard)
        self._place, self._one = place, None
        self._exponent = desk.replica.exponent(segment.key, round)
        self._wording = wording(desk.agreement, round, self._exponent)
        self._wire = wire_bytes(self._count, self._wording.form)
        self._asked: list[tuple[int, ...]] = []
        """Which seats were asked together, one way after another: whatever was answered opens."""
        self._misfit: tuple[int, ...] | None = None
        self._audits: dict[int, Mapping[tuple[int, int], tuple[int, int]]] | None = None
        self._audited = False

    _one: Opening | None
    _opened: OpenedSum | None

    # -- open ---------------------------------------------------------------------------------

    def _begin(self, based_on: int) -> Opening:
        """The first contribution says the version that all are based on: the owner's."""
        desk, shard = self._desk, self._segment.shard
        keys = desk.keys(self._round)
        if keys is None:
            raise RefusedContribution("the owner", "has other keys than this round's view names")
        form = self._wording.form
        shape = SegmentShape(self._place, self._segment.number, based_on, self._count, form)
        helpers, deposits = desk.helpers(self._round, shard), desk.deposits(self._round, shard)
        return Opening(desk.terms, shape, desk.me, helpers, keys, deposits)

    def take(self, contribution: Contribution) -> None:
        """Count a contribution in, or refuse it."""
        sender, encoded = contribution.header.sender, contribution.payload.encoded
        if encoded.encoding != Encoding.RING or encoded.count != self._count:
            raise MalformedMessage("contribution.payload", "does not hold words of a secure sum")
        if sender in self._desk.left_out(self._round):
            raise RefusedContribution(sender, "was found to lie in a sum of this owner")
        if encoded.parameter != told_form(self._wording.form):
            raise RefusedContribution(sender, "words of another form than the segment has now")
        self._one = opening = self._one or self._begin(contribution.based_on)
        if sender == self._desk.me:
            opening.add_own(*read_own(encoded.data, self._count))
            return
        sent, escrow = read_masked(encoded.data, self._wire, self._desk.terms.threshold)
        opening.add(sender, sent, escrow)

    def settle(self) -> None:
        """Count in what enough seats have accepted by now."""
        if self._one is not None:
            self._one.settle()

    @property
    def waiting(self) -> bool:
        """Whether words of clients wait for seats that may still accept their escrows."""
        return self._one is not None and self._one.waiting

    @property
    def included(self) -> frozenset[int]:
        """The clients that it is closed on, or would be now."""
        return self._one.included if self._one is not None else frozenset()

    @property
    def samples(self) -> int:
        """The samples of the included clients, once the sum is open."""
        return self._opened.samples if self._opened is not None else 0

    # -- closed -------------------------------------------------------------------------------

    def finish(self) -> Payload | Asking | None:
        """The questions to the seats; None where no model has clients enough."""
        opening = self._one
        if opening is None or opening.close(self._desk.agreement.enough(self._round)) is None:
            return None
        return self._ask()

    @property
    def closed(self) -> bytes:
        """D: names the statement that the sum was closed with."""
        return self._closing[1].digest

    @property
    def _closing(self) -> tuple[Opening, Statement]:
        """What was closed, and on what."""
        opening = self._one
        if opening is None or opening.statement is None:
            raise ErisError("the segment is not closed")
        return opening, opening.statement

    def _ask(self) -> Asking:
        """Of the seats that hold all escrows, those to be asked now."""
        opening, statement = self._closing
        left_out = self._desk.left_out(self._round)
        asked = opening.asked({s for s, h in enumerate(opening.helpers) if h in left_out},
                              lambda way: self._desk.misfitted[self._who(way)])  # fmt: skip
        if asked is None:
            return Asking({})
        if asked not in self._asked:  # nobody else may be there to be asked
            self._asked.append(asked)
        said = write_closing(statement, opening.signature, bitmap(asked))
        return Asking({opening.helpers[seat]: said for seat in asked})

    def _who(self, seats: Iterable[int]) -> frozenset[int]:
        return frozenset(self._closing[0].helpers[seat] for seat in seats)

    def again(self, silent: frozenset[int]) -> Asking:
        """Some did not answer: whom to ask now."""
        opening, _ = self._closing
        seats = {opening.helpers.index(member) for member in silent}
        if self._audits is not None:
            return self._judge()  # by those that answered
        opening.deposits.silent |= seats
        return self._ask()

    def reveal(self, member: int, data: bytes) -> Payload | Asking | None:
        """Take in a helper's answer; what is published once all are there."""
        opening, statement = self._closing
        seat = opening.helpers.index(member)
        if data[:1] == AUDIT:
            return self._take_audit(seat, data)
        named, seats, given = read_answer(data, self._wire)
        asked = tuple(s for s in range(len(opening.helpers)) if seats >> s & 1)
        if named != statement.digest or asked not in self._asked or self._audits is not None:
            return None  # of another question; or again, and what it opened is under audit
        try:
            bounds = self._wording.bounds(len(self.included))
            opened = opening.answered(seat, asked, given, *bounds)
        except Misfit as misfit:
            self._desk.notes.append(f"round {self._round}: {misfit}")
            self._desk.misfitted[self._who(asked)] += 1
            self._asked.remove(asked)
            self._misfit = asked
            self._step_back()
            return self._ask() if self._audited else self._ask_audit()
        if opened is None:
            return None
        self._opened, self.sample_steps = opened, opened.sample_steps
        mean = self._wording.mean(opened)
        if isinstance(self._coding, GridCoding):
            mean = self._on_grid(self._coding, mean)
        if self._segment.key == self._desk.agreement.gauge:
            return gauge.written(mean)
        return self._coding.publish(mean, self._round)

    def _on_grid(self, coding: GridCoding, mean: Vector) -> Vector:
        """What is published of a mean on a common grid; the next one's unit follows from it."""
        if coding.follows:
            self.exponent = coding.next_exponent(mean, self._round)
        return coding.mean_update(mean, lambda: self._desk.replica.held.piece(self._segment))

    def _step_back(self) -> None:
        """A sum may have been too large for its words: unless somebody is named for it, or others
        open it, the next words are in a larger unit."""
        if isinstance(self._coding, GridCoding) and self._coding.follows:
            self.exponent = self._coding.exponent_after_wrap(self._exponent, self._round)

    # -- who lied -----------------------------------------------------------------------------

    def _ask_audit(self) -> Asking:
        opening, statement = self._closing
        self._audits, self._audited = {}, True
        question = write_audit(statement, opening.signature)
        there = self._desk.agreement.view_at(self._round).roles
        return Asking({helper: question for helper in opening.helpers if helper in there})

    def _take_audit(self, seat: int, data: bytes) -> Asking | None:
        opening, statement = self._closing
        named, said = read_audited(data)
        if self._audits is None or named != statement.digest:
            return None
        self._audits[seat] = said
        return self._judge() if len(self._audits) == len(opening.helpers) else None

    def _judge(self) -> Asking:
        """Name who lied, as far as it can be told, and ask other seats about the same set."""
        opening, _ = self._closing
        audits, self._audits = self._audits or {}, None
        found: list[frozenset[int]] = []
        if self._misfit is not None and audits.keys() >= set(self._misfit):
            found = opening.blamed(self._misfit, audits)
            self._desk.blame(found, self._round)
        if found:
            self.exponent = None  # it was not the unit's fault
        return self._ask()
