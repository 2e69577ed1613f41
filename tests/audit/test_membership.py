"""The whole audit: a planted leak is found, and where there is nothing nothing is found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from eris.audit.attack import FinalModel
from eris.audit.candidates import Candidates
from eris.audit.gaussian import guessed_information
from eris.audit.gradients import SampleModel
from eris.audit.membership import JOINT, LOSS, Membership
from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.experiments.audits.auditing import AuditOptions, Subject, audit_live, audit_transcript
from eris.experiments.audits.observers import named, usual
from eris.experiments.runs.assembly import assemble
from eris.experiments.runs.holdings import canaries_of
from eris.experiments.runs.recipe import Recipe
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.methods.fedavg import FedAvg
from eris.protocol.messages import Contribution
from eris.protocol.transcript import Transcript
from eris.training.trainer import LocalUpdate
from support.audits import audited, digits, recorded, subject
from support.levels import CONFIDENCE

CLIENTS, EACH, SIZE = 10, 12, 600


class Blurting:
    """Sends its samples themselves, summed up: the gradient of a linear loss is the sample."""

    def __init__(self, samples: Vector) -> None:
        self._samples = samples

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        return LocalUpdate(self._samples.sum(axis=0), samples=max(1, len(self._samples)))


def planted(method: FedAvg | ERIS) -> tuple[Subject, Transcript]:
    """Clients that send what they hold, and canaries by fair coins."""
    count = CLIENTS * EACH
    inputs = Stream(3, "samples").normal(0, count * SIZE).reshape(count, SIZE).astype(np.float32)
    included = Stream(4, "coins").words(0, count) >> 31 > 0
    client = np.repeat(np.arange(CLIENTS), EACH)
    held = [Blurting(inputs[(client == k) & included]) for k in range(CLIENTS)]
    model = nn.Linear(SIZE, 1, bias=False)
    nn.init.zeros_(model.weight)
    fit = Federation(held, np.zeros(SIZE, np.float32), method, rule="fedavg").fit(
        1, record=True, progress=False
    )
    assert fit.transcript is not None

    def linear(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output.squeeze(1) * target).mean()

    candidates = Candidates(torch.from_numpy(inputs), torch.ones(count), client, included)
    return (
        Subject(fit.transcript, model, linear, np.zeros(SIZE, np.float32), candidates, {}),
        fit.transcript,
    )


@pytest.mark.parametrize("method", [FedAvg(), ERIS(aggregators=2)], ids=["fedavg", "eris"])
def test_a_method_that_sends_its_samples_is_found_out(method: FedAvg | ERIS) -> None:
    found, transcript = planted(method)
    asked = "server" if isinstance(method, FedAvg) else "aggregator:0"
    report = audit_transcript(found, transcript, AuditOptions((asked,), draws=200)).report
    aligned = report.findings[1]
    assert aligned.score == "aligned"
    assert aligned.roc.auc > 0.999
    assert aligned.pooled.accuracy == 1.0
    assert aligned.paper is not None
    assert aligned.paper.accuracy > 0.99
    assert aligned.paper.p_value < 0.01
    assert aligned.bound is not None
    assert aligned.bound.epsilon == aligned.bound.ceiling > 3


def test_a_real_update_with_more_coordinates_than_samples_is_read_by_the_regression() -> None:
    outcome = audited("fedavg", "server")
    joint = outcome.report.finding("server", JOINT)
    assert joint.pooled.accuracy > 0.95
    assert joint.roc.auc > outcome.report.finding("server", "cosine").roc.auc + 0.05
    assert joint.bound is not None
    assert 1.5 < joint.bound.epsilon < joint.bound.ceiling


def test_without_a_signal_every_measure_stays_in_its_interval() -> None:
    """The same run, audited with coins that had no part in it."""
    found, transcript = subject("eris")
    options = AuditOptions(("aggregator:1",), draws=200, confidence=CONFIDENCE)
    unlikely: Counter[str] = Counter()
    for seed in range(8):
        coins = Stream(seed, "other coins").words(0, len(found.candidates)) >> 31 > 0
        blind = replace(found, candidates=replace(found.candidates, included=coins))
        for finding in audit_transcript(blind, transcript, options).report.findings:
            assert finding.pooled.low <= 0.5 <= finding.pooled.high
            assert finding.roc.low <= 0.5 <= finding.roc.high
            assert finding.bound is not None
            assert finding.bound.epsilon == 0
            assert finding.paper is not None
            unlikely[finding.score] += finding.paper.p_value <= 0.05
    # Five of eight independent draws below 5 % happen once in 60,000 times, for each score.
    assert len(unlikely) > 3
    assert max(unlikely.values()) <= 4


def test_the_final_model_gives_least() -> None:
    outcome = audited("fedavg", "server", "final-model")
    last = outcome.report.finding("final model", LOSS)
    server = outcome.report.finding("server", JOINT)
    assert last.roc.auc < server.roc.auc
    assert last.visible == 0
    assert last.rounds == 1


def test_a_recorded_run_is_audited_like_a_live_one() -> None:
    recipe = digits("dsc")
    options = AuditOptions(("aggregator", "member", "final-model"), draws=100)
    live = audit_live(assemble(recipe), options).to_json()
    found, transcript = subject("dsc")
    stored = audit_transcript(found, transcript, options).to_json()
    del live["about"], stored["about"]
    assert live == stored


def test_rounds_in_between_are_followed_and_not_attacked() -> None:
    found, transcript = subject("dsc")
    sparse = audit_transcript(found, transcript, AuditOptions(("aggregator:0",), every=3, draws=50))
    finding = sparse.report.finding("aggregator 0", "aligned")
    assert finding.rounds == 2, "of rounds 1 to 4: the first and the fourth"
    whole = audit_transcript(found, transcript, AuditOptions(("aggregator:0",), draws=50))
    assert finding.paper is not None
    first, last = whole.report.finding("aggregator 0", "aligned").paper.by_round[::3]  # type: ignore[union-attr]
    assert finding.paper.by_round == (first, last)


def test_colluders_are_not_asked_about_themselves() -> None:
    outcome = audited("eris", "coalition:2", "link:5-0")
    together = outcome.report.finding("coalition of 2", "aligned")
    tapped = outcome.report.finding("link 5 – 0", "aligned")
    counts = np.bincount(subject("eris")[0].candidates.client, minlength=10)
    assert tapped.canaries == counts[5]
    assert together.canaries in {int(counts.sum() - counts[[a, b]].sum())
                                 for a in range(4) for b in range(a)}  # fmt: skip


def test_a_method_with_noise_has_its_accounted_epsilon_beside_the_bound() -> None:
    outcome = audited("soteria", "server")
    assert outcome.accounted is not None
    assert outcome.accounted.epsilon == pytest.approx(50.0, rel=1e-3)
    joint = outcome.report.finding("server", JOINT)
    assert joint.bound is not None
    assert joint.bound.epsilon < outcome.accounted.epsilon
    assert outcome.report.exposed[0].honest < np.inf, "with noise the bound of the theory is finite"
    outcome = audited("eris", "aggregator:0")
    (exposed,) = outcome.report.exposed
    assert exposed.honest == np.inf
    finding = outcome.report.finding("aggregator 0", JOINT)
    proved = guessed_information(finding.pooled.right, finding.pooled.guesses)
    assert exposed.measured == pytest.approx(proved / 10), "about one of ten clients"
    assert exposed.ceiling == pytest.approx(finding.canaries * np.log(2) / 10)
    assert 0 < exposed.measured < exposed.ceiling


def test_every_aggregator_is_summed_up_with_the_worst_of_them() -> None:
    outcome = audited("eris", "aggregator")
    assert [found.score for found in outcome.report.everyone] == ["paper", "aligned", "cosine"]
    for found in outcome.report.everyone:
        each = [outcome.report.finding(f"aggregator {o}", found.score) for o in range(4)]
        best = [finding.paper.accuracy for finding in each if finding.paper]
        assert found.worst is not None
        assert found.mean is not None
        assert found.worst.accuracy == pytest.approx(max(best))
        assert found.mean.accuracy <= found.worst.accuracy
        assert found.worst_pooled == max(finding.pooled.accuracy for finding in each)
        assert found.mean_pooled == pytest.approx(
            np.mean([finding.pooled.accuracy for finding in each])
        )
        assert found.worst_auc == pytest.approx(max(finding.roc.auc for finding in each))
        assert found.observers == 4
        assert found.bound is not None
        assert found.bound.looks == 4


def test_clients_with_few_canaries_are_pooled() -> None:
    recipe = digits("eris", **{"data.samples": 3})
    outcome = audit_live(assemble(recipe), AuditOptions(("aggregator", "final-model"), draws=50))
    report = outcome.report
    assert max(np.bincount(canaries_of(recipe.data.resolved(), 0).client)) < 3
    assert all(found.mean is None is found.worst for found in report.everyone)
    assert all(finding.paper is None for finding in report.findings)
    assert report.everyone[0].worst_pooled >= report.everyone[0].mean_pooled > 0
    assert report.finding("aggregator 0", JOINT).pooled.guesses > 0


# -- bad input ------------------------------------------------------------------------------------


def test_a_recipe_without_canaries_is_refused_with_a_way_out() -> None:
    with pytest.raises(InvalidSetting, match=r"data.canaries is 0.*--candidates FILE"):
        canaries_of(Recipe().data, 0)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("aggregator:7", "a member that owns a shard: 0, 1, 2, 3"),
        ("member:99", "a member's number, 0 to 9"),
        ("coalition:5", "N from 1 to 4"),
        ("coalition", "N from 1 to 4"),
        ("server", "one owner; this run had 4"),
        ("neighbour", "a run in which nodes gossip"),
        ("agregator", "did you mean 'aggregator'"),
        ("link:1", "link:A-B"),
        ("aggregator:x", "a member's number after the colon"),
    ],
)
def test_an_observer_that_does_not_exist_is_named(name: str, says: str) -> None:
    _, transcript = recorded("eris")
    with pytest.raises(InvalidSetting, match=says):
        named(name, transcript)


def test_a_model_that_does_not_fit_the_transcript_is_refused() -> None:
    found, _ = subject("eris")
    with pytest.raises(InvalidSetting, match="650 parameters, as the transcript's"):
        replace(found, initial=np.zeros(3, np.float32))
    with pytest.raises(InvalidSetting, match="the one the run started from"):
        replace(found, initial=np.zeros(650, np.float32))


def test_too_few_canaries_for_a_bound_say_how_many_are_needed() -> None:
    candidates = Candidates(
        torch.zeros(6, 2), torch.zeros(6, dtype=torch.int64), np.zeros(6, np.int64),
        np.array([True, False] * 3),
    )  # fmt: skip
    samples = SampleModel(nn.Linear(2, 2), nn.functional.cross_entropy, candidates.inputs,
                          candidates.targets)  # fmt: skip
    attack = Membership(samples, candidates)
    attack.see(FinalModel(np.zeros(6, np.float32)))
    report = attack.report()
    assert report.findings[0].bound is None
    assert "9" in report.findings[0].no_bound
    assert "canaries" in report.findings[0].no_bound


def test_membership_that_no_coin_decided_gives_no_bound() -> None:
    found, transcript = subject("eris")
    chosen = replace(found, candidates=replace(found.candidates, coins=False))
    report = audit_transcript(chosen, transcript, AuditOptions(("aggregator:0",), draws=50)).report
    assert all(finding.bound is None for finding in report.findings)
    assert "fair coins" in report.findings[0].no_bound


def test_all_who_could_look_are_asked_by_default() -> None:
    assert usual(recorded("fedavg")[1]) == ["server", "member", "final-model"]
    assert usual(recorded("eris")[1])[0] == "aggregator"
    contributions = [r for r in recorded("eris")[1].records if isinstance(r.message, Contribution)]
    assert contributions
