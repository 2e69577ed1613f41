"""What every member is told over the rounds of a simulated run with secure sums, in which an owner
may lie: it leaves a client out of a sum, or publishes something else than its sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from eris.core.vectors import Vector
from eris.federation import Federation
from eris.protocol.messages import Contribution, Message, Result
from eris.runtimes.cohort import Cohort
from eris.runtimes.faults import FaultPlan
from eris.runtimes.station import Outbox, Stations


@dataclass(frozen=True)
class Lie:
    """What one owner does that is not agreed."""

    owner: int
    leaves_out: tuple[int, int] | None = None
    """(client, round): it takes nothing from a client in a round."""
    says: Callable[[Result], Result] = lambda result: result
    """What it publishes in place of a result."""


class Late(FaultPlan):
    """One client comes too late in one round, and nothing else goes wrong."""

    def __init__(self, client: int, round: int) -> None:
        super().__init__()
        self._late = client, round

    def straggles(self, client: int, round: int) -> bool:
        """Whether a client's update of a round comes too late."""
        return (client, round) == self._late


class LyingCohort(Cohort):
    """Members of which one owner may lie; helpers and clients do as agreed."""

    def __init__(self, *agreed: Any, lie: Lie | None = None, **options: Any) -> None:
        self._lie = lie
        super().__init__(*agreed, **options)

    def _collect(self, time: float, owner: int, message: Message, out: Outbox) -> None:
        assert isinstance(message, Contribution)
        lie, header = self._lie, message.header
        if lie is None or owner != lie.owner or (header.sender, header.round) != lie.leaves_out:
            super()._collect(time, owner, message, out)

    def _publish(self, time: float, round: int, results: Iterable[Result], out: Outbox) -> None:
        lie = self._lie
        said = [
            lie.says(one) if lie is not None and one.header.sender == lie.owner else one
            for one in results
        ]
        super()._publish(time, round, said, out)


@dataclass(frozen=True, eq=False)
class OpenedRound:
    """A round as every member has it: the model before, and by coordinate the sum over samples of
    what clients computed and how many samples those are (0 where nothing was published)."""

    round: int
    model: Vector
    sums: Vector
    weights: Vector


def opened_rounds(
    federation: Federation, rounds: int, *, planned: int | None = None,
    lie: Lie | None = None, faults: FaultPlan | None = None,
) -> Iterator[OpenedRound]:  # fmt: skip
    """The rounds of a training, from the messages that went to all; ``planned`` are those that its
    noise is for, if there are more."""
    federation.start(planned or rounds)  # where noise is, it is agreed on now
    agreement = federation.agreement
    assert agreement is not None
    cohort = LyingCohort(
        agreement, federation.initial, federation.population, faults=faults, record=True, lie=lie
    )
    engine, reader = Stations([cohort]), agreement.coding.reader()
    for round in range(1, rounds + 1):
        model = cohort.replica.own_model()
        said = [record.message for record in engine.run_round(round).records]
        results = [one for one in said if isinstance(one, Result) and one.header.round == round]
        yield OpenedRound(round, model, *reader.sums(round, results))
