"""Where a contestant's process runs: a host of its own, or this machine's loopback.

Also what all of them share: one thread each, and how a process is ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[2]
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
GRACE_S = 10.0


class Place(Protocol):
    """An address, and how a command is run where it is."""

    @property
    def address(self) -> str:
        """The address others reach it at."""

    def command(self, command: Sequence[str]) -> list[str]:
        """The command as it is run there."""


@dataclass(frozen=True)
class Loopback:
    """This machine: nothing between the processes but the kernel.

    >>> Loopback().command(["hostname"])
    ['hostname']
    """

    address: str = "127.0.0.1"

    def command(self, command: Sequence[str]) -> list[str]:
        """The command itself."""
        return list(command)


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a measured process: one thread, and the benchmarks importable."""
    pinned = dict.fromkeys(THREADS, "1")
    return {**os.environ, **pinned, "PYTHONPATH": str(ROOT), **(more or {})}


def module(name: str, *arguments: str) -> list[str]:
    """A module of the benchmarks as a command."""
    return [sys.executable, "-m", f"benchmarks.hosts.{name}", *arguments]


@contextmanager
def ended_at_last(processes: Iterable[subprocess.Popen[str]]) -> Iterator[None]:
    """End the processes when the block is left: asked first, then killed."""
    processes = list(processes)
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.communicate(timeout=GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
