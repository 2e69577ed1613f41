"""Members in step for a test, and what it wants to know of an engine beside its reports."""

from __future__ import annotations

from eris.protocol.agreement import Agreement
from eris.protocol.round.client import Client
from eris.protocol.round.replica import Replica
from eris.runtimes.cohort import Cohort
from eris.runtimes.events import EventEngine
from eris.runtimes.faults import FaultPlan
from eris.runtimes.station import Place, Stations
from eris.testing.synthetic import SyntheticTraining, initial_model


def in_step(
    agreement: Agreement,
    training: SyntheticTraining,
    *,
    faults: FaultPlan | None = None,
    stations: int = 1,
) -> Stations:
    """The federation as the simulator runs it, every message recorded."""
    initial = initial_model(agreement.settings.n, training.seed)
    population = training.population(len(agreement.view.clients))
    return Stations([
        Cohort(agreement, initial, population, place=Place(number, stations), faults=faults,
               record=True)
        for number in range(stations)
    ])  # fmt: skip


def cohorts(engine: Stations) -> list[Cohort]:
    """The stations of an engine that moves members in step."""
    return [station for station in engine._stations if isinstance(station, Cohort)]


def replicas(engine: Stations | EventEngine) -> list[Replica]:
    """The states that there are: one a station, or one a member that is up."""
    if isinstance(engine, Stations):
        return [cohort.replica for cohort in cohorts(engine)]
    members = [place.member for place in engine.live]
    return [member.node.replica for member in members if member is not None]


def clients(engine: Stations) -> dict[int, Client]:
    """The clients' machines."""
    return {k: client for cohort in cohorts(engine) for k, client in cohort._clients.items()}
