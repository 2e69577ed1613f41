"""Inversion of recorded runs: as an observer, through the command, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from eris.audit.inversion import Dlg, Ggl, SearchBudget
from eris.audit.inversion.generator import PrincipalComponents
from eris.core.errors import InvalidSetting
from eris.data import load_digits
from eris.experiments.audits import auditing
from eris.experiments.audits.auditing import (
    AuditOptions,
    Outcome,
    audit_live,
    audit_transcript,
    subject_of,
)
from eris.experiments.runs import runner
from eris.experiments.runs.assembly import assemble
from eris.experiments.runs.progress import Progress
from support.audits import digits, subject
from support.command import Eris

FEW = {"data.clients": 4, "data.samples": 2, "data.canaries": 0.67, "training.rounds": 1}
TITLE = "reconstruction by {} (of the first round that each saw; medians)"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small budget: what is tested is who sees what."""
    monkeypatch.setattr(Dlg, "usual", SearchBudget(150))


def audited(method: str, attack: str, *observers: str, **changes: Any) -> Outcome:
    """A run whose clients have one sample or two, trained and attacked."""
    recipe = digits(method, **{**FEW, **changes})
    return audit_live(assemble(recipe), AuditOptions(observers, attacks=(attack,)))


def rows(outcome: Outcome, attack: str) -> dict[tuple[str, str], Any]:
    found = outcome.to_json()[TITLE.format(attack)]
    return {(row["observer"], row["of"]): row for row in found}


def solved(row: Any) -> int:
    return int(row["MSE < 0.0001"].split()[0])


def test_a_server_reads_single_samples_out_of_a_linear_layer() -> None:
    found = rows(audited("fedavg", "idlg", "server"), "idlg")
    update, control = found["server", "update"], found["server", "random"]
    assert update["seen, %"] == 100
    assert update["labels, %"] >= 75
    assert solved(update) >= 1
    assert solved(control) == 0
    assert (update["LPIPS"], update["SSIM"]) == (None, None)  # 8 × 8 pixels are too few


def test_rog_goes_without_a_network_on_data_that_none_is_trained_for() -> None:
    found = rows(audited("fedavg", "rog", "server"), "rog")
    assert found["server", "update"]["MSE"] < 0.5 * found["server", "random"]["MSE"]


def test_ggl_is_told_what_the_method_does_to_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Withheld coordinates read as zeros; who does not know that takes them for the gradient's."""
    images = torch.from_numpy(load_digits().test_images.astype(np.float32) / 16)[:, None]
    prior = PrincipalComponents.of(images, 20)
    monkeypatch.setattr(Ggl, "usual", SearchBudget(150))
    errors = {}
    for told in (True, False):
        with monkeypatch.context() as patch:
            patch.setattr(auditing, "armed", lambda name, data: Ggl(prior, divergence=0.0))
            if not told:
                patch.setattr(auditing, "_knowing", lambda attack, subject: attack)
            found = rows(audited("priprune", "ggl", "server", **{"method.rate": 0.3}), "ggl")
        errors[told] = found["server", "update"]["MSE"]
        assert found["server", "random"]["MSE"] > 2 * errors[True]
    assert errors[True] < errors[False]


def test_ggl_says_what_it_lacks_on_data_that_no_generator_is_trained_for() -> None:
    with pytest.raises(InvalidSetting, match="prior of ggl is None; expected a generator"):
        audited("fedavg", "ggl", "server")


def test_an_aggregator_of_a_quarter_sees_a_quarter_and_no_update_of_its_own() -> None:
    found = rows(audited("eris", "idlg", "aggregator:0", "coalition:2"), "idlg")
    assert found["aggregator 0", "update"]["clients"] == 3
    assert found["aggregator 0", "update"]["seen, %"] == pytest.approx(25, abs=1)
    assert found["coalition of 2", "update"]["clients"] == 2
    assert found["coalition of 2", "update"]["seen, %"] == pytest.approx(50, abs=1)


def test_a_rotation_hides_nothing_from_who_turns_along() -> None:
    changes = {"method.aggregators": 1, "method.kept_fraction": 0.5}
    found = {
        basis: rows(
            audited("eris", "idlg", "aggregator:0", **changes, **{"method.basis": basis}), "idlg"
        )
        for basis in ("coordinates", "rotated")
    }
    plain, turned = (found[basis]["aggregator 0", "update"] for basis in found)
    assert plain["seen, %"] == pytest.approx(turned["seen, %"], abs=1)
    assert turned["labels, %"] >= plain["labels, %"] > 0
    assert solved(turned) >= solved(plain) >= 1
    assert solved(found["rotated"]["aggregator 0", "random"]) == 0


def test_several_local_steps_of_a_run_are_unrolled() -> None:
    changes = {"training.steps": 3, "training.learning_rate": 0.01}
    found = rows(audited("fedavg", "idlg", "server", **changes), "idlg")
    assert solved(found["server", "update"]) >= 1


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"training.momentum": 0.9}, "momentum 0.9'; expected plain SGD on all samples"),
        ({"training.batch_size": 1}, "batches of 1'; expected plain SGD"),
        ({"training.optimiser": "adam"}, "optimiser adam'"),
        ({"data.samples": 12}, "expected of at most 8 samples.*fewer `--samples`"),
    ],
    ids=str,
)
def test_what_cannot_be_inverted_says_why(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidSetting, match=expected):
        audited("eris", "idlg", "aggregator:0", **changes)


def test_who_is_sent_no_update_cannot_invert_one() -> None:
    with pytest.raises(InvalidSetting, match=r"seen by none.*name such an observer with `--as`"):
        audited("eris", "idlg", "final-model")


def test_a_member_inverts_the_mean_of_few_samples() -> None:
    found = rows(audited("fedavg", "idlg", "member", **{"data.clients": 3}), "idlg")
    update = found["member 0", "update"]
    assert (update["clients"], update["seen, %"]) == (3, 100)
    assert 3 <= int(update["samples"]) <= 6


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"data.clients": 12}, r"of at least \d+ samples each"),
        ({"data.clients": 3, "training.steps": 2}, "of means of 2 local steps each"),
    ],
    ids=["many", "steps"],
)
def test_a_mean_that_is_no_update_of_few_says_why(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidSetting, match=rf"{why}.*or the mean of so few after one local step"):
        audited("fedavg", "idlg", "member", **changes)


def test_a_neighbour_inverts_the_models_it_is_sent() -> None:
    changes = {"method.name": "el", "method.degree": 3}
    found = rows(audited("fedavg", "idlg", "neighbour", **changes), "idlg")
    update = found["neighbour 0", "update"]
    assert (update["clients"], update["seen, %"]) == (3, 100)
    assert solved(update) >= 1


def test_without_a_name_an_audit_is_of_membership_alone() -> None:
    found, transcript = subject("eris")
    outcome = audit_transcript(found, transcript, AuditOptions(("aggregator:0",), draws=5))
    assert [*outcome.reports] == ["membership"]


def test_the_truth_of_a_recipe_is_all_that_a_client_trained_on() -> None:
    assembly = assemble(digits("fedavg"))
    with assembly.training(record=True) as training:
        assert training.transcript is not None
        found = subject_of(assembly, training.transcript)
    assert found.trained is not None
    inputs, labels = found.trained(3)
    assert len(inputs) == len(labels) == len(assembly.samples.parts[3])


def test_the_command_writes_figures_and_a_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runner.start(digits("eris", **FEW, name="r"), tmp_path / "runs", Progress())
    eris = Eris(monkeypatch, capsys)
    assert eris("audit", "r", "--attack", "idlg", "--as", "coalition:2") == 0, eris.err
    assert "reconstruction by idlg" in eris.out
    written = json.loads((tmp_path / "runs" / "r" / "audit.json").read_text(encoding="utf-8"))
    assert [row["of"] for row in written[TITLE.format("idlg")]] == ["update", "random"]
    with Image.open(tmp_path / "runs" / "r" / "audit" / "idlg.png") as grid:
        assert grid.width > grid.height > 3 * 56
    less = ("--mode", "oblivious", "--restarts", "1", "--iterations", "2")
    assert eris("audit", "r", "--attack", "idlg", "--as", "coalition:2", *less) == 0, eris.err
    written = json.loads((tmp_path / "runs" / "r" / "audit.json").read_text(encoding="utf-8"))
    update, _ = written[TITLE.format("idlg, oblivious")]
    assert solved(update) == 0, "two iterations, and zeros for what was not seen"
