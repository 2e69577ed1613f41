"""An owner's half: it adds up masked words, closes on a set once, and opens that one sum.

Words of a client count once the seats that will be asked hold its seeds; until then they wait. They
are added up apart for every model that clients trained on, and the owner closes on the clients of
one: a sum over different models would tell them apart. From the closing on the set is fixed: if it
cannot be opened, nothing is.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from eris.core.errors import RefusedContribution
from eris.core.ring import Words, wire_bytes, word_bits
from eris.protocol.secure.escrow import Escrow
from eris.protocol.secure.helper import KEPT_ESCROWS, Audited
from eris.protocol.secure.keys import MemberKeys
from eris.protocol.secure.seats import Threshold
from eris.protocol.secure.sums import (
    Answer,
    Included,
    MaskedSum,
    MaskedWords,
    Misfit,
    OpenedSum,
    SegmentShape,
    Statement,
)
from eris.protocol.secure.terms import SecureSums


@dataclass
class Deposits:
    """What the seats of a shard hold in a round, as far as its owner has heard."""

    threshold: Threshold
    escrows: dict[bytes, tuple[int, Escrow]] = field(default_factory=dict)
    """By digest: the client, and what it deposits."""
    fresh: list[bytes] = field(default_factory=list)
    """Those that have been passed on to nobody yet."""
    accepted: dict[bytes, set[int]] = field(default_factory=lambda: defaultdict(set))
    disputed: dict[bytes, set[int]] = field(default_factory=lambda: defaultdict(set))
    silent: set[int] = field(default_factory=set)
    """Seats that did not answer when they were last asked."""
    _given: Counter[int] = field(default_factory=Counter)

    def offer(self, client: int, escrow: Escrow) -> bool:
        """Take in an escrow; whether it is new, and to be passed on to every seat."""
        escrow.check(self.threshold)
        if escrow.digest in self.escrows:
            if self.escrows[escrow.digest][0] != client:
                # A client that holds a seat knows those of others; with it no sum would open.
                raise RefusedContribution(client, "an escrow of another client")
            return False
        if self._given[client] == KEPT_ESCROWS:
            # No helper would keep a third, nor anything that comes in one message with it.
            raise RefusedContribution(client, f"more than {KEPT_ESCROWS} escrows in a round")
        self._given[client] += 1
        self.escrows[escrow.digest] = client, escrow
        self.fresh.append(escrow.digest)
        return True

    def holding(self, named: bytes) -> set[int]:
        """The seats that hold an escrow."""
        return self.accepted.get(named, set())

    def hopeless(self, named: bytes) -> bool:
        """Whether too many seats dispute an escrow for a sum with it ever to be opened."""
        disputing = self.disputed.get(named, set())
        return self.threshold.seats - len(disputing) < self.threshold.need


@dataclass(frozen=True)
class _Taken:
    """What is kept of a client's words once they are in the sum."""

    included: Included
    misfit: tuple[int, int]


@dataclass
class _Group:
    """Clients that trained on one model, and the sum of their words."""

    total: MaskedSum
    seats: set[int]
    """The seats that hold the escrows of all of them."""
    clients: dict[int, _Taken] = field(default_factory=dict)

    def look(self, deposits: Deposits) -> None:
        """Look again which seats those are."""
        held = (deposits.holding(one.included.escrow) for one in self.clients.values())
        self.seats = set(range(deposits.threshold.seats)).intersection(*held)


class Opening:
    """One segment and round at its owner: open, then closed, then opened or withheld."""

    def __init__(
        self, terms: SecureSums, shape: SegmentShape, owner: int, helpers: tuple[int, ...],
        keys: MemberKeys, deposits: Deposits,
    ) -> None:  # fmt: skip
        self.terms, self.shape, self.owner, self.helpers = terms, shape, owner, helpers
        self.deposits, self._keys = deposits, keys
        self._waiting: dict[int, tuple[MaskedWords, bytes, bytes]] = {}
        self._groups: dict[bytes, _Group] = {}
        self._own: tuple[bytes, Words, Words] | None = None
        self.statement: Statement | None = None
        self.signature = b""
        self._answers: dict[tuple[int, ...], dict[int, Answer]] = defaultdict(dict)
        self._misfits: set[tuple[int, ...]] = set()

    # -- open ---------------------------------------------------------------------------------

    def add(self, client: int, sent: MaskedWords, escrow: Escrow) -> bool:
        """Take in a contribution; whether its escrow is to be passed on to the seats."""
        if self.statement is not None or client in self._waiting or self._took(client):
            return False
        if len(sent.wire) != wire_bytes(self.shape.count, self.shape.form) or len(sent.head) != 4:
            raise RefusedContribution(client, "masked words of another size")
        new = self.deposits.offer(client, escrow)
        self._waiting[client] = sent, escrow.digest, escrow.model
        self._count_in(client)
        return new

    def add_own(self, model: bytes, head: Words, words: Words) -> None:
        """The owner's own contribution, which never travels."""
        self._own = model, head, words

    def settle(self) -> None:
        """Count in what enough seats have accepted by now."""
        if self.statement is not None:
            return
        for group in self._groups.values():
            group.look(self.deposits)
        for client in list(self._waiting):
            self._count_in(client)

    def _count_in(self, client: int) -> None:
        sent, named, model = self._waiting[client]
        group, seats = self._groups.get(model), set(self.deposits.holding(named))
        if group is not None:
            seats &= group.seats  # all of a set are opened by the same
        if len(seats) < self.terms.threshold.need:
            return
        del self._waiting[client]
        if group is None:
            total = MaskedSum(self.shape.count, self.shape.form)
            group = self._groups[model] = _Group(total, seats)
        misfit, group.seats = group.total.add(sent.head, sent.wire), seats
        group.clients[client] = _Taken(Included(client, sent.nonce, named), misfit)

    @property
    def waiting(self) -> bool:
        """Whether words wait for seats that may still accept their escrows."""
        return any(not self.deposits.hopeless(named) for _, named, _ in self._waiting.values())

    def _took(self, client: int) -> bool:
        return any(client in group.clients for group in self._groups.values())

    # -- closed -------------------------------------------------------------------------------

    def close(self, enough: int) -> Statement | None:
        """Fix the set, and sign it; None where no model has clients enough: then withhold."""
        assert self.statement is None, "a segment is closed once"
        self.settle()
        model = self._model
        if model is None or len(self.included) < enough:
            return None
        group = self._groups[model]
        if len(group.clients) < self.terms.least_masked:
            return None
        rows = tuple(group.clients[client].included for client in sorted(group.clients))
        own = self._owned == model
        self.statement = Statement(self.shape, self.owner, own, self.helpers, model, rows)
        self.signature = self._keys.signing.sign(self.statement.encode())
        self._groups = {model: group}
        self._waiting.clear()
        return self.statement

    @property
    def _owned(self) -> bytes | None:
        """The model that the owner itself trained on."""
        return self._own[0] if self._own else None

    @property
    def _model(self) -> bytes | None:
        """The model with most clients; of those alike the owner's own."""

        def size(model: bytes) -> tuple[int, bool]:
            mine = model == self._owned
            return len(self._groups[model].clients) + mine, mine

        return max(self._groups, key=size, default=None)

    @property
    def included(self) -> frozenset[int]:
        """The clients that it was closed on, or would be now."""
        model = self._model
        if model is None:
            return frozenset()
        mine = {self.owner} if model == self._owned else set()
        return frozenset(mine | self._groups[model].clients.keys())

    def asked(
        self, without: Container[int] = (), misfits: Callable[[tuple[int, ...]], int] = lambda _: 0
    ) -> tuple[int, ...] | None:
        """The seats to ask next about the statement: other ones after a silence or a misfit; those
        last that had most ``misfits`` before. Of those alike every segment asks others, so that
        all seats have as much to send."""
        assert self.statement is not None
        group = self._groups[self.statement.model]
        group.look(self.deposits)
        able = {seat for seat in group.seats if seat not in without}
        threshold, shape = self.terms.threshold, self.shape
        ways = list(combinations(range(threshold.seats), threshold.need))
        first = (shape.place.shard + shape.segment) % len(ways)
        silent = self.deposits.silent
        return min(
            (way for way in ways[first:] + ways[:first]
             if able.issuperset(way) and way not in self._misfits),
            key=lambda way: (len(silent & set(way)), misfits(way)), default=None,
        )  # fmt: skip

    def answered(
        self,
        seat: int,
        asked: tuple[int, ...],
        given: Answer,
        bound: float,
        noise: float = 0.0,
        heaviest: float = math.inf,
    ) -> OpenedSum | None:
        """Take in an answer; the sum, once all of ``asked`` have answered.

        :class:`Misfit` where the sum cannot be one: then an audit says whose fault it is.
        """
        assert self.statement is not None
        if seat not in asked or len(given.wire) != wire_bytes(self.shape.count, self.shape.form):
            return None
        self._answers[asked][seat] = given
        self.deposits.silent.discard(seat)
        if len(self._answers[asked]) < len(asked):
            return None
        total = self._groups[self.statement.model].total
        own = self._own[1:] if self.statement.own and self._own is not None else None
        try:
            answers = [self._answers[asked][s] for s in asked]
            # Everyone refuses a result of fewer samples than clients: a client that says it has
            # minus a hundred would have this owner alone move on.
            return total.opened(answers, bound, noise, own, heaviest, len(self.included))
        except Misfit:
            self._misfits.add(asked)
            raise

    # -- who lied -----------------------------------------------------------------------------

    def blamed(self, asked: tuple[int, ...], said: Mapping[int, Audited]) -> list[frozenset[int]]:
        """Who lied, by what the seats say of the pads; two members where either may have.

        Nobody where all fits: then the blinds of two seats do not, and other seats are asked.
        """
        assert self.statement is not None
        taken = self._groups[self.statement.model].clients
        named: list[frozenset[int]] = []
        agreed: dict[tuple[int, int], tuple[int, int]] = {}
        for one in self.statement.included:
            named += self._client_blamed(one.client, taken[one.client].misfit, said, agreed)
        if named:
            return named
        duties = self.terms.threshold.duties(asked, self.shape.segment)
        whole = (1 << word_bits(self.shape.form)) - 1
        for seat in asked:
            given = self._answers[asked][seat]
            rows = [
                agreed[one.client, part] for one in self.statement.included for part in duties[seat]
            ]
            fits = tuple(sum(row[n] for row in rows) & whole for n in range(2))
            apart = MaskedSum(self.shape.count, self.shape.form)
            if apart.add(given.head, given.wire) != fits:
                named.append(frozenset({self.helpers[seat]}))
        return named

    def _client_blamed(
        self, client: int, misfit: tuple[int, int], said: Mapping[int, Audited],
        agreed: dict[tuple[int, int], tuple[int, int]],
    ) -> list[frozenset[int]]:  # fmt: skip
        """Whose word about a client's pads does not fit; ``agreed`` gets those that do."""
        parts, whole = self.terms.threshold.parts, (1 << word_bits(self.shape.form)) - 1
        # Who leaves a word out says 0.
        told = {part: {seat: words.get((client, part), (0, 0)) for seat, words in said.items()
                       if not part >> seat & 1} for part in parts}  # fmt: skip
        split = [part for part in parts if len(set(told[part].values())) > 1]

        def fits(without: int | None = None) -> bool:
            """Whether all words about the client agree and add up, but for those of one seat."""
            left = [{word for seat, word in told[part].items() if seat != without}
                    for part in parts]  # fmt: skip
            if any(len(words) != 1 for words in left):
                return False
            rows = [next(iter(words)) for words in left]
            return tuple(sum(row[n] for row in rows) & whole for n in range(2)) == misfit

        if not split:
            for part in parts:
                agreed[client, part] = next(iter(told[part].values()))
            return [] if fits() else [frozenset({client})]
        # One liar is at every part about which two seats differ.
        both = set.intersection(*({*told[part]} for part in split))
        if len(both) == 1:
            return [frozenset(self.helpers[seat] for seat in both)]
        holders = frozenset(self.helpers[seat] for part in split for seat in told[part])
        if client in holders:
            return [holders]  # one that holds a part of its own can make its false word fit
        wrong = [seat for seat in sorted(both) if fits(seat)]
        return [frozenset({self.helpers[wrong[0]]}) if len(wrong) == 1 else holders]
