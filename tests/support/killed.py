"""Processes that are killed in the middle of writing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path


def killed_while_writing(program: str, path: Path) -> int:
    """Kill a program that prints the number of every record it has written; the last it told."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as told:
        for _ in range(100):
            assert told.readline()
        process.send_signal(signal.SIGKILL)
        acknowledged = [99, *map(int, told.read().split("\n")[:-1])][-1]
    assert process.wait() == -signal.SIGKILL
    return acknowledged
