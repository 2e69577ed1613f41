"""Every test has a time limit: who it waited for is told, and what it started is ended.

The limit is generous, for a machine may be busy; it is there so that nothing waits for ever. A
process that a test started, and all that this one started, are ended before the test's own clean-up
runs, for that may wait for them as well.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import pytest

LIMIT = float(os.environ.get("ERIS_TEST_LIMIT", "600"))
"""Seconds for each of a test's set-up, call and clean-up."""
CAMPAIGN = 12
"""How many times longer a test may take that is part of a campaign of its own."""


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """Fail, in the main thread and wherever it is, if the block takes longer."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = set(descendants(os.getpid()))

    def ended(number: int, frame: FrameType | None) -> None:
        started = {pid: told for pid, told in descendants(os.getpid()).items() if pid not in before}
        for pid in started:
            _kill(pid)
        waited = "\n".join(f"  {pid}: {told}" for pid, told in started.items()) or "  no process"
        pytest.fail(f"{what}: not done after {seconds:g} s; it waited for, and ended:\n{waited}")

    handler = signal.signal(signal.SIGALRM, ended)
    # Again and again: clean-up that hangs is ended as well.
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    # Compiled code that never returns hears no alarm: then the whole process ends.
    faulthandler.dump_traceback_later(3 * seconds, exit=True, file=2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


def descendants(pid: int) -> dict[int, str]:
    """The processes that a process started, and those that these started: their command lines."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = {}, list(children.get(pid, ()))
    while waiting:
        one = waiting.pop()
        found[one] = command(one)
        waiting += children.get(one, ())
    return found


def _parent(entry: Path) -> int | None:
    try:
        # The name, in brackets, may hold anything; the state and the parent come after it.
        return int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None  # it has ended meanwhile


def command(pid: int) -> str:
    """How a process was called."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").split()
        return " ".join(words)
    except OSError:
        return "has ended"


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _phase(item: pytest.Item, phase: str) -> Generator[None, object, object]:
    seconds = LIMIT * (CAMPAIGN if item.get_closest_marker("slow") else 1)
    with within(seconds, f"{phase} of {item.nodeid}"):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _phase(item, "set-up"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _phase(item, "call"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _phase(item, "clean-up"))
