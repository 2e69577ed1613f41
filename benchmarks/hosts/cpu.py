"""CPU seconds of all processes that were started, over time: what a round costs all its members.

Reads ``/proc`` (Linux). A process counts with the children it has waited for, so nothing is lost
when one ends, unless its parent ended before it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

TICKS = os.sysconf("SC_CLK_TCK")
EVERY_S = 0.5


def ticks_of_processes() -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Of every process its ticks (own, and of children it has waited for), and its children."""
    children: dict[int, list[int]] = defaultdict(list)
    used = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name in parentheses may hold anything.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(entry.name)
        children[int(fields[1])].append(pid)
        # utime, stime, cutime, cstime: fields 14 to 17 of proc(5).
        used[pid] = [int(ticks) for ticks in fields[11:15]]
    return used, children


def descendants(children: dict[int, list[int]]) -> list[int]:
    """All processes that ours has started, and those that they have."""
    found, left = [], list(children[os.getpid()])
    while left:
        found.append(left.pop())
        left += children[found[-1]]
    return found


def count_of_descendants() -> int:
    """How many processes of ours there are besides this one."""
    return len(descendants(ticks_of_processes()[1]))


def seconds_of_descendants() -> float:
    """CPU seconds of all that this process has started, ended or not."""
    used, children = ticks_of_processes()
    total = sum(used[os.getpid()][2:])
    return (total + sum(sum(used[pid]) for pid in descendants(children))) / TICKS


class CpuMeter:
    """Notes CPU seconds of what is started inside its ``with`` block, every half second.

    >>> with CpuMeter(read=iter([1.0, 3.5]).__next__) as meter:
    ...     pass
    >>> meter.between(0.0, 1e12)
    2.5
    """

    def __init__(self, read: Callable[[], float] = seconds_of_descendants) -> None:
        self._read = read
        self._noted: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._note()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._note()

    def _note(self) -> None:
        self._noted.append((time.time(), self._read()))

    def _watch(self) -> None:
        while not self._over.wait(EVERY_S):
            self._note()

    def between(self, began: float, ended: float) -> float:
        """CPU seconds from one time (seconds since 1970) to another, interpolated."""
        times, used = zip(*self._noted, strict=True)
        first, last = np.interp([began, ended], times, used)
        return float(last - first)
