"""A helper's half: it keeps seeds, and adds up the masks of one set a segment and round, once.

Keys and the log of what was answered live in memory, beside each other: a helper that starts again
has other keys, and what was sealed to the old ones it cannot open. So the log need not outlive it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from eris.core.errors import ErisError
from eris.protocol.secure.escrow import Escrow, unseal
from eris.protocol.secure.keys import MemberKeys, PairSecret, PublicKeys
from eris.protocol.secure.labels import ShardRound
from eris.protocol.secure.seats import bitmap
from eris.protocol.secure.sums import Answer, SegmentShape, Statement, answer, audit
from eris.protocol.secure.terms import SecureSums

KEPT_ESCROWS = 2
"""Of a client, shard and round: one it sent, and one of a training before anything had left."""


Audited = Mapping[tuple[int, int], tuple[int, int]]
"""What a seat says of pads, by client and part."""


class RefusedClosing(ErisError):
    """A statement that a helper does not answer, and why."""


class LacksKeys(RefusedClosing):
    """Something sealed or blinded by keys that this member does not have."""


class LacksEscrow(RefusedClosing):
    """A statement about an escrow that has not arrived: it may be sent again."""

    def __init__(self, client: int) -> None:
        self.client = client
        super().__init__(f"the escrow of client {client} that is named has not arrived")


@dataclass(frozen=True)
class SeatView:
    """Who is who in a shard and round, as the view of that round has it."""

    owner: int
    helpers: tuple[int, ...]
    clients: frozenset[int]
    enough: int
    """Clients that a result needs."""
    keys: Mapping[int, PublicKeys]
    mine: MemberKeys
    """Those of this member, in that view."""


@dataclass
class Helper:
    """One member's seats, over the rounds."""

    me: int
    terms: SecureSums
    _seeds: dict[tuple[ShardRound, int], dict[bytes, tuple[bytes, dict[int, bytes]]]] = field(
        default_factory=dict, repr=False
    )
    """By place and client: under an escrow's digest its model, and the seeds it held."""
    _log: dict[tuple[int, int, int], bytes] = field(default_factory=dict)
    """By (round, shard, segment), whatever the epoch: the one statement that was answered."""
    _answers: dict[tuple[bytes, int], Answer] = field(default_factory=dict, repr=False)
    _audits: dict[bytes, Audited] = field(default_factory=dict, repr=False)
    """Both by statement: what was said once is said again, at no cost."""

    def deposit(self, place: ShardRound, seats: SeatView, client: int, escrow: Escrow) -> bytes:
        """Keep an escrow that opens, and name it; one that does not is disputed."""
        if client not in seats.clients or client == seats.owner:
            raise RefusedClosing(f"member {client} has nothing to deposit for this shard")
        seat = self._seat(seats)
        kept = self._seeds.setdefault((place, client), {})
        named = escrow.digest
        if named in kept:
            return named
        if len(kept) >= KEPT_ESCROWS:
            raise RefusedClosing(f"client {client} has deposited {KEPT_ESCROWS} times in the round")
        key = self._pair(place, seats, client).escrow_key(place.epoch, client, self.me)
        seeds = unseal(escrow, place, client, seats.helpers, seat, key, self.terms.threshold)
        kept[named] = escrow.model, seeds
        return named

    def answer(
        self,
        statement: Statement,
        signature: bytes,
        asked: tuple[int, ...],
        seats: SeatView,
        expected: SegmentShape,
        *,
        over: Callable[[], bool],
    ) -> Answer:
        """The masks of a closed set, if nothing speaks against it.

        ``expected`` is the segment as this member computes it; ``over`` says whether a result of
        it, published or withheld, is known here.
        """
        seat = self._seat(seats)
        if seat not in asked:
            raise RefusedClosing(f"seat {seat} is not among those asked")
        seeds = self._admit(statement, signature, seats, expected, over)
        made = self._answers.get((statement.digest, bitmap(asked)))
        if made is None:
            place, threshold = statement.shape.place, self.terms.threshold
            blinds = {other: self._blind_key(place, seats, other)
                      for other in asked if other != seat}  # fmt: skip
            made = answer(statement, threshold, seat, asked, seeds, blinds)
            self._answers[statement.digest, bitmap(asked)] = made
        return made

    def audit(
        self,
        statement: Statement,
        signature: bytes,
        seats: SeatView,
        expected: SegmentShape,
        *,
        over: Callable[[], bool],
    ) -> Audited:
        """What fits together of the pads of a closed set, whether or not this seat was asked to
        open it: an audit counts as an answer, and is of the same one set."""
        seeds = self._admit(statement, signature, seats, expected, over)
        named = statement.digest
        if named not in self._audits:
            self._audits[named] = audit(statement, seeds)
        return self._audits[named]

    def _admit(
        self, statement: Statement, signature: bytes, seats: SeatView, expected: SegmentShape,
        over: Callable[[], bool],
    ) -> dict[int, dict[int, bytes]]:  # fmt: skip
        """The seeds of a set that may be answered about; it is in the log from here on."""
        shape = statement.shape
        self._check(statement, signature, seats, expected)
        if over():
            raise RefusedClosing("a result of that segment and round is known")
        place = (shape.place.round, shape.place.shard, shape.segment)
        named = statement.digest
        if self._log.get(place, named) != named:
            raise RefusedClosing("another set of that segment and round has been answered")
        seeds = {one.client: self._deposited(statement, one.client, one.escrow)
                 for one in statement.included}  # fmt: skip
        # In the log before anything leaves, in the step that has looked into the log.
        self._log[place] = named
        return seeds

    def forget(self, before: int) -> None:
        """Erase what rounds before this one left: their results are known."""
        self._seeds = {k: v for k, v in self._seeds.items() if k[0].round >= before}
        self._log = {k: v for k, v in self._log.items() if k[0] >= before}
        known = set(self._log.values())
        self._audits = {n: v for n, v in self._audits.items() if n in known}
        self._answers = {k: v for k, v in self._answers.items() if k[0] in known}

    # -- checks -------------------------------------------------------------------------------

    def _seat(self, seats: SeatView) -> int:
        if self.me not in seats.helpers:
            raise RefusedClosing(f"member {self.me} has no seat at this shard")
        return seats.helpers.index(self.me)

    def _check(
        self, statement: Statement, signature: bytes, seats: SeatView, expected: SegmentShape
    ) -> None:
        named = [one.client for one in statement.included]
        known = seats.keys.get(seats.owner)
        if statement.owner != seats.owner or known is None:
            raise RefusedClosing("the statement is not of the shard's owner")
        if not known.signed(statement.encode(), signature):
            raise RefusedClosing("the statement is not signed by the shard's owner")
        if statement.helpers != seats.helpers or statement.shape != expected:
            raise RefusedClosing("the statement is about another segment than is agreed on here")
        if named != sorted(set(named)) or not set(named) <= seats.clients - {seats.owner}:
            raise RefusedClosing("the set is not one of clients of the view, each once")
        if len(named) < self.terms.least_masked:
            raise RefusedClosing(f"a sum hides {self.terms.least_masked} clients at least")
        if len(named) + statement.own < seats.enough:
            raise RefusedClosing(f"a sum is of {seats.enough} clients at least")

    def _deposited(self, statement: Statement, client: int, escrow: bytes) -> dict[int, bytes]:
        model, seeds = self._seeds.get((statement.shape.place, client), {}).get(escrow, (b"", {}))
        if not seeds:
            raise LacksEscrow(client)
        if model != statement.model:
            raise RefusedClosing(f"client {client} trained on another model than is named")
        return seeds

    def _blind_key(self, place: ShardRound, seats: SeatView, seat: int) -> bytes:
        other = seats.helpers[seat]
        return self._pair(place, seats, other).blind_key(place.epoch, self.me, other)

    def _pair(self, place: ShardRound, seats: SeatView, other: int) -> PairSecret:
        theirs = seats.keys.get(other)
        if theirs is None:
            raise LacksKeys(f"the keys of member {other} are not known")
        return seats.mine.shared(place.federation, self.me, other, theirs)
