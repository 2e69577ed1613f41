"""Views are records: an audit goes by who was who in every epoch, whatever was stopped."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from eris.audit.watch import Watch
from eris.core.vectors import Vector
from eris.experiments.audits.auditing import (
    AuditOptions,
    audit_live,
    audit_transcript,
    by_round,
    subject_of,
)
from eris.experiments.audits.files import load, observers_of, subject_of_run, whose
from eris.experiments.audits.observers import named
from eris.experiments.runs import runner
from eris.experiments.runs.assembly import Assembly, assemble
from eris.experiments.runs.progress import Progress
from eris.experiments.runs.store import TRANSCRIPT, Line
from eris.protocol.codec import encode
from eris.protocol.messages import Result
from eris.protocol.transcript import Record, Transcript
from eris.runtimes.grpc.recorder import Recorder
from support.audits import ROUNDS, digits

SAMPLED = {"training.sampled": 5}


@cache
def trained() -> tuple[Assembly, Transcript, list[Vector]]:
    """Five of ten clients a round, four of them owners: others in every round."""
    assembly = assemble(digits("dsc", **SAMPLED))
    models = [assembly.initial]
    with assembly.training() as training:
        for _ in range(ROUNDS):
            training.step()
            models.append(training.model)
        assert training.transcript is not None
        training.transcript.final_model = training.model
        return assembly, training.transcript, models


def recorded() -> tuple[Assembly, Transcript]:
    assembly, transcript, _ = trained()
    return assembly, transcript


def test_every_owner_of_any_round_is_an_observer_live_or_recorded() -> None:
    assembly, transcript = recorded()
    owners = {owner for view in transcript.epochs.values() for owner in view.owners}
    assert len(owners) > 4
    options = AuditOptions(("aggregator", "final-model"), draws=20)
    stored = audit_transcript(subject_of(assembly, transcript), transcript, options)
    names = {found.observer for found in stored.report.findings}
    assert names == {*(f"aggregator {owner}" for owner in owners), "final model"}
    live = audit_live(assemble(digits("dsc", **SAMPLED)), options)
    expected = stored.to_json()
    assert {name: live.to_json()[name] for name in expected if name != "about"} == {
        name: value for name, value in expected.items() if name != "about"
    }


def test_whoever_is_handed_the_state_holds_the_model_as_its_round_begins() -> None:
    assembly, transcript, models = trained()
    looking = Watch(transcript, assembly.initial, [transcript.member(one) for one in range(10)])
    for round, records in sorted(by_round(transcript).items()):
        there = set(transcript.epochs[round].roles)
        for sight in looking.follow(round, records):
            if there.intersection(sight.observers):
                np.testing.assert_array_equal(sight.model, models[round - 1])
            known = {client for client in range(10) if sight.pieces(client) is not None}
            assert known <= transcript.epochs[round].client_set


def test_a_result_that_names_a_client_of_another_epoch_is_refused_as_members_refuse_it() -> None:
    assembly, transcript = recorded()
    first, second = (transcript.epochs[round].client_set for round in (1, 2))
    stranger, observer = min(first - second), transcript.member(min(first & second))

    def forged(record: Record) -> Record:
        result = record.message
        assert isinstance(result, Result)
        return replace(record, data=encode(replace(result, included=result.included | {stranger})))

    rounds, models = by_round(transcript), []
    results = [record for record in rounds[2] if isinstance(record.message, Result)]
    for published in (results, [forged(record) for record in results]):
        looking = Watch(transcript, assembly.initial, [observer])
        for round, records in ((1, rounds[1]), (2, published)):
            for sight in looking.follow(round, records):
                before = sight.model
        models.append(looking.models()[0])
    assert not np.array_equal(models[0], before), "the true results move the model"
    np.testing.assert_array_equal(models[1], before)


def test_a_node_that_was_restarted_in_every_epoch_is_audited_as_if_it_had_not(
    tmp_path: Path,
) -> None:
    assembly, transcript = recorded()
    me = next(m for m in range(10) if all(m in v.owners for v in transcript.epochs.values()))
    mine = [one for one in transcript.records if one.sender == me or me in one.arrived]
    for epoch, records in groupby(mine, lambda one: one.message.header.epoch):
        recorder = Recorder(tmp_path, me, transcript.settings)  # the last one was killed
        recorder.in_view(transcript.epochs[epoch])
        for one in records:
            if one.sender == me:
                recorder.sent(one.time, one.receivers, one.data)
            else:
                recorder.received(one.time, one.sender, one.data)
    assert transcript.final_model is not None
    recorder.close(transcript.final_model)
    own = load(tmp_path / TRANSCRIPT)
    assert whose(own) == me
    assert {e: v.roles for e, v in own.epochs.items()} == {
        e: v.roles for e, v in transcript.epochs.items()
    }
    names = observers_of(own, ())
    assert names == (f"aggregator:{me}", f"member:{me}", "final-model")
    options = AuditOptions(names, draws=20)
    found, expected = (
        audit_transcript(subject_of(assembly, one), one, options).to_json()
        for one in (own, transcript)
    )
    assert found == expected


def test_a_run_that_was_stopped_is_audited_as_if_it_had_not(tmp_path: Path) -> None:
    class Stop(Exception):
        """A kill, as far as a process can play it."""

    class Twice(Progress):
        def round(self, line: Line) -> None:
            if line["round"] == 2:
                raise Stop

    recipe = digits("dsc", name="r", **SAMPLED)
    whole = runner.start(recipe, tmp_path / "whole", Progress())
    with pytest.raises(Stop):
        runner.start(recipe, tmp_path / "cut", Twice())
    cut = runner.start(recipe, tmp_path / "cut", Progress())
    figures = []
    for run in (whole, cut):
        transcript = load(run.path / TRANSCRIPT)
        assert sorted(transcript.epochs) == list(range(1, ROUNDS + 1))
        assert len(named("aggregator", transcript)) > 4
        given = subject_of_run(run, transcript, None)
        options = AuditOptions(("aggregator",), draws=20)
        figures.append(audit_transcript(given, transcript, options).to_json())
    assert figures[0] == figures[1]
