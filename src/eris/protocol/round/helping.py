"""A member's seats: it keeps what clients seal to it, and helps owners to open sums, each once.

A helper answers the owner of the round's own view, in a round that it has a permit for, before the
result is known. After a restart it has other keys and answers nothing about rounds before. What
it answers, and that it answers about one set a segment and round, is :mod:`eris.protocol.secure`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from eris.core.errors import ErisError
from eris.protocol.messages import Outgoing, Reveal, RevealRequest
from eris.protocol.secure.escrow import DisputedEscrow
from eris.protocol.secure.helper import Helper, LacksEscrow, LacksKeys, SeatView
from eris.protocol.secure.sending import place_of
from eris.protocol.secure.sums import SegmentShape
from eris.protocol.secure.vault import Vault
from eris.protocol.secure.wire import (
    ACCEPTED,
    AUDIT,
    CLOSE,
    DEPOSIT,
    DISPUTED,
    LACKING,
    read_closing,
    read_deposits,
    write_answer,
    write_audited,
    write_verdicts,
)
from eris.protocol.secure.wording import wording

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement
    from eris.protocol.round.replica import Replica

KEPT_ROUNDS = 16
"""Rounds whose seeds and statements are remembered, if results do not come."""


class Helping:
    """One member's seats over the rounds."""

    def __init__(self, agreement: Agreement, me: int, replica: Replica, vault: Vault) -> None:
        assert agreement.settings.secure is not None
        self._agreement, self._me, self._replica = agreement, me, replica
        self._vault, self.helper = vault, Helper(me, agreement.settings.secure)
        self.permits: Callable[[int], bool] = lambda round: True
        """Whether this member may act in a round."""
        self._newest = 0

    def answer(self, request: RevealRequest) -> list[Outgoing]:
        """The answer to an owner, or the reason why there is none."""
        header = request.header
        round, owner = header.round, header.sender
        seats = self._seats(round, header.shard, owner)
        self._forget(round)
        match request.data[:1]:
            case kind if kind == DEPOSIT:
                data = self._deposit(request, seats)
            case kind if kind in (CLOSE, AUDIT):
                data = self._closed(request, seats)
            case _:
                raise ErisError("asks what no helper answers")
        back = self._agreement.header(self._me, round, header.key)
        return [Outgoing((owner,), Reveal(back, request.included, data))]

    def _seats(self, round: int, shard: int, owner: int) -> SeatView:
        """Who is who at a shard, if this member may help its owner in a round."""
        agreement = self._agreement
        view = agreement.view_at(round)
        if not agreement.knows(round) or view.owners[shard] != owner or view.seating is None:
            raise ErisError(f"member {owner} does not own shard {shard}")
        if round > self._replica.horizon:
            raise ErisError(f"nobody else has reached round {round}")
        if not self.permits(round):
            raise ErisError("this member has no permit for that round yet, or has started again")
        if round + KEPT_ROUNDS < self._newest:
            raise ErisError("it is too late for that round")
        known = view.seating.known
        mine = self._vault.of(known.get(self._me))
        if mine is None:
            raise ErisError("this member has other keys than that round's view names")
        if not view.seating.able(shard, owner, self.helper.terms.threshold.need):
            raise ErisError(f"the seats of shard {shard} are not held as the rules have it")
        helpers, enough = view.seating.helpers[shard], agreement.enough(round)
        return SeatView(owner, helpers, view.client_set, enough, known, mine)

    def _deposit(self, request: RevealRequest, seats: SeatView) -> bytes:
        place, verdicts = place_of(self._agreement, request.header.round, request.header.shard), {}
        for client, escrow in read_deposits(request.data, self.helper.terms.threshold):
            named, verdict = escrow.digest, ACCEPTED
            try:
                self.helper.deposit(place, seats, client, escrow)
            except DisputedEscrow:
                verdict = DISPUTED
            except LacksKeys:
                verdict = LACKING
            verdicts[named] = verdict
        return write_verdicts(verdicts)

    def _closed(self, request: RevealRequest, seats: SeatView) -> bytes:
        """What opens a sum, or what fits of its pads."""
        header, terms, agreement = request.header, self.helper.terms, self._agreement
        round, key = header.round, header.key
        place = place_of(agreement, round, header.shard)
        count = agreement.count(round, key)
        form = wording(agreement, round, self._replica.exponent(key, round)).form
        shape = SegmentShape(place, header.segment, 0, count, form)
        asked = read_closing(request.data, request.included, shape, seats.owner, seats.helpers)
        said, signature = asked.statement, asked.signature
        asks = tuple(seat for seat in range(terms.threshold.seats) if asked.seats >> seat & 1)

        def over() -> bool:
            return self._replica.versions[key] >= round

        try:
            if request.data[:1] == AUDIT:
                found = self.helper.audit(said, signature, seats, said.shape, over=over)
                return write_audited(said.digest, found)
            given = self.helper.answer(said, signature, asks, seats, said.shape, over=over)
        except LacksEscrow as lacking:
            # The owner is told, and sends it again.
            named = next(one.escrow for one in said.included if one.client == lacking.client)
            return write_verdicts({named: LACKING})
        return write_answer(said.digest, asked.seats, given)

    def _forget(self, round: int) -> None:
        """Erase what rounds left whose results are all known, or that are long over."""
        if round <= self._newest:
            return
        self._newest = round
        settled = min(self._replica.versions.values()) + 1
        self.helper.forget(max(settled, round - KEPT_ROUNDS))
