"""What a user sees while a run is under way: a bar on a terminal, else a line an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress

from eris.experiments.store import Line


class Progress(Protocol):
    """Who is told of a run's course."""

    def begin(self, name: str, done: int, rounds: int) -> None:
        """A run starts, or goes on after ``done`` rounds."""
        ...

    def round(self, line: Line) -> None:
        """A round is over; ``line`` is what is kept of it."""
        ...

    def end(self) -> None:
        """The run is over or was stopped."""
        ...


class Silent:
    """Tells nobody."""

    def begin(self, name: str, done: int, rounds: int) -> None:
        """Nothing."""

    def round(self, line: Line) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


class Lines:
    """A line for every evaluation: for files and other programs."""

    def __init__(self, console: Console) -> None:
        self._console, self._rounds, self._name = console, 0, ""

    def begin(self, name: str, done: int, rounds: int) -> None:
        """Say what runs."""
        self._name, self._rounds = name, rounds
        going = f"goes on after round {done} of" if done else "starts:"
        self._say(f"{name} {going} {rounds} rounds")

    def round(self, line: Line) -> None:
        """Say how it stands, in rounds that were evaluated."""
        if line["metrics"]:
            where = f"round {line['round']}/{self._rounds}"
            self._say(f"{where}  {_note(line)}")

    def end(self) -> None:
        """Nothing."""

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)


class Bar:
    """A progress bar with the last metrics, bytes a client, and the time left."""

    def __init__(self, console: Console) -> None:
        self._console, self._task = console, TaskID(0)
        self._bar = RichProgress(console=console)

    def begin(self, name: str, done: int, rounds: int) -> None:
        """Show a bar; one that was shown before stays as it ended."""
        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=self._console,
        )
        self._task = self._bar.add_task(name, total=rounds, completed=done, note="")
        self._bar.start()

    def round(self, line: Line) -> None:
        """Move it."""
        self._bar.advance(self._task)
        if line["metrics"]:
            self._bar.update(self._task, note=_note(line))

    def end(self) -> None:
        """Leave it as it is."""
        self._bar.stop()


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


def _note(line: Line) -> str:
    clients = line["clients"]
    sent, received = (size(line[f"clients_{way}"] / clients) for way in ("sent", "received"))
    return f"{described(line['metrics'])}  a client: {sent} up, {received} down"
