"""What observers get to know is what clients really sent, and nothing that never reached them."""

from __future__ import annotations

import numpy as np
import pytest

from eris.audit.exposure import Exposure
from eris.audit.watch import Watch
from eris.core.errors import InvalidSetting
from eris.core.rules import server_rule
from eris.core.vectors import Vector
from eris.experiments.audits.auditing import AuditOptions, audit_transcript, by_round
from eris.experiments.audits.observers import named
from eris.experiments.runs.assembly import assemble
from eris.federation import Federation
from eris.methods.fedavg import FedAvg
from eris.protocol.messages import Result
from eris.protocol.observers import Observer
from eris.protocol.transcript import Record, Transcript
from eris.training.trainer import LocalUpdate
from support.audits import METHODS, ROUNDS, audited, recorded, subject, watch, without

FAULTS = (("dropout", 0.3), ("link", 0.3))


def rounds(transcript: Transcript) -> list[tuple[int, list[Record]]]:
    return sorted(by_round(transcript).items())


def true_updates(method: str) -> dict[tuple[int, int], Vector]:
    """What every client computed in every round, by training once more from the true models."""
    assembly, _ = recorded(method)
    population = assemble(assembly.recipe).federation.population
    found = {}
    with assembly.training() as training:
        for round in range(1, ROUNDS + 1):
            model = training.model.copy()
            clients = list(range(assembly.clients))
            for client, update in zip(
                clients, population.updates(clients, model, round), strict=True
            ):
                found[round, client] = update.vector
            training.step()
    return found


@pytest.mark.parametrize(
    "method", ["fedavg", "eris", "dsc", "paper mode", "rotated masks", "rotating", "priprune"]
)
def test_an_owner_knows_the_update_itself_on_its_shards(method: str) -> None:
    """The shift is undone exactly, whoever's reference it is."""
    expected = true_updates(method)
    _, transcript = recorded(method)
    owners = [Observer("aggregator", frozenset({owner})) for owner in sorted(transcript.owners)]
    looking = watch(method, owners)
    compared = 0
    for round, records in rounds(transcript):
        for sight in looking.follow(round, records):
            for client in range(10):
                pieces = sight.pieces(client)
                assert pieces is not None
                assert sight.seen(client).sum(axis=0).max() == 1, "a piece has one owner"
                true = sight.placed(expected[round, client])[pieces.coordinates]
                sent = pieces.update != 0 if method == "priprune" else np.ones(len(true), bool)
                np.testing.assert_allclose(pieces.update[sent], true[sent], rtol=1e-4, atol=1e-6)
                compared += int(sent.sum())
    assert compared > 1000


def test_an_audit_reads_updates_in_a_rotated_basis() -> None:
    found = audited("rotated masks", "aggregator").report.findings[0].paper
    assert found is not None
    assert found.accuracy > found.null_q95


def test_what_is_seen_of_a_rotated_update_is_a_share_of_its_places() -> None:
    """Not of the model's coordinates, of which there are fewer: owners see what was kept."""
    found, transcript = subject("rotated masks")
    owners = tuple(f"aggregator:{owner}" for owner in sorted(transcript.owners))
    exposed = audited("rotated masks", *owners).report.exposed
    assert (found.places, found.settings.n) == (768, 650)
    assert [one.share for one in exposed] == [one.coordinates / 768 for one in exposed]
    assert sum(one.share for one in exposed) == pytest.approx(0.3, abs=0.02)


def test_in_the_papers_mode_every_member_learns_what_a_lone_contributor_sent() -> None:
    method, expected = "paper mode", true_updates("paper mode")
    _, transcript = recorded(method)
    member = Observer("member", frozenset({9}))
    looking = watch(method, [member])
    alone = 0
    for round, records in rounds(transcript):
        for sight in looking.follow(round, records):
            keepers = np.zeros(len(sight.model), int)
            each = {client: sight.pieces(client, published=True) for client in range(10)}
            for pieces in each.values():
                assert pieces is not None
                keepers[pieces.coordinates] += 1
            for client, pieces in each.items():
                assert pieces is not None
                assert pieces.published is not None
                assert not sight.seen(client).any(), "a plain member is sent no contribution"
                single = keepers[pieces.coordinates] == 1
                if round == 1:  # later ones need every earlier one to have been alone, too
                    true = expected[round, client][pieces.coordinates]
                    np.testing.assert_allclose(
                        pieces.published[single], true[single], rtol=1e-3, atol=1e-5
                    )
                    alone += int(single.sum())
    assert alone > 20


def test_what_is_published_elsewhere_is_the_mean_and_no_more() -> None:
    expected = true_updates("dsc")
    assembly, transcript = recorded("dsc")
    weights = np.array([len(part) for part in assembly.samples.parts], float)
    looking = watch("dsc", [Observer("member", frozenset({9}))])
    for round, records in rounds(transcript):
        mean = sum(w * expected[round, k] for k, w in enumerate(weights)) / weights.sum()
        for sight in looking.follow(round, records):
            for client in (0, 5):
                pieces = sight.pieces(client, published=True)
                assert pieces is not None
                assert pieces.published is not None
                true = mean[pieces.coordinates]
                np.testing.assert_allclose(pieces.published, true, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_observers_hold_the_model_that_the_members_hold(method: str) -> None:
    _, transcript = recorded(method)
    observers = [Observer("member", frozenset({3})), transcript.aggregator(min(transcript.owners))]
    looking = watch(method, observers)
    for round, records in rounds(transcript):
        for _ in looking.follow(round, records):
            pass
    assert transcript.final_model is not None
    for model in looking.models():
        np.testing.assert_array_equal(model, transcript.final_model)


def test_an_observer_whom_results_did_not_reach_holds_an_older_model() -> None:
    _, transcript = recorded("eris")
    observers = [Observer("member", frozenset({3})), Observer("member", frozenset({4}))]
    looking = watch("eris", observers)
    for round, records in rounds(transcript):
        for record in records:
            if round == 2 and isinstance(record.message, Result):
                record.arrived.discard(3)
        try:
            sights = [s.observers for s in looking.follow(round, records)]
        finally:
            if round == 2:
                for record in records:
                    if isinstance(record.message, Result):
                        record.arrived.add(3)
        assert len(sights) == (1 if round == 1 else 2)
    behind, ahead = looking.models()
    assert not np.array_equal(behind, ahead)
    np.testing.assert_array_equal(ahead, transcript.final_model)


@pytest.mark.parametrize("faults", [(), FAULTS], ids=["clean", "faults"])
@pytest.mark.parametrize("method", ["fedavg", "eris", "dsc", "paper mode", "rotating"])
def test_views_are_honest(method: str, faults: tuple[tuple[str, float], ...]) -> None:
    """The same figures when all messages that the observer never received are deleted."""
    found, transcript = subject(method, faults)
    owner = sorted(transcript.owners)[0]
    asked = ["member:7", f"link:5-{owner}"]
    if len(transcript.owners) > 1:  # a central server sees all
        asked += [f"aggregator:{owner}", "coalition:2"]
    for name in asked:
        options = AuditOptions((name,), draws=50)
        whole = audit_transcript(found, transcript, options)
        observer = named(name, transcript)[0]
        cut = audit_transcript(found, without(transcript, observer), options)
        assert whole.to_json() == cut.to_json(), name
        assert whole.report.findings


def test_the_shift_cannot_be_undone_without_the_results() -> None:
    """A tap on one direction hears differences to a reference it does not know."""
    expected = true_updates("dsc")
    _, transcript = recorded("dsc")
    looking = watch("dsc", [transcript.link(5, 0)])
    wrong = 0
    for round, records in rounds(transcript):
        for sight in looking.follow(round, records):
            pieces = sight.pieces(5)
            assert pieces is not None
            chosen = np.repeat(sight.seen(5)[0], pieces.sizes)
            true = expected[round, 5][pieces.coordinates[chosen]]
            wrong += not np.allclose(pieces.update[chosen], true, rtol=1e-3, atol=1e-6)
    assert wrong == ROUNDS - 1, "in the first round the reference is zero"


def test_weights_are_those_that_the_updates_lead_to() -> None:
    """What ERIS F.1 plots is a client's weights, not its updates."""
    expected = true_updates("eris")
    assembly, transcript = recorded("eris")
    owner = transcript.aggregator(min(transcript.owners))
    looking, exposure = watch("eris", [owner]), Exposure(0, range(10), len(assembly.initial))
    for round, records in rounds(transcript):
        for sight in looking.follow(round, records):
            exposure(sight)
            pieces = sight.pieces(0)
            assert pieces is not None
            seen = pieces.coordinates[np.repeat(sight.seen(0)[0], pieces.sizes)]
            update = expected[round, 0][seen]
            weights = sight.model[seen] - np.float32(sight.rate) * update
            for histogram, values in ((exposure.updates, update), (exposure.weights, weights)):
                found = histogram.statistics[-1]
                assert (found.round, found.count) == (round, len(seen))
                assert found.mean == pytest.approx(float(values.mean()), rel=1e-3, abs=1e-6)
                assert found.deviation == pytest.approx(float(values.std()), rel=1e-3)
    assert len(exposure.weights.statistics) == ROUNDS


class Stepping:
    """A client that makes one local step more than its number says."""

    def __init__(self, number: int) -> None:
        self.steps = 1 + number
        self.vector = np.random.default_rng(number).normal(0, 1, 30).astype(np.float32)

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        return LocalUpdate(self.vector, samples=2, steps=self.steps)


@pytest.mark.parametrize("rule", ["fedavg", "fednova"])
def test_a_completed_model_has_moved_by_all_local_steps(rule: str) -> None:
    """FedNova's clients divide their updates by their steps; what is completed is their model."""
    clients, start = [Stepping(number) for number in range(4)], np.ones(30, np.float32)
    served = Federation(clients, start, FedAvg(), rule=server_rule(rule, learning_rate=0.5))
    fit = served.fit(1, record=True, progress=False)
    assert fit.transcript is not None
    server, member = fit.transcript.server(), Observer("member", frozenset({1}))
    looking = Watch(fit.transcript, start, [server, member])
    (sight,) = looking.follow(1, fit.transcript.records)
    for client, trained in enumerate(clients):
        own = start - np.float32(0.5) * trained.vector
        np.testing.assert_allclose(sight.completed(0, client), own, rtol=0, atol=1e-5)
        # Who sees only what is published completes the published model.
        np.testing.assert_allclose(sight.completed(1, client), fit.model, rtol=0, atol=1e-5)


def test_a_watch_needs_an_observer() -> None:
    assembly, transcript = recorded("eris")
    with pytest.raises(InvalidSetting, match="observers is 'none'"):
        Watch(transcript, assembly.initial, [])
