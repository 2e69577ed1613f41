"""What a federation on this machine came to, by its nodes' journals and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from eris.experiments.federations.live import Board, Note
from eris.experiments.federations.processes import LocalFederation
from eris.experiments.runs.progress import size
from eris.protocol.settings import model_digest


@dataclass(frozen=True)
class Figures:
    """One node's rounds: bytes of a usual one and of all, and how much of others' updates it got.

    The usual is the median: a node that catches up after an outage is sent the whole state once.
    """

    rounds: int
    sent: float
    received: float
    total: int
    seen: Mapping[int, float]
    """By the number of shards it owned: the largest share of another client's update."""

    @classmethod
    def of(cls, board: Board, name: str) -> Figures:
        """Those of a node, from the notes on its rounds."""
        notes = {round: over[name] for round, over in board.over.items() if name in over}
        seen: dict[int, float] = {}
        for round, note in notes.items():
            view = board.view_at(round)
            shards = view["owners"].count(name) if view else 0
            if "seen" in note:  # where members gossip there are no shards to see
                seen[shards] = max(seen.get(shards, 0.0), note["seen"])
        sent, received = ([note[way] for note in notes.values()] for way in ("sent", "received"))
        return cls(
            len(notes),
            median(sent or [0]),
            median(received or [0]),
            sum(sent) + sum(received),
            dict(sorted(seen.items())),
        )


@dataclass(frozen=True)
class FederationOutcome:
    """A federation that is over."""

    journals: Mapping[str, Sequence[Note]]
    board: Board
    models: Mapping[str, str]
    """SHA-256 of what each node ended with."""

    @classmethod
    def of(cls, federation: LocalFederation, rounds: int) -> FederationOutcome:
        """Read what is in its folder."""
        board = Board(federation.names, rounds)
        journals = federation.journals()
        for name, journal in journals.items():
            for note in journal:
                board.take(name, note)
        found = {name: federation.model(name) for name in federation.names}
        models = {name: model_digest(model) for name, model in found.items() if model is not None}
        return cls(journals, board, models)

    @property
    def finished(self) -> bool:
        """Whether all nodes trained to the end."""
        return all(row.over for row in self.board.rows.values())

    @property
    def problems(self) -> list[str]:
        """What was wrong with the nodes' training, a line a node."""
        rows = self.board.rows.items()
        return [f"{name}: {row.problem}" for name, row in rows if row.problem]

    @property
    def gossips(self) -> bool:
        """Whether every node has a model of its own: there are no owners."""
        return not any(view["owners"] for view in self.board.views.values())

    @property
    def equal(self) -> bool:
        """Whether all nodes ended with the same model, bit for bit."""
        return self.models.keys() == self.board.rows.keys() and len(set(self.models.values())) == 1

    @property
    def verdict(self) -> str:
        """Whether they did, in words."""
        if self.equal:
            return f"[bold green]yes[/] (SHA-256 {next(iter(self.models.values()))[:16]}…)"
        found = (f"{name} {self.models.get(name, 'none')[:16]}" for name in self.board.rows)
        return f"[bold red]NO[/] ({', '.join(found)})"

    def document(self) -> dict[str, Any]:
        """All of it as plain values, for programs."""
        rows = self.board.rows.items()
        nodes = {
            name: {
                **asdict(Figures.of(self.board, name)),
                "metrics": dict(row.metrics),
                "model": self.models.get(name),
            }
            for name, row in rows
        }
        same = None if self.gossips else self.equal
        return {"finished": self.finished, "same_model": same, "problems": self.problems,
                "nodes": nodes}  # fmt: skip

    def nodes(self) -> Table:
        """A row a node."""
        metrics = sorted({key for row in self.board.rows.values() for key in row.metrics})
        table = _table("node", "rounds", *metrics, "sent", "received", "in all", "seen")
        table.caption = (
            "Sent, received: bytes of a median round. Seen: the largest share of another client's "
            "update that reached the node in a round, by the number of shards it owned."
        )
        table.caption_justify = "left"
        for name, row in self.board.rows.items():
            found = Figures.of(self.board, name)
            seen = {shards: share for shards, share in found.seen.items() if shards or share}
            table.add_row(
                name,
                str(found.rounds),
                *(f"{row.metrics[key]:.4g}" if key in row.metrics else "" for key in metrics),
                size(found.sent),
                size(found.received),
                size(found.total),
                ", ".join(f"{share:.2%} ({shards})" for shards, share in seen.items()),
            )
        return table

    def epochs(self) -> Table:
        """A row an epoch: who owned which shard from which round on."""
        views = [self.board.views[epoch] for epoch in sorted(self.board.views)]
        shards = len(views[0]["owners"]) if views else 0
        titles = (f"shard {shard}" for shard in range(shards))
        table = _table("epoch", "from round", *titles)
        for view in views:
            cells = [
                f"[bold yellow]{owner}[/]" if moved else owner
                for owner, moved in zip(view["owners"], self.board.moved(view), strict=True)
            ]
            table.add_row(str(view["epoch"]), str(view["from_round"]), *cells)
        return table


def _table(*titles: str) -> Table:
    """Narrow enough for 80 columns."""
    return Table(*titles, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
