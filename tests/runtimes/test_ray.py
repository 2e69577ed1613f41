"""The Ray engine's side of the calls, on a Ray that lives in this process.

That the real one gives the same bits is shown in ``test_engines.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.federation import Federation
from eris.methods.registry import METHODS, create
from eris.runtimes import ray
from eris.runtimes.ray import RayStations
from eris.testing import assert_same_bits, initial_model
from eris.training.trainer import LocalUpdate, PerSampleNoise
from support.crowd import Crowd
from support.near_ray import NearRay

N, CLIENTS = 40, 9
START = initial_model(N)


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> NearRay:
    cluster = NearRay(cores=3)
    monkeypatch.setattr(ray, "_ray", lambda: cluster)
    return cluster


def federation(name: str) -> Federation:
    crowd = Crowd(CLIENTS, N, momentum=0.5)
    samples = [crowd.samples(client) for client in range(CLIENTS)]
    return Federation(crowd, START, create(name), samples=samples, seed=1)


@pytest.mark.parametrize("name", METHODS)
def test_actors_give_the_bits_traffic_and_states_of_one_process(name: str, near: NearRay) -> None:
    local = federation(name).start(6, record=True)
    spread = federation(name).start(6, record=True, engine="ray")
    assert len(near.handles) == 3
    for _ in range(3):
        ours, theirs = spread.step(), local.step()
        assert ours.traffic == theirs.traffic
        assert ours.clients == theirs.clients
    state = spread.state()
    for key, value in local.state().items():
        assert np.array_equal(state[key], value), key
    resumed = federation(name).start(6, engine="ray", stations=2)
    resumed.restore(3, state)
    for _ in range(3):
        resumed.step()
        local.step()
    for found, expected in zip(resumed.models(), local.models(), strict=True):
        assert_same_bits(found, expected)


class Failing(Crowd):
    def updates(
        self,
        clients: Sequence[int],
        models: Vector | Sequence[Vector],
        round: int,
        noise: PerSampleNoise | None = None,
    ) -> Iterator[LocalUpdate]:
        for client in clients:
            if (client, round) == (4, 2):
                raise ZeroDivisionError("client 4 in round 2")
            yield LocalUpdate(np.zeros(N, np.float32), 1)


@pytest.mark.parametrize("stations", [1, 3])
def test_what_fails_at_a_station_is_not_lost(stations: int, near: NearRay) -> None:
    session = Federation(Failing(CLIENTS, N), START).start(3, engine="ray", stations=stations)
    session.step()
    with pytest.raises(ZeroDivisionError, match="client 4 in round 2"):
        session.step()
    assert session.round == 1


def test_a_training_that_fails_gives_its_actors_back(near: NearRay) -> None:
    with pytest.raises(ZeroDivisionError):
        Federation(Failing(CLIENTS, N), START).fit(3, engine="ray", progress=False)
    assert all(handle.killed for handle in near.handles)
    assert not near.up


def test_a_cluster_that_was_there_before_stays(near: NearRay) -> None:
    near.init()
    federation("fedavg").fit(1, engine="ray", progress=False)
    assert near.up
    assert all(handle.killed for handle in near.handles)


def test_as_many_actors_as_cores_or_as_asked_for(near: NearRay) -> None:
    assert isinstance(federation("eris").start(1, engine="ray").engine, RayStations)
    assert len(near.handles) == 3
    federation("eris").start(1, engine="ray", stations=5)
    assert len(near.handles) == 8
    for count in (0, -1):
        with pytest.raises(InvalidSetting, match=f"stations is {count}; expected at least 1"):
            federation("eris").start(1, engine="ray", stations=count)
