"""A model as a file: safetensors, with the names and shapes of its parameters where they are known.

The values lie in the file as they lie in the flat vector, whatever they are called: the whole of
the data is the model, and anyone's safetensors reads its parameters by name. Where no names are
known there is one flat tensor, ``model``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.files import Buffer
from eris.training.trainer import Layout

UNNAMED = "model"
ORDER = {"order": "flat"}
"""What a file with names says, so that one that torch's users wrote is not taken for one."""
SUFFIX = ".safetensors"
KINDS = {"float32": "F32", "int64": "I64", "float64": "F64", "uint8": "U8"}


def header(arrays: Iterable[tuple[str, str, Sequence[int]]], about: Mapping[str, str]) -> bytes:
    """How a safetensors file begins: (name, type, shape) of what follows, one after another."""
    found: dict[str, Any] = {"__metadata__": dict(about)}
    start = 0
    for name, kind, shape in arrays:
        end = start + prod(shape) * np.dtype(kind).itemsize
        found[name] = {"dtype": KINDS[kind], "shape": list(shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(found).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def model_bytes(model: Vector, layout: Layout | None, about: Mapping[str, str]) -> list[Buffer]:
    """The pieces of a model's file; without a layout, or with one of another model, one tensor.

    >>> named = model_bytes(np.zeros(3, np.float32), [("weight", (1, 2)), ("bias", (1,))], {})
    >>> b'"weight": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}' in named[0]
    True
    """
    known, told = layout or (), {**about, **ORDER}
    if sum(prod(shape) for _, shape in known) != len(model):
        known, told = [(UNNAMED, (len(model),))], dict(about)
    begin = header(((name, "float32", shape) for name, shape in known), told)
    return [begin, np.ascontiguousarray(model, np.float32).data]


def read_model(path: str | Path, what: str = "model") -> Vector:
    """The flat model in a file that this package wrote; ``what`` is the setting that names it."""
    expected = "safetensors as this package writes them"
    try:
        with safe_open(path, framework="numpy") as file:
            found = {name: file.get_tensor(name) for name in file.offset_keys()}
            about = file.metadata() or {}
    except (SafetensorError, OSError, ValueError) as broken:
        raise InvalidSetting(what, str(path), f"{expected} ({broken})") from broken
    pieces = [piece.reshape(-1) for piece in found.values()]
    flat = list(found) == [UNNAMED] and found[UNNAMED].ndim == 1
    if not (flat or (found and about.items() >= ORDER.items())):
        expected += ": one flat tensor `model`, or parameters in the order of the flat model"
        raise InvalidSetting(what, str(path), expected)
    if any(piece.dtype != np.float32 for piece in pieces):
        raise InvalidSetting(what, str(path), f"{expected}, float32 throughout")
    return np.concatenate(pieces)


def check_suffix(path: str | Path) -> Path:
    """The path, if its name says what is written there.

    >>> check_suffix("m.pt")
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: file of the model is 'm.pt'; expected a name that ends in \
.safetensors, the one format written here; for torch's own, torch.save(fit.state_dict(module), path)
    """
    if Path(path).suffix != SUFFIX:
        expected = (
            f"a name that ends in {SUFFIX}, the one format written here; for torch's own, "
            "torch.save(fit.state_dict(module), path)"
        )
        raise InvalidSetting("file of the model", str(path), expected)
    return Path(path)
