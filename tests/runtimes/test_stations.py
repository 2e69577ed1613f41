"""Stations: where members live, what is counted, and states that do not mix."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from eris.core.compress import Encoded, Encoding
from eris.core.rules import FedAvg as FedAvgRule
from eris.core.vectors import Vector
from eris.federation import Federation
from eris.methods.dpsgd import DPSGD
from eris.methods.eris import ERIS
from eris.methods.method import GossipMethod, Method
from eris.methods.shatter import Shatter
from eris.methods.soteria import SoteriaFL
from eris.protocol.messages import Header, Payload, Share
from eris.runtimes.cohort import Cohort
from eris.runtimes.faults import FaultPlan
from eris.runtimes.station import (
    Place,
    Post,
    Report,
    Station,
    Stations,
    Traffic,
    joined,
    trainers_state,
    under,
)
from eris.runtimes.swarm import Swarm
from eris.testing import assert_same_bits, initial_model
from support.crowd import Crowd

N, CLIENTS, ROUNDS = 40, 10, 6
START = initial_model(N)
METHODS: dict[str, Method | GossipMethod] = {
    "eris": ERIS(aggregators=4, kept_fraction=0.5),
    "soteriafl": SoteriaFL(kept_fraction=0.5, noise=False),
    "d-psgd": DPSGD(degree=4),
    "shatter": Shatter(virtual_nodes=2, degree=4),
}
FAULTS = FaultPlan(seed=2, link=0.2, churn=0.2)


def federation(method: Method | GossipMethod, crowd: Crowd) -> Federation:
    samples = [crowd.samples(client) for client in range(CLIENTS)]
    rule = FedAvgRule(0.1)
    return Federation(crowd, START, method, rule=rule, samples=samples, seed=5)


def stations_of(method: Method | GossipMethod, count: int) -> Stations:
    """Each with a copy of the population of its own, as in processes of their own."""
    crowd = Crowd(CLIENTS, N, momentum=0.5)
    whole = federation(method, crowd)

    def build(number: int) -> Station:
        given: dict[str, Any] = {"place": Place(number, count), "faults": copy.deepcopy(FAULTS)}
        own = copy.deepcopy(crowd)
        if whole.agreement is None:
            return Swarm(whole._gossip, START, own, **given)
        return Cohort(whole.agreement, START, own, **given)

    return Stations([build(number) for number in range(count)])


@pytest.mark.parametrize("name", METHODS)
def test_what_trainers_keep_is_told_by_the_station_they_train_at(name: str) -> None:
    """A station's copies of the other stations' trainers are as they were at the start."""
    one, three = (stations_of(METHODS[name], count) for count in (1, 3))
    for round in range(1, ROUNDS + 1):
        one.run_round(round)
        three.run_round(round)
    found, expected = three.state(), one.state()
    assert found.keys() == expected.keys()
    assert sum(key.startswith("trainer/") for key in found) == CLIENTS
    for key, value in expected.items():
        assert np.array_equal(found[key], value), key
    # And from there a run goes on as it would have, on any number of stations.
    state = {key: np.array(value) for key, value in found.items()}
    again = stations_of(METHODS[name], 2)
    again.restore(ROUNDS, state)
    for round in range(ROUNDS + 1, 2 * ROUNDS):
        one.run_round(round)
        again.run_round(round)
    models = again.models()
    assert models.keys() == one.models().keys()
    for member, model in one.models().items():
        assert_same_bits(models[member], model)


def test_every_member_lives_at_one_station() -> None:
    places = [Place(number, 3) for number in range(3)]
    for member in range(50):
        assert sum(place.hosts(member) for place in places) == 1
    assert all(Place().hosts(member) for member in range(50))


def test_hosted_trainers_states_are_told_apart_by_the_whole_number() -> None:
    crowd = Crowd(20, N, momentum=0.5)
    names = [set(trainers_state(crowd, Place(number, 3))) for number in range(3)]
    assert names[1] == {f"trainer/{client}/kept" for client in (1, 4, 7, 10, 13, 16, 19)}
    assert set.union(*names) == {f"trainer/{client}/kept" for client in range(20)}


def share(values: int) -> Share:
    data = np.zeros(values, "<f4").tobytes()
    return Share(Header(1, 0, 0, 1, 0, 0), Payload(Encoded(Encoding.DENSE, values, data)))


def test_the_post_counts_every_receiver_but_the_sender_itself() -> None:
    post = Post(record=True)
    record = post.stamp(1.5, 0, (1, 2), share(10))
    own = post.stamp(1.6, 0, (0,), share(10))
    size = len(record.data)
    assert size > 40
    traffic, records = post.empty()
    assert traffic.sent == {(0, "Share"): 2 * size}
    assert traffic.received == {(1, "Share"): size, (2, "Share"): size}
    assert records == [record, own]
    assert record.arrived == set()
    assert post.empty() == (Traffic(), [])
    quiet = Post()
    quiet.stamp(1.0, 0, (1,), share(1))
    assert quiet.empty()[1] == []


def test_reports_are_put_together() -> None:
    first, second = Report(), Report(included=0.5, refused=["why"], clients={3: {"loss": 1.0}})
    first.traffic.note(0, 1, "Result", 10)
    second.traffic.note(0, 1, "Result", 5)
    second.traffic.note(2, 0, "Share", 7)
    whole = joined([first, second])
    assert whole.traffic.sent == {(0, "Result"): 15, (2, "Share"): 7}
    assert whole.traffic.received == {(1, "Result"): 15, (0, "Share"): 7}
    assert (whole.included, whole.refused, whole.clients) == (0.5, ["why"], {3: {"loss": 1.0}})


def test_a_part_of_a_state_by_its_prefix() -> None:
    one: Vector = np.zeros(1, np.float32)
    state = {"peer/1/model": one, "peer/1/unsent": one, "peer/11/model": one, "model": one}
    assert set(under("peer/1/", state)) == {"model", "unsent"}
    assert set(under("trainer/", state)) == set()
