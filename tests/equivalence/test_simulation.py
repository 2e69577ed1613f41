"""Members in step, with one replica for all, are what separate nodes under a clock would be."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from eris.core.compress import QSGD, RandK, RandP
from eris.core.prune import Prune
from eris.core.rules import CoordinateMedian, FedAdam, FedNova
from eris.core.shards import ContiguousPlan, RandomPlan
from eris.protocol.schemes import Independent, Masked, Pruned, Quantised
from eris.protocol.settings import Settings
from eris.runtimes.cohort import Cohort
from eris.runtimes.faults import Fault, FaultPlan
from eris.runtimes.local import LocalRuntime
from eris.runtimes.station import Place, Report, Stations
from eris.testing.synthetic import (
    SyntheticPopulation,
    SyntheticTraining,
    assert_same_bits,
    federate,
    initial_model,
)

N, CLIENTS, ROUNDS = 300, 7, 6

MODES = {
    "central": Settings(n=N),
    "sharded": Settings(n=N, plan=RandomPlan(5), segment_size=20),
    "dsc": Settings(n=N, plan=RandomPlan(7), scheme=Masked(RandP(0.2))),
    "rand-k": Settings(n=N, plan=ContiguousPlan(3), scheme=Masked(RandK(30))),
    "paper mode": Settings(n=N, plan=RandomPlan(4), scheme=Independent(RandP(0.2))),
    "quantised": Settings(n=N, plan=RandomPlan(3), scheme=Quantised(QSGD())),
    "unshifted": Settings(n=N, plan=RandomPlan(3), scheme=Masked(RandP(0.3), shift=False)),
    "rotating": Settings(n=N, plan=RandomPlan(4, rotate=2), scheme=Masked(RandP(0.5))),
    "median": Settings(n=N, plan=RandomPlan(4), rule=CoordinateMedian()),
    "adam": Settings(n=N, plan=RandomPlan(4), rule=FedAdam(bias_correction=True)),
    "nova": Settings(n=N, plan=RandomPlan(2), rule=FedNova()),
    "priprune": Settings(n=N, scheme=Pruned(Prune(rate=0.1))),
    "pseudo-pruning": Settings(n=N, scheme=Pruned(Prune(energy=0.6, pseudo=True))),
}


def runtime_of(settings: Settings, faults: FaultPlan | None = None) -> LocalRuntime:
    servers = 1 if settings.plan.shards == 1 else 0
    return federate(
        settings, SyntheticTraining(N), clients=CLIENTS, servers=servers, faults=faults, record=True
    )


def stations_of(runtime: LocalRuntime, count: int, faults: FaultPlan | None = None) -> Stations:
    population = SyntheticPopulation(SyntheticTraining(N), CLIENTS)
    return Stations(
        [
            Cohort(
                runtime.agreement,
                initial_model(N),
                population,
                place=Place(number, count),
                faults=faults,
                record=True,
            )
            for number in range(count)
        ]
    )


def sent(report: Report) -> Counter[tuple[int, tuple[int, ...], bytes, frozenset[int]]]:
    return Counter((r.sender, r.receivers, r.data, frozenset(r.arrived)) for r in report.records)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("mode", MODES)
def test_the_same_bits_bytes_and_messages(mode: str, count: int) -> None:
    runtime = runtime_of(MODES[mode])
    training = SyntheticTraining(N)
    stations = stations_of(runtime, count)
    assert runtime.transcript is not None
    for round in range(1, ROUNDS + 1):
        runtime.transcript.records.clear()
        traffic = runtime.run_round(training)
        report = stations.run_round(round)
        for node in runtime.nodes:
            assert_same_bits(stations.models()[0], node.model, f"round {round}")
        assert report.traffic == traffic
        assert sent(report) == sent(Report(records=runtime.transcript.records))
        assert report.included == 1
        assert set(report.clients) == set(range(CLIENTS))
        assert report.refused == []


RATES = {
    "dropout": FaultPlan(seed=1, dropout=0.4),
    "link": FaultPlan(seed=2, link=0.1),
    "straggle": FaultPlan(seed=3, straggle=0.4),
    "churn": FaultPlan(seed=5, churn=0.25, correlation=0.3),
    "all": FaultPlan(seed=4, dropout=0.3, link=0.1, straggle=0.2),
}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("mode", ["central", "sharded", "dsc", "paper mode", "adam"])
@pytest.mark.parametrize("kind", RATES)
def test_faults_at_rates_lead_to_the_same_model(kind: str, mode: str, count: int) -> None:
    settings = replace(MODES[mode], min_included=2)
    runtime = runtime_of(settings, replace(RATES[kind]))
    faults = replace(RATES[kind])
    stations = stations_of(runtime, count, faults)
    included = []
    for round in range(1, 2 * ROUNDS + 1):
        training = SyntheticTraining(N)
        runtime.run_round(training)
        report = stations.run_round(round)
        included.append(report.included)
        # Who is away, or was and finds nobody to ask, has an older model; nobody has a newer one.
        node = max(runtime.nodes, key=lambda node: sum(node.replica.versions.values()))
        assert_same_bits(stations.models()[0], node.model, f"round {round}")
        assert report.included == node.replica.included_in(round)
        assert set(report.clients) == {member for member, _ in training.given}
    assert min(share for share in included if share is not None) < 1
    struck = {fault for fault, times in faults.struck.items() if times}
    wanted = {Fault.DROPOUT, Fault.LINK, Fault.STRAGGLE}
    assert struck == wanted if kind == "all" else len(struck) == 1


def test_who_was_away_catches_up_before_it_contributes_again() -> None:
    settings = replace(MODES["dsc"], min_included=2)
    faults = FaultPlan(seed=5, churn=0.3, correlation=0.5)
    stations = stations_of(runtime_of(settings), 1, faults)
    asked, back = 0, 0
    for round in range(1, 20):
        report = stations.run_round(round)
        away = {member for member in range(CLIENTS) if faults.churned(member, round)}
        assert set(report.clients) == set(range(CLIENTS)) - away
        assert not any(member in away for member, _ in report.traffic.sent)
        asked += sum(1 for _, kind in report.traffic.sent if kind == "CatchUp")
        back += sum(
            faults.churned(member, round - 1) and member not in away for member in range(CLIENTS)
        )
    assert asked == back > 5


@pytest.mark.parametrize("mode", MODES)
def test_a_run_continues_from_its_state_to_the_same_bits(mode: str) -> None:
    runtime = runtime_of(MODES[mode])
    faults = FaultPlan(seed=1, dropout=0.2)
    whole = stations_of(runtime, 1, replace(faults))
    for round in range(1, ROUNDS + 1):
        whole.run_round(round)
        if round == 3:
            state = {name: np.array(value) for name, value in whole.state().items()}
    # Another number of stations, too.
    resumed = stations_of(runtime, 2, replace(faults))
    resumed.restore(3, state)
    for round in range(4, ROUNDS + 1):
        resumed.run_round(round)
    assert_same_bits(resumed.models()[0], whole.models()[0])
