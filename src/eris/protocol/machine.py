"""What a driver moves: one member's machine, whatever its method (docs/driver.md).

A machine has no I/O, no clock and no randomness of its own. :class:`~eris.protocol.round.member.
Member` aggregates, :class:`~eris.protocol.gossip.member.GossipMember` gossips; a driver that knows
this protocol alone moves both.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from eris.core.exact_clip import Content
from eris.core.vectors import Vector
from eris.protocol.authority.standing import Epochs, Standing
from eris.protocol.messages import Message, Outgoing
from eris.protocol.recent import Recent
from eris.protocol.round.ending import Phase
from eris.protocol.round.giving import Job
from eris.protocol.view import View


class Machine(Protocol):
    """One member, moved by one call at a time; ``now`` is seconds on a clock that does not go back.

    After every call a driver sends what was returned, trains :attr:`job` if it is new, asks the
    authority if :attr:`renewal_due`, and calls :meth:`tick` by :attr:`wakes_at`.
    """

    me: int
    rounds: int
    round: int
    phase: Phase
    job: Job | None
    """What is to be trained; its model is the trainer's own."""

    @property
    def agreement(self) -> Epochs:
        """The views that it knows of."""

    @property
    def view(self) -> View:
        """The view of the current round."""

    @property
    def model(self) -> Vector:
        """The current model."""

    @property
    def acted(self) -> int | None:
        """The last round in which others may have something of it; None if it does not know."""

    @property
    def renewal_due(self) -> bool:
        """Whether the authority should be asked soon; a driver that does clears it."""

    @renewal_due.setter
    def renewal_due(self, due: bool) -> None: ...

    @property
    def refused(self) -> Recent[str]:
        """Messages of peers that it did not take in, and why."""

    @property
    def wakes_at(self) -> float:
        """When :meth:`tick` should be called at the latest."""

    @property
    def finished(self) -> bool:
        """Whether training is over and the model complete."""

    @property
    def exhausted(self) -> bool:
        """Whether training is over and something is missing that nobody has."""

    def start(self, now: float) -> list[Outgoing]:
        """Begin, or go on after :meth:`restore`."""

    def stand(self, standing: Standing, now: float) -> list[Outgoing]:
        """Take in what the authority says."""

    def receive(self, message: Message, source: int, now: float) -> list[Outgoing]:
        """Take a message in from a member, which is who the transport says it is."""

    def trained(
        self, update: Vector, samples: int, steps: int, now: float,
        content: Content | None = None,
    ) -> list[Outgoing]:  # fmt: skip
        """Take in what was trained; raises if it cannot be used, and :meth:`failed` follows."""

    def failed(self, now: float) -> list[Outgoing]:
        """Training gave nothing."""

    def pull(self, now: float, full: Container[int] = ()) -> list[Outgoing] | None:
        """More to send, as long as there is room; None if there is nothing now."""

    def take_stayed(self) -> list[Message]:
        """What it gave to itself since this was last asked; for whoever records."""

    def tick(self, now: float) -> list[Outgoing]:
        """Let time pass."""

    def state(self) -> dict[str, NDArray[Any]]:
        """All that is needed to go on after a restart."""

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a ``state()``."""
