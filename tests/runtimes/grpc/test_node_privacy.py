"""A node's side of its ledger: which rounds it enters, what it refuses, and what it tells."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from eris.core.composition import _losses, by_pld, by_rdp, composed
from eris.core.errors import ErisError, InvalidSetting, MissingExtra
from eris.core.noise import PrivacyClaim, epsilon
from eris.protocol.round.ending import Phase
from eris.protocol.round.giving import Job
from eris.protocol.secure.charges import BudgetSpent
from eris.protocol.secure.noise import NoiseKeys, batch_coins
from eris.protocol.secure.noising import NoiseFault, sent_rows
from eris.runtimes.grpc.privacy import FAULT, RECORD, NodePrivacy, budgets, check_learner
from eris.runtimes.grpc.rehearsal import rehearse
from eris.runtimes.grpc.sections import PrivacyTable
from eris.runtimes.privacy_ledger import PrivacyLedger, PrivacyLedgerRefused
from eris.testing.fixed_rows import FixedRows
from eris.testing.quadratic import Quadratic
from eris.training.slots import SamplesMeet
from eris.training.torch import TorchTrainer, flatten
from eris.training.trainer import LocalUpdate, PerSampleClip
from support.sites import START, N, Site, agreed


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_round_is_charged_when_it_is_trained_and_then_it_is_over(site: Site) -> None:
    assert site.member.phase is Phase.TRAINING
    assert site.charged == []
    site.train()
    assert site.charged == [1]
    charge = site.privacy.ledger.charges.whole[0]
    assert site.sender.training is not None
    assert charge.model == site.sender.training.model.hex()
    assert (charge.federation, charge.epoch, charge.min_included) == ("federation/first", 1, 4)
    assert charge.amounts["client"][0] == 64 * charge.amounts["sample"][0], "of eight samples"
    assert not site.member.giving.abstains, "what was made may still be sent"
    site.member.giving.dispatch = None  # its segments have moved on
    assert site.member.giving.abstains, "and nothing else is ever made for it"


def test_after_a_restart_a_charged_round_is_not_trained(site: Site) -> None:
    site.train()
    again = Site(site.folder)
    assert again.member.job is None
    assert again.member.giving.abstains
    assert "round 1 of federation/first was charged under other noise" in again.told()[0]["reason"]
    assert again.charged == [1]
    assert again.privacy.allows(2)
    assert again.privacy.abstains == ""
    anew = Site(site.folder, run="second")
    assert anew.member.job is not None, "a federation begun anew has rounds of its own"
    anew.train()
    assert anew.charged == [1, 1]


def test_a_spent_budget_abstains_and_says_so_once(site: Site) -> None:
    ledger = PrivacyLedger(site.folder / "privacy", "ward-3", [])
    for round in (7, 8, 9):  # another federation on the same data
        ledger.charge(site.privacy._cost(round, 1, bytes(16), bytes([round])))
    with pytest.raises(BudgetSpent):  # which was seen too late to spare the training
        site.train()
    assert site.charged == [7, 8, 9]
    site.privacy.refuse(1, BudgetSpent("budget ε = 8 is spent"))
    site.member.failed(0.0)
    assert site.member.giving.abstains
    assert not site.privacy.allows(2)
    assert not site.privacy.allows(3)
    assert [line["round"] for line in site.told()] == [1]
    assert "budget ε = 8 is spent: 3 of 3 rounds" in site.privacy.abstains
    assert site.privacy.shown()["privacy"]["abstains"] == site.privacy.abstains
    assert site.privacy.shown()["privacy_rounds_left"] == 0


def test_an_operator_may_allow_more_or_less_than_the_federation(tmp_path: Path) -> None:
    noise = agreed().noise
    assert noise is not None

    def made(**table: Any) -> list[tuple[str, float]]:
        return [(b.level, b.epsilon) for b in budgets(noise, PrivacyTable(data="a", **table))]

    assert made() == [("sample", 8.0)]
    assert made(epsilon_sample=2.0) == [("sample", 2.0)]
    assert made(epsilon_client=3.0) == [("sample", 8.0), ("client", 3.0)]
    site = Site(tmp_path, epsilon_client=8.0)
    with pytest.raises(BudgetSpent, match="one client"):
        site.train()  # eight samples together cost 64 times one of them


def test_noise_that_is_at_fault_ends_this_nodes_part_for_good(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = NoiseKeys.add

    def wrong(self: NoiseKeys, content: Any, std: float, fine_bits: int) -> NDArray[np.int64]:
        return add(self, content, 0.8 * std, fine_bits)

    monkeypatch.setattr(NoiseKeys, "add", wrong)
    with pytest.raises(NoiseFault) as fault:
        site.train()
    site.privacy.refuse(1, fault.value)
    assert site.charged == [1], "a charge stays"
    assert site.member.giving.abstains
    assert not site.privacy.allows(2)
    with pytest.raises(ErisError, match=f"{FAULT} says: the noise of this client is .* off"):
        Site(site.folder)


def test_a_ledger_that_is_missing_or_behind_the_checkpoint_is_refused(site: Site) -> None:
    site.train()
    known = {RECORD: site.privacy.ledger.record().text}
    table = PrivacyTable(data="ward-3", ledger=site.folder / "privacy")
    NodePrivacy(site.settings, table, site.folder, known)
    path = site.privacy.ledger.path
    whole = path.read_bytes()
    path.write_bytes(b"")
    with pytest.raises(PrivacyLedgerRefused, match="has 0 charges; the checkpoint knows of 1"):
        NodePrivacy(site.settings, table, site.folder, known)
    path.unlink()
    with pytest.raises(PrivacyLedgerRefused, match="is missing, 1 charges were in it"):
        NodePrivacy(site.settings, table, site.folder, known)
    assert not site.privacy.allows(2), "nor does a node go on from whom it is taken away"
    assert "has gone while it was in use" in site.privacy.abstains
    path.write_bytes(whole)
    assert site.privacy.allows(3)


def test_a_ledger_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    table = PrivacyTable(data="ward-3", ledger=tmp_path / "file")
    with pytest.raises(InvalidSetting, match=r"privacy.ledger is .*file'; expected a folder"):
        NodePrivacy(agreed(), table, tmp_path)


def test_a_ledger_that_cannot_be_written_costs_the_round_alone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.write", full)
        with pytest.raises(PrivacyLedgerRefused, match=r"cannot be used .No space left on device"):
            site.train()
    assert not site.sender.drew(1)
    assert site.privacy.allows(2)


def test_of_more_clients_than_agreed_nobody_trains(tmp_path: Path) -> None:
    site = Site(tmp_path, settings=agreed(clients=4))
    assert site.member.job is None
    assert not site.sender.trains(1)


def test_weights_are_those_of_the_first_update_and_metrics_stay_nowhere(site: Site) -> None:
    first = site.privacy.weighed(LocalUpdate(START, 5, 2, {"loss": 1.0}))
    assert (first.samples, first.steps, first.metrics) == (5, 2, {})
    later = site.privacy.weighed(LocalUpdate(START, 4, 3))
    assert (later.samples, later.steps) == (5, 2)
    (site.folder / "other").mkdir()
    fixed = Site(site.folder / "other", weight=6)
    assert fixed.privacy.weighed(LocalUpdate(START, 4)).samples == 6
    with pytest.raises(InvalidSetting, match="samples of this client is 9; expected at most 8"):
        Site(site.folder, run="x").privacy.weighed(LocalUpdate(START, 9))


def test_zeros_stand_for_a_training_that_failed(site: Site) -> None:
    job = Job(1, START)
    assert site.privacy.nothing(job) is None, "as long as its weight is not known"
    site.privacy.weighed(LocalUpdate(START, 5))
    made = site.privacy.nothing(job)
    assert made is not None
    assert made.content is not None
    assert (made.samples, len(made.content), bool(made.content.any())) == (5, N, False)


class Own(TorchTrainer):
    """A learner of a node."""

    def initial(self) -> Any:
        return flatten(self.model)


NORMED = nn.Sequential(
    nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False), nn.Linear(3, 2)
)


@pytest.mark.parametrize(
    ("model", "settings", "why"),
    [
        (nn.Linear(4, 2), {"steps": 2}, "local steps is 2; expected 1: .*protects = client"),
        (nn.Linear(4, 2), {"momentum": 0.9}, "momentum is 0.9; expected 0, and that of the server"),
        (
            NORMED,
            {"running_statistics": "ignore"},
            "layer of a model that is to have noise per sample",
        ),
    ],
)
def test_training_that_no_sample_clip_bounds_is_refused(
    model: nn.Module, settings: dict[str, Any], why: str
) -> None:
    noise = agreed().noise
    assert noise is not None
    data = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    learner = Own(model, data, torch.arange(8) % 2, learning_rate=0.1, **settings)
    with pytest.raises(InvalidSetting, match=why):
        check_learner(learner, noise, learner.initial())
    whole = agreed(protects="client").noise
    assert whole is not None
    check_learner(learner, whole, learner.initial())


def test_a_learner_without_clipping_is_refused_and_works_for_whole_clients() -> None:
    for protects in ("sample", "client"):
        noise = agreed(protects=protects).noise
        assert noise is not None
        if protects == "client":
            check_learner(Quadratic("anna"), noise, START)
            continue
        expected = "training.trainer is 'Quadratic'; expected one with check_clipping and clipped_"
        with pytest.raises(InvalidSetting, match=expected):
            check_learner(Quadratic("anna"), noise, START)


class Turning(FixedRows):
    """A sample's gradient depends on its place."""

    def check_clipping(self, parameters: Any, *, packed: bool = False) -> None:
        if packed:
            raise SamplesMeet("they change places")


def test_for_secret_batches_samples_must_be_able_to_change_places() -> None:
    all_of_them, some = agreed().noise, agreed(epsilon=1.0, sampling_rate=0.5).noise
    assert all_of_them is not None
    assert some is not None
    learner = Turning("anna", n=N)
    check_learner(learner, all_of_them, START)
    with pytest.raises(SamplesMeet, match="they change places"):
        check_learner(learner, some, START)
    check_learner(FixedRows("anna", n=N), some, START)


def test_a_round_of_a_secret_batch_is_charged_as_such_and_both_figures_are_by_pld(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, settings=agreed(epsilon=1.0, sampling_rate=0.5))
    noise = site.privacy.noise
    assert "nothing yet, 0 of 3 rounds" in site.privacy.said
    site.train()
    (charge,) = site.privacy.ledger.charges.whole
    assert (charge.sampling_rate, charge.amounts["sample"]) == (0.5, noise.charges)
    assert charge.amounts["client"] == tuple(64 * b for b in noise.charges), "coins hide samples"
    shown = site.privacy.shown()
    assert shown["privacy_rounds_left"] == 2
    for figure, b in zip(("epsilon_readers", "epsilon_openers"), noise.charges, strict=True):
        claim = PrivacyClaim("gaussian", 1.0, 1 / math.sqrt(b), 1, 0.5)
        assert shown[figure] == pytest.approx(composed((claim,), 1e-5), rel=1e-6)
        assert shown[figure] < epsilon(replace(claim, sampling_rate=1.0), 1e-5)
    assert "1 of 3 rounds" in shown["privacy"]["said"]
    other = Site(tmp_path, run="other", epsilon_sample=8.0)  # the same data, with all samples
    other.train()
    assert "by RDP: noise or batches have changed" in other.privacy.said


def test_the_batch_is_of_the_chain_key_that_is_then_replaced(tmp_path: Path) -> None:
    """The same as long as the round's noise is not drawn: what trains again has the same batch."""
    site = Site(tmp_path, settings=agreed(epsilon=1.0, sampling_rate=0.5))
    job = site.member.job
    assert job is not None
    made = [site.privacy.update(FixedRows("anna", n=N), job) for _ in range(2)]
    first, second = (one.content for one in made if isinstance(one, LocalUpdate))
    assert first is not None
    assert second is not None
    assert np.array_equal(first, second)
    noising = site.sender._noising
    assert noising is not None
    coins = batch_coins(noising._chain_key, "federation", 1, 8, 0.5)
    rows = sent_rows(site.privacy._coding, 1, 0)(FixedRows("anna", n=N).rows[coins])
    scales = np.minimum(1, 0.5 / np.linalg.norm(rows.astype(np.float64), axis=1))
    expected = scales @ rows.astype(np.float64)
    off = first / 2.0**site.privacy.grid.fine_places - expected
    assert 0 < coins.sum() < 8
    assert np.abs(off).max() < 1e-7
    site.train()
    with pytest.raises(ErisError, match="noise of round 1 was drawn"):
        site.privacy.update(FixedRows("anna", n=N), job)


class AllOfThem(FixedRows):
    """Knows nothing of batches."""

    def clipped_update(self, parameters: Any, round: int, clip: PerSampleClip) -> LocalUpdate:
        return super().clipped_update(parameters, round, replace(clip, batch=None))


def test_a_trainer_that_does_not_ask_for_the_batch_gives_nothing(tmp_path: Path) -> None:
    """It would have trained on all samples, and been charged for few."""
    site = Site(tmp_path, settings=agreed(epsilon=1.0, sampling_rate=0.5))
    job = site.member.job
    assert job is not None
    with pytest.raises(InvalidSetting, match=r"takes the samples of clip\.batch alone"):
        site.privacy.update(AllOfThem("anna", n=N), job)
    assert site.charged == []


def test_without_what_accounts_for_batches_a_ledger_that_has_some_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never in mid-run: there the node abstains, and its status says why."""
    batches, running = (
        Site(tmp_path, settings=agreed(epsilon=1.0, sampling_rate=0.5)),
        Site(tmp_path, run="b"),
    )
    batches.train()
    for known in (by_pld, by_rdp, _losses):
        known.cache_clear()
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    install = r"not installed: dp-accounting; run `pip install 'eris-fl\[audit\]'`"
    with pytest.raises(MissingExtra, match=install):
        Site(tmp_path, run="c")
    assert not running.privacy.allows(2)
    shown = running.privacy.shown()
    assert re.match(install, shown["privacy"]["abstains"])
    assert re.match(install, shown["privacy"]["said"])
    assert (shown["epsilon_readers"], shown["privacy_rounds_left"]) == (None, 0)


@pytest.mark.parametrize("protects", ["sample", "client"])
def test_a_rehearsal_draws_noise_and_charges_nobody(
    protects: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    add = NoiseKeys.add

    def noted(self: NoiseKeys, content: Any, std: float, fine_bits: int) -> NDArray[np.int64]:
        drawn.append(len(content))
        return add(self, content, std, fine_bits)

    monkeypatch.setattr(NoiseKeys, "add", noted)
    monkeypatch.setattr(PrivacyLedger, "charge", lambda *_: pytest.fail("charged"))
    rehearse(agreed(protects=protects))
    assert len(drawn) == 8, "four members, twice"
