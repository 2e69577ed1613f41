"""A federation on this machine as it happens: follows the nodes' journals, and shows them.

On a terminal it is a table that is drawn anew; elsewhere (a file, CI) a line a round, without
control codes. Nothing is asked of the nodes: what is shown is what they noted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from eris.core.errors import ErisError
from eris.experiments.federations.processes import LocalFederation
from eris.experiments.figures import say
from eris.experiments.runs.progress import described, size

PAUSE = 0.2
"""Seconds between two looks."""
NOBODY = "nobody"
"""The owner, in a journal, of a shard that waits."""
STARTING, DOWN = "starting", "down"
Note = Mapping[str, Any]


class Tail:
    """The lines that were added to a journal since the last look.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "journal.jsonl"
    ...     tail = Tail(path)
    ...     _ = path.write_text('{"event": "began", "round": 1}\\n{"event": "trai')
    ...     first = tail.read()
    ...     _ = path.write_text(path.read_text() + 'ned"}\\n')
    ...     first, tail.read()
    ([{'event': 'began', 'round': 1}], [{'event': 'trained'}])
    """

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def read(self) -> list[dict[str, Any]]:
        """What is new and whole; a file that is not there yet has nothing."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._at:  # the node lost its disk and began another
                    self._at = 0
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        return [json.loads(line) for line in whole.split(b"\n") if line]


@dataclass
class NodeRow:
    """What one node has last said of itself."""

    round: int = 0
    phase: str = STARTING
    last: Note = field(default_factory=dict)
    """Of the last round that is over: seconds, bytes, the share seen."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    problem: str = ""
    """What is wrong with its training."""

    @property
    def over(self) -> bool:
        """Whether this node is through with its training."""
        return self.phase == "finished"


_PHASES = {
    "began": "training",
    "trained": "exchanging",
    "training failed": "no update",
    "done": "testing",
    "finished": "finished",
    "incomplete": "incomplete",
}
_STYLES = {
    "training": "cyan",
    "exchanging": "blue",
    "finished": "green",
    "incomplete": "bold red",
    DOWN: "bold red",
}


class Board:
    """The state of all nodes, put together from their notes."""

    def __init__(self, names: Sequence[str], rounds: int) -> None:
        self.rows = {name: NodeRow() for name in names}
        self.rounds = rounds
        self.views: dict[int, Note] = {}
        self.over: dict[int, dict[str, Note]] = {}
        """By round and node: how it went."""

    def take(self, name: str, note: Note) -> None:
        """Take in what a node noted."""
        row, event = self.rows[name], note["event"]
        if event == "view":
            self.views.setdefault(note["epoch"], note)
        elif event == "round":
            row.last = note
            self.over.setdefault(note["round"], {})[name] = note
        elif event in _PHASES:
            row.phase = _PHASES[event]
            row.round = min(note["round"], self.rounds)
        elif row.phase in (STARTING, DOWN) and event in ("result", "snapshot"):
            row.phase = "catching up"
        if event in ("evaluated", "finished"):
            row.metrics = note["metrics"]
        if event in ("trained", "training failed", "finished"):
            row.problem = note.get("error") or note.get("problem", "")

    @property
    def round(self) -> int:
        """The furthest that any node is."""
        return max(row.round for row in self.rows.values())

    def view_at(self, round: int) -> Note | None:
        """The view that holds in a round."""
        known = (view for view in self.views.values() if view["from_round"] <= max(1, round))
        return max(known, key=lambda view: int(view["epoch"]), default=None)

    def moved(self, view: Note) -> list[bool]:
        """Of each shard, whether its owner is another than at first."""
        first = self.views[min(self.views)]["owners"]
        return [now != then for now, then in zip(view["owners"], first, strict=True)]

    # -- on a terminal ------------------------------------------------------------------------

    def __rich__(self) -> RenderableType:
        """Nodes, then shards."""
        titles = ("node", "round", "is", "last round", "sent", "received", "seen")
        table = Table(*titles, box=SIMPLE, pad_edge=False)
        for name, row in self.rows.items():
            cells = ["", "", "", ""]
            if row.last:
                sent, received = (size(row.last[way]) for way in ("sent", "received"))
                cells = [f"{row.last['seconds']:.2f} s", sent, received, f"{row.last['seen']:.2%}"]
            phase = Text(row.phase, _STYLES.get(row.phase, ""))
            table.add_row(name, f"{row.round}/{self.rounds}", phase, *cells)
        return Group(table, self._shards())

    def _shards(self) -> Text:
        view = self.view_at(self.round)
        if view is None:
            return Text("waiting for all members")
        line = Text(f"epoch {view['epoch']}   shards")
        for shard, (owner, moved) in enumerate(zip(view["owners"], self.moved(view), strict=True)):
            style = "green" if not moved else "bold red" if owner == NOBODY else "bold yellow"
            line.append(f"  {shard} ").append(owner, style)
        if metrics := next((row.metrics for row in self.rows.values() if row.metrics), {}):
            line.append(f"   {described(metrics)}", "bold")
        return line

    # -- elsewhere ----------------------------------------------------------------------------

    def line(self, round: int) -> str:
        """A round in one line, as those see it that are through with it."""
        notes = self.over[round].values()
        seconds = max(note["seconds"] for note in notes)
        sent, received = (sum(note[way] for note in notes) / len(notes)
                          for way in ("sent", "received"))  # fmt: skip
        view = self.view_at(round)
        down = [name for name, row in self.rows.items() if row.phase == DOWN]
        away = f"  down: {', '.join(down)}" if down else ""
        return (
            f"round {round}/{self.rounds}  {seconds:.2f} s  epoch {view['epoch'] if view else '?'}"
            f"  a node sent {size(sent)}, received {size(received)}{away}"
        )


def told(note: Note) -> str:
    """What of a note its user has to hear at once, in words; of most nothing.

    >>> told({"event": "training failed", "round": 3, "error": "RuntimeError: no data"})
    'training failed in round 3: RuntimeError: no data'
    """
    match note["event"]:
        case "training failed":
            return f"training failed in round {note['round']}: {note['error']}"
        case "training takes long":
            return f"training for {note['seconds']:.0f} s in round {note['round']}"
        case "update cast":
            return str(note["what"])
        case "finished" if note.get("problem"):
            return f"training is over, but {note['problem']}"
    return ""


class LiveWatch:
    """Looks at a federation's journals and processes, and shows what has changed."""

    def __init__(
        self, federation: LocalFederation, rounds: int, console: Console | None = None
    ) -> None:
        self.federation = federation
        self.console = console or Console(highlight=False)
        self.board = Board(federation.names, rounds)
        self._tails = {name: Tail(federation.journal_path(name)) for name in federation.names}
        self._gone: set[str] = set()
        self._ended: dict[str, int] = {}
        """How processes ended that were not killed."""
        self._told_rounds, self._told_epochs = 0, 0
        self._live: Live | None = None
        if self.console.is_terminal:
            self._live = Live(self.board, console=self.console, auto_refresh=False)

    def __enter__(self) -> LiveWatch:
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.look()
        if self._live is not None:
            self._live.stop()
        else:
            self._tell(through=self.board.rounds)

    def look(self) -> list[tuple[str, Note]]:
        """Take in what is new and show it; returns it, with who noted it."""
        # Who is gone first: whatever a process noted before it ended is there by then.
        gone = {name for name in self.federation.names if not self.federation.running(name)}
        news: list[tuple[str, Note]] = []
        for name, tail in self._tails.items():
            news += ((name, note) for note in tail.read())
        self._change(self._gone - gone, STARTING)
        for name, note in news:
            self.board.take(name, note)
            if text := told(note):
                self.say(f"{name}: {text}")
        self._change(gone - self._gone, DOWN)
        self._gone = gone
        if self._live is not None:
            self._live.refresh()
        else:
            # A round is told when somebody is through with the next: then most are with this one.
            self._tell(through=max(self.board.over, default=0) - 1)
        self._tell_epochs()
        return news

    def follow(self, until: Callable[[], bool], pause: float = PAUSE) -> None:
        """Look again and again until something holds.

        A node that fails is told, and the others go on; if they cannot, that is an error.
        """
        while True:
            self.look()
            for name in self.federation.names:
                self._check(name)
            if until():
                return
            time.sleep(pause)

    def _check(self, name: str) -> None:
        """Look how a node's process ended, if it did; whoever was killed may come back."""
        code, row = self.federation.exit_code(name), self.board.rows[name]
        if code is None or code < 0 or name in self._ended or (row.over and not code):
            return
        self._ended[name] = code
        if not code:
            self.say(f"{name} has ended before its training was over")
        elif row.over or self._enough():
            self.say(f"{name} ended with code {code}: {self.federation.log(name, 1)}")
        else:
            log = self.federation.log(name)
            raise ErisError(f"{name} ended with code {code}; the end of its log:\n{log}")

    def _enough(self) -> bool:
        """Whether those that have not given up can go on."""
        left = [name for name in self.federation.names if not self._ended.get(name)]
        if not left or not self.board.views:
            return False
        settings = self.federation.settings(left[0])
        return len(left) >= max(settings.quorum, settings.min_included)

    def over(self) -> bool:
        """Whether nothing more is to come: every node is through, or gone."""
        return all(row.over or row.phase == DOWN for row in self.board.rows.values())

    def say(self, text: str) -> None:
        """A line of its own, above the table."""
        say(text, console=self.console)

    def _change(self, names: set[str], phase: str) -> None:
        """Note that processes have come or gone; one started by hand is known by its notes."""
        for name in names:
            if not self.board.rows[name].over:
                self.board.rows[name].phase = phase

    def _tell(self, through: int) -> None:
        for round in sorted(self.board.over):
            if self._told_rounds < round <= through:
                self.say(self.board.line(round))
                self._told_rounds = round

    def _tell_epochs(self) -> None:
        for epoch in sorted(self.board.views):
            if epoch > self._told_epochs:
                self._told_epochs = epoch
                view = self.board.views[epoch]
                self.say(f"epoch {epoch} from round {view['from_round']}: {owned(view)}")


def owned(view: Note) -> str:
    """Who owns what in a view.

    >>> owned({"owners": ["anna", "ben", "nobody"]})
    'shard 0 anna, 1 ben, 2 nobody'
    """
    if not view["owners"]:
        return f"{len(view['clients'])} members gossip"
    return "shard " + ", ".join(f"{shard} {owner}" for shard, owner in enumerate(view["owners"]))
