"""Checkpoints that a kill at any moment cannot damage.

A checkpoint is a folder ``round-000040`` with the training's state and its checksum. It is written
under another name, synced, and then renamed; the one before is removed after that. So there is
always a whole one, and a half-written one is never taken for it. Of a transcript there is a part
with every checkpoint; they are joined at the end.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from eris.core.errors import ErisError
from eris.data.cache import sha256_of
from eris.files import PRIVATE, replace, synced
from eris.protocol.transcript import Record, Transcript, encoded_header, encoded_record

STATE, RECORD = "state.safetensors", "checkpoint.json"


class RunDamaged(ErisError):
    """A file of a run is not what was written; says which, and what to do."""

    def __init__(self, path: Path, what: str, remedy: str) -> None:
        self.path = path
        super().__init__(f"{path} {what}; {remedy}")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Everything needed to continue after a round."""

    round: int
    state: Mapping[str, NDArray[Any]]
    about: Mapping[str, str]
    """What the state belongs to; it must be the same when it is restored."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """How long the files were that a run adds to."""


def save(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint into ``folder`` and remove those of earlier rounds."""
    final = folder / f"round-{checkpoint.round:06}"
    if final.is_dir():  # of the same run and round: the same state
        return final
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{final.name}.{secrets.token_hex(4)}.tmp"
    temporary.mkdir()
    arrays = {name: np.asarray(value, order="C") for name, value in checkpoint.state.items()}
    (temporary / STATE).touch(PRIVATE)
    save_file(arrays, temporary / STATE)
    record = {
        "round": checkpoint.round,
        "about": dict(checkpoint.about),
        "sizes": dict(checkpoint.sizes),
        "sha256": sha256_of(temporary / STATE),
    }
    (temporary / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    for path in (temporary / STATE, temporary / RECORD, temporary):
        synced(path)
    temporary.rename(final)
    synced(folder)
    clean(folder)
    return final


def latest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint, checked; none if there was none yet."""
    newest = _newest(folder)
    if newest is None:
        return None
    remedy = "remove that folder to start the run again from its first round"
    try:
        record = json.loads((newest / RECORD).read_text(encoding="utf-8"))
        sizes = {str(name): int(size) for name, size in record["sizes"].items()}
        wanted, found = str(record["sha256"]), sha256_of(newest / STATE)
        if found != wanted:
            what = f"is damaged: the sha256 of {STATE} is {found}; expected {wanted}"
            raise RunDamaged(newest, what, remedy)
        state = load_file(newest / STATE)
        return Checkpoint(int(record["round"]), state, dict(record["about"]), sizes)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, SafetensorError) as broken:
        raise RunDamaged(newest, f"is damaged ({broken!r})", remedy) from broken


def sizes(folder: Path) -> dict[str, int]:
    """How long the files were, at the newest checkpoint, that a run adds to; of none, nothing."""
    newest = _newest(folder)
    try:
        record = json.loads((newest / RECORD).read_text(encoding="utf-8")) if newest else {}
        return {str(name): int(size) for name, size in record.get("sizes", {}).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}  # replaced by the next one a moment ago, or damaged: told when the run goes on


def clean(folder: Path) -> None:
    """Remove all checkpoints but the newest, and those that a kill left half-written."""
    newest = _newest(folder)
    for path in (*folder.glob("round-*"), *folder.glob(".round-*.tmp")):
        if path != newest:
            shutil.rmtree(path)


def _newest(folder: Path) -> Path | None:
    # Names of one width, so that their order is that of the rounds; six digits are enough for a
    # run, and the length comes first for one that is longer.
    return max(folder.glob("round-*"), key=lambda path: (len(path.name), path.name), default=None)


class TranscriptParts:
    """The messages since the last part go into the next; a part is written before its checkpoint
    counts, so one of a later round than the checkpoint's is left over from a kill."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._saved = self._round = 0

    def load(self, round: int) -> list[Record]:
        """The messages up to a round."""
        records: list[Record] = []
        for path in sorted(self._folder.glob("*.eris")):
            if int(path.stem) > round:
                path.unlink()
            else:
                records += Transcript.load(path).records
        self._saved, self._round = len(records), round
        return records

    def save(self, transcript: Transcript, round: int) -> None:
        """Write the messages since the last part; a second time in a round there are none."""
        if round == self._round:
            return
        new = transcript.records[self._saved :]
        write_transcript(
            Transcript(transcript.membership, transcript.settings, new),
            self._folder / f"{round:06}.eris",
        )
        self._saved, self._round = self._saved + len(new), round


def write_transcript(transcript: Transcript, path: Path) -> None:
    """Write a transcript whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = map(encoded_record, transcript.records)
    replace(path, chain([encoded_header(transcript)], records))
