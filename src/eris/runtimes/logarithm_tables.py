"""Tables of logarithms on disk: built once, checked when they are read, built anew if damaged."""

from __future__ import annotations

import mmap
from functools import lru_cache
from pathlib import Path

from eris.files import SHARED, replace
from eris.protocol.enccluster.logarithms import (
    REACH,
    DamagedTable,
    LogarithmTable,
    Progressed,
    built_table,
)

SMALL = 1 << 16
"""Up to this reach a table is built in half a second, and is not worth a file."""


@lru_cache(2)
def kept_table(folder: Path, reach: int) -> LogarithmTable:
    """The table of this reach: a large one from a folder, a small one from memory."""
    return built_table(reach) if reach <= SMALL else cached_table(folder, reach)


def is_kept(folder: Path, reach: int) -> bool:
    """Whether a table is at hand, or built in no time."""
    return reach <= SMALL or _place(folder, reach).exists()


def _place(folder: Path, reach: int) -> Path:
    return folder / f"logarithms-{reach}.table"


def cached_table(
    folder: Path, reach: int = REACH, progress: Progressed | None = None
) -> LogarithmTable:
    """The table of this reach in a folder, mapped into memory; ``progress`` if it must be built."""
    path = _place(folder, reach)
    try:
        return _mapped(path, reach)
    except (FileNotFoundError, DamagedTable):
        folder.mkdir(parents=True, exist_ok=True)
    replace(path, LogarithmTable.build(reach, progress).pieces(), SHARED)
    return _mapped(path, reach)


def _mapped(path: Path, reach: int) -> LogarithmTable:
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as empty:  # nothing can be mapped
            raise DamagedTable(str(empty)) from None
    found = LogarithmTable.of(memoryview(data))
    if found.reach != reach:
        raise DamagedTable(f"it reaches {found.reach}, not {reach}")
    return found
