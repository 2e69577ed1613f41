"""Secure sums and shared noise under audit: who sees what, and what is made of it."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import chi2

from eris.audit.membership import judged_places
from eris.core.errors import InvalidSetting
from eris.core.shared_noise import NoisePlan
from eris.experiments.audits import report
from eris.experiments.audits.auditing import Audit, AuditOptions, by_round, subject_of
from eris.experiments.audits.observers import named, usual
from eris.experiments.audits.secure import SECURE, SecureTable
from eris.experiments.audits.tables import audited
from eris.experiments.runs.assembly import Assembly, assemble
from eris.experiments.runs.recipe import Recipe
from eris.protocol.agreement import Agreement
from eris.protocol.messages import Contribution, Result, Reveal, RevealRequest
from eris.protocol.secure.escrow import unseal
from eris.protocol.secure.sending import place_of
from eris.protocol.secure.simulated import Opener, Vaults
from eris.protocol.secure.wire import CLOSE, DEPOSIT, read_deposits
from eris.protocol.settings import Settings
from eris.protocol.transcript import Observation, Transcript

SMALL = {
    "data.name": "digits", "data.clients": 6, "data.samples": 12, "data.canaries": 0.5,
    "training.rounds": 2, "training.learning_rate": 0.1, "training.batch_size": 0,
    "training.steps": 1, "method.name": "eris", "method.aggregators": 3, "method.secure": "2of3",
    "agreement.min_included": 4,
}  # fmt: skip


def recorded(**changes: object) -> tuple[Assembly, Transcript]:
    assembly = assemble(Recipe().changed({**SMALL, **changes}))
    with assembly.training(record=True) as training:
        for _ in range(2):
            training.step()
        transcript = training.transcript
        assert transcript is not None
        return assembly, transcript


@pytest.fixture(scope="module")
def run() -> Transcript:
    return recorded()[1]


@pytest.fixture(scope="module")
def plain() -> Transcript:
    return recorded(**{"method.secure": "none"})[1]


def kinds(view: Observation) -> Counter[str]:
    return Counter(type(record.message).__name__ for record in view.records)


def uniform(data: Counter[int]) -> float:
    """The chance of bytes this uneven, if all are equally likely."""
    total = data.total()
    found = sum((data[byte] - total / 256) ** 2 for byte in range(256)) * 256 / total
    return float(chi2.sf(found, 255))


# -- who sees what ----------------------------------------------------------------------------


def test_a_plain_member_sees_results_and_nothing_of_how_they_were_opened(run: Transcript) -> None:
    view = run.as_member(4)
    assert kinds(view).keys() == {"Contribution", "Result"}
    assert {one.sender for one in view.records if isinstance(one.message, Contribution)} == {4}


def test_an_owner_holds_uniform_words(run: Transcript) -> None:
    view, planes = run.as_aggregator(0), Counter[int]()
    for record in view.records:
        message = record.message
        if isinstance(message, Contribution) and record.sender != 0:
            encoded = message.payload.encoded
            planes.update(encoded.data[16 : 48 + 8 * encoded.count])
        elif isinstance(message, Reveal) and message.data[:1] == CLOSE and record.sender != 0:
            planes.update(message.data[34:])
    assert planes.total() > 10_000
    assert uniform(planes) > 1e-6
    assert uniform(Counter({byte: 2 * byte for byte in range(256)})) < 1e-6, "the test can tell"


def test_a_helper_alone_has_seeds_of_its_parts_and_sets_and_no_values(run: Transcript) -> None:
    settings = Settings.from_canonical(run.settings)
    agreement = Agreement(settings, run.membership)
    assert settings.secure is not None
    opener, threshold, vaults = Opener(agreement), settings.secure.threshold, Vaults(settings)
    seating = opener.seating(run.membership)
    (observer,) = named("helper", run)
    helper = min(observer.members)
    view = run.as_helper(helper)
    assert all(r.sender == helper for r in view.records if isinstance(r.message, Contribution))
    seeds, sets = 0, set()
    for record in view.records:
        message = record.message
        if not isinstance(message, RevealRequest) or helper not in record.arrived:
            continue
        header = message.header
        if message.data[:1] != DEPOSIT:
            sets.add((header.round, header.key, message.included))
            continue
        helpers, place = seating.helpers[header.shard], place_of(agreement, header.round,
                                                                 header.shard)  # fmt: skip
        seat = helpers.index(helper)
        for client, escrow in read_deposits(message.data, threshold):
            pair = vaults[helper].newest.shared(
                place.federation, helper, client, seating.known[client]
            )
            key = pair.escrow_key(place.epoch, client, helper)
            found = unseal(escrow, place, client, helpers, seat, key, threshold)
            assert len(found) == 2 < len(threshold.parts), "one part of three is missing"
            seeds += 1
    assert seeds
    assert all(len(included) == 6 for _, _, included in sets)
    results = {(r.message.header.round, r.message.header.key, r.message.included)
               for r in view.records if isinstance(r.message, Result)}  # fmt: skip
    assert sets <= results, "which everybody is told"
    for record in run.records:
        if isinstance(record.message, Contribution) and record.sender not in record.receivers:
            assert opener.read(record.message, {helper}) is None


# -- what is made of it -----------------------------------------------------------------------


def test_owners_members_and_helpers_judge_means_and_openers_single_updates() -> None:
    assembly, transcript = recorded()
    names = ("aggregator:0", "member", "helper", "openers:0")
    audit = Audit(subject_of(assembly, transcript), AuditOptions(names))
    for round, records in sorted(by_round(transcript).items()):
        audit.take(round, records)
    joint = {one.observer: one for one in audit.outcome(None).report.findings
             if one.score == "joint"}  # fmt: skip
    owner, member, helper, openers = joint.values()
    assert owner.visible == member.visible == helper.visible == 0 < openers.visible
    assert owner.roc == member.roc == helper.roc
    assert openers.roc.auc > owner.roc.auc
    assert openers.observer == "openers 0, 1, 2"
    assert usual(transcript) == ["aggregator", "openers", "member", "coalition:2", "final-model"]


def test_both_promises_stand_beside_the_findings_and_noise_is_that_of_one_client() -> None:
    noisy = {"method.epsilon": 8, "method.clip": 0.5, "agreement.min_included": 5}
    assembly, transcript = recorded(**noisy)
    subject = subject_of(assembly, transcript)
    shared = Settings.from_canonical(transcript.settings).noise
    assert shared is not None
    sizes = [len(part) for part in assembly.samples.parts]
    assert subject.noise == pytest.approx(shared.std / np.mean(sizes))
    assert subject.noise < float.fromhex(shared.sigma) / np.mean(sizes), "not that of a sum"
    audit = Audit(subject, AuditOptions(("member", "openers:0")))
    for round, records in sorted(by_round(transcript).items()):
        audit.take(round, records)
    outcome = audit.outcome(None)
    promised = outcome.to_json()["accounted"]
    assert promised["epsilon"] == pytest.approx(8, abs=0.01)
    plan = NoisePlan(8, 2, min_included=5, colluders=1)
    assert promised["epsilon of openers"] == pytest.approx(plan.epsilon_of_openers, rel=1e-3)
    out = io.StringIO()
    Console(file=out, width=200).print(*report.shown(outcome, subject.places))
    assert "if the shard's owner and its helpers collude" in out.getvalue()


def test_openers_are_asked_about_the_others(run: Transcript) -> None:
    assembly = recorded()[0]
    candidates = subject_of(assembly, run).candidates
    (openers,) = named("openers:1", run)
    places = judged_places(openers, candidates)
    assert set(candidates.client[places].tolist()) == set(range(6)) - openers.members


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("helper", "member: the sums of this run are in the clear"),
        ("openers", "aggregator: the sums of this run are in the clear"),
    ],
)
def test_nobody_helps_where_sums_are_in_the_clear(
    plain: Transcript, name: str, expected: str
) -> None:
    with pytest.raises(InvalidSetting, match=expected):
        named(name, plain)


def test_who_has_no_seat_or_no_shard_is_refused_by_name(run: Transcript) -> None:
    with pytest.raises(InvalidSetting, match=r"observer is 'helper:9'; expected a helper: \d"):
        named("helper:9", run)
    with pytest.raises(InvalidSetting, match="a member's number after the colon"):
        named("helper:first", run)
    with pytest.raises(InvalidSetting, match="a member that owns a shard: 0, 1, 2"):
        named("openers:5", run)
    gossip = replace(run, membership=replace(run.membership, owners=()))
    with pytest.raises(InvalidSetting, match="observer is 'helper'; expected neighbour"):
        named("helper", gossip)


def test_the_table_has_every_observer_beside_what_noise_allows(tmp_path: Path) -> None:
    noisy = {"method.epsilon": 8, "method.clip": 0.5}
    rows = (SECURE.rows[0], replace(SECURE.rows[1], changes=noisy))
    small = SecureTable("audit-secure", "small", SMALL, rows, every=1)
    outcomes = audited(small, [0], tmp_path)
    table = small.shown(outcomes)
    cells = {str(column.header): list(column.cells) for column in table.columns}
    assert list(cells)[2:5] == ["one owner", "a plain member", "openers"]
    assert cells["one owner"] == cells["a plain member"]
    assert cells["readers at most"] == ["–", "0.881"]
    assert cells["openers at most"] == ["–", "1.000"]
    areas = [float(str(cell).partition(" ")[0]) for cell in cells["openers"]]
    assert areas[0] > areas[1], "noise is on single contributions, too"
