"""A client's answers to owners that ask about what it sent itself.

Without a permit for the round it says nothing new; what it has written down it says again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from eris.core.errors import ErisError
from eris.protocol.messages import Outgoing, Reveal, RevealRequest

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement
    from eris.protocol.schemes.scheme import Sender


class Replying:
    """One client that its owners ask; what it says is its sender's to decide."""

    def __init__(self, agreement: Agreement, me: int, sender: Sender) -> None:
        self._agreement, self._me, self._sender = agreement, me, sender
        self.permits: Callable[[int], bool] = lambda round: True

    def answer(self, request: RevealRequest) -> list[Outgoing]:
        """The answer to an owner, or an error that says why there is none."""
        header, agreement = request.header, self._agreement
        round, owner = header.round, header.sender
        if not agreement.knows(round) or agreement.view_at(round).owners[header.shard] != owner:
            raise ErisError(f"member {owner} does not own shard {header.shard}")
        data = self._sender.reveal(request, self.permits(round))
        back = agreement.header(self._me, round, header.key)
        return [Outgoing((owner,), Reveal(back, request.included, data))]
