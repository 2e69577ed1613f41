"""Small federations with canaries, recorded, and audits of them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from eris.audit.watch import Watch
from eris.experiments.audits.auditing import (
    AuditOptions,
    Outcome,
    Subject,
    audit_transcript,
    subject_of,
)
from eris.experiments.runs.assembly import Assembly, assemble
from eris.experiments.runs.recipe import UNBIASED, Recipe
from eris.protocol.observers import Observer
from eris.protocol.transcript import Transcript

ROUNDS = 4
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"method.name": "fedavg"},
    "eris": {"method.name": "eris", "method.aggregators": 4},
    "dsc": {"method.name": "eris", "method.aggregators": 4, "method.kept_fraction": 0.3},
    "paper mode": {
        "method.name": "eris",
        "method.aggregators": 4,
        "method.kept_fraction": 0.3,
        "method.masks": "independent",
    },
    "rotated masks": {
        "method.name": "eris",
        "method.aggregators": 4,
        "method.kept_fraction": 0.3,
        "method.basis": "rotated",
    },
    "rotating": {"method.name": "eris", "method.aggregators": 4, "method.rotate": 1},
    "noise": {
        "method.name": "eris",
        "method.aggregators": 4,
        "method.secure": "2of3",
        "method.epsilon": 8.0,
        "method.clip": 0.5,
        "training.momentum": 0.0,
        "server.rule": "fedavgm",
    },
    "clustered": {"method.name": "fedavg-wc", "method.clusters": 16},
    "soteria": {"method.name": "soteriafl", "method.epsilon": 50.0},
    "priprune": {"method.name": "priprune", "method.rate": 0.05},
}


def digits(method: str, **changes: Any) -> Recipe:
    """Softmax regression on digits, ten clients with canaries."""
    base = {
        "data.name": "digits",
        "data.clients": 10,
        "data.samples": 12,
        "data.canaries": 0.5,
        "training.rounds": ROUNDS,
        "training.learning_rate": 0.1,
        **UNBIASED,
        "engine.record": True,
    }
    return Recipe().changed({**base, **METHODS[method], **changes})


@cache
def recorded(
    method: str, faults: tuple[tuple[str, float], ...] = ()
) -> tuple[Assembly, Transcript]:
    """A run, and all of its messages."""
    assembly = assemble(digits(method, **{f"faults.{name}": rate for name, rate in faults}))
    with assembly.training() as training:
        for _ in range(ROUNDS):
            training.step()
        assert training.transcript is not None
        training.transcript.final_model = training.model
        return assembly, training.transcript


def subject(method: str, faults: tuple[tuple[str, float], ...] = ()) -> tuple[Subject, Transcript]:
    """What an audit of a run starts from."""
    assembly, transcript = recorded(method, faults)
    return subject_of(assembly, transcript), transcript


def audited(method: str, *observers: str, **options: Any) -> Outcome:
    """The audit of a recorded run."""
    found, transcript = subject(method)
    return audit_transcript(found, transcript, AuditOptions(observers, draws=200, **options))


def watch(
    method: str, observers: list[Observer], faults: tuple[tuple[str, float], ...] = ()
) -> Watch:
    """The observers of a run, at its start."""
    found, transcript = subject(method, faults)
    return Watch(transcript, found.initial, observers)


def without(transcript: Transcript, observer: Observer) -> Transcript:
    """The transcript without all that never reached the observer."""
    kept = [record for record in transcript.records if observer.sees(record)]
    assert len(kept) < len(transcript.records)
    model = transcript.final_model
    return Transcript(
        transcript.membership,
        transcript.settings,
        kept,
        None if model is None else np.array(model),
        transcript.epochs,
    )
