"""What a node keeps in its folder: each file is one that a kill or a power cut leaves whole.

Checkpoint and model have the format of safetensors. Vectors are written as they lie in memory: a
checkpoint costs no second copy of the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from eris.core.errors import ErisError
from eris.files import Buffer
from eris.files import replace as replace_file
from eris.model_file import header
from eris.protocol.authority.history import Mark, newest

CHECKPOINT, MODEL, MEMORY = "checkpoint.safetensors", "model.safetensors", "run.json"
KEPT = "the last one is kept"
RUN = "run"
"""What a checkpoint calls the run it is of."""
Note = TypeVar("Note")


def save(path: Path, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, str]) -> None:
    """Replace a file by one with these arrays; if that fails, the old one stays."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    pieces = (array.data for array in contiguous.values())
    kinds = ((name, array.dtype.name, array.shape) for name, array in contiguous.items())
    replace(path, chain([header(kinds, about)], pieces), KEPT)


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


class Memory:
    """The newest mark of its run's ledger that a node has seen: ``run.json`` beside its checkpoint.

    It is on the disk before the node acts on an answer of the directory, so that whatever this node
    may have published, its folder knows of the ledger that permitted it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / MEMORY
        checkpoint = about(folder / CHECKPOINT)
        self.mark = noted(
            self._path, _mark, "give this node an empty folder: it catches up from its peers"
        )
        self.begun = checkpoint is not None or self.mark is not None
        """Whether the folder is of a run."""
        if self.mark is None and checkpoint and checkpoint.get(RUN):
            self.mark = Mark(checkpoint[RUN])  # the note is lost, but the checkpoint says it, too

    @property
    def run(self) -> str:
        """The identity of the run that the folder is of; empty if that is not known."""
        return "" if self.mark is None else self.mark.ledger

    def keep(self, told: Mark | None) -> None:
        """Note what was told; it is on the disk when this returns."""
        mark = newest(self.mark, told)
        if mark is not None and mark != self.mark:
            text = json.dumps(asdict(mark)).encode()
            replace(self._path, [text], "this node acts on no answer that it cannot note")
            self.mark = mark


def noted(path: Path, read: Callable[[Any], Note], remedy: str) -> Note | None:
    """What a node has noted in a file; None if there is none."""
    try:
        return read(json.loads(path.read_text("utf-8"))) if path.exists() else None
    except (OSError, ValueError, KeyError, TypeError, ErisError) as damaged:
        raise ErisError(f"{path} is damaged ({damaged}); {remedy}") from damaged


def _mark(note: Any) -> Mark:
    mark = Mark(**note)
    mark.check()
    return mark
