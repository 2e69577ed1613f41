"""What members of a federation do with a segment, by role: send, collect, and answer owners.

Where nothing is hidden from owners it is a scheme's :class:`~eris.protocol.schemes.scheme.Coding`
that says so; secure sums and encrypted schemes have halves of their own, which need a
:class:`~eris.protocol.secure.vault.Vault`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from eris.protocol.messages import Outgoing, RevealRequest

if TYPE_CHECKING:
    from eris.protocol.enccluster.logarithms import LogarithmTable
    from eris.protocol.round.replica import Replica
    from eris.protocol.schemes.collector import Desk
    from eris.protocol.schemes.scheme import Sender
    from eris.protocol.secure.vault import Vault

Tables = Callable[[int], "LogarithmTable"]
"""Gives a table of logarithms by its reach."""


class Answering(Protocol):
    """A member's answers to owners that have closed a segment."""

    permits: Callable[[int], bool]
    """Whether this member may act in a round."""

    def answer(self, request: RevealRequest) -> list[Outgoing]:
        """The answer to an owner, or an error that says why there is none."""


class Halves(Protocol):
    """Makes a member's halves."""

    @property
    def asks(self) -> int:
        """How often an owner asks members before it publishes."""

    def sender(self, me: int, vault: Vault | None = None) -> Sender:
        """A client's half."""

    def desk(self, me: int, replica: Replica, vault: Vault | None = None) -> Desk:
        """What an owner's collectors have in common."""

    def answering(
        self, me: int, replica: Replica, vault: Vault | None, sender: Sender | None
    ) -> Answering | None:
        """A member's half where owners ask; ``sender`` is its own, if it is a client."""
