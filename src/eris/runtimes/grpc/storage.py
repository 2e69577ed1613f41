"""A node's checkpoint: one file that a kill or a power cut at any moment leaves whole.

It has the format of safetensors. Vectors are written as they lie in memory: a checkpoint costs no
second copy of the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from eris.core.errors import ErisError
from eris.files import Buffer
from eris.files import replace as replace_file

CHECKPOINT, MODEL = "checkpoint.safetensors", "model.safetensors"
_KINDS = {"float32": "F32", "int64": "I64", "float64": "F64", "uint8": "U8"}


def save(path: Path, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, str]) -> None:
    """Replace a file by one with these arrays; if that fails, the old one stays."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    pieces = (array.data for array in contiguous.values())
    replace(path, chain([_header(contiguous, about)], pieces), "the last one is kept")


def replace(path: Path, pieces: Iterable[Buffer], otherwise: str) -> None:
    """Replace a file by one with these bytes, whole and on the disk; ``otherwise`` says what
    holds where that fails."""
    try:
        replace_file(path, pieces)
    except OSError as failed:
        reason = failed.strerror or str(failed)
        raise ErisError(f"{path} cannot be written: {reason}; {otherwise}") from failed


def load(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]] | None:
    """Arrays and what is said about them; None if there is no such file."""
    return _read(path, arrays=True)


def about(path: Path) -> dict[str, str] | None:
    """What is said about a file's arrays, without reading them; None if there is no such file."""
    found = _read(path, arrays=False)
    return None if found is None else found[1]


def _read(path: Path, arrays: bool) -> tuple[dict[str, NDArray[Any]], dict[str, str]] | None:
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            names = file.keys() if arrays else ()
            return {name: file.get_tensor(name) for name in names}, dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError) as damaged:
        raise ErisError(
            f"{path} is damaged ({damaged}); remove it, and the node catches up from its peers"
        ) from damaged


def _header(arrays: Mapping[str, NDArray[Any]], about: Mapping[str, str]) -> bytes:
    header: dict[str, Any] = {"__metadata__": dict(about)}
    start = 0
    for name, array in arrays.items():
        end = start + array.nbytes
        header[name] = {
            "dtype": _KINDS[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
