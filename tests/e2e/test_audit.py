"""``eris audit`` in a process of its own: of a simulated run, and of real nodes over TLS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from eris.core.streams import Stream
from eris.experiments.audits.auditing import AuditOptions, audit_live
from eris.experiments.audits.files import load, whose
from eris.experiments.federations.processes import QUICK, LocalFederation
from eris.experiments.runs.assembly import assemble
from eris.experiments.runs.store import Run
from support.command import Eris, eris

ROUNDS = 3
EACH = 30
"""Candidates a node; each is trained on by a fair coin."""
CLINIC = """
from pathlib import Path

import numpy as np
import torch
from torch import nn

from eris.training.flat import flatten
from eris.training.torch import TorchTrainer

def network():
    torch.manual_seed(3)
    return nn.Linear(64, 10)

def another():
    torch.manual_seed(4)
    return nn.Linear(64, 10)

def smaller():
    return nn.Linear(64, 9)

class Clinic:
    def __init__(self, images, labels, client):
        module = network()
        self._start = flatten(module)
        self._trainer = TorchTrainer(module, images, labels, client=client, learning_rate=0.1)

    def initial(self):
        return self._start

    def update(self, parameters, round):
        return self._trainer.update(parameters, round)

def make_trainer(name):
    data = np.load(Path(__file__).with_name("patients.npz"))
    return Clinic(torch.from_numpy(data["images"]), torch.from_numpy(data["labels"]), 0)
"""
"""A member's own code, beside its node.toml."""


@pytest.fixture
def here(
    clinics: Clinics, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Eris:
    """The command, where the clinics' folders are."""
    monkeypatch.chdir(clinics.folder)
    return Eris(monkeypatch, capsys)


def test_the_audit_of_a_recorded_run_finds_what_an_audit_of_the_run_itself_finds(
    tmp_path: Path,
) -> None:
    asked = ["--clients", "8", "--samples", "12", "--rounds", str(ROUNDS), "--canaries", "0.5"]
    method = ["--set", "aggregators=4", "--set", "kept_fraction=0.5", "--learning-rate", "0.1",
              "--steps", "1", "--batch-size", "0"]  # fmt: skip
    made = eris("run", "--data", "digits", *asked, *method, "--record", "--name", "r", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    done = eris("audit", "r", "--seed", "5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = Run(tmp_path / "runs" / "r")
    found = json.loads((run.path / "audit.json").read_text(encoding="utf-8"))
    live = audit_live(assemble(run.recipe), AuditOptions(seed=5)).to_json()
    for part in ("findings", "everyone", "exposed", "accounted"):
        assert found[part] == live[part], part
    assert {one["observer"] for one in found["findings"]} >= {"aggregator 3", "final model"}
    pictures = {path.name for path in (run.path / "audit").iterdir()}
    assert pictures == {"roc.png", "rounds.png", "weights.png", "updates.png", "bound.png"}
    # What is printed is what was found.
    first = found["findings"][0]
    row = next(line for line in done.stdout.splitlines() if line.startswith("paper "))
    assert row.split()[1] == f"{100 * first['paper']['accuracy']:.1f}"
    assert "membership leaks" in " ".join(done.stdout.split())


class Clinics:
    """Three nodes that have trained, and what is asked about their patients."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.names = folder, ["anna", "ben", "cleo"]
        digits: Any = load_digits()
        images = (digits.data / 16).astype(np.float32)[: 3 * EACH]
        labels = digits.target.astype(np.int64)[: 3 * EACH]
        self.included = Stream(7, "coins").uniform(0, 3 * EACH) < 0.5
        self.client = np.repeat(self.names, EACH)
        self.arrays = {"inputs": images, "targets": labels, "client": self.client}
        np.savez(folder / "truth.npz", included=self.included, coins=True, **self.arrays)
        values = {
            **QUICK,
            "node.linger": 1.0,
            "federation.rounds": ROUNDS,
            "federation.rule_options": {"learning_rate": 0.1},
            "observe.record": True,
            "training.trainer": "clinic:make_trainer",
        }
        with LocalFederation(folder / "nodes", self.names, values) as nodes:
            for name in self.names:
                mine = self.included & (self.client == name)
                place = nodes.folder / name
                (place / "clinic.py").write_text(CLINIC, encoding="utf-8")
                np.savez(place / "patients.npz", images=images[mine], labels=labels[mine])
                nodes.start(name)
            codes = {name: nodes.processes[name].wait(90) for name in self.names}
            assert not any(codes.values()), [nodes.log(name) for name in self.names]

    def asking(self, *more: str, model: str = "network", file: str = "truth.npz") -> list[str]:
        return ["nodes/ben", "--model", f"clinic:{model}", "--candidates", file, *more]

    @property
    def me(self) -> int:
        found = whose(load(self.folder / "nodes/ben/state/transcript.eris"))
        assert found is not None
        return found


@pytest.fixture(scope="module")
def clinics(tmp_path_factory: pytest.TempPathFactory) -> Clinics:
    return Clinics(tmp_path_factory.mktemp("clinics"))


@pytest.mark.slow
def test_a_real_node_s_transcript_tells_what_its_aggregator_could_infer(clinics: Clinics) -> None:
    done = eris(
        "audit", *clinics.asking("--out", "found.json", "--pictures", "pictures"),
        cwd=clinics.folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    me, found = clinics.me, json.loads((clinics.folder / "found.json").read_text())
    assert found["about"]["view of"] == f"ben (member {me})"
    by = {(one["observer"], one["score"]): one for one in found["findings"]}
    assert {name for name, _ in by} == {f"aggregator {me}", f"member {me}", "final model"}
    joint = by[f"aggregator {me}", "joint"]
    # A third of 650 coordinates, of three full-batch gradients: nearly all is told.
    assert joint["visible"] == pytest.approx(650 / 3, abs=1)
    assert (joint["rounds"], joint["canaries"]) == (1, 3 * EACH)
    assert joint["roc"]["auc"] > 0.9
    assert joint["bound"]["epsilon"] > 1
    assert by[f"aggregator {me}", "aligned"]["rounds"] == ROUNDS
    assert (clinics.folder / "pictures" / "roc.png").is_file()


def test_without_a_truth_candidates_are_ranked_and_nothing_is_judged(
    clinics: Clinics, here: Eris
) -> None:
    np.savez(clinics.folder / "asked.npz", **clinics.arrays)
    arguments = clinics.asking("--out", "asked.json", "--as", "aggregator", file="asked.npz")
    assert here("audit", *arguments) == 0, here.err
    assert "No truth was given" in here.out
    assert "leaks" not in here.out
    found = json.loads((clinics.folder / "asked.json").read_text())
    assert "findings" not in found
    (joint,) = (one for one in found["scores"] if one["score"] == "joint")
    top = np.array(joint["candidates"])[np.argsort(joint["values"])[::-1][:10]]
    assert clinics.included[top].all()
    assert f"{top[0]} " in here.out


def test_what_a_node_s_transcript_cannot_tell_is_refused(clinics: Clinics, here: Eris) -> None:
    other = next(member for member in range(3) if member != clinics.me)
    ask = clinics.asking
    for name in (f"aggregator:{other}", "coalition:2", f"member:{other}"):
        said = here.refused("audit", *ask("--as", name))
        assert f"this transcript is ben's (member {clinics.me}) own view" in said
    assert "a member's number, 0 to 2" in here.refused("audit", *ask("--as", "link:0-9"))
    assert "in which nodes gossip" in here.refused("audit", *ask("--as", "neighbour"))
    assert "'585 parameters'; expected 650" in here.refused("audit", *ask(model="smaller"))
    assert "expected the one the run started from" in here.refused("audit", *ask(model="another"))
    assert "a function missing in" in here.refused("audit", *ask(model="missing"))
    assert "--model is None" in here.refused("audit", "nodes/ben", "--candidates", "truth.npz")
    assert "--candidates is None" in here.refused("audit", "nodes/ben", "--model", "clinic:network")
    said = here.refused("audit", *ask(file="clinic.npz"))
    assert "No such file" in said
    assert "`included` (which were trained on)" in said


def test_a_model_s_weights_can_come_from_a_file(clinics: Clinics, here: Eris) -> None:
    state = clinics.folder / "nodes" / "ben" / "state" / "model.safetensors"
    said = here.refused("audit", *clinics.asking("--initial", str(state)))
    # The trained model is one of the right size, and not the one that all started from.
    assert "expected the one the run started from" in said
    said = here.refused("audit", *clinics.asking("--initial", "truth.npz"))
    assert "expected safetensors" in said
