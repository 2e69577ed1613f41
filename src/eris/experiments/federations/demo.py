"""The demonstration: five nodes train MNIST over TLS, and one is killed and comes back.

What is printed is measured: by the nodes themselves (their journals and models), and by computing
the whole training again with one central aggregator.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from eris.core.rules import server_rule
from eris.core.vectors import Vector
from eris.data.outputs import check_picture
from eris.experiments.federations.live import DOWN, Board, LiveWatch, Note
from eris.experiments.federations.masked import MaskedView, masked_view
from eris.experiments.federations.outcome import FederationOutcome, Figures
from eris.experiments.federations.processes import (
    MNIST,
    LocalFederation,
    check_place,
    federation_values,
    mnist_shares,
    node_names,
    remove,
)
from eris.experiments.federations.replay import Published, Replayed, replay
from eris.experiments.figures import panels, saved
from eris.federation import Federation
from eris.methods.fedavg import FedAvg
from eris.protocol.agreement import Key
from eris.protocol.settings import model_digest
from eris.protocol.transcript import Transcript

if TYPE_CHECKING:
    from eris.experiments.federations.learners import Mnist

MAKER = "eris demo"
ATTENTIVE = 0.05
"""Seconds between two looks while a moment in the middle of a round is awaited."""


@dataclass(frozen=True)
class Outage:
    """When a node was killed and when it was back, as its journal says."""

    name: str
    round: int
    killed_at: datetime
    back_at: datetime | None

    @classmethod
    def of(cls, name: str, notes: Sequence[Note], killed_at: datetime) -> Outage:
        """Read what it was doing, and when it began a round again."""
        before = [note for note in notes if _time(note) <= killed_at]
        began = max(note["round"] for note in before if note["event"] == "began")
        again = (_time(note) for note in notes[len(before) :] if note["event"] in ("began", "done"))
        return cls(name, began, killed_at, next(again, None))


@dataclass(frozen=True)
class Demonstrated:
    """What the demonstration came to."""

    outcome: FederationOutcome
    outage: Outage
    replayed: Replayed
    reference: Mapping[str, float]
    """Metrics of central FedAvg, nothing failing, nothing compressed."""
    masked: MaskedView | None = None
    """What one owner was sent of the others' updates; None: nothing, or nothing masked."""

    @property
    def central(self) -> bool:
        """Whether the central aggregator came to the nodes' results and to their model."""
        model = model_digest(self.replayed.model)
        return self.replayed.equal and set(self.outcome.models.values()) == {model}

    @property
    def good(self) -> bool:
        """Whether all nodes trained to the end, to one model, and to the central one."""
        return self.outcome.finished and self.outcome.equal and self.central

    def document(self) -> dict[str, Any]:
        """All of it as plain values, for programs."""
        outage, again = self.outage, self.replayed
        return {
            **self.outcome.document(),
            "killed": {"node": outage.name, "round": outage.round},
            "central": {
                "same_model": self.central,
                "results": again.results,
                "differ": len(again.mismatches),
                "fedavg": dict(self.reference),
            },
            "masked": None if self.masked is None else asdict(self.masked),
        }


@dataclass(frozen=True)
class Demo:
    """Settings of the demonstration."""

    nodes: int = 5
    samples: int = 500
    rounds: int = 40
    batch_size: int = 25
    learning_rate: float = 0.05
    kept: float = 0.1
    seed: int = 0
    kill_in: int = 4
    """The round in the middle of which a node is killed."""
    folder: Path = Path("runs/demo")
    picture: Path = Path("runs/demo.png")

    @property
    def names(self) -> list[str]:
        """The nodes; the first hosts the directory."""
        return node_names(self.nodes)

    @property
    def victim(self) -> str:
        """The node that is killed: an aggregator like all, but not the directory's host."""
        return self.names[self.nodes // 2]

    @property
    def watched(self) -> str:
        """The owner whose messages are recorded."""
        return self.names[1]

    def run(self, console: Console | None = None) -> Demonstrated:
        """Train over the network, train again in process, compare, report, draw."""
        console = console or Console(highlight=False)
        began = time.monotonic()
        # Before anything else: a place that cannot be written to is an error at once.
        check_picture("--picture", self.picture)
        check_place(self.folder, MAKER, fresh=True)
        federation = self._prepared(console)
        killed_at = self._trained(federation, console)
        outcome = FederationOutcome.of(federation, self.rounds)
        outage = Outage.of(self.victim, outcome.journals[self.victim], killed_at)
        console.print(outcome.nodes(), outcome.epochs())
        console.print(
            f"The nodes took {time.monotonic() - began:.0f} s. Now the same again by one central "
            f"aggregator, from {federation.folder}/*/state/journal.jsonl …"
        )
        done = self._compared(federation, outcome, outage)
        report(self, done, console)
        draw(self, done)
        console.print(f"Picture: {self.picture}. {time.monotonic() - began:.0f} s in all.")
        return done

    # -- the network --------------------------------------------------------------------------

    def _prepared(self, console: Console) -> LocalFederation:
        values = federation_values(
            self.nodes,
            rounds=self.rounds,
            kept=self.kept,
            learning_rate=self.learning_rate,
            seed=self.seed,
            trainer=MNIST,
        )
        options = {"batch_size": self.batch_size, "learning_rate": self.learning_rate}
        own = mnist_shares(self.names, self.samples, self.seed, console.print, **options)
        own[self.watched]["observe.record"] = True
        remove(self.folder, MAKER)
        federation = LocalFederation(self.folder, self.names, values, own, maker=MAKER)
        console.print(
            f"{self.nodes} nodes with mutual TLS on this machine train LeNet-5 on MNIST by ERIS + "
            f"DSC, {self.kept:.0%} kept: {self.nodes} shards, {self.samples} images a node, "
            f"{self.rounds} rounds of 1 local epoch of batch {self.batch_size}, seed {self.seed}. "
            f"{self.names[0]} hosts the directory; {self.victim} will be killed.\n"
        )
        return federation

    def _trained(self, federation: LocalFederation, console: Console) -> datetime:
        """Let the nodes train, with the outage; returns when it began."""
        victim = self.victim
        with federation, LiveWatch(federation, self.rounds, console) as watch:
            board = watch.board
            for name in self.names:
                federation.start(name)
            watch.follow(lambda: board.rows[victim].round >= self.kill_in, ATTENTIVE)
            federation.kill(victim)
            killed_at = datetime.now().astimezone()
            killed_in = board.rows[victim].round
            watch.say(f"{victim} is killed (SIGKILL) in round {killed_in}")
            watch.follow(lambda: self._replaced(board, killed_in))
            federation.start(victim)
            watch.say(f"{victim} is started again while the others are in round {board.round}")
            watch.follow(watch.over)
        return killed_at

    def _replaced(self, board: Board, killed_in: int) -> bool:
        """Whether the others have a view without the node that was killed, and go on.

        That view begins a few rounds later. Starting takes a while, so to be back in good time the
        node is started before that; its next view begins later still.
        """
        others = [row for name, row in board.rows.items() if name != self.victim]
        newest = board.views[max(board.views)]
        moves = board.round > killed_in + 1 and self.victim not in newest["owners"]
        return moves or all(row.over or row.phase == DOWN for row in others)

    # -- in process ---------------------------------------------------------------------------

    def _compared(
        self, federation: LocalFederation, outcome: FederationOutcome, outage: Outage
    ) -> Demonstrated:
        """The same training by a central aggregator, and a central one where nothing fails."""
        from eris.experiments.federations.learners import mnist

        options = {name: federation.settings(name).training.options for name in self.names}
        learners = {name: mnist(name, **options[name]) for name in self.names}
        first = learners[self.names[0]]
        initial = first.initial()
        agreed = federation.settings(self.names[0]).agreement(len(initial), model_digest(initial))
        sent: dict[tuple[str, int, Key], Vector] = {}

        def told(client: str, result: Published, values: Vector) -> None:
            sent[client, result.round, result.key] = values

        again = replay(agreed, initial, learners, outcome.journals, told)
        masked = None
        if agreed.secure is not None:
            path = federation.folder / self.watched / "state" / "transcript.eris"
            masked = masked_view(Transcript.load(path), self.watched, sent)
        reference = first.evaluate(self._central(learners))
        return Demonstrated(outcome, outage, again, reference, masked)

    def _central(self, learners: Mapping[str, Mnist]) -> Vector:
        """FedAvg with a server, nothing failing, nothing compressed."""
        clients = list(learners.values())
        rule = server_rule("fedavg", learning_rate=self.learning_rate)
        federation = Federation(clients, clients[0].initial(), FedAvg(), rule=rule, seed=self.seed)
        return federation.fit(self.rounds, progress=False).model


def report(demo: Demo, done: Demonstrated, console: Console) -> None:
    """What came of it, in sentences."""
    outcome, again, outage = done.outcome, done.replayed, done.outage
    accuracies = [row.metrics.get("accuracy", 0.0) for row in outcome.board.rows.values()]
    shares = [Figures.of(outcome.board, name).seen for name in demo.names]
    most = max(share for seen in shares for share in seen.values())
    central = "[bold green]yes[/]" if done.central else "[bold red]NO[/]"
    console.print(
        f"\nAccuracy on 10,000 test images: [bold]{min(accuracies):.2%}[/] (central FedAvg, "
        f"nothing failing, nothing compressed: {done.reference['accuracy']:.2%}); the model has "
        f"{len(again.model):,} parameters.\n"
        f"{outage.name} was killed in round {outage.round} and away for {_away(outage)}.\n"
        f"All {demo.nodes} nodes ended with the same model, bit for bit: {outcome.verdict}\n"
        f"A central server with the same updates ends with it, bit for bit: {central} "
        f"({again.results} published results computed again, {len(again.mismatches)} differ)\n"
        f"Nobody saw more than {most:.2%} of another's update in a round."
    )
    if done.masked is not None:
        _report_masks(demo.watched, done.masked, console)
    for mismatch in again.mismatches[:3]:
        console.print(f"  {mismatch}", soft_wrap=True)


def _report_masks(owner: str, seen: MaskedView, console: Console) -> None:
    """What secure sums have kept from an owner, by its own recording."""
    console.print(
        f"Sums are secure: without masks {owner} would have read up to {seen.of_an_update:,} "
        f"values of each other node's update a round, {seen.values:,} in all (computed again).\n"
        f"What it was sent instead, by its own recording: {seen.contributions:,} contributions of "
        f"uniform words (chi-square p = {seen.uniform:.2f}), whose correlation with those values "
        f"is {seen.correlation:+.4f} (by chance up to ±{seen.chance:.4f}): it read none.\n"
        "Masks hide a node inside one sum; over rounds only noise does (docs/threat-model.md)."
    )


def draw(demo: Demo, done: Demonstrated) -> None:
    """Rounds over time with the outage, and bytes, in one picture."""
    picture, (left, right) = panels(2, 11, 4, width_ratios=(3, 2))
    board, outage = done.outcome.board, done.outage
    starts = {
        name: [note for note in notes if note["event"] in ("began", "done")]
        for name, notes in done.outcome.journals.items()
    }
    zero = min(_time(note).timestamp() for notes in starts.values() for note in notes)
    for name, notes in starts.items():
        times = [_time(note).timestamp() - zero for note in notes]
        width = 3 if name == outage.name else 1  # the others go in step
        rounds = [note["round"] for note in notes]
        left.step(times, rounds, where="post", label=name, linewidth=width)
    back = outage.back_at or outage.killed_at
    span = [moment.timestamp() - zero for moment in (outage.killed_at, back)]
    left.axvspan(*span, alpha=0.15, color="red", label=f"{outage.name} away")
    left.set(xlabel="seconds", ylabel="round", title="Rounds over time")
    left.legend()
    for name in demo.names:
        notes_of = {round: over[name] for round, over in board.over.items() if name in over}
        moved = [(note["sent"] + note["received"]) / 1e3 for note in notes_of.values()]
        right.plot(list(notes_of), moved, ".", label=name)
    right.set(xlabel="round", ylabel="kB sent and received", title="Bytes", yscale="log")
    right.legend()
    saved(picture, demo.picture)


def _away(outage: Outage) -> str:
    if outage.back_at is None:
        return "the rest of the training"
    return f"{(outage.back_at - outage.killed_at).total_seconds():.0f} s"


def _time(note: Note) -> datetime:
    return datetime.fromisoformat(note["time"])
