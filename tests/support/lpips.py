"""Weights in the shapes of LPIPS on AlexNet, drawn at random: the package's pickle, and ours."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from eris.data.lpips import from_package, load_lpips
from eris.data.weights import MODEL

_LAYERS = ((11, 3, 64), (5, 64, 192), (3, 192, 384), (3, 384, 256), (3, 256, 256))


def tree() -> dict[str, Any]:
    """As the package has it: (y, x, inputs, outputs)."""
    draw = np.random.Generator(np.random.Philox(key=2))
    found: dict[str, Any] = {"AlexNet_0": {}}
    for layer, (side, inputs, outputs) in enumerate(_LAYERS):
        kernel = draw.normal(size=(side, side, inputs, outputs)) / (side * inputs**0.5)
        found["AlexNet_0"][f"Conv_{layer}"] = {
            "kernel": kernel.astype(np.float32),
            "bias": np.zeros(outputs, np.float32),
        }
        head = draw.random((1, 1, outputs, 1), dtype=np.float32)
        found[f"NetLinLayer_{layer}"] = {"Conv_0": {"kernel": head}}
    return found


def pickled(what: Any) -> dict[str, bytes]:
    """A package's only member that is read."""
    return {"alexnet.ckpt": pickle.dumps(what)}


def stand_in() -> bytes:
    """Our file."""
    return from_package(pickled(tree()))[MODEL]


def use_stand_in(patch: pytest.MonkeyPatch, folder: Path, *modules: ModuleType) -> None:
    """Let modules that load the metric have one with random features."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MODEL).write_bytes(stand_in())
    for module in modules:
        patch.setattr(module, "load_lpips", lambda: load_lpips(folder))
