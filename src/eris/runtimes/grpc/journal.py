"""A node's journal: ``journal.jsonl``, one JSON object a line, appended and never rewritten.

Each line is handed to the operating system whole, so it survives the death of the process. A line
that did not get whole onto the disk is cut off before the next one is written. A disk that is full
costs lines, whose number is noted once there is room again, but never stops the node.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from eris.core.errors import ErisError, InvalidSetting
from eris.files import Growing
from eris.runtimes.grpc.logs import event as log

LOST = "lines lost"
"""The event that says how many lines are missing before it."""
_LOGGER = logging.getLogger("eris.journal")
_BLOCK = 1 << 16


class Journal:
    """Appends events to a file; may be used from several threads, but by one process.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with Journal(Path(folder) / "journal.jsonl") as journal:
    ...         journal.write("round closed", round=3, included={2, 0})
    ...     [(line["event"], line["included"]) for line in read(Path(folder) / "journal.jsonl")]
    [('round closed', [0, 2])]
    """

    def __init__(self, path: Path) -> None:
        self.path, self.lost = Path(path), 0
        self._lock = threading.Lock()
        try:
            self._file = Growing(self.path, _whole)
        except OSError as failed:
            raise ErisError(f"journal {self.path} cannot be opened: {failed.strerror}") from None
        if self._file.cut:
            told = "a torn line was cut off the journal"
            log(_LOGGER, logging.WARNING, told, bytes=self._file.cut)

    def write(self, event: str, /, **fields: object) -> None:
        """Append one event; values of updates have no place here and are a ``TypeError``."""
        line = _line(event, fields)
        with self._lock:
            try:
                # In one piece, lest a nearly full disk fills up with notes of what is lost.
                self._file.append(_line(LOST, {"count": self.lost}) + line if self.lost else line)
                if self.lost:
                    log(_LOGGER, logging.WARNING, "journal goes on", lost=self.lost)
                    self.lost = 0
            except OSError as failed:
                if not self.lost:
                    found = {"path": self.path, "reason": failed.strerror}
                    log(_LOGGER, logging.ERROR, "journal is not written", **found)
                self.lost += 1

    def close(self) -> None:
        """Close the file; nothing is waiting."""
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a journal, also of one that is being written; a torn last line is left out."""
    try:
        with open(path, "rb") as file:
            broken = 0
            for number, line in enumerate(file, start=1):
                if broken:
                    raise ErisError(f"journal {path}: line {broken} is damaged, with others after")
                found = _parsed(line)
                if found is None:
                    broken = number
                else:
                    yield found
    except OSError as failed:
        raise ErisError(f"journal {path} cannot be read: {failed.strerror}") from None


def plain(value: object) -> Any:
    """A value as JSON has it; an array, bytes or any other object is a ``TypeError``.

    >>> plain({"loss": float("nan"), "included": frozenset({3, 1}), "seconds": np.float32(0.5)})
    {'loss': 'nan', 'included': [1, 3], 'seconds': 0.5}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no place in a journal or a status")


def shown_metrics(metrics: object) -> dict[str, float | str]:
    """Metrics as the journal has them: numbers, or what there is instead in few characters."""
    if not isinstance(metrics, Mapping | None):
        raise InvalidSetting("metrics", type(metrics).__name__, "a mapping of names to numbers")
    shown: dict[str, float | str] = {}
    for name, value in (metrics or {}).items():
        try:
            shown[str(name)] = float(value)
        except Exception:
            shown[str(name)] = repr(value)[:80]
    return shown


def _line(event: str, fields: Mapping[str, object]) -> bytes:
    time = datetime.now(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
    line = {"time": time, "event": event, **fields}
    try:
        # Most lines are numbers, words and lists of them, which need no second look.
        text = _JSON.encode(line)
    except (ValueError, TypeError):  # not a number, or a key that is no word
        text = _JSON.encode(plain(line))
    return text.encode() + b"\n"


_JSON = json.JSONEncoder(allow_nan=False, check_circular=False, default=plain)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """A whole line, or nothing."""
    if not line.endswith(b"\n"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _whole(file: int, size: int) -> int:
    """Where the last whole line ends: what a crash left torn behind it does not count."""
    start, tail = size, b""
    while start and b"\n" not in tail[:-1]:
        step = min(_BLOCK, start)
        start -= step
        tail = os.pread(file, step, start) + tail
    last = tail[tail.rfind(b"\n", 0, len(tail) - 1) + 1 :] if tail else b""
    return size if not last or _parsed(last) else size - len(last)
