"""A small federation run for some rounds under a fault plan, every message kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from eris.core.rules import FedAvg
from eris.core.shards import RandomPlan
from eris.protocol.agreement import Agreement, Key
from eris.protocol.messages import Result
from eris.protocol.round.replica import Replica
from eris.protocol.settings import Settings
from eris.protocol.transcript import Record
from eris.runtimes.events import EventEngine
from eris.runtimes.faults import FaultPlan
from eris.runtimes.station import Report, Stations
from eris.testing import SyntheticTraining, agree, initial_model, on_the_clock
from support.engines import in_step, replicas
from support.oracle import check_messages, check_values

N, ROUNDS = 60, 5


def dense(**changes: Any) -> Settings:
    return replace(Settings(n=N, plan=RandomPlan(2), rule=FedAvg(0.1)), **changes)


@dataclass
class Run:
    """A federation of four clients, the first two of whom own a shard each."""

    agreement: Agreement
    engine: EventEngine | Stations
    training: SyntheticTraining
    reports: list[Report] = field(default_factory=list)

    def rounds(self, count: int) -> Run:
        for _ in range(count):
            self.reports.append(self.engine.run_round(len(self.reports) + 1))
        return self

    @property
    def records(self) -> list[Record]:
        return [record for report in self.reports for record in report.records]

    @property
    def results(self) -> dict[tuple[int, Key], Result]:
        found = check_messages(self.agreement, self.records)
        return {(result.header.round, result.header.key): result for result in found}

    @property
    def included(self) -> dict[tuple[int, Key], set[int]]:
        return {name: set(result.included) for name, result in self.results.items()}

    @property
    def replicas(self) -> list[Replica]:
        return replicas(self.engine)

    def check(self) -> None:
        """What was published is right."""
        initial = initial_model(N, self.training.seed)
        check_values(self.agreement, initial, list(self.results.values()), self.training.given)


def run(
    settings: Settings | None = None,
    faults: FaultPlan | None = None,
    *,
    rounds: int = ROUNDS,
    clock: bool = True,
) -> Run:
    """A federation after some rounds."""
    agreement, training = agree(settings or dense(), clients=4), SyntheticTraining(N, 1)
    start = on_the_clock if clock else in_step
    return Run(agreement, start(agreement, training, faults=faults), training).rounds(rounds)
