"""One's own data and one's own model in ``eris run``, as their user brings them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eris.core.errors import InvalidSetting
from eris.data.own import load_own
from eris.experiments.runs.store import Run
from support.command import Eris

CODE = """
import numpy as np
from torch import nn

def table(seed=0):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(300, 5))
    y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
    return dict(train_inputs=x[:240], train_targets=y[:240],
                test_inputs=x[240:], test_targets=y[240:])

def net(hidden: int = 8):
    return nn.Sequential(nn.Linear(5, hidden), nn.Tanh(), nn.Linear(hidden, 3))

def normed():
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

def narrow(): return nn.Linear(5, 2)
def wide(): return nn.Linear(6, 3)
def nothing(): return None
def broken(): raise RuntimeError("zebra\\nand more")
number = 7
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    (tmp_path / "mine.py").write_text(CODE)
    names: dict[str, Any] = {}
    exec(CODE, names)  # our own text above
    np.savez(tmp_path / "table.npz", **names["table"]())
    yield tmp_path
    sys.modules.pop("mine", None)


SHORT = ("--clients", "5", "--rounds", "4", "--learning-rate", "0.3", "--canaries", "0.4")


def test_own_data_and_model_are_run_compared_and_audited(place: Path, eris: Eris) -> None:
    for name, data in (("by-file", "table.npz"), ("by-function", "mine:table")):
        asked = ["run", "--data", data, "--model", "mine:net", "--set", "model.hidden=6", *SHORT]
        assert eris(*asked, "--record", "--name", name) == 0, eris.err
    one, other = Run(Path("runs/by-file")), Run(Path("runs/by-function"))
    assert [line["metrics"] for line in one.rounds()] == [x["metrics"] for x in other.rounds()]
    assert one.rounds()[-1]["metrics"]["accuracy"] > 0.5
    assert one.recipe.model.settings == {"hidden": 6}
    assert one.about["data"]["sha256"]["train"] == other.about["data"]["sha256"]["train"]
    assert len(one.about["data"]["sha256"]["file"]) == len(one.about["model"]["sha256"]) == 64
    assert eris("compare", "by-file", "by-function") == 0
    assert eris("audit", "by-file", "--as", "aggregator:0") == 0, eris.err
    assert "table.npz" in eris.out


def test_batch_norm_trains_by_one_option_and_is_audited(place: Path, eris: Eris) -> None:
    asked = ["run", "--data", "table.npz", "--model", "mine:normed", *SHORT, "--record",
             "--batch-size", "0"]  # fmt: skip
    assert "running_statistics='averaged'" in eris.refused(*asked)
    asked += ["--running-statistics", "averaged"]
    said = eris.refused(*asked, "--set", "kept_fraction=0.02")
    assert "method.basis is 'rotated'; expected coordinates, or training.running_statistics" in said
    assert eris(*asked, "--name", "normed") == 0, eris.err
    run = Run(place / "runs" / "normed")
    assert run.about["model"]["parameters"] == 91 + 16  # mean and variance of eight
    assert run.rounds()[-1]["metrics"]["accuracy"] > 0.5
    assert eris("audit", "normed", "--as", "aggregator:0") == 0, eris.err


def test_a_run_goes_on_only_with_the_data_and_the_code_it_began_with(
    place: Path, eris: Eris, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("run", "--data", "table.npz", "--model", "mine:net", *SHORT, "--record")
    assert eris(*asked, "--name", "r") == 0
    Run(place / "runs" / "r").note(state="interrupted")
    np.savez("table.npz", **sys.modules["mine"].table(seed=1))
    refused = eris.refused("run", "--resume", "r")
    assert "sha256 of train of the data table.npz is" in refused
    assert eris("audit", "r") == 2
    np.savez("table.npz", **sys.modules["mine"].table())
    (place / "mine.py").write_text(CODE + "\n# changed\n")
    assert "sha256 of the model mine:net is" in eris.refused("run", "--resume", "r")
    (place / "mine.py").write_text(CODE)
    assert eris("run", "--resume", "r") == 0


BAD = [
    (["--data", "nowhere.npz"], "data is 'nowhere.npz'; expected a file that is there"),
    (["--data", "mine.npz"], "expected arrays of numbers as numpy.savez writes them"),
    (["--data", "objects.npz"], "expected arrays of numbers as numpy.savez writes them"),
    (["--data", "mine:nope"], "data is 'mine:nope'; expected a function nope in"),
    (["--data", "mine:number"], "expected a function number in"),
    (["--data", "nomodule:load"], "No module named 'nomodule'"),
    (["--data", "mine:broken"], "expected a function that works (RuntimeError: zebra)"),
    (["--data", "mine:nothing"], "what mine:nothing() returned is 'NoneType'; expected a mapping"),
    (["--data", "table.npz", "--path", "x"], "data.path is 'x'; expected none beside table.npz"),
    (["--data", "table.npz"], "expected one for samples of 5: none is known, or your own as"),
    (["--data", "table.npz", "--model", "mine:nothing"], "expected a torch.nn.Module"),
    (["--data", "table.npz", "--model", "mine:broken"], "(RuntimeError: zebra)"),
    (["--data", "table.npz", "--model", "mine:wide"], "expected one that reads torch.float32"),
    (["--data", "table.npz", "--model", "mine:narrow"], "targets go up to 2"),
    (["--data", "table.npz", "--model", "mine:net", "--set", "model.hiden=1"], "one of hidden"),
    (["--data", "table.npz", "--model", "mine:net", "--set", "model.hidden=x"], "a whole number"),
    (["--data", "table.npz", "--model", "mine:net", "--partition", "by-user"], "name its users"),
]


@pytest.mark.parametrize(("more", "said"), BAD, ids=lambda one: " ".join(one)[:40])
def test_what_does_not_fit_is_refused_in_one_line(
    place: Path, eris: Eris, more: list[str], said: str
) -> None:
    (place / "mine.npz").write_bytes(b"PK\x03\x04 not an archive")
    np.savez(place / "objects.npz", train_inputs=np.array([{}], object), allow_pickle=True)
    assert said in eris.refused("run", *more, "--rounds", "1")
    assert not (place / "runs").exists() or not list((place / "runs").iterdir())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"test_targets": None}, "expected test_targets among them"),
        ({"labels": np.zeros(3)}, "array in t.npz is 'labels'; expected one of train_inputs"),
        ({"train_inputs": np.full((3, 2), np.nan)}, "with NaN or infinity"),
        ({"train_inputs": np.zeros(3)}, "expected numbers, one sample a row"),
        (
            {"train_targets": np.zeros(3)},
            "train_targets in t.npz is 'float64 (3,)'; expected whole",
        ),
        ({"train_targets": np.array([0, -1, 0])}, "with -1"),
        ({"train_targets": np.zeros(2, int)}, "(3,): one for each of train_inputs"),
        ({"train_users": np.zeros(2, int)}, "train_users in t.npz"),
        ({"test_inputs": np.zeros((2, 3))}, "samples of test_inputs in t.npz"),
    ],
    ids=str,
)
def test_arrays_are_checked_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    good = {
        "train_inputs": np.zeros((3, 2)), "train_targets": np.array([0, 1, 0]),
        "test_inputs": np.zeros((2, 2)), "test_targets": np.array([1, 0]),
    }  # fmt: skip
    arrays = {name: value for name, value in (good | changes).items() if value is not None}
    np.savez("t.npz", **arrays)
    with pytest.raises(InvalidSetting) as refused:
        load_own("t.npz")
    assert said in str(refused.value)


def test_bytes_are_pictures_and_other_numbers_stay_what_they_are(tmp_path: Path) -> None:
    labels = np.array([0, 1])
    for inputs, kind, shape in (
        (np.full((2, 4, 4), 255, np.uint8), np.float32, (2, 1, 4, 4)),
        (np.full((2, 3, 4, 4), 255, np.uint8), np.float32, (2, 3, 4, 4)),
        (np.ones((2, 4)), np.float32, (2, 4)),
        (np.ones((2, 4), np.int32), np.int64, (2, 4)),
    ):
        path = tmp_path / "t.npz"
        np.savez(path, train_inputs=inputs, train_targets=labels,
                 test_inputs=inputs, test_targets=labels)  # fmt: skip
        found = load_own(str(path)).train_inputs
        assert (found.dtype, found.shape) == (np.dtype(kind), shape)
        assert found.max() == 1
