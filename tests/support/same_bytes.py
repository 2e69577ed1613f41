"""What nodes first sent over gRPC beside what the simulator sends in the same view."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from eris.experiments.federations.processes import LocalFederation
from eris.protocol.agreement import Agreement
from eris.protocol.messages import Contribution, Result
from eris.protocol.schemes import EncryptedEntries
from eris.protocol.settings import Settings
from eris.protocol.transcript import Record, Transcript
from eris.runtimes.cohort import Cohort
from eris.runtimes.grpc.recorder import TRANSCRIPT
from eris.runtimes.station import Stations
from eris.testing.quadratic import Quadratic
from eris.training.population import Trainers

ROUNDS = 5
PATIENT: dict[str, Any] = {
    "membership.lease": 60.0,
    "federation.close_after": 60.0,
    "federation.catch_up_after": 90.0,
    "observe.record": True,
}
"""Nobody is given up here, however busy the machine."""

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


def over_grpc(nodes: LocalFederation) -> tuple[First, Transcript]:
    """What all nodes of a federation first sent, and the transcript of one; it had one view."""
    sent: First = {}
    for name in nodes.names:
        transcript = Transcript.load(nodes.folder / name / "state" / TRANSCRIPT)
        (view,) = transcript.epochs.values()
        me = view.members.index(name)
        sent |= first_sent([r for r in transcript.records if r.sender == me])
    return sent, transcript


def simulated(transcript: Transcript, rounds: int = ROUNDS) -> tuple[First, Cohort]:
    """The same federation of quadratics, moved in step; with keys of its own, where it has any."""
    (view,) = transcript.epochs.values()
    settings = Settings.from_canonical(transcript.settings)
    if isinstance(settings.scheme, EncryptedEntries):
        settings = replace(settings, scheme=replace(settings.scheme, public_key=""))
    trainers = [Quadratic(name) for name in view.members]
    agreement = Agreement(settings, replace(view, seating=None))
    cohort = Cohort(agreement, trainers[0].initial(), Trainers(trainers), record=True)
    engine = Stations([cohort])
    records = [r for round in range(1, rounds + 1) for r in engine.run_round(round).records]
    return first_sent(records), cohort


def sizes(sent: First) -> dict[object, tuple[tuple[int, ...], int]]:
    """The same with lengths in place of bytes that are drawn in secret."""
    return {name: (to, len(data)) for name, (to, data) in sent.items()}
