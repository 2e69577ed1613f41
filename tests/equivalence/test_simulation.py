"""Members in step, with one replica for all, are what separate nodes under a clock would be."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from eris.core.compress import QSGD, RandK, RandP
from eris.core.errors import InvalidSetting
from eris.core.prune import Prune
from eris.core.rules import CoordinateMedian, FedAdam, FedNova
from eris.core.shards import ContiguousPlan, RandomPlan
from eris.protocol.agreement import Agreement
from eris.protocol.codec import decode
from eris.protocol.messages import Contribution, Result
from eris.protocol.schemes import Independent, Masked, Pruned, Quantised, Rotated
from eris.protocol.settings import Settings
from eris.runtimes.faults import Fault, FaultPlan
from eris.runtimes.station import Report
from eris.testing import SyntheticTraining, agree, assert_same_bits, on_the_clock
from support.engines import in_step

N, CLIENTS, ROUNDS = 300, 7, 6

MODES = {
    "central": Settings(n=N),
    "sharded": Settings(n=N, plan=RandomPlan(5), segment_size=20),
    "dsc": Settings(n=N, plan=RandomPlan(7), scheme=Masked(RandP(0.2))),
    "rotated": Settings(n=N, plan=RandomPlan(3), scheme=Rotated(RandP(0.1))),
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


ON_NO_NETWORK = ("paper mode", "rotating")
CLOCKED = [mode for mode in MODES if mode not in ON_NO_NETWORK]


def agreement_of(settings: Settings) -> Agreement:
    return agree(settings, clients=CLIENTS, servers=1 if settings.plan.shards == 1 else 0)


def sent(report: Report) -> Counter[tuple[int, tuple[int, ...], bytes, frozenset[int]]]:
    return Counter((r.sender, r.receivers, r.data, frozenset(r.arrived)) for r in report.records)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("mode", CLOCKED)
def test_the_same_bits_bytes_and_messages(mode: str, count: int) -> None:
    agreement = agreement_of(MODES[mode])
    clock = on_the_clock(agreement, SyntheticTraining(N))
    stations = in_step(agreement, SyntheticTraining(N), stations=count)
    for round in range(1, ROUNDS + 1):
        ours, theirs = stations.run_round(round), clock.run_round(round)
        for place in clock.live:
            assert place.member is not None
            assert_same_bits(stations.models()[0], place.member.model, f"round {round}")
        assert ours.traffic == theirs.traffic
        assert sent(ours) == sent(theirs), "what stays with a member is among it"
        assert ours.included == theirs.included == 1
        assert ours.clients == theirs.clients
        assert set(ours.clients) == set(range(CLIENTS))
        assert ours.refused == theirs.refused == []


@pytest.mark.parametrize("mode", MODES)
def test_any_number_of_stations_says_the_same(mode: str) -> None:
    agreement = agreement_of(MODES[mode])
    one, three = (in_step(agreement, SyntheticTraining(N), stations=count) for count in (1, 3))
    for round in range(1, ROUNDS + 1):
        assert sent(one.run_round(round)) == sent(three.run_round(round))
        assert_same_bits(one.models()[0], three.models()[0], f"round {round}")


@pytest.mark.parametrize("mode", ON_NO_NETWORK)
def test_what_no_network_carries_the_clock_refuses_by_name(mode: str) -> None:
    training = SyntheticTraining(N)
    with pytest.raises(InvalidSetting, match=r"scheme is 'independent'|plan.rotate is 2"):
        on_the_clock(agreement_of(MODES[mode]), training)
    assert not training.given


# Two things differ with a clock. A result needs a majority there. And a member asks an owner and
# four others for what it missed before it goes on without, where in step it finds whoever can be
# reached; so it may miss the next result of that segment as well. These plans have neither.
RATES = {
    "dropout": FaultPlan(seed=1, dropout=0.4),
    "link": FaultPlan(seed=2, link=0.1),
    "straggle": FaultPlan(seed=1, straggle=0.2),
    "churn": FaultPlan(seed=1, churn=0.2, correlation=0.3),
    "all": FaultPlan(seed=4, dropout=0.3, link=0.05, straggle=0.1),
}


Said = dict[tuple[int, tuple[int, ...], bytes], set[int]]


def first_said(reports: list[Report]) -> Said:
    """Every contribution and every result as it was published, and whom it reached: what is sent
    again counts once, and a result that answers a question is for the one who asked."""
    said: Said = {}
    for record in (record for report in reports for record in report.records):
        to_all = len(record.receivers) > 1 and isinstance(decode(record.data), Result)
        if to_all or isinstance(decode(record.data), Contribution):
            message = record.sender, record.receivers, record.data
            said.setdefault(message, set()).update(record.arrived)
    return said


@pytest.mark.parametrize("mode", ["central", "sharded", "dsc", "rotated", "quantised", "adam"])
@pytest.mark.parametrize("kind", RATES)
def test_faults_at_rates_lead_to_the_same_messages_and_models(kind: str, mode: str) -> None:
    agreement = agreement_of(replace(MODES[mode], min_included=2, quorum=CLIENTS // 2 + 1))
    clock = on_the_clock(agreement, SyntheticTraining(N), faults=replace(RATES[kind]))
    faults = replace(RATES[kind])
    stations = in_step(agreement, SyntheticTraining(N), stations=2, faults=faults)
    reports: tuple[list[Report], list[Report]] = ([], [])
    included = []
    for round in range(1, 2 * ROUNDS + 1):
        ours, theirs = stations.run_round(round), clock.run_round(round)
        reports[0].append(ours)
        reports[1].append(theirs)
        assert_same_bits(stations.models()[0], clock.models()[0], f"round {round}")
        assert ours.included == pytest.approx(theirs.included)
        assert set(ours.clients) == set(theirs.clients)
        included.append(ours.included)
    assert min(share for share in included if share is not None) < 1
    said, again = (first_said(reports[engine]) for engine in (0, 1))
    assert said == again
    assert len(said) > 4 * ROUNDS
    struck = {fault for fault, times in faults.struck.items() if times}
    wanted = {Fault.DROPOUT, Fault.LINK, Fault.STRAGGLE}
    assert struck == wanted if kind == "all" else len(struck) == 1


def test_who_was_away_catches_up_before_it_contributes_again() -> None:
    settings = replace(MODES["dsc"], min_included=2)
    faults = FaultPlan(seed=5, churn=0.3, correlation=0.5)
    stations = in_step(agreement_of(settings), SyntheticTraining(N), faults=faults)
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
    agreement, faults = agreement_of(MODES[mode]), FaultPlan(seed=1, dropout=0.2)
    whole = in_step(agreement, SyntheticTraining(N), faults=replace(faults))
    for round in range(1, ROUNDS + 1):
        whole.run_round(round)
        if round == 3:
            state = {name: np.array(value) for name, value in whole.state().items()}
    # Another number of stations, too.
    resumed = in_step(agreement, SyntheticTraining(N), stations=2, faults=replace(faults))
    resumed.restore(3, state)
    for round in range(4, ROUNDS + 1):
        resumed.run_round(round)
    assert_same_bits(resumed.models()[0], whole.models()[0])
