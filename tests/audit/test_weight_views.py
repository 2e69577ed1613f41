"""What observers read where weights travel: clustered ones whole, encrypted ones not at all; of
encrypted clusters ``test_enccluster_attacks.py`` has more."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eris.audit.watch import Watch
from eris.protocol.observers import Observer
from eris.protocol.transcript import Record
from eris.session import Fit
from support.command import Eris
from support.encrypted import CLIENTS, START, fitted, in_clusters


def rounds(fit: Fit) -> list[tuple[int, list[Record]]]:
    assert fit.transcript is not None
    by = groupby(fit.transcript.records, lambda record: int(record.time))
    return [(round, list(records)) for round, records in by]


def test_a_server_reads_clustered_weights_as_the_updates_that_led_to_them() -> None:
    fit, crowd, made = fitted("fedavg-wc")
    assert fit.transcript is not None
    assert made.agreement is not None
    rate = made.agreement.settings.rule.learning_rate
    watch = Watch(fit.transcript, START, [fit.transcript.server()])
    seen = 0
    for round, records in rounds(fit):
        for sight in watch.follow(round, records):
            for client in range(CLIENTS):
                pieces = sight.pieces(client, published=True)
                assert pieces is not None
                model, update = (one.astype(np.float64) for one in crowd.given[client, round])
                sent = in_clusters((model - rate * update).astype(np.float32))
                np.testing.assert_array_equal(pieces.sent, sent[pieces.coordinates])
                expected = ((model - sent) / rate)[pieces.coordinates]
                np.testing.assert_allclose(pieces.update, expected, rtol=1e-5, atol=1e-5)
                seen += 1
    assert seen == CLIENTS * 3
    assert np.array_equal(watch.models()[0], fit.model)


def test_a_member_that_heard_no_contribution_takes_none_for_an_update() -> None:
    fit, _, _ = fitted("fedavg-wc", 1)
    assert fit.transcript is not None
    watch = Watch(fit.transcript, START, [Observer("member", frozenset({3}))])
    for round, records in rounds(fit):
        for sight in watch.follow(round, records):
            pieces = sight.pieces(5, published=True)
            assert pieces is not None
            assert not pieces.update.any()
            assert pieces.published is not None
            assert pieces.published.any()


@pytest.mark.parametrize("name", ["detrust", "sefl"])
def test_nobody_reads_a_single_weight_that_is_encrypted_by_itself(name: str) -> None:
    fit = fitted(name, 2)[0]
    assert fit.transcript is not None
    watch = Watch(fit.transcript, START, [fit.transcript.server()])
    for round, records in rounds(fit):
        for sight in watch.follow(round, records):
            for client in range(CLIENTS):
                assert not sight.seen(client).any()
    assert np.array_equal(watch.models()[0], fit.model)


RUN = ("run", "--data", "digits", "--clients", "6", "--rounds", "3", "--method", "enccluster")
SMALL = ("--set", "clusters=16", "--set", "fraction_bits=12", "--set", "weight_range=8")


def test_the_commands_run_and_audit_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    eris = Eris(monkeypatch, capsys)
    more: tuple[Any, ...] = ("--record", "--canaries", "0.5", "--name", "enc")
    assert eris(*RUN, *SMALL, *more) == 0, eris.err
    assert "does not hide your model from the server" in " ".join((eris.out + eris.err).split())
    assert eris("audit", "enc") == 0, eris.err
    found = json.loads((tmp_path / "runs" / "enc" / "audit.json").read_text(encoding="utf-8"))
    assert {one["observer"] for one in found["findings"]} == {"server", "member 0", "final model"}
    lines = found["mappings and sums: the system"]
    assert [one["round"] for one in lines] == [1, 2, 3]
    assert all(one["exact"] == one["determined"] for one in lines)
    models = found["mappings and sums: models, against what clients sent"]
    assert all(one["explained"] > one["mean"] for one in models), models
    (control,) = found["mappings and sums: control, each client's mapping permuted"]
    assert control["exact"] < control["determined"]
    sums = found["a sum and nothing else: share of the updates that its mean explains"]
    assert {one["observer"] for one in sums} == {"member 0"}
    assert eris("audit", "enc", "--attack", "mappings", "--as", "link:0-6") == 0, eris.err
    assert eris("audit", "enc", "--attack", "eavesdrop") == 0, eris.err
    found = json.loads((tmp_path / "runs" / "enc" / "audit.json").read_text(encoding="utf-8"))
    (most,) = [
        one
        for one in found["eavesdropper"]
        if (one["hears"], one["starts at"], one["γ"]) == ("both ways", "first model", 1.0)
    ]
    assert 0 < most["left where heard, %"] < 1, "a constant a segment is guessed"
