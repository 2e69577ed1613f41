"""The Ray engine on a real cluster: every method, states, failures, and what is given back."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.federation import Federation
from eris.methods.registry import METHODS, create
from eris.runtimes.faults import FaultPlan
from eris.runtimes.ray import RayStations, connect
from eris.testing import assert_same_bits, initial_model
from eris.training.trainer import LocalUpdate, PerSampleNoise
from support import crowd as crowds
from support import pulls
from support.crowd import Crowd

# Workers do not see the folder of the tests.
for module in (crowds, pulls, sys.modules[__name__]):
    importlib.import_module("ray.cloudpickle").register_pickle_by_value(module)

N, CLIENTS = 40, 9
START = initial_model(N)


def federation(name: str) -> Federation:
    crowd = Crowd(CLIENTS, N, momentum=0.5)
    samples = [crowd.samples(client) for client in range(CLIENTS)]
    return Federation(crowd, START, create(name), samples=samples, seed=1)


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
                raise InvalidSetting("client", 4, "another one in round 2")
            yield LocalUpdate(np.zeros(N, np.float32), 1)


def test_a_training_that_fails_gives_its_cluster_back() -> None:
    import ray

    assert not ray.is_initialized()
    with pytest.raises(InvalidSetting, match="another one in round 2"):
        Federation(Failing(CLIENTS, N), START).fit(3, engine="ray", progress=False)
    assert not ray.is_initialized()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    ray = connect()
    yield ray
    ray.shutdown()


@pytest.mark.filterwarnings("ignore::eris.federation.RefusedWarning")  # too few for a set
@pytest.mark.parametrize("name", METHODS)
def test_ray_gives_the_same_bits_bytes_and_messages(name: str, cluster: Any) -> None:
    faults = FaultPlan(seed=3, link=0.1, churn=0.1, correlation=0.1)
    local = pulls.federation(name).fit(3, progress=False, record=True, faults=faults)
    spread = pulls.federation(name).fit(3, progress=False, record=True, faults=faults, engine="ray")
    for found, expected in zip(spread.models, local.models, strict=True):
        assert_same_bits(found, expected)
    assert [r.traffic for r in spread.history] == [r.traffic for r in local.history]
    assert local.transcript is not None
    assert spread.transcript is not None
    kept = [
        sorted((r.sender, r.receivers, r.data, sorted(r.arrived)) for r in transcript.records)
        for transcript in (local.transcript, spread.transcript)
    ]
    assert kept[0] == kept[1]


@pytest.mark.parametrize("name", ["eris", "soteriafl", "shatter"])
def test_actors_have_the_state_of_one_process_and_go_on_from_it(name: str, cluster: Any) -> None:
    local = federation(name).start(4)
    spread = federation(name).start(4, engine="ray", stations=3)
    for _ in range(2):
        ours, theirs = spread.step(), local.step()
        assert ours.traffic == theirs.traffic
        assert ours.clients == theirs.clients
    state = spread.state()
    spread.close()
    for key, value in local.state().items():
        assert np.array_equal(state[key], value), key
    resumed = federation(name).start(4, engine="ray", stations=2)
    resumed.restore(2, state)
    for _ in range(2):
        resumed.step()
        local.step()
    for found, expected in zip(resumed.models(), local.models(), strict=True):
        assert_same_bits(found, expected)
    resumed.close()


@pytest.mark.parametrize("stations", [1, 3])
def test_what_fails_at_a_station_is_not_lost(stations: int, cluster: Any) -> None:
    session = Federation(Failing(CLIENTS, N), START).start(3, engine="ray", stations=stations)
    session.step()
    with pytest.raises(InvalidSetting, match="another one in round 2"):
        session.step()
    assert session.round == 1
    session.close()


def test_a_cluster_that_was_there_before_stays(cluster: Any) -> None:
    federation("fedavg").fit(1, engine="ray", progress=False)
    assert cluster.is_initialized()


def test_as_many_actors_as_cores_or_as_asked_for(cluster: Any) -> None:
    cores = int(cluster.cluster_resources()["CPU"])
    for asked, expected in ((None, cores), (3, 3)):
        session = federation("eris").start(1, engine="ray", stations=asked)
        assert isinstance(session.engine, RayStations)
        assert len(session.engine.actors) == expected
        session.close()
        with pytest.raises(cluster.exceptions.RayActorError):
            cluster.get(session.engine.actors[0].phases.remote())
    for count in (0, -1):
        with pytest.raises(InvalidSetting, match=f"stations is {count}; expected at least 1"):
            federation("eris").start(1, engine="ray", stations=count)
