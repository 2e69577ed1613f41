"""An owner's half of encrypted sums: one set a segment and round, opened by all of its members.

Who contributed by the closing is in the set. Its members are asked for shares of the key, once; if
one does not give it, the result is withheld and says who was missing. Nothing is asked again with
another set: the difference of two sums would be a client's.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import numpy as np

from eris.core import kernels
from eris.core.compress import Encoding
from eris.core.errors import ErisError, MalformedMessage, RefusedContribution
from eris.protocol.enccluster.logarithms import Integers
from eris.protocol.enccluster.mapped import Box
from eris.protocol.enccluster.opening import NoLogarithm, ReceivedBook
from eris.protocol.enccluster.sets import SetMember, SetStatement, contribution_digest
from eris.protocol.enccluster.shares import NoKey, RefusedShare, ShareDesk
from eris.protocol.enccluster.wire import read_share, write_statement
from eris.protocol.messages import Contribution, Payload
from eris.protocol.schemes.collector import Asking, Collector, Desk
from eris.protocol.schemes.scheme import Held
from eris.protocol.secure.keys import RefusedKeys

if TYPE_CHECKING:
    from eris.protocol.agreement import Segment
    from eris.protocol.enccluster.coding import EncryptingCoding
    from eris.protocol.round.replica import Replica
    from eris.protocol.secure.keys import MemberKeys
    from eris.protocol.secure.vault import Vault


class KeyDesk(Desk):
    """What one owner's collectors have in common: its keys, and who lets it down."""

    def __init__(self, coding: EncryptingCoding, me: int, replica: Replica, vault: Vault) -> None:
        super().__init__(coding.agreement, replica)
        self.coding, self.me, self._vault = coding, me, vault
        self.strikes = Strikes(coding.terms.strikes)

    def keys(self, round: int) -> MemberKeys | None:
        """This owner's keys in a round, if they are of this start."""
        seating = self.agreement.view_at(round).seating
        return None if seating is None else self._vault.of(seating.known.get(self.me))

    def collector(self, round: int, segment: Segment) -> Collector:
        """An owner's half, for one segment and round."""
        return EncryptedCollector(self, round, segment, lambda: self.replica.held.piece(segment))


class Strikes:
    """Who was in a set and gave no share: that often in a row, it is left out for as many rounds.

    >>> strikes = Strikes(2)
    >>> for round in (1, 2):
    ...     strikes.closed([4, 5], round)
    ...     strikes.missed([5], round)
    >>> [strikes.left_out(round) for round in (3, 4, 5)]
    [{5}, {5}, set()]
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._closed: dict[int, tuple[int, int]] = {}
        """By client: the last round that it was in a set of, and the one before."""
        self._missed: dict[int, tuple[int, int]] = {}
        """By client: the last round without its share, and how many in a row."""
        self._until: dict[int, int] = {}
        """By client: the last round that it is left out of."""

    def closed(self, clients: Iterable[int], round: int) -> None:
        """These are in a set of a round."""
        for client in clients:
            last, _ = self._closed.get(client, (0, 0))
            if round > last:
                self._closed[client] = round, last

    def missed(self, clients: Iterable[int], round: int) -> None:
        """The shares of these are missing in a round, in whatever segment."""
        for client in clients:
            last, count = self._missed.get(client, (0, 0))
            if last == round:
                continue
            _, before = self._closed.get(client, (round, 0))
            count = count + 1 if last and last == before else 1
            self._missed[client] = round, count
            if count >= self._most:
                self._until[client] = round + self._most
                del self._missed[client]

    def left_out(self, round: int) -> set[int]:
        """Who is in no set of a round, if there are enough others."""
        return {client for client, until in self._until.items() if round <= until}


class EncryptedCollector(Collector):
    """One segment and round of an owner to whom ciphertexts are sent."""

    def __init__(self, desk: KeyDesk, round: int, segment: Segment, held: Held) -> None:
        self._desk, self._round, self._segment, self._held = desk, round, segment, held
        self._encrypting = desk.coding
        self._label = desk.coding.label(round, segment)
        self._books: dict[int, tuple[ReceivedBook, ...]] = {}
        self._digests: dict[int, bytes] = {}
        self.sample_steps = 0
        self._weights: dict[int, tuple[int, int]] = {}
        """By client: what it counts, and its local steps."""
        self._shares: ShareDesk | None = None

    @property
    def included(self) -> AbstractSet[int]:
        """Whose contributions are counted in."""
        return self._books.keys()

    @property
    def samples(self) -> int:
        """What the included clients count, together."""
        return sum(weight for weight, _ in self._weights.values())

    # -- open ---------------------------------------------------------------------------------

    def take(self, contribution: Contribution) -> None:
        """Count a contribution in, or refuse it."""
        client, encoded = contribution.header.sender, contribution.payload.encoded
        coding, size = self._encrypting, self._segment.size
        if encoded.encoding != Encoding.CIPHERTEXTS or encoded.count != size:
            expected = f"is not of {size} encrypted coordinates"
            raise MalformedMessage("contribution.payload", expected)
        view, keys = self._desk.agreement.view_at(self._round), self._desk.keys(self._round)
        if keys is None or view.seating is None:
            raise RefusedContribution("the owner", "has other keys than this round's view names")
        if client not in view.seating.known:
            raise RefusedContribution(view.members[client], "has no keys in this round's view")
        theirs = view.seating.known[client].exchange
        try:
            box = Box.between(keys, client, theirs, client, self._label)
        except RefusedKeys as refused:  # a certified key may still be a point of small order
            raise RefusedContribution(view.members[client], str(refused)) from None
        found = coding.received(client, encoded.data, self._segment, box)
        self._books[client] = found.books
        self._digests[client] = contribution_digest(
            self._label, client, found.ciphertexts, found.mapping
        )
        self._weights[client] = coding.weight(contribution.samples), contribution.steps

    # -- closed -------------------------------------------------------------------------------

    def finish(self) -> Payload | Asking | None:
        """The signed statement for all members of the set; None where they are too few."""
        desk, round = self._desk, self._round
        if not self._encrypting.openable(round, self._segment.shard):
            self._note("no set of this view can be opened: it has too few clients, or lacks keys")
            return None
        law = self._encrypting.law(round, self._segment.shard)
        if len(self._books) < law.least:
            self._note(
                f"{len(self._books)} contributions; the law of the set asks for {law.least} of "
                f"{law.eligible}"
            )
            return None
        keys, seating = desk.keys(round), desk.agreement.view_at(round).seating
        if keys is None or seating is None:
            return None
        self._leave_out(desk.strikes.left_out(round), law.least)
        desk.strikes.closed(self._books, round)
        self.sample_steps = sum(weight * steps for weight, steps in self._weights.values())
        members = tuple(
            SetMember(client, 1, self._digests[client], seating.known[client].exchange)
            for client in sorted(self._books)
        )
        statement = SetStatement(self._label.first, members)
        codebooks = self._encrypting.codebooks(self._segment)
        self._shares = ShareDesk(statement, codebooks, self._encrypting.slots)
        data = write_statement(statement, statement.signed_by(keys))
        return Asking({one.client: data for one in members})

    def _leave_out(self, clients: set[int], least: int) -> None:
        """Close without those that gave no shares before, if there are enough others."""
        there = sorted(clients & self._books.keys())
        if there and len(self._books) - len(there) >= least:
            for client in there:
                del self._books[client], self._digests[client], self._weights[client]
            names = ", ".join(self._desk.agreement.view.named(there))
            self._note(f"closed without {names}, who gave no key shares before")

    @property
    def _asked(self) -> ShareDesk:
        if self._shares is None:
            raise ErisError("the segment is not closed")
        return self._shares

    @property
    def closed(self) -> bytes:
        """σ: names the statement that the sum was closed with."""
        return self._asked.statement.name

    def again(self, silent: frozenset[int]) -> Asking:
        """Some did not answer: they are asked the same."""
        keys = self._desk.keys(self._round)
        statement = self._asked.statement
        if keys is None:
            return Asking({})
        data = write_statement(statement, statement.signed_by(keys))
        return Asking(dict.fromkeys(self._asked.missing, data))

    def reveal(self, member: int, data: bytes) -> Payload | Asking | None:
        """Take in a member's share; what is published once all are there."""
        try:
            self._asked.take(member, read_share(data))
        except (RefusedShare, MalformedMessage) as refused:
            self._note(f"{refused}; it counts as missing")
            return None
        if self._asked.missing:
            return None
        coding, scale = self._encrypting, self._encrypting.scale(self._round)
        try:
            sums = self._opened(scale.bound)
        except (NoKey, NoLogarithm) as failed:
            self._note(f"{failed}; the result is withheld")
            return Asking({})
        mean = coding.mean_update(scale.mean(sums, self.samples), self._held)
        if kernels.count_refused(mean, coding.largest_mean):
            self._note(f"the mean is beyond ±{coding.largest_mean:g}; the result is withheld")
            return Asking({})
        return coding.publish(mean, self._round)

    def _opened(self, bound: int) -> Integers:
        """The sums of all coordinates, a codebook after another, each by its own key."""
        table = self._encrypting.table(self._round)
        clients = sorted(self._books)
        found = []
        for number, key in enumerate(self._asked.key()):
            books = [self._books[client][number] for client in clients]
            label = self._label.of_book(number)
            found.append(self._encrypting.opened(books, key, label, table, bound))
        return np.concatenate(found)

    def abandon(self) -> None:
        """Shares are waited for no longer: the result is withheld, and says whose are missing."""
        if missing := self._asked.missing:
            self._desk.strikes.missed(missing, self._round)
            names = ", ".join(self._desk.agreement.view.named(missing))
            self._note(f"withheld: the key shares of {names} are missing")

    def _note(self, text: str) -> None:
        self._desk.notes.append(f"round {self._round}, segment {self._segment.key}: {text}")
