"""What a member has told owners that open sums: of a segment and round, about one set only.

Two sets I and I∖{k}, both opened, would give k's contribution away. So a member answers the owner
of the round's own view, about enough clients, before the result is known, and remembers the set.
After a restart it answers nothing about rounds in which it may have before.
"""

from __future__ import annotations

from collections.abc import Callable

from eris.core.errors import ErisError
from eris.protocol.agreement import Agreement, Key
from eris.protocol.messages import Outgoing, Reveal, RevealRequest
from eris.protocol.round.replica import Replica
from eris.protocol.schemes.scheme import Sender

KEPT_ROUNDS = 16
"""Rounds whose sets are remembered; a permit does not reach further back."""


class Revealed:
    """One member's answers."""

    def __init__(self, agreement: Agreement, me: int, replica: Replica, sender: Sender) -> None:
        self._agreement, self._me, self._replica, self._sender = agreement, me, replica, sender
        self._sets: dict[tuple[int, Key], frozenset[int]] = {}
        self.abstains: Callable[[int], bool] = lambda round: False
        """Whether another set of a round may have been told before this member started again."""

    def answer(self, request: RevealRequest) -> list[Outgoing]:
        """The answer to an owner, or the reason why there is none."""
        header = request.header
        round, key, agreement = header.round, header.key, self._agreement
        view = agreement.view_at(round)
        if not agreement.knows(round) or view.owners[header.shard] != header.sender:
            raise ErisError(f"member {header.sender} does not own shard {header.shard}")
        if self.abstains(round):
            raise ErisError("this member has started again since")
        if self._replica.versions[key] >= round:
            raise ErisError("the result of that round is known")
        if round > self._replica.horizon:
            raise ErisError(f"nobody else has reached round {round}")
        if round + KEPT_ROUNDS < max((known for known, _ in self._sets), default=0):
            raise ErisError("it is too late for that round")
        least = agreement.enough(round)
        if not request.included <= view.client_set or len(request.included) < least:
            raise ErisError(f"a sum has at least {least} clients of the view")
        if self._sets.setdefault((round, key), request.included) != request.included:
            raise ErisError("another set of that segment and round has been told")
        for old in [name for name in self._sets if name[0] + KEPT_ROUNDS < round]:
            del self._sets[old]
        data = self._sender.reveal(request, agreement.segments(round)[key])
        if data is None:
            return []
        back = agreement.header(self._me, round, key)
        return [Outgoing((header.sender,), Reveal(back, request.included, data))]
