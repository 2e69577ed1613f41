"""Clients drawn anew every round: whom, in which roles, and what a run of them computes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from eris.core.errors import InvalidSetting
from eris.core.rules import FedAvg as FedAvgRule
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.methods.fedavg import FedAvg
from eris.methods.method import Method
from eris.protocol.codec import encode
from eris.protocol.messages import Contribution, Result, Snapshot
from eris.protocol.view import View
from eris.runtimes.faults import FaultPlan
from eris.runtimes.sampling import Sampling
from eris.testing import assert_same_bits, initial_model
from support.crowd import Crowd, slow_mean

N = 40
START = initial_model(N)
STEP = 0.25


def sampling(sampled: int, population: int, seed: int = 3, aggregators: int = 2) -> Sampling:
    template = View.serverless([f"t{i}" for i in range(sampled)], aggregators=aggregators)
    return Sampling(template, tuple(f"client-{i}" for i in range(population)), seed)


# -- who ------------------------------------------------------------------------------------------


def chi_square(counts: Counter[int], population: int) -> float:
    expected = sum(counts.values()) / population
    return sum((counts[i] - expected) ** 2 / expected for i in range(population))


@pytest.mark.parametrize(("sampled", "population"), [(3, 20), (10, 20), (19, 20), (20, 20)])
def test_everyone_is_drawn_and_leads_equally_often(sampled: int, population: int) -> None:
    drawn: Counter[int] = Counter()
    owners: Counter[int] = Counter()
    rounds = 2000
    for round in range(1, rounds + 1):
        view = sampling(sampled, population).view(round)
        assert len(set(view.clients)) == sampled
        assert view.owners == view.clients[:2]
        assert view.epoch == round
        drawn.update(view.clients)
        owners.update(view.owners)
    # χ² of 19 degrees is above 43.8 once in a thousand; this seed is one and stays the same.
    # A draw without replacement varies less, by the share that is not drawn.
    spread = (population - sampled) / (population - 1)
    assert chi_square(drawn, population) <= 43.8 * spread
    assert chi_square(owners, population) < 43.8 * (population - 2) / (population - 1)
    assert spread == 0 or chi_square(drawn, population) > 4 * spread  # nor suspiciously even


def test_the_order_in_the_population_says_nothing_about_the_role() -> None:
    views = [sampling(5, 5).view(round) for round in range(1, 400)]
    assert len({view.clients for view in views}) > 100  # of 120


def test_rounds_and_seeds_differ_and_repeat() -> None:
    one = sampling(10, 1000)
    assert one.view(1) == sampling(10, 1000).view(1)
    assert len({one.view(round).clients for round in range(1, 50)}) == 49
    assert one.view(1).clients != sampling(10, 1000, seed=4).view(1).clients


def test_neighbouring_rounds_share_members_by_chance_alone() -> None:
    views = [set(sampling(100, 1000).view(round).clients) for round in range(1, 201)]
    shared = [len(a & b) for a, b in pairwise(views)]
    # Hypergeometric: mean 10, variance 100·0.1·0.9·900/999; five deviations of the mean.
    assert abs(np.mean(shared) - 10) < 5 * math.sqrt(8.1 / len(shared))


def test_a_server_stays_what_it_is() -> None:
    template = View.central(["a", "b", "c"])
    names = tuple(f"client-{i}" for i in range(50))
    drawn = Sampling(template, names, seed=1)
    assert drawn.population.members == (*names, "server")
    assert drawn.population.owners == (50,)
    for round in range(1, 20):
        view = drawn.view(round)
        assert view.owners == (50,)
        assert max(view.clients) < 50
        assert view.roles == (*sorted(view.clients), 50)


def test_a_view_costs_what_is_sampled_and_not_the_population() -> None:
    """Counted: names looked at and words drawn, with a name that tells when it is looked at."""
    looked = 0

    class Name(str):
        def __hash__(self) -> int:
            nonlocal looked
            looked += 1
            return super().__hash__()

        def __eq__(self, other: object) -> bool:
            nonlocal looked
            looked += 1
            return super().__eq__(other)

    template = View.serverless(["a", "b", "c"], aggregators=1)
    drawn = Sampling(template, tuple(Name(f"client-{i}") for i in range(5000)), seed=1)
    assert len(drawn.population.members) == 5000  # checked once
    assert looked >= 5000
    looked = 0
    for round in range(1, 20):
        drawn.view(round)
    assert looked == 0


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="sampled is 4; expected at most 3"):
        sampling(4, 3)


# -- what a run of them computes ------------------------------------------------------------------

POPULATION, SAMPLED, ROUNDS = 60, 6, 5


def federation(method: Method, crowd: Crowd) -> Federation:
    rule = FedAvgRule(STEP)
    return Federation(crowd, START, method, rule=rule, sampled=SAMPLED, seed=8, min_included=1)


@pytest.mark.parametrize("stations", [1, 3])
@pytest.mark.parametrize("method", [FedAvg(), ERIS(aggregators=3)], ids=["fedavg", "eris"])
def test_a_round_is_fedavg_on_the_updates_of_the_sampled(method: Method, stations: int) -> None:
    crowd = Crowd(POPULATION, N)
    session = federation(method, crowd).start(ROUNDS, record=True, stations=stations)
    model = START.copy()
    for round in range(1, ROUNDS + 1):
        record = session.step()
        assert session.transcript is not None
        sampled = session.transcript.epochs[round].clients
        assert set(record.clients) == set(sampled)
        assert {client for client, when in crowd.given if when == round} == set(sampled)
        updates = []
        for client in sampled:
            started, update = crowd.given[client, round]
            assert_same_bits(started, model)
            updates.append(update)
        weights = [crowd.samples(client) for client in sampled]
        model = model - np.float32(STEP) * slow_mean(updates, weights)
        assert_same_bits(session.model, model, f"round {round}")
        assert record.included == 1


@pytest.mark.parametrize("rule", ["fedavg", "fedadam"])
@pytest.mark.parametrize("kept_fraction", [None, 0.5])
def test_what_is_handed_over_is_the_state_and_is_paid_for(
    rule: str, kept_fraction: float | None
) -> None:
    method = ERIS(aggregators=3, kept_fraction=kept_fraction)
    crowd = Crowd(2 * SAMPLED, N)  # few, so that owners are drawn again
    stayed = 0
    whole = Federation(crowd, START, method, rule=rule, sampled=SAMPLED, seed=8)
    session = whole.start(ROUNDS, record=True)
    for round in range(1, ROUNDS + 1):
        before = session.state()
        record = session.step()
        assert session.transcript is not None
        epochs = session.transcript.epochs
        handed = {
            sent: sent.message for sent in session.transcript.records
            if sent.sender in epochs.get(round - 1, epochs[round]).owners
            and isinstance(sent.message, Snapshot) and sent.message.header.epoch == round
        }  # fmt: skip
        paid = sum(size for (_, kind), size in record.traffic.sent.items() if kind == "Snapshot")
        assert paid == sum(len(sent.data) * len(sent.receivers) for sent in handed)
        if round == 1:
            assert not handed
            continue
        assert sorted(m.header.shard for m in handed.values()) == [0, 1, 2]
        vectors: dict[str, list[float]] = {}
        for sent, message in handed.items():
            assert epochs[round - 1].owners[message.header.shard] == sent.sender
            assert sent.arrived == set(sent.receivers) == set(epochs[round].roles) - {sent.sender}
            assert message.at == round - 1
            stayed += sent.sender in epochs[round].roles
            assert len(sent.data) == len(encode(message))
            parts = {"model": message.model, "reference": message.reference}
            parts |= {f"slot-{i}": slot for i, slot in enumerate(message.slots)}
            for name, payload in parts.items():
                if payload is not None:
                    vectors.setdefault(name, []).extend(
                        np.frombuffer(payload.encoded.data, "<f4").tolist()
                    )
        # Put together, the shards are the state at the end of the round before.
        assert vectors.keys() == before.keys() - {"versions"}
        for name, values in vectors.items():
            assert sorted(values) == sorted(before[name].tolist())
    assert stayed


def test_results_reach_nobody_but_in_the_next_rounds_snapshots() -> None:
    fit = federation(FedAvg(), Crowd(POPULATION, N)).fit(3, record=True, progress=False)
    assert fit.transcript is not None
    kinds = {type(r.message): r.arrived for r in fit.transcript.records}
    assert kinds[Result] == set()
    assert {c.header.sender for c in fit.transcript.as_server().contributions()} == {
        client for view in fit.transcript.epochs.values() for client in view.clients
    }


def test_a_sampled_member_that_is_away_neither_fetches_nor_contributes() -> None:
    faults = FaultPlan(seed=4, churn=0.4)
    session = federation(ERIS(), Crowd(POPULATION, N)).start(12, record=True, faults=faults)
    absent = 0
    for round in range(1, 13):
        record = session.step()
        assert session.transcript is not None
        view = session.transcript.epochs[round]
        away = {client for client in view.clients if faults.churned(client, round)}
        assert set(record.clients) == set(view.clients) - away
        absent += len(away)
        for sent in session.transcript.records:
            if sent.time < round:
                continue
            assert not sent.arrived & away
            if isinstance(sent.message, Contribution):
                assert sent.sender not in away
    assert absent > 15


def test_a_sampled_run_goes_on_from_its_state() -> None:
    method = ERIS(aggregators=3, kept_fraction=0.5)
    whole = federation(method, Crowd(POPULATION, N, momentum=0.5)).start(6, record=True)
    for _ in range(6):
        whole.step()
        if whole.round == 3:
            state = whole.state()
    again = federation(method, Crowd(POPULATION, N, momentum=0.5)).start(6, record=True, stations=2)
    again.restore(3, state)
    records = [again.step() for _ in range(3)]
    assert_same_bits(again.model, whole.model)
    assert whole.transcript is not None
    assert again.transcript is not None
    late = sorted(r.data for r in whole.transcript.records if r.time >= 4)
    assert sorted(r.data for r in again.transcript.records) == late
    assert records[0].traffic.sent


def test_roles_that_nobody_can_have_are_refused() -> None:
    drawn = sampling(3, 10)
    with pytest.raises(InvalidSetting, match="clients is 10"):
        replace(drawn.population, clients=(0, 10))
    with pytest.raises(InvalidSetting, match="owners is 10"):
        drawn.population.in_epoch(1, (0,), (10,))
    with pytest.raises(InvalidSetting, match="every client once"):
        drawn.population.in_epoch(1, (1, 1), (0,))
