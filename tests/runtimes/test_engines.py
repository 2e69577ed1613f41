"""Every method in any number of stations: the same bits, bytes and messages.

That they are the same on Ray is shown in ``test_ray.py``: one cluster at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from eris.core.vectors import Vector
from eris.federation import Federation
from eris.methods.registry import METHODS, create
from eris.protocol.transcript import Transcript
from eris.runtimes.faults import FaultPlan
from eris.testing.synthetic import assert_same_bits
from eris.training.trainer import LocalUpdate, PerSampleNoise
from support.pulls import START, federation


@pytest.mark.parametrize("name", METHODS)
def test_stations_do_not_change_a_bit(name: str) -> None:
    faults = FaultPlan(seed=3, link=0.1, churn=0.1, correlation=0.1)
    sessions = [
        federation(name).start(8, record=True, faults=faults, stations=count) for count in (1, 3)
    ]
    for _ in range(4):
        one, three = (session.step() for session in sessions)
        assert one.traffic == three.traffic
        assert one.included == three.included
        assert one.clients == three.clients
    first, second = (session.models() for session in sessions)
    assert len(first) == len(second)
    for found, expected in zip(first, second, strict=True):
        assert_same_bits(found, expected)
    kept = [
        sorted((r.sender, r.receivers, r.data) for r in session.transcript.records)
        for session in sessions
        if session.transcript is not None
    ]
    assert len(kept) == 2
    assert kept[0] == kept[1]


@pytest.mark.parametrize("name", METHODS)
def test_a_session_continues_from_its_state(name: str) -> None:
    whole = federation(name).start(6)
    for _ in range(3):
        whole.step()
    state = {key: np.array(value) for key, value in whole.state().items()}
    for _ in range(3):
        whole.step()
    resumed = federation(name).start(6, stations=2)
    resumed.restore(3, state)
    while resumed.round < 6:
        resumed.step()
    for found, expected in zip(resumed.models(), whole.models(), strict=True):
        assert_same_bits(found, expected)


def test_a_large_population_costs_what_is_sampled(tmp_path: Path) -> None:
    """Counted in work, not in seconds: updates asked for, and bytes sent."""
    asked: list[int] = []

    class Crowd:
        def __len__(self) -> int:
            return 100_000

        def updates(
            self,
            clients: Sequence[int],
            models: Vector | Sequence[Vector],
            round: int,
            noise: PerSampleNoise | None = None,
        ) -> Iterator[LocalUpdate]:
            asked.extend(clients)
            assert isinstance(models, np.ndarray)
            for client in clients:
                yield LocalUpdate(models - np.float32(client % 7), samples=1)

        def state(self) -> dict[str, Vector]:
            return {}

        def restore(self, state: Mapping[str, Vector]) -> None:
            assert state == {}

    for name in ("fedavg", "eris"):
        asked.clear()
        crowd = Federation(Crowd(), START, create(name), sampled=100, seed=1)
        fit = crowd.fit(3, progress=False, record=True)
        assert len(asked) == 300
        assert len(set(asked)) > 290
        hundred = Federation(Crowd(), START, create(name), sampled=100, seed=1)
        assert_same_bits(hundred.fit(3, progress=False, engine="local").model, fit.model)
        sent = [sum(record.traffic.sent.values()) for record in fit.history]
        # The first round needs no model to be fetched; the others are alike.
        assert sent[0] < sent[1]
        assert abs(sent[1] - sent[2]) < 0.02 * sent[1]
        assert all(record.included == 1 for record in fit.history)
    assert fit.transcript is not None
    path = tmp_path / "sampled.eris"
    fit.transcript.save(path)
    read = Transcript.load(path)
    assert read.epochs == fit.transcript.epochs
    assert sorted(read.epochs) == [1, 2, 3]
    owner = next(iter(read.epochs[2].owners))
    seen = {c.header.sender for c in read.as_aggregator(owner).contributions()}
    assert seen <= set(read.epochs[2].clients)
    assert len(seen) >= 98
