"""A model's file: read by name by anybody, and as a flat vector here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file
from safetensors.torch import load_file
from torch import nn

import eris
from eris.core.errors import InvalidSetting
from eris.model_file import read_model
from eris.training.torch import TorchTrainer, evaluate, torch_clients, with_statistics

INPUTS = torch.linspace(-1, 1, 80).reshape(20, 4)
TARGETS = (INPUTS.sum(dim=1) > 0).long()
PARTS = np.array_split(np.arange(20), 3)


def normed() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
    return with_statistics(layers, "averaged")


def test_a_saved_model_is_the_module_s_for_whoever_reads_it(tmp_path: Path) -> None:
    model = normed()
    clients = torch_clients(model, INPUTS, TARGETS, PARTS, learning_rate=0.1, epochs=2)
    fit = eris.Federation(clients, model).fit(3, progress=False)
    fit.save(tmp_path / "m.safetensors")
    assert read_model(tmp_path / "m.safetensors").tobytes() == fit.model.tobytes()

    read = load_file(tmp_path / "m.safetensors")
    plain = normed()
    plain.load_state_dict(read)  # statistics and all
    plain.eval()
    with torch.no_grad():
        right = (plain(INPUTS).argmax(dim=1) == TARGETS).float().mean()
    assert evaluate(model, fit.model, INPUTS, TARGETS)["accuracy"] == pytest.approx(float(right))


def test_a_model_without_names_is_one_flat_tensor(tmp_path: Path) -> None:
    class Still:
        def update(self, parameters, round):  # type: ignore[no-untyped-def]
            return np.zeros(3, np.float32), 1

    fit = eris.Federation([Still(), Still(), Still()], np.arange(3)).fit(1, progress=False)
    fit.save(tmp_path / "m.safetensors")
    assert load_arrays(tmp_path / "m.safetensors").keys() == {"model"}
    assert read_model(tmp_path / "m.safetensors").tolist() == [0, 1, 2]


def test_another_s_safetensors_are_not_taken_for_a_flat_model(tmp_path: Path) -> None:
    """A library orders tensors as it likes: what is read by position must have been written so."""
    vector = TorchTrainer(nn.Linear(2, 2), np.eye(2, dtype=np.float32), [0, 1],
                          learning_rate=1).initial()  # fmt: skip
    save_file({"weight": vector}, tmp_path / "named.safetensors")
    save_file({"model": vector.reshape(2, 3)}, tmp_path / "shaped.safetensors")
    save_file({"model": vector.astype(np.float64)}, tmp_path / "double.safetensors")
    (tmp_path / "junk.safetensors").write_bytes(b"\x05" * 50)
    for name in ("named", "shaped", "double", "junk", "absent"):
        with pytest.raises(InvalidSetting, match=f"--initial is .*{name}.*expected safetensors"):
            read_model(tmp_path / f"{name}.safetensors", "--initial")
