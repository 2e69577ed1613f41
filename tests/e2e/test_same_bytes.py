"""Nodes over gRPC say what the simulator says: contributions and results, message by message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eris.protocol.agreement import Agreement
from eris.protocol.messages import Contribution, Result
from eris.protocol.settings import Settings
from eris.protocol.transcript import Record, Transcript
from eris.runtimes.cohort import Cohort
from eris.runtimes.grpc.recorder import TRANSCRIPT
from eris.runtimes.station import Stations
from eris.testing.quadratic import Quadratic
from eris.training.population import Trainers
from support.nodes import Nodes

ROUNDS = 5
PATIENT = {
    "membership.lease": 60.0,
    "federation.close_after": 60.0,
    "federation.catch_up_after": 90.0,
    "observe.record": True,
}
"""Nobody is given up here, however busy the machine."""
MODES: dict[str, dict[str, Any]] = {
    "plain": {"federation.segment_size": 50},
    "dsc": {"federation.kept_fraction": 0.2},
    "rotated": {"federation.kept_fraction": 0.1, "federation.basis": "rotated"},
}

First = dict[tuple[str, int, int, tuple[int, int]], tuple[tuple[int, ...], bytes]]


def first_sent(records: list[Record]) -> First:
    """By kind, sender, round and segment: to whom a message went when it was first sent, and its
    bytes. What stays with a member is sent to itself."""
    sent: First = {}
    for record in records:
        message = record.message
        if isinstance(message, Contribution | Result):
            header = message.header
            name = type(message).__name__, record.sender, header.round, header.key
            sent.setdefault(name, (record.receivers, record.data))
    return sent


@pytest.mark.parametrize("mode", MODES)
def test_first_sends_over_grpc_are_the_simulators(mode: str, tmp_path: Path) -> None:
    with Nodes(tmp_path, 4, rounds=ROUNDS, values={**PATIENT, **MODES[mode]}) as nodes:
        nodes.begin()
        nodes.finish()
    over_grpc: First = {}
    for name in nodes.names:
        transcript = Transcript.load(nodes.folder / name / "state" / TRANSCRIPT)
        (view,) = transcript.epochs.values()
        me = view.members.index(name)
        over_grpc |= first_sent([r for r in transcript.records if r.sender == me])
    settings = Settings.from_canonical(transcript.settings)
    trainers = [Quadratic(name) for name in view.members]
    cohort = Cohort(
        Agreement(settings, view), trainers[0].initial(), Trainers(trainers), record=True
    )
    engine = Stations([cohort])
    simulated = [r for round in range(1, ROUNDS + 1) for r in engine.run_round(round).records]
    expected = first_sent(simulated)
    assert over_grpc.keys() == expected.keys()
    assert over_grpc == expected
    assert len(expected) == ROUNDS * len(cohort.agreement.keys) * (len(trainers) + 1)
    assert transcript.final_model is not None
    assert transcript.final_model.tobytes() == cohort.replica.model.tobytes()
