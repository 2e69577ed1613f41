"""What an attack on a run is, and the one loop that shows attacks what the run's observers see.

Whoever watches turns records into sights: :class:`~eris.audit.watch.Watch` where members aggregate,
:class:`~eris.audit.neighbour.Neighbourhood` where they gossip. Whether the records come from a file
or from a run that is under way makes no difference here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from eris.core.vectors import Vector
from eris.protocol.transcript import Record

if TYPE_CHECKING:
    from eris.audit.neighbour import Neighbourhood, NeighbourSight
    from eris.audit.watch import Sight, Watch


@dataclass(frozen=True, eq=False)
class FinalModel:
    """All that someone has who is given the trained model and no message.

    This is the least that any training gives away.
    """

    model: Vector


class AttackReport(Protocol):
    """What an attack found."""

    def figures(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Tables by name, each row a mapping from titles: this is printed and written."""


class Attack(Protocol):
    """One attack; what it does not know how to look at it leaves alone."""

    @property
    def name(self) -> str:
        """How it is asked for."""

    def see(self, sight: Sight | NeighbourSight | FinalModel) -> None:
        """Look; a sight holds until this returns."""

    def report(self) -> AttackReport:
        """What came of all that was seen."""


class Noting(Protocol):
    """Is told what no observer is told, for the statistics of an attack alone."""

    def note(self, round: int, records: Sequence[Record]) -> None:
        """All messages of a round."""


def show(
    watch: Watch | Neighbourhood,
    round: int,
    records: Iterable[Record],
    attacks: Sequence[Attack] = (),
) -> None:
    """Show every sight of a round to every attack; without attacks the round is only followed."""
    for sight in watch.follow(round, records):
        for attack in attacks:
            attack.see(sight)
