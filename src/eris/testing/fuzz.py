"""Feeds damaged messages to the codec and to live nodes: ``python -m eris.testing.fuzz``.

Valid messages of several federations are damaged in ways that follow the wire format, each by
draws from the stream of its own number, so that any case can be repeated alone. The laws:

- decoding gives a message or :class:`MalformedMessage`, and what it gives encodes and decodes to
  an equal message;
- a node takes any such message without an error; what it refuses changes nothing, nothing
  changes outside the segment that was named, no version goes back, its state stays finite, it
  publishes one result of a segment and round, and what it says can be encoded.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import cycle

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from eris.core.compress import QSGD, Natural, RandK, RandP
from eris.core.errors import MalformedMessage
from eris.core.rules import CoordinateMedian, FedAdam, FedNova
from eris.core.shards import ContiguousPlan, RandomPlan, WeightedPlan
from eris.core.vectors import Vector
from eris.protocol.agreement import Agreement
from eris.protocol.codec import DIGEST_BYTES, decode, encode
from eris.protocol.messages import CatchUp, Holding, Message, Outgoing, Refusal, Result, Share
from eris.protocol.round.roles import Node
from eris.protocol.schemes import Masked, Quantised
from eris.protocol.settings import Settings
from eris.testing.damage import TO_BYTES, TO_FIELDS, Dice
from eris.testing.synthetic import SyntheticTraining, agree, on_the_clock

BATCH = 32
"""Messages fed to one node before a fresh one takes its place."""
MOST_FINDINGS = 20


# -- federations to attack --------------------------------------------------------------------

MEMBERS = 4


@dataclass(frozen=True)
class Victim:
    """A small federation in its second round: messages that belong there, and a node."""

    agreement: Agreement
    node: Node
    corpus: tuple[bytes, ...]

    @classmethod
    def of(cls, settings: Settings) -> Victim:
        """Run one round, keep a node as it is then, and record what the next ones say."""
        agreement = agree(settings, clients=MEMBERS, aggregators=2)
        training = SyntheticTraining(settings.n, settings.seed)
        engine = on_the_clock(agreement, training)
        engine.run_round(1)
        (first, second, *_) = [seat.member for seat in engine.seats.values()]
        assert first is not None
        assert second is not None
        node = _twin(first.node, first.agreement)
        node.open(2, 0.0)
        node.keep(node.client.contribute(*training(0, node.model, 2)))
        node.evidence.asks(node.client.ask(agreement.keys, everyone=True, at_once=MEMBERS))
        recorded = [record.data for round in (2, 3) for record in engine.run_round(round).records]
        key, owners = agreement.keys[-1], agreement.view.owners
        header = agreement.header(1, 2, key)
        said: list[Message] = [CatchUp(header, 0), CatchUp(header, 1), Refusal(header, "late")]
        said += [Holding(header, at, bytes(DIGEST_BYTES)) for at in range(3)]
        snapshots = [second.node.replica.snapshot(key, 1) for key in agreement.keys]
        said += snapshots
        said += [Share(snapshot.header, snapshot.model) for snapshot in snapshots]
        said += [Result(agreement.header(owners[key[0]], 2, key), 1, frozenset(), 0, 0, None)]
        return cls(first.agreement, node, (*recorded, *map(encode, said)))

    @cached_property
    def coordinates(self) -> dict[tuple[int, int], NDArray[np.int64]]:
        """Where the segments lie."""
        return {
            key: segment.shard_map.coordinates(segment.shard, segment.start, segment.stop)
            for key, segment in self.agreement.segments(1).items()
        }


def _twin(node: Node, agreement: Agreement) -> Node:
    return copy.deepcopy(node, {id(agreement): agreement})


def victims() -> list[Victim]:
    """Federations that between them use every encoding and every kind of state."""
    common = {"n": 40, "segment_size": 12, "min_included": 2}
    kinds = (
        {"plan": WeightedPlan((1, 2)), "rule": FedNova()},
        {
            "plan": RandomPlan(2),
            "scheme": Masked(RandP(0.5)),
            "rule": FedAdam(bias_correction=True),
        },
        {"plan": RandomPlan(2), "scheme": Quantised(QSGD(8))},
        {"plan": RandomPlan(3), "scheme": Masked(RandK(20), shift=False)},
        {"plan": ContiguousPlan(2), "rule": CoordinateMedian(), "non_finite": "clip"},
        {"plan": RandomPlan(2), "scheme": Quantised(Natural()), "non_finite": "zero", "history": 1},
    )
    return [Victim.of(Settings(**common, **kind)) for kind in kinds]  # type: ignore[arg-type]


def case(corpus: Sequence[bytes], seed: int, number: int) -> tuple[str, bytes]:
    """The name of the damage and the bytes of one case."""
    dice = Dice(seed, number)
    data, other = dice.pick(corpus), dice.pick(corpus)
    first = dice.pick((*TO_BYTES, *TO_FIELDS))
    name, damaged = first.__name__, first(data, other, dice)
    if first in TO_FIELDS and dice.below(4) == 0:
        second = dice.pick(TO_BYTES)
        name, damaged = f"{name}, {second.__name__}", second(damaged, other, dice)
    return name, damaged


# -- laws -------------------------------------------------------------------------------------


class Broken(Exception):
    """A law does not hold."""


@dataclass(frozen=True)
class BrokenCase:
    """A case that broke a law."""

    number: int
    damage: str
    data: bytes
    problem: str

    def __str__(self) -> str:
        return f"case {self.number} ({self.damage}): {self.problem}\n  {self.data.hex()}"


@dataclass
class CaseTally:
    """What came of the cases."""

    cases: int = 0
    decoded: Counter[str] = field(default_factory=Counter)
    malformed: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    moved: int = 0
    findings: list[BrokenCase] = field(default_factory=list)

    def __str__(self) -> str:
        decoded, malformed = sum(self.decoded.values()), sum(self.malformed.values())
        return (
            f"{self.cases} cases: {malformed} malformed ({len(self.malformed)} different fields), "
            f"{decoded} decoded, of which nodes refused {self.refused} and moved their state "
            f"for {self.moved}; {len(self.findings)} findings"
        )


def check_codec(data: bytes) -> Message | MalformedMessage:
    """The message in ``data`` or its refusal; raises :class:`Broken` for anything else."""
    try:
        message = decode(data)
    except MalformedMessage as refusal:
        return refusal
    if decode(encode(message)) != message:
        raise Broken("the message does not survive being encoded again")
    return message


class FuzzedNode:
    """A node under attack, watched."""

    def __init__(self, victim: Victim) -> None:
        self.victim, self.node = victim, _twin(victim.node, victim.agreement)
        self.published: dict[tuple[int, int, int], Result] = {}

    def _state(self) -> list[Vector]:
        replica = self.node.replica
        shared = [] if replica.reference is None else [replica.reference.whole()]
        return [
            replica.model,
            *(slot.whole() for slot in replica.slots),
            *shared,
            *self.node.client.sender.state().values(),
        ]

    def feed(self, message: Message, source: int) -> tuple[bool, bool]:
        """Let the node receive a message; returns (refused, state moved)."""
        before = [vector.copy() for vector in self._state()]
        versions, notes = dict(self.node.replica.versions), len(self.node.refused)
        self._sensible(self.node.receive(message, source))
        after = self._state()
        changed = [
            a.view(np.uint32) != b.view(np.uint32) for a, b in zip(before, after, strict=True)
        ]
        now = self.node.replica.versions
        moved = versions != now or any(part.any() for part in changed)
        refused = len(self.node.refused) > notes
        if any(now[key] < version for key, version in versions.items()):
            raise Broken("a version went back")
        if moved and (refused or isinstance(message, CatchUp | Holding | Refusal | Share)):
            raise Broken(f"a {type(message).__name__} that was refused or asks moved the state")
        if moved:
            key = message.header.key
            if any(now[other] != version for other, version in versions.items() if other != key):
                raise Broken("the version of another segment moved")
            for part in changed:
                part[self.victim.coordinates[key]] = False
                if part.any():
                    raise Broken("coordinates of another segment moved")
        return refused, moved

    def finish(self) -> None:
        """Let deadlines pass and the next round begin on what was collected."""
        for now, round in ((100.0, 3), (200.0, 4)):
            self._sensible(self.node.close(now))
            self._sensible(self.node.open(round, now))

    def _sensible(self, said: list[Outgoing]) -> None:
        for out in said:
            if decode(encode(out.message)) != out.message:
                raise Broken("the node says what cannot be encoded")
            if isinstance(out.message, Result) and out.message.header.sender == self.node.me:
                header = out.message.header
                name = (header.round, *header.key)
                if self.published.setdefault(name, out.message) != out.message:
                    raise Broken("there are two results of one segment and round")
        if not all(np.isfinite(vector).all() for vector in self._state()):
            raise Broken("the state is not finite")


def run(count: int, seed: int = 0, advance: Callable[[int], object] = int) -> CaseTally:
    """Check ``count`` cases; ``advance`` is told how many more are done.

    >>> run(100).findings
    []
    """
    tally = CaseTally()
    for victim, start in zip(cycle(victims()), range(0, count, BATCH), strict=False):
        batch = range(start, min(start + BATCH, count))
        _attack(victim, batch, seed, tally)
        advance(len(batch))
    return tally


def _attack(victim: Victim, batch: range, seed: int, tally: CaseTally) -> None:
    subject = FuzzedNode(victim)
    damage, data, number = "", b"", batch.start
    try:
        # Overflow shows as a state that is not finite, whatever the caller does about warnings.
        with np.errstate(all="ignore"):
            for number in batch:
                tally.cases += 1
                damage, data = case(victim.corpus, seed, number)
                message = check_codec(data)
                if isinstance(message, MalformedMessage):
                    tally.malformed[message.field] += 1
                    continue
                tally.decoded[type(message).__name__] += 1
                sender = message.header.sender
                refused, moved = subject.feed(message, sender if sender < MEMBERS else 1)
                tally.refused += refused
                tally.moved += moved
            damage, data = "time passes after this batch", b""
            subject.finish()
    except Exception as error:
        if len(tally.findings) < MOST_FINDINGS:
            problem = f"{type(error).__name__}: {error}"
            tally.findings.append(BrokenCase(number, damage, data, problem))


def main() -> int:
    """Run a campaign, with a progress bar; the exit status says whether a law was broken."""
    parser = argparse.ArgumentParser(prog="python -m eris.testing.fuzz", description=run.__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="how many cases")
    parser.add_argument("--seed", type=int, default=0, help="of the stream they are drawn from")
    wanted = parser.parse_args()
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("damaged messages", total=wanted.count)
        tally = run(wanted.count, wanted.seed, partial(progress.advance, task))
    for finding in tally.findings:
        print(finding)
    print(tally)
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
