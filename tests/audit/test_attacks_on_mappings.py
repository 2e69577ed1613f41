"""Attacks on EncCluster's mappings, on recorded messages; each with its control.

docs/enccluster.md has the table: which attack, which test.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pytest

from eris.audit import mapping_attack
from eris.audit.attack import show
from eris.audit.mapping_attack import MappingAttack, MappingReport, TrueClients
from eris.audit.watch import Watch
from eris.core.books import Books
from eris.core.clustering import clustered
from eris.core.errors import MalformedMessage
from eris.core.vectors import Vector
from eris.experiments.audits.enccluster_attacks import AttackedTraining, TrainedCell, TrainedWorld
from eris.federation import Federation
from eris.methods.registry import create
from eris.protocol.enccluster.group import POINT_BYTES
from eris.protocol.enccluster.mapped import Box
from eris.protocol.messages import Contribution
from eris.protocol.observers import Observer
from eris.protocol.transcript import Record
from eris.training.torch import single_threaded
from support.crowd import Crowd
from support.encrypted import CLIENTS, CLUSTERS, START, N
from support.recorded import (
    SERVER,
    Patch,
    Recorded,
    centroids_of,
    recorded,
    usual,
)


def attacked(run: Recorded, observer: Observer | None = None) -> MappingReport:
    """The mapping attack through the audit's one loop, judged by what clients trained."""
    observer = observer or run.transcript.server()
    agreement = run.made.agreement
    assert agreement is not None
    rate, scheme = agreement.settings.rule.learning_rate, agreement.settings.scheme

    def trained(round: int, client: int) -> Vector:
        model, update = run.crowd.given[client, round]
        return model - np.float32(rate) * update if scheme.relative else update

    truth = TrueClients(run.transcript, START, trained=trained)
    attack = MappingAttack([observer], [0], truth)
    watch = Watch(run.transcript, START, [observer])
    for round, records in groupby(run.transcript.records, lambda one: int(one.time)):
        kept: list[Record] = list(records)
        truth.note(round, kept)
        show(watch, round, kept, [attack])
    return attack.report()


# -- 7 and 10: mappings and sums ------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["packed", "sealed", "huffman", "filter16"])
def test_mappings_and_sums_give_clustered_updates_to_the_server(coding: str) -> None:
    report = attacked(recorded(clusters_of="updates", coding=coding))
    assert len(report.attacked) == 2
    for one in report.attacked:
        found = one.measures
        assert found.rank == found.bound == CLIENTS * (CLUSTERS - 1) + 1
        assert found.exact == found.determined == one.without_key == found.differences
        assert found.attack.explained > 0.9 > 0.6 > found.mean.explained
    (control,) = report.controls
    assert control["exact"] == 0
    assert control["residual"] > 0.5


def test_a_segment_with_too_many_unknowns_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(clusters_of="updates", coding="packed")
    monkeypatch.setattr(mapping_attack, "MOST_UNKNOWNS", CLIENTS * CLUSTERS - 1)
    report = attacked(run)
    assert report.attacked == ()
    assert [row["N·κ"] for row in report.skipped] == [CLIENTS * CLUSTERS] * 2
    assert any("not solved" in title for title in report.figures())


def test_of_clustered_weights_cells_tell_what_centroids_do_not() -> None:
    for one in attacked(usual()).attacked:
        found = one.measures
        assert found.exact == found.determined <= found.differences
        assert one.without_key == found.differences
        assert found.clipped.explained >= found.aggregate.explained


def test_an_owner_reads_its_shard_as_a_server_reads_everything() -> None:
    run = recorded(clusters_of="updates", aggregators=2, clusters=6, agreed={"min_included": 4})
    for owner in (0, 1):
        report = attacked(run, run.transcript.aggregator(owner))
        assert {one.segment.key[0] for one in report.attacked} == {owner}
        for one in report.attacked:
            assert one.measures.coordinates == N // 2
            assert one.measures.attack.explained > 0.9


def test_false_positives_spoil_the_model_and_not_the_attack() -> None:
    run = recorded(1, clusters_of="updates", coding="filter8", policy="first")
    wrong = [
        float(
            np.mean(book.mapping != clustered(run.crowd.given[client, 1][1], CLUSTERS).assignment)
        )
        for client, book in run.books(1).items()
    ]
    assert np.mean(wrong) > 0.003
    (one,) = attacked(run).attacked
    assert one.measures.exact == one.measures.determined == one.measures.differences
    assert not np.array_equal(run.fit.model, recorded(1, clusters_of="updates").fit.model)


def test_who_is_sent_results_alone_has_the_mean_for_a_guess() -> None:
    run = recorded(clusters_of="updates")
    report = attacked(run, run.transcript.member(2))
    assert not report.attacked
    assert [line["round"] for line in report.sums] == [1, 2]
    assert all(0.3 < line["explained"] < 0.6 for line in report.sums)


def test_the_owner_of_a_secure_sum_has_no_more_than_that() -> None:
    """There are no mappings; the server of the same clients' EncCluster reads nine tenths."""
    crowd = Crowd(CLIENTS, N, momentum=0.5)
    made = Federation(
        crowd, START, create("eris", aggregators=2, secure="2of3"), seed=2,
        samples=[crowd.samples(client) for client in range(CLIENTS)],
    )  # fmt: skip
    run = Recorded(made.fit(2, progress=False, record=True), crowd, made)
    report = attacked(run, run.transcript.aggregator(1))
    assert not report.attacked
    assert [line["N"] for line in report.sums] == [CLIENTS - 2] * 2, "of owners a part is unread"
    assert all(0.3 < line["explained"] < 0.6 for line in report.sums)


# -- 8: the paper's measure -----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [None, 0.1], ids=["IID", "Dir(0.1)"])
def test_the_papers_measure_on_recorded_messages(alpha: float | None) -> None:
    cell = TrainedCell("weights", alpha=alpha)
    world = TrainedWorld(
        "digits", "64-256-10", 60, 1, 20, 0.1, 1, (1,), (cell,), clients=4, clusters=64,
        fraction_bits=13,
    )  # fmt: skip
    with single_threaded():
        found = AttackedTraining(world, cell, 0).attacked(lambda round: None)
    ((errors),) = [one["mse"] for one in found["embeddings"]]
    for kept in (2, 16):
        control = errors["another client"][kept]
        assert errors["paper's attacker"][kept] < 0.2 * control
        assert errors["mappings and sums"][kept] < 0.2 * control
    (line,) = found["rounds"]
    assert line["exact"] == line["determined"] > 0.8 * line["differences"]


# -- 12: who watches without TLS ------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["packed", "huffman"])
def test_a_watcher_has_the_clustered_model_up_to_a_constant(coding: str) -> None:
    run = recorded(1, coding=coding)
    (message,) = run.messages(1, Contribution, run.transcript.link(5, SERVER))
    found = run.reader.read(message, frozenset(), {})
    assert found is not None
    assert found.base is None
    apart = np.take(centroids_of(run, 5, 1), found.mapping) - found.differences[found.mapping]
    assert len(set(apart.tolist())) == 1


@pytest.mark.parametrize("coding", ["sealed", "filter8", "filter32"])
def test_control_of_a_sealed_index_or_a_keyed_filter_a_watcher_has_no_positions(
    coding: str,
) -> None:
    run = recorded(1, coding=coding)
    tap = run.transcript.link(5, SERVER)
    (message,) = run.messages(1, Contribution, tap)
    assert run.reader.read(message, frozenset(), {}) is None
    for sight in Watch(run.transcript, START, [tap]).follow(1, run.transcript.records):
        assert not sight.seen(5).any()


def queried(run: Recorded) -> list[Any]:
    """A watcher's look into a filter under a key that it makes up: the hits, or a refusal."""
    (message,) = run.messages(1, Contribution, run.transcript.link(5, SERVER))
    mapping = message.payload.encoded.data[4 + POINT_BYTES * CLUSTERS :]
    books, made_up = Books((N,), (CLUSTERS,)), Box(bytes(32), 5, run.label(1))
    (segment,) = run.coding.agreement.segments(1).values()
    try:
        found = run.coding.form.read(mapping, books, int(segment.coordinates[0]), made_up)
    except MalformedMessage as refused:
        return [str(refused)]
    return list(found)


def test_a_filter_hides_the_mapping_from_links_only_if_its_hash_is_keyed(
    monkeypatch: Patch,
) -> None:
    keyed = recorded(1, coding="filter16", policy="first")
    assert "has no cluster for coordinate" in queried(keyed)[0]
    # The hash that everyone knows is the paper's; then everyone may ask.
    monkeypatch.setattr(Box, "filter_key", lambda self, attempt: bytes([attempt]) * 16)
    public = recorded(1, coding="filter16", policy="first")
    assert queried(public) == list(public.books(1)[5].mapping)
