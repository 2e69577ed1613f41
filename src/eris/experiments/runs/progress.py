"""What a user sees while a run is under way: a bar on a terminal, else a line a round."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress

from eris.experiments.figures import say
from eris.experiments.runs.store import Line


class Progress:
    """Who is told of a run's course; this one tells nobody."""

    def begin(self, name: str, done: int, rounds: int) -> None:
        """A run starts, or goes on after ``done`` rounds."""

    def round(self, line: Line) -> None:
        """A round is over; ``line`` is what is kept of it."""

    def end(self) -> None:
        """The run is over or was stopped."""


class Lines(Progress):
    """A line a round, with the time that is left: for files and other programs."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._rounds = self._before = 0
        self._began = 0.0

    def begin(self, name: str, done: int, rounds: int) -> None:
        """Say what runs."""
        self._rounds, self._before, self._began = rounds, done, self._clock()
        going = f"goes on after round {done} of" if done else "starts:"
        say(f"{name} {going} {rounds} rounds", console=self._console)

    def round(self, line: Line) -> None:
        """Say how it stands, and when it will be over if rounds go on taking as long."""
        done = line["round"]
        each = (self._clock() - self._began) / (done - self._before)
        left = f"  {duration(each * (self._rounds - done))} left" if done < self._rounds else ""
        say(f"round {done}/{self._rounds}  {_note(line)}{left}", console=self._console)


class Bar(Progress):
    """A progress bar with the last metrics, bytes a client, and the time left."""

    def __init__(self, console: Console) -> None:
        self._console, self._task, self._tested = console, TaskID(0), False
        self._bar = bar(console, NOTE)

    def begin(self, name: str, done: int, rounds: int) -> None:
        """Show a bar; one that was shown before stays as it ended."""
        self._bar = bar(self._console, NOTE)
        self._tested = False
        self._task = self._bar.add_task(name, total=rounds, completed=done, note="")
        self._bar.start()

    def round(self, line: Line) -> None:
        """Move it."""
        self._bar.advance(self._task)
        # The last test's figures stay until the next; before the first there is the clients' loss.
        self._tested = self._tested or bool(line["metrics"])
        if line["metrics"] or not self._tested:
            self._bar.update(self._task, note=_note(line))

    def end(self) -> None:
        """Leave it as it is."""
        self._bar.stop()


def bar(console: Console, *more: ProgressColumn) -> RichProgress:
    """A bar with a label, how much is done and the time left."""
    label = TextColumn("{task.description}", markup=False)
    columns = (label, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), *more)
    return RichProgress(*columns, console=console)


NOTE = TextColumn("{task.fields[note]}", markup=False)
"""Beside a bar: what is to be said of it last."""


def shown_on(console: Console) -> Progress:
    """What fits the console."""
    return Bar(console) if console.is_terminal else Lines(console)


def described(metrics: Mapping[str, float | None]) -> str:
    """Metrics on one line.

    >>> described({"accuracy": 0.9134, "loss": None})
    'accuracy 0.9134  loss nan'
    """
    return "  ".join(f"{k} {float('nan') if v is None else v:.4g}" for k, v in metrics.items())


def size(count: float) -> str:
    """Bytes for people.

    >>> size(61_706 * 4), size(900), size(6.6e6)
    ('247 kB', '900 B', '6.6 MB')
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:,.{0 if count >= 100 * scale else 1}f} {unit}"
    return f"{count:.0f} B"


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(8.6), duration(150), duration(7300)
    ('9 s', '2 min 30 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _note(line: Line) -> str:
    """The test's figures where the round was tested, else what clients say of their training."""
    loss = line["client_loss"]
    told = described(line["metrics"] or ({} if loss is None else {"clients' loss": loss}))
    clients = line["clients"]
    sent, received = (size(line[f"clients_{way}"] / clients) for way in ("sent", "received"))
    return f"{told}  a client: {sent} up, {received} down".strip()
