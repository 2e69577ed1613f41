"""One ``make_trainer``: the same bits in Python, by ``eris run`` and on real nodes."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

import eris
from eris.model_file import read_model
from eris.training.torch import flatten

CODE = """
import torch
from torch import nn
from eris.training.torch import TorchTrainer

def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

def make_trainer(name, *, member, members, rate=0.1):
    inputs = torch.linspace(-1, 1, 240).reshape(60, 4)[member::members]
    targets = (inputs.sum(dim=1) > 0).long()
    return TorchTrainer(network(), inputs, targets, client=member, learning_rate=rate, epochs=1,
                        batch_size=8)
"""
ROUNDS, MEMBERS, RATE = 3, 3, 0.2


def called(here: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "eris.cli.main", *words],
        cwd=here, env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True, encoding="utf-8",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_one_function_serves_python_runs_and_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_training.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    own = importlib.import_module("my_training")
    trainers = [own.make_trainer("", member=k, members=MEMBERS, rate=RATE) for k in range(MEMBERS)]
    names = [f"node-{number}" for number in range(1, MEMBERS + 1)]
    fit = eris.Federation(trainers, names=names).fit(ROUNDS, progress=False)
    assert fit.model.tobytes() != flatten(own.network()).tobytes()

    trainer = ["--trainer", "my_training:make_trainer", "--rounds", str(ROUNDS)]
    said = called(tmp_path, "run", *trainer, "--clients", str(MEMBERS), "--name", "mine",
                  "--set", f"trainer.rate={RATE}", "--evaluate-every", "1")  # fmt: skip
    assert "mine: finished, 3 rounds  loss 0." in said
    file = tmp_path / "runs" / "mine" / "model.safetensors"
    assert read_model(file).tobytes() == fit.model.tobytes()
    scores = [trainer.evaluate(fit.model) for trainer in trainers]
    lines = (tmp_path / "runs" / "mine" / "rounds.jsonl").read_text().splitlines()
    found = json.loads(lines[-1])["metrics"]
    assert found["loss"] == pytest.approx(sum(one["loss"] for one in scores) / MEMBERS, rel=1e-5)
    assert "my_training:make" in called(tmp_path, "runs")

    called(tmp_path, "local", str(MEMBERS), *trainer, "--option", f"rate={RATE}", "--kept", "1")
    for name in names:
        state = tmp_path / "runs" / "local" / name / "state"
        assert read_model(state / "model.safetensors").tobytes() == fit.model.tobytes()
        notes = [json.loads(line) for line in (state / "journal.jsonl").read_text().splitlines()]
        shown = [note for note in notes if note["event"] in ("evaluated", "finished")]
        assert [note["round"] for note in shown] == [0, 1, 2, 3]
        assert all(note["metrics"].keys() == {"loss", "accuracy", "samples"} for note in shown)
        assert shown[-1]["metrics"]["loss"] < shown[0]["metrics"]["loss"]
    plain = own.network()
    plain.load_state_dict(load_file(state / "model.safetensors"))
    assert flatten(plain).tobytes() == fit.model.tobytes()


def test_a_trainer_says_what_it_is_and_nothing_else_does(tmp_path: Path) -> None:
    (tmp_path / "my_training.py").write_text(CODE)
    for words, says in (
        (["--momentum", "0.9"], "training.momentum is 0.9; expected nothing beside trainer my_tr"),
        (["--model", "lenet5"], "model.name is 'lenet5'; expected nothing beside trainer"),
        (["--set", "trainer.speed=1"], "expected keys that my_training:make_trainer takes"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "eris.cli.main", "run", "--trainer", "my_training:make_trainer",
             *words],
            cwd=tmp_path, text=True, encoding="utf-8", capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        assert says in done.stderr.replace("\n", " ")
