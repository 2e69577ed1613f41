"""What a federation on this machine came to, by its nodes' journals and models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table

from eris.experiments.live import Board
from eris.experiments.local import LocalFederation
from eris.experiments.progress import described, size
from eris.protocol.settings import model_digest


@dataclass(frozen=True)
class Figures:
    """One node's rounds: bytes of an average one, and how much of others' updates it got."""

    rounds: int
    sent: float
    received: float
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
            seen[shards] = max(seen.get(shards, 0.0), note["seen"])
        sent, received = (
            sum(note[way] for note in notes.values()) / max(1, len(notes))
            for way in ("sent", "received")
        )
        return cls(len(notes), sent, received, dict(sorted(seen.items())))


@dataclass(frozen=True)
class Outcome:
    """A federation that is over."""

    board: Board
    models: Mapping[str, str]
    """SHA-256 of what each node ended with."""

    @classmethod
    def of(cls, federation: LocalFederation, rounds: int) -> Outcome:
        """Read what is in its folder."""
        board = Board(federation.names, rounds)
        for name, journal in federation.journals().items():
            for note in journal:
                board.take(name, note)
        found = {name: federation.model(name) for name in federation.names}
        models = {name: model_digest(model) for name, model in found.items() if model is not None}
        return cls(board, models)

    @property
    def finished(self) -> bool:
        """Whether all nodes trained to the end."""
        return all(row.over for row in self.board.rows.values())

    @property
    def equal(self) -> bool:
        """Whether all nodes ended with the same model, bit for bit."""
        return self.models.keys() == self.board.rows.keys() and len(set(self.models.values())) == 1

    def nodes(self) -> Table:
        """A row a node."""
        table = Table("node", "rounds", "test", "sent a round", "received a round",
                      "most seen of another's update", "model")  # fmt: skip
        for name, row in self.board.rows.items():
            found = Figures.of(self.board, name)
            seen = [f"{share:.2%} as owner of {shards}" for shards, share in found.seen.items()]
            table.add_row(
                name,
                str(found.rounds),
                described(row.metrics),
                size(found.sent),
                size(found.received),
                ", ".join(seen),
                self.models.get(name, "none")[:8],
            )
        return table

    def epochs(self) -> Table:
        """A row an epoch: who owned which shard from which round on."""
        views = [self.board.views[epoch] for epoch in sorted(self.board.views)]
        shards = len(views[0]["owners"]) if views else 0
        table = Table("epoch", "from round", *(f"shard {shard}" for shard in range(shards)))
        for view in views:
            cells = [
                f"[bold yellow]{owner}[/]" if moved else owner
                for owner, moved in zip(view["owners"], self.board.moved(view), strict=True)
            ]
            table.add_row(str(view["epoch"]), str(view["from_round"]), *cells)
        return table
