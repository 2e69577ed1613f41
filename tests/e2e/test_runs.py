"""Runs in processes of their own, which are killed, stopped and continued."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from eris.core.streams import Stream
from eris.data.idx import encode_idx
from eris.data.images import IDX_FILES
from eris.experiments.runs import runner
from eris.experiments.runs.progress import Progress
from eris.experiments.runs.store import CHECKPOINT, CLIENTS, MODEL, TRANSCRIPT, Run
from support.background import IGNORING

ROUNDS_ASKED = 6

# The command itself, in a process that is sent a signal right after one of its rounds.
STRUCK = """
import os, sys
from eris.cli.main import main
from eris.experiments.runs.progress import Lines

signal, strike = int(sys.argv.pop(1)), int(sys.argv.pop(1))
told = Lines.round

def round(self, line):
    told(self, line)
    if line["round"] == strike:
        os.kill(os.getpid(), signal)

Lines.round = round
main()
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in IDX_FILES:
        labels = np.arange(60, dtype=np.uint8) % 10
        pictures = Stream(1, name).words(0, 60 * 784).reshape(60, 28, 28) >> 24
        array = pictures.astype(np.uint8) if "images" in name else labels
        (folder / name).write_bytes(encode_idx(array))
    return folder


def options(data: Path, name: str) -> list[str]:
    return [
        "run", "--path", str(data), "--clients", "5", "--samples", "8", "--momentum", "0.9",
        "--rounds", str(ROUNDS_ASKED), "--evaluate-every", "2", "--checkpoint-every", "2",
        "--set", "kept_fraction=0.2", "--record", "--name", name,
    ]  # fmt: skip


def struck(cwd: Path, number: int, after: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*IGNORING, sys.executable, "-c", STRUCK, str(number), str(after), *arguments]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, encoding="utf-8", check=False
    )


def test_killed_and_stopped_runs_end_like_one_that_was_left_alone(
    data: Path, tmp_path: Path
) -> None:
    killed = struck(tmp_path, signal.SIGKILL, 3, *options(data, "cut"))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    cut = Run(tmp_path / "runs" / "cut")
    assert (cut.about["state"], cut.state) == ("running", "interrupted")
    assert len(cut.rounds()) == 3
    assert [path.name for path in (cut.path / CHECKPOINT).iterdir()] == ["round-000002"]

    stopped = struck(tmp_path, signal.SIGINT, 5, "run", "--resume", "cut")
    assert stopped.returncode == 130, stopped.stderr
    assert "cut goes on after round 2 of 6 rounds" in stopped.stdout
    assert "stopped after round 5 of 6" in stopped.stdout
    assert stopped.stdout.splitlines()[-1].split() == ["eris", "run", "--resume", "cut"]

    finished = runner.resume(Run(cut.path), Progress())
    # In this process, from the recipe that the killed one wrote down.
    alone = runner.start(cut.recipe.changed({"name": "alone"}), tmp_path / "runs", Progress())
    assert alone.recipe == cut.recipe.changed({"name": "alone"})
    for name in (MODEL, TRANSCRIPT, CLIENTS):
        assert (finished.path / name).read_bytes() == (alone.path / name).read_bytes(), name
    lines = [
        [{k: v for k, v in line.items() if k != "seconds"} for line in run.rounds()]
        for run in (finished, alone)
    ]
    assert lines[0] == lines[1]
    assert len(lines[0]) == ROUNDS_ASKED
    assert not (cut.path / CHECKPOINT).exists()
