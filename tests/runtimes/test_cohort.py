"""Members in step when something goes wrong: who misses what, and what it costs the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from eris.core.compress import RandP
from eris.core.rules import FedAvg, FedAvgM
from eris.core.shards import RandomPlan
from eris.protocol.agreement import Agreement, Key
from eris.protocol.messages import CatchUp, Contribution, Result, Snapshot
from eris.protocol.schemes import Independent, Masked
from eris.protocol.settings import Settings
from eris.protocol.transcript import Record
from eris.protocol.view import View
from eris.runtimes.cohort import Cohort
from eris.runtimes.faults import FaultPlan
from eris.runtimes.station import Place, Report, Stations
from eris.testing import assert_same_bits, initial_model
from support.crowd import Crowd, slow_mean

N, CLIENTS, SHARDS, STEP = 60, 6, 3, np.float32(0.25)
START = initial_model(N)
SETTINGS = Settings(n=N, plan=RandomPlan(SHARDS), rule=FedAvg(float(STEP)), min_included=2)
MOMENTUM = FedAvgM(float(STEP))


@dataclass
class Chosen(FaultPlan):
    """Faults where a test wants them."""

    cuts: Callable[[int, int, int], bool] = lambda one, other, round: False
    absent: Collection[tuple[int, int]] = ()
    late: Collection[tuple[int, int]] = ()
    silent: Collection[tuple[int, int]] = ()

    def cut(self, one: int, other: int, round: int) -> bool:
        return self.cuts(one, other, round) or self.cuts(other, one, round)

    def churned(self, member: int, round: int) -> bool:
        return (member, round) in self.absent

    def straggles(self, client: int, round: int) -> bool:
        return (client, round) in self.late

    def away(self, aggregator: int, round: int) -> bool:
        return (aggregator, round) in self.silent

    @property
    def any(self) -> bool:
        return True


class Run:
    """A cohort on one station or several, and what happened in it."""

    def __init__(self, faults: FaultPlan | None = None, stations: int = 1, **changes: Any) -> None:
        crowd = Crowd(CLIENTS, N)
        samples = tuple(crowd.samples(client) for client in range(CLIENTS))
        names = [f"client-{client}" for client in range(CLIENTS)]
        self.view = View.serverless(names, aggregators=SHARDS, samples=samples)
        agreement = Agreement(replace(SETTINGS, **changes), self.view)
        self.crowd, self.agreement, self.faults = crowd, agreement, faults
        self.cohorts = [
            Cohort(
                agreement, START, crowd, place=Place(number, stations), faults=faults, record=True
            )
            for number in range(stations)
        ]
        self.stations = Stations(self.cohorts)
        self.reports: list[Report] = []

    def rounds(self, *numbers: int) -> Run:
        for round in numbers:
            self.reports.append(self.stations.run_round(round))
        return self

    @property
    def records(self) -> list[Record]:
        return [record for report in self.reports for record in report.records]

    @property
    def model(self) -> Any:
        return self.stations.models()[0]

    def result(self, key: Key, round: int) -> Result:
        """The one result of a segment and round, however often it was passed on."""
        (found,) = {
            r.message for r in self.records
            if isinstance(r.message, Result) and (r.message.header.key, r.message.header.round)
            == (key, round)
        }  # fmt: skip
        return found

    def included(self, round: int) -> list[set[int]]:
        return [set(self.result((shard, 0), round).included) for shard in range(SHARDS)]


EVERYONE = set(range(CLIENTS))


def test_a_straggler_trains_and_nothing_of_it_is_sent() -> None:
    run = Run(Chosen(late={(4, 2), (1, 2)})).rounds(1, 2, 3)
    assert run.included(1) == run.included(3) == [EVERYONE] * SHARDS
    # Client 1 owns shard 1: its own segment is over, too, by the time it has trained.
    assert run.included(2) == [EVERYONE - {1, 4}] * SHARDS
    assert set(run.reports[1].clients) == EVERYONE
    senders = {r.sender for r in run.reports[1].records if isinstance(r.message, Contribution)}
    assert senders == EVERYONE - {1, 4}
    assert run.reports[1].included == pytest.approx(4 / 6)


def test_a_link_that_fails_loses_that_clients_part_of_that_shard_alone() -> None:
    run = Run(Chosen(cuts=lambda one, other, round: (one, other, round) == (4, 0, 2))).rounds(1, 2)
    assert run.included(2) == [EVERYONE - {4}, EVERYONE, EVERYONE]
    whole = Run().rounds(1, 2)
    first = run.agreement.segments(1)[0, 0]
    elsewhere = np.ones(N, np.float32)
    first.scatter(elsewhere, np.zeros(first.size, np.float32))
    assert_same_bits(run.model[elsewhere == 1], whole.model[elsewhere == 1])
    # In the shard: the mean of the others, renormalised.
    before, _ = run.crowd.given[0, 2]
    others = sorted(EVERYONE - {4})
    updates = [first.gather(run.crowd.given[client, 2][1]) for client in others]
    mean = slow_mean(updates, [run.crowd.samples(client) for client in others])
    assert_same_bits(first.gather(run.model), first.gather(before) - STEP * mean)
    assert not np.array_equal(first.gather(run.model), first.gather(whole.model))
    # What was lost had been sent, so it is paid for; it arrived nowhere.
    (lost,) = (
        record for record in run.records
        if record.sender == 4 and isinstance(record.message, Contribution) and not record.arrived
    )  # fmt: skip
    assert lost.receivers == (0,)
    assert run.reports[1].traffic.sent[4, "Contribution"] == sum(
        len(r.data) for r in run.records
        if r.sender == 4 and isinstance(r.message, Contribution) and r.message.header.round == 2
    )  # fmt: skip


def test_of_fewer_than_min_included_nothing_is_published_and_the_value_stays() -> None:
    faults = Chosen(late={(client, 2) for client in (2, 3, 4, 5)})
    run = Run(faults, min_included=3).rounds(1)
    before = run.model.copy()
    run.rounds(2)
    assert not [
        r for r in run.records if isinstance(r.message, Result) and r.message.header.round == 2
    ]
    assert_same_bits(run.model, before)
    assert run.reports[1].included == 0
    # With two agreed on, two are enough.
    assert Run(faults, min_included=2).rounds(1, 2).included(2) == [{0, 1}] * SHARDS


def test_an_absent_aggregators_shard_stays_and_the_others_go_on() -> None:
    run, whole = Run(Chosen(silent={(2, 2)})).rounds(1, 2), Run().rounds(1, 2)
    third = run.agreement.segments(1)[2, 0]
    before, _ = run.crowd.given[0, 2]
    assert_same_bits(third.gather(run.model), third.gather(before))
    changed = np.ones(N, np.float32)
    third.scatter(changed, np.zeros(third.size, np.float32))
    assert_same_bits(run.model[changed == 1], whole.model[changed == 1])
    assert run.reports[1].included == pytest.approx(2 / 3)
    # It is one round's loss: the next has everyone.
    assert run.rounds(3).included(3) == [EVERYONE] * SHARDS


def alone(member: int, *rounds: int) -> Chosen:
    """All links of a member are down in some rounds."""
    return Chosen(cuts=lambda one, other, round: one == member and round in rounds)


def test_a_client_that_cannot_catch_up_does_not_contribute() -> None:
    run = Run(alone(5, 2, 3)).rounds(1, 2, 3, 4)
    took_part = [5 in report.clients for report in run.reports]
    # In round 2 it trains and nobody hears; in round 3 it lacks results, and has nobody to ask.
    assert took_part == [True, True, False, True]
    assert [5 in included for included in run.included(2)] == [False] * SHARDS
    assert run.included(4) == [EVERYONE] * SHARDS
    assert not [r for r in run.reports[2].records if r.sender == 5]


def test_catching_up_costs_a_question_and_the_missed_results() -> None:
    run = Run(alone(5, 2, 3), rule=MOMENTUM).rounds(1, 2, 3, 4)
    asked = [r for r in run.reports[3].records if isinstance(r.message, CatchUp)]
    assert sorted(r.message.header.key for r in asked) == [(0, 0), (1, 0), (2, 0)]
    assert all(r.sender == 5 and r.message.have == 1 for r in asked)  # type: ignore[union-attr]
    owners = Counter(r.receivers for r in asked)
    assert owners == {(0,): 1, (1,): 1, (2,): 1}
    answers = Counter(
        r.data for r in run.reports[3].records
        if isinstance(r.message, Result) and r.message.header.round < 4
    )  # fmt: skip
    # One of each result of rounds 2 and 3, word for word.
    originals = [
        r.data for report in run.reports[1:3] for r in report.records
        if isinstance(r.message, Result)
    ]  # fmt: skip
    assert answers == Counter(originals)
    assert len(originals) == 2 * SHARDS
    paid = run.reports[3].traffic.received[5, "Result"]
    fresh = [r for r in run.reports[3].records if isinstance(r.message, Result)
             and r.message.header.round == 4]  # fmt: skip
    assert paid == sum(map(len, originals)) + sum(len(r.data) for r in fresh)


def test_of_a_plain_model_the_state_is_sent_instead() -> None:
    run = Run(alone(5, 2, 3)).rounds(1, 2, 3, 4)
    answers = [r.message for r in run.reports[3].records if isinstance(r.message, Snapshot)]
    assert sorted((a.header.key, a.at) for a in answers) == [((s, 0), 3) for s in range(SHARDS)]
    assert run.included(4) == [EVERYONE] * SHARDS


def test_any_peer_helps_where_the_owner_cannot_be_reached() -> None:
    """Client 5 misses owner 0's result, and their link is still down a round later."""
    faults = Chosen(cuts=lambda one, other, round: (one, other) == (5, 0) and round in (2, 3))
    run = Run(faults).rounds(1, 2, 3)
    (asked,) = (r for r in run.reports[2].records if isinstance(r.message, CatchUp))
    assert asked.receivers != (0,)
    assert asked.message.header.key == (0, 0)
    assert 5 in run.reports[2].clients
    assert run.included(3) == [EVERYONE - {5}, EVERYONE, EVERYONE]


HEAVY = {
    "links": FaultPlan(seed=11, link=0.7),
    "links and churn": FaultPlan(seed=12, link=0.6, churn=0.3, correlation=0.5),
    "all": FaultPlan(seed=13, link=0.5, churn=0.2, straggle=0.2, dropout=0.2),
}
MODES: dict[str, dict[str, Any]] = {
    "dense": {},
    "segments": {"segment_size": 4},
    "shifted": {"scheme": Masked(RandP(0.4))},
    "paper mode": {"scheme": Independent(RandP(0.4))},
    "rotating": {"plan": RandomPlan(SHARDS, rotate=2)},
}
ROUNDS = range(1, 17)


def said(report: Report) -> Counter[tuple[float, int, tuple[int, ...], bytes, frozenset[int]]]:
    return Counter(
        (r.time, r.sender, r.receivers, r.data, frozenset(r.arrived)) for r in report.records
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", HEAVY)
def test_stations_agree_on_who_is_behind_under_heavy_losses(kind: str, mode: str) -> None:
    one, four = (Run(replace(HEAVY[kind]), stations=count, **MODES[mode]) for count in (1, 4))
    someone_behind = 0
    for round in ROUNDS:
        one.rounds(round)
        four.rounds(round)
        assert_same_bits(four.model, one.model, f"round {round}")
        assert said(four.reports[-1]) == said(one.reports[-1])
        assert four.reports[-1].traffic == one.reports[-1].traffic
        behind = [
            {member: dict(sorted(keys.items())) for member, keys in cohort._behind.items()}
            for cohort in (*one.cohorts, *four.cohorts)
        ]
        assert all(other == behind[0] for other in behind)
        someone_behind += bool(behind[0])
        for cohort in four.cohorts:
            assert_same_bits(cohort.replica.model, one.model)
    assert someone_behind > 5


@pytest.mark.parametrize("stop", [3, 8])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", HEAVY)
def test_a_run_under_heavy_losses_goes_on_from_its_state(kind: str, mode: str, stop: int) -> None:
    """The same messages too: who was behind at the checkpoint asks for what it missed."""
    whole = Run(replace(HEAVY[kind]), **MODES[mode]).rounds(*range(1, stop + 1))
    assert whole.cohorts[0]._behind
    state = {name: np.array(value) for name, value in whole.stations.state().items()}
    again = Run(replace(HEAVY[kind]), stations=2, **MODES[mode])
    again.stations.restore(stop, state)
    for round in range(stop + 1, stop + 6):
        whole.rounds(round)
        again.rounds(round)
        assert said(again.reports[-1]) == said(whole.reports[-1])
        assert_same_bits(again.model, whole.model)


def test_a_restored_run_may_be_wound_back() -> None:
    run = Run(replace(HEAVY["all"]), scheme=Independent(RandP(0.4))).rounds(1, 2, 3)
    state = {name: np.array(value) for name, value in run.stations.state().items()}
    first = [said(report) for report in run.rounds(4, 5, 6).reports[3:]]
    run.stations.restore(3, state)
    assert [said(report) for report in run.rounds(4, 5, 6).reports[6:]] == first


def test_what_arrives_and_who_is_behind_are_one_story() -> None:
    """Owners that were away settle old turns when they return; who misses that is behind."""
    plan = Chosen(
        absent={(2, 2), (2, 3)},
        cuts=lambda one, other, round: (one, other, round) in {(5, 2, 4), (3, 2, 2)},
    )
    run = Run(plan, plan=RandomPlan(SHARDS, rotate=2)).rounds(1, 2, 3)
    (settled,) = (
        r for r in run.rounds(4).reports[-1].records
        if isinstance(r.message, Result) and r.message.header.round == 2 and r.sender == 2
        and r.message.header.shard == 2
    )  # fmt: skip
    # Round 4's links count, not those of the round that is settled.
    assert settled.arrived == {0, 1, 3, 4}
    assert run.cohorts[0]._behind.keys() == {5}
    assert run.cohorts[0]._behind[5][2, 0] == 1


def test_results_that_nobody_lacks_are_not_kept() -> None:
    run = Run(alone(5, 2, 3), rule=MOMENTUM).rounds(1, 2, 3)
    assert run.cohorts[0].replica.results_after((0, 0), 1) is not None
    run.rounds(4)
    assert run.cohorts[0].replica.results_after((0, 0), 3) is None
