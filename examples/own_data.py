"""Your own data and your own model in `eris run`: two functions in a file.

    eris run --data own_data:clinics --model own_data:network --set model.hidden=32 --name mine
    eris run --data own_data:clinics --model own_data:network --method fedavg --name central
    eris compare mine central

are called in the folder of this file; ``python examples/own_data.py`` does the same from anywhere.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

FEATURES, KINDS = 12, 3


def clinics() -> dict[str, NDArray[np.float32] | NDArray[np.int64]]:
    """Measurements of 2,000 patients of six clinics, and which of three illnesses they have.

    `numpy.savez("clinics.npz", **clinics())` makes a file for `eris run --data clinics.npz`.
    """
    draw = np.random.default_rng(2026)
    centres = 1.5 * draw.standard_normal((KINDS, FEATURES))
    illness = draw.integers(0, KINDS, 2500)
    measured = (centres[illness] + draw.standard_normal((2500, FEATURES))).astype(np.float32)
    return {
        "train_inputs": measured[:2000],
        "train_targets": illness[:2000],
        "train_users": draw.integers(0, 6, 2000),  # the clinic: for `--partition by-user`
        "test_inputs": measured[2000:],
        "test_targets": illness[2000:],
    }


def network(hidden: int = 16) -> nn.Module:
    """Any module that turns a batch of samples into a row of logits each."""
    return nn.Sequential(nn.Linear(FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, KINDS))


def main() -> None:
    """The three commands of above."""
    own = ["--data", "own_data:clinics", "--model", "own_data:network", "--partition", "by-user"]
    runs = ["--runs", str(Path("runs").resolve())]
    for arguments in (
        ["run", *own, "--rounds", "10", "--set", "model.hidden=32", "--name", "mine"],
        ["run", *own, "--rounds", "10", "--method", "fedavg", "--name", "central"],
        ["compare", "mine", "central"],
    ):
        command = [sys.executable, "-m", "eris.cli.main", *arguments, *runs]
        subprocess.run(command, cwd=Path(__file__).parent, check=True)


if __name__ == "__main__":
    main()
