"""``eris new``: what it writes trains in simulation and on nodes, and passes its own test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.command import Eris, eris
from support.commands import examples, options_of


@pytest.fixture
def project(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Path:
    monkeypatch.chdir(tmp_path)
    assert Eris(monkeypatch, capsys)("new", "city-clinic") == 0
    return tmp_path / "city-clinic"


def test_a_new_project_trains_in_simulation_and_passes_its_own_test(project: Path) -> None:
    trained = eris("run", "recipe.toml", "--rounds", "2", "--json", cwd=project)
    assert trained.returncode == 0, trained.stderr
    found = json.loads(trained.stdout)
    assert (found["name"], found["done"], found["data"]) == ("city-clinic", 2, "training:data")
    assert (project / "runs" / "city-clinic" / "transcript.eris").is_file()
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=project,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "3 passed" in tested.stdout, tested.stdout


def test_what_its_readme_says_can_be_typed(project: Path) -> None:
    text = (project / "README.md").read_text(encoding="utf-8")
    lines = examples(text)
    assert len(lines) >= 4
    for line in lines:
        options_of(line)
    assert "{" not in text


def test_nothing_is_written_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    command = Eris(monkeypatch, capsys)
    before = (project / "training.py").read_bytes()
    assert "expected a new folder, or an empty one" in command.refused("new", str(project))
    assert (project / "training.py").read_bytes() == before
    assert "expected letters" in command.refused("new", str(project.parent / 'a "b'))
    assert "is none" in command.refused("new", str(project / "training.py" / "x"))
    assert not (project.parent / 'a "b').exists()


def test_its_trainer_serves_runs_too(project: Path) -> None:
    trainer = ("--trainer", "training:make_trainer", "--clients", "4", "--rounds", "10")
    done = eris("run", *trainer, "--name", "members", "--json", cwd=project)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["accuracy"] > 0.8


@pytest.mark.slow
def test_a_new_project_trains_on_nodes(project: Path) -> None:
    trainer = ("--trainer", "training:make_trainer")
    done = eris("local", "3", "--rounds", "8", *trainer, "--json", cwd=project)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["same_model"] is True
    assert all(node["metrics"]["accuracy"] > 0.7 for node in found["nodes"].values())
