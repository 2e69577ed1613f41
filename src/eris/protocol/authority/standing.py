"""What the authority over epochs (a directory, or a roster) tells a member.

A view holds from a round on. An owner may publish results of rounds up to ``through`` only: a new
view begins after every round anyone may publish in under the old one, so that no round can have
results of two owners, whatever clocks and networks do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eris.protocol.authority.history import Mark
from eris.protocol.view import View

LOOKAHEAD = 2
"""Rounds an owner may publish in beyond the one it has reported."""


@dataclass(frozen=True)
class Scheduled:
    """A view and the first round it holds for."""

    view: View
    from_round: int


class Epochs:
    """The views that a member knows of, in the order of their epochs."""

    def __init__(self, views: Sequence[Scheduled]) -> None:
        self.schedule(views)

    def schedule(self, views: Sequence[Scheduled]) -> None:
        """Go by these views from now on."""
        self._views = tuple(views)

    @property
    def view(self) -> View:
        """The newest view."""
        return self._views[-1].view

    def view_at(self, round: int) -> View:
        """The view that holds in a round."""
        for scheduled in reversed(self._views):
            if scheduled.from_round <= round:
                return scheduled.view
        return self._views[0].view

    def began(self, round: int) -> int:
        """The first round of the view that holds in a round."""
        for scheduled in reversed(self._views):
            if scheduled.from_round <= round:
                return scheduled.from_round
        return self._views[0].from_round

    def begins(self, round: int) -> list[int]:
        """A round, or the first one whose view is known, and where later views begin."""
        first = max(round, self._views[0].from_round)
        return [first, *(one.from_round for one in self._views if one.from_round > first)]

    @property
    def newest_from(self) -> int:
        """The first round of the newest view."""
        return self._views[-1].from_round

    def knows(self, round: int) -> bool:
        """Whether the view of a round is known: a newcomer is not told of all that have been."""
        return self._views[0].from_round <= round


@dataclass(frozen=True)
class Standing:
    """A member's place in the federation, as of one answer of the authority.

    ``views`` are in the order of their epochs: the one in force and those that are to come; where
    two hold for a round, the later does. ``addresses[m]`` is where member m listens, empty while it
    is not known. ``through`` is the last round whose results this member may publish. ``round`` is
    the highest round that any member has reported. ``mark`` is of the ledger that says so; a
    roster has none. ``held`` is the last round that anybody was permitted to publish in.
    """

    me: int
    views: tuple[Scheduled, ...]
    addresses: tuple[str, ...]
    through: int
    round: int
    mark: Mark | None = None
    held: int = 0


@dataclass(frozen=True)
class Joined:
    """The answer to a member that joins, for the first time or again.

    It may have published in rounds up to ``abstain_through`` before it started again, and must not
    do so now. ``incarnation`` counts its starts.
    """

    number: int
    abstain_through: int
    standing: Standing
    incarnation: int = 1
