"""Who looks at a run: which of its messages reach an observer.

Every member receives all published results; an owner of shards also receives other clients'
contributions to them, masked where sums are secure; a helper is asked to keep seeds and to open
sums; a link carries what two members send each other. What one member contributes to its own shards
never leaves it and is in its own view all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from eris.protocol.messages import Contribution, Message, Reveal, RevealRequest

Kind = Literal[
    "aggregator", "server", "member", "helper", "coalition", "openers", "link", "neighbour"
]
ANYBODY = -1
"""The other end of a tap that is on all links of a member."""


class Carried(Protocol):
    """A message, and what is known of its way."""

    @property
    def sender(self) -> int:
        """Who sent it."""

    @property
    def receivers(self) -> tuple[int, ...]:
        """Whom it was sent to."""

    @property
    def arrived(self) -> set[int]:
        """Whom it reached."""

    @property
    def message(self) -> Message:
        """What it says."""


@dataclass(frozen=True)
class Observer:
    """``members`` put together what they send and receive, or a ``link`` between two is tapped.

    A tap hears one direction or, ``both_ways``, what comes back as well. Its other end may be
    ``ANYBODY``.

    >>> Observer("coalition", frozenset({1, 4})).name
    'coalition of 2'
    """

    kind: Kind
    members: frozenset[int] = frozenset()
    link: tuple[int, int] | None = None
    both_ways: bool = False

    @property
    def name(self) -> str:
        """How reports call it."""
        if self.link is not None:
            one, other = self.link
            if other == ANYBODY:
                return f"all links of {one}" if self.both_ways else f"all links from {one}"
            return f"link {one} {'–' if self.both_ways else 'to'} {other}"
        if self.kind == "server":
            return "server"
        if self.kind == "coalition":
            return f"coalition of {len(self.members)}"
        if self.kind == "openers":
            return f"openers {', '.join(map(str, sorted(self.members)))}"
        return f"{self.kind} {min(self.members)}"

    @property
    def takes(self) -> bool:
        """Whether contributions are for it: a plain member, and a helper as such, owns nothing; a
        tap hears what is on its wire."""
        return self.kind not in ("member", "helper") and self.link is None

    def sees(self, carried: Carried) -> bool:
        """Whether a message is in this observer's view."""
        if self.link is not None:
            ways = (self.link, self.link[::-1]) if self.both_ways else (self.link,)
            # On the wire it was, whether or not it got to the other end.
            return any(
                sender in (carried.sender, ANYBODY)
                and any(
                    receiver in (one, ANYBODY) for one in carried.receivers if one != carried.sender
                )
                for sender, receiver in ways
            )
        if self.kind == "member" and isinstance(carried.message, RevealRequest | Reveal):
            return False  # who holds no seat
        if carried.sender in self.members:
            return True
        if self.members.isdisjoint(carried.arrived):
            return False
        return self.takes or not isinstance(carried.message, Contribution)
