"""A federation of nodes as a document: from the journals in their folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from eris.core.errors import InvalidSetting
from eris.experiments.federations.live import Board, told
from eris.experiments.federations.outcome import Figures
from eris.experiments.runs.progress import size
from eris.runtimes.grpc.journal import read
from eris.web.blocks import Block, Curves, Document, Listing, Section, Series, Spans
from eris.web.nodes import NO_METRICS
from eris.web.runs import spans

JOURNAL = Path("state", "journal.jsonl")
MOST_EVENTS = 400
Note = Mapping[str, Any]


@dataclass(frozen=True)
class StoredFederation:
    """What the nodes of a folder have noted so far, by name."""

    folder: Path
    journals: Mapping[str, Sequence[Note]]

    @classmethod
    def at(cls, folder: Path) -> StoredFederation:
        """The nodes in a folder: its sub-folders with a journal, or the one node it is."""
        places = [folder] if (folder / JOURNAL).is_file() else sorted(
            path.parent.parent for path in folder.glob(f"*/{JOURNAL}"))  # fmt: skip
        if not places:
            expected = "a run, or a folder of nodes (NODE/state/journal.jsonl)"
            raise InvalidSetting("run", str(folder), expected)
        return cls(folder, {place.name: list(read(place / JOURNAL)) for place in places})

    @cached_property
    def board(self) -> Board:
        """The nodes' state."""
        rounds = max((note.get("round", 0) for notes in self.journals.values() for note in notes
                      if note["event"] in ("began", "round", "finished")), default=0)  # fmt: skip
        board = Board(list(self.journals), rounds)
        for name, notes in self.journals.items():
            for note in notes:
                board.take(name, note)
        return board

    @property
    def gossips(self) -> bool:
        """Whether every node has a model of its own: there are no owners."""
        views = self.board.views.values()
        return bool(views) and not any(view["owners"] for view in views)

    def document(self) -> Document:
        """Everything that can be shown of it."""
        board = self.board
        models = {note["model"] for notes in self.journals.values() for note in notes
                  if note["event"] == "finished"}  # fmt: skip
        over = sum(row.over for row in board.rows.values())
        facts = [
            ("nodes", f"{len(board.rows)}, {over} through"),
            ("rounds", f"{board.round}"),
            ("epochs", f"{len(board.views)}"),
            ("models at the end", "one a node" if self.gossips else _models(models, over)),
        ]
        sections = [
            self._nodes(),
            Section("Shards", [self._owners()]) if board.views and not self.gossips else None,
            self._rounds(),
            self._events(),
        ]
        alerts = [f"{name}: {row.problem}" for name, row in board.rows.items() if row.problem]
        return Document(
            self.folder.name,
            f"A federation of {len(board.rows)} nodes, from their journals",
            facts,
            [section for section in sections if section is not None],
            alerts,
        )

    # -- sections -----------------------------------------------------------------------------

    def _nodes(self) -> Section:
        metrics = sorted({key for row in self.board.rows.values() for key in row.metrics})
        columns = ("node", "is", "round", *metrics, "sent, a round", "received, a round", "in all",
                   "most seen of another's update")  # fmt: skip
        rows = []
        for name, row in self.board.rows.items():
            found = Figures.of(self.board, name)
            seen = max(found.seen.values(), default=0.0)
            rows.append((name, row.phase, row.round, *(row.metrics.get(key) for key in metrics),
                         size(found.sent), size(found.received), size(found.total),
                         f"{seen:.2%}"))  # fmt: skip
        note = "Bytes of a median round, and over all. Seen: of one client in one round, in clear."
        return Section("Nodes", [Listing("Nodes", note, columns=columns, rows=rows)])

    def _owners(self) -> Spans:
        owned = {}
        for round in range(1, self.board.rounds + 1):
            view = self.board.view_at(round)
            for shard, owner in enumerate(view["owners"] if view else ()):
                owned[shard, round] = owner or "waits"
        note = "A shard whose owner is away moves to its successor, or waits for it."
        return Spans("Who owned which shard", note, x="round", spans=spans(owned))

    def _rounds(self) -> Section:
        def series(key: str) -> list[Series]:
            return [
                Series(name, [(r, over[name][key]) for r, over in sorted(self.board.over.items())
                              if key in over.get(name, {})])
                for name in self.board.rows
            ]  # fmt: skip

        losses = [
            Series(name, [(note["round"], loss) for note in notes if note["event"] == "trained"
                          and isinstance(loss := note["metrics"].get("loss"), float)])
            for name, notes in self.journals.items()
        ]  # fmt: skip
        blocks: list[Block] = [
            *self._evaluations(),
            Curves("Seconds a round", "Stragglers stand out.", x="round", y="s", zero=True,
                  series=series("seconds")),
            Curves("Bytes sent", x="round", y="bytes", zero=True, series=series("sent")),
            Curves("Bytes received", x="round", y="bytes", zero=True, series=series("received")),
        ]  # fmt: skip
        if self.gossips:
            blocks.append(Curves("Neighbours' shares that came in time", x="round", y="shares",
                                 zero=True, series=series("mixed")))  # fmt: skip
        else:
            blocks.append(Curves("Share of the clients in the results", x="round", y="share",
                                 zero=True, series=series("included"),
                                 levels=[("all", 1.0)]))  # fmt: skip
        if any(one.points for one in losses):
            blocks.insert(0, Curves("Training loss", "Each node on its own samples.", x="round",
                                   y="loss", series=losses))  # fmt: skip
        return Section("Rounds", blocks)

    def _evaluations(self) -> list[Block]:
        """What the nodes' trainers said of the model, a plot a metric."""
        said = {
            name: {note["round"]: note["metrics"] for note in notes
                   if note["event"] in ("evaluated", "finished")}
            for name, notes in self.journals.items()
        }  # fmt: skip
        metrics = sorted({key for one in said.values() for found in one.values() for key in found})

        def series(key: str) -> list[Series]:
            return [
                Series(name, [(round, found[key]) for round, found in sorted(one.items())
                              if isinstance(found.get(key), int | float)])
                for name, one in said.items()
            ]  # fmt: skip

        note = "The federation's model, as each node's trainer finds it."
        return [
            Curves(key, note, x="round", y=key, series=series(key))
            for key in metrics
            if key not in NO_METRICS
        ]

    def _events(self) -> Section:
        found = [
            (note["time"], name, words)
            for name, notes in self.journals.items()
            for words, note in _worth_telling(notes)
        ]
        found.sort()
        left = len(found) - MOST_EVENTS
        note = (
            f"The last {MOST_EVENTS}; {left:,} earlier ones are in the journals."
            if left > 0
            else ""
        )
        return Section("What happened", [Listing("Events", note, columns=("time", "node", "what"),
                                                 rows=found[-MOST_EVENTS:])])  # fmt: skip


def _models(models: set[str], over: int) -> str:
    if not models:
        return "none yet"
    same = f"the same at all {over}" if len(models) == 1 else f"{len(models)} DIFFERENT ones"
    return f"{same} (SHA-256 {min(models)[:12]}…)"


def _worth_telling(notes: Sequence[Note]) -> list[tuple[str, Note]]:
    """Views, returns, failures, refusals and ends, in words."""
    found: list[tuple[str, Note]] = []
    begun = False
    for note in notes:
        event = note["event"]
        if words := told(note):
            found.append((words, note))
        elif event == "view":
            if begun and note is not notes[0]:
                owners = ", ".join(f"{s} {o or 'waits'}" for s, o in enumerate(note["owners"]))
                words = f"epoch {note['epoch']} from round {note['from_round']}: shards {owners}"
            else:
                words = f"joins in epoch {note['epoch']}, round {note['from_round']}"
            found.append((words, note))
            begun = True
        elif event == "result" and note.get("withheld"):
            found.append((f"round {note['round']}: segment {note['segment']} is withheld", note))
        elif event in ("incomplete", "abstains", "leaves out", "refusal", "noise", "ledger behind"):
            rest = {k: v for k, v in note.items() if k not in ("time", "event")}
            found.append((f"{event}: " + ", ".join(f"{k} {v}" for k, v in rest.items()), note))
        elif event == "finished":
            found.append((f"finished after round {note['round']}", note))
    return found
