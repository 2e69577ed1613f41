"""Worlds that once broke a law, each shrunk to the fewest troubles that still showed it.

They are kept in ``found.jsonl`` beside this file, one a line, and are what a campaign
(:mod:`eris.testing.soak`) and the tests run first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from eris.core.errors import ErisError
from eris.testing.gossip_world import GossipWorld
from eris.testing.shape import Shape
from eris.testing.weather import FINAL, Incident, Trouble
from eris.testing.world import World

FOUND = Path(__file__).with_name("found.jsonl")


@dataclass(frozen=True)
class Case:
    """A world, by what makes it: a seed, and whatever is not drawn from it.

    >>> Case(5).world().shape == Shape.drawn(5)
    True
    """

    seed: int
    shape: Shape | None = None
    kinds: frozenset[Trouble] = frozenset(Trouble)
    incidents: tuple[Incident, ...] | None = None
    why: str = ""
    """What was wrong, for people."""

    def world(self, **machines: Any) -> World | GossipWorld:
        """The world, before anything has happened in it; ``machines`` may be others."""
        if self.shape is not None and self.shape.gossip:
            return GossipWorld(
                self.seed, shape=self.shape, kinds=self.kinds, incidents=self.incidents, **machines
            )
        return World(
            self.seed, shape=self.shape, kinds=self.kinds, incidents=self.incidents, **machines
        )

    def breaks(self, **machines: Any) -> str:
        """Which law breaks in it, without the numbers; empty if none does."""
        try:
            self.world(**machines).run()
        except Exception as broken:  # a machine that fails has broken its word, too
            return law(broken)
        return ""

    def line(self) -> str:
        """As the list has it: what is not drawn from the seed."""
        drawn, told = Shape.drawn(self.seed), dict[str, Any](seed=self.seed)
        shape = asdict(self.shape or drawn)
        if other := {k: v for k, v in shape.items() if v != asdict(drawn)[k]}:
            told["shape"] = other
        if self.kinds != frozenset(Trouble):
            told["kinds"] = [kind.name for kind in Trouble if kind in self.kinds]
        if self.incidents is not None:
            told["incidents"] = [
                [one.kind.name, one.start, None if one.kind in FINAL else one.end,
                 sorted(one.members)]
                for one in self.incidents
            ]  # fmt: skip
        return json.dumps({**told, "why": self.why})

    @classmethod
    def read(cls, line: str) -> Case:
        """What :meth:`line` has written.

        >>> case = Case(3, kinds=frozenset({Trouble.DROP}), why="lost")
        >>> Case.read(case.line()) == case
        True
        """
        told = json.loads(line)
        shape = told.get("shape")
        incidents = told.get("incidents")
        return cls(
            told["seed"],
            replace(Shape.drawn(told["seed"]), **shape) if shape else None,
            frozenset(Trouble[name] for name in told.get("kinds", Trouble.__members__)),
            None if incidents is None else tuple(
                Incident(Trouble[kind], start, float("inf") if end is None else end, frozenset(who))
                for kind, start, end, who in incidents
            ),
            told["why"],
        )  # fmt: skip


def law(broken: Exception) -> str:
    """What a failure is about, whatever round, member and segment it names.

    >>> law(ValueError("segment (0, 1) has two results in round 7"))
    'ValueError: segment has two results in round'
    """
    words = re.sub(r"\[.*\]|\([^)]*\)|\d+", " ", f"{type(broken).__name__}: {broken}")
    return re.sub(r" (?=[,:])", "", " ".join(words.split())).rstrip(":")


def shrunk(case: Case, **machines: Any) -> Case:
    """The least of a world that breaks a law in which the same law still breaks.

    Incidents go, then single members of them, kinds of trouble and rounds, one after the other, as
    long as anything can; what is left cannot be done without, and its times are round if they can.
    """
    wanted = case.breaks(**machines)
    world = case.world()
    case = replace(case, shape=world.shape, kinds=world.weather.kinds,
                   incidents=tuple(world.weather.incidents), why=case.why or wanted)  # fmt: skip
    while wanted:
        for less in smaller(case):
            if less.breaks(**machines) == wanted:
                case = less
                break
        else:
            break
    return case


def smaller(case: Case) -> Iterator[Case]:
    """What is tried instead of a case: the big steps first."""
    incidents, shape = case.incidents or (), case.shape
    assert shape is not None
    for number, incident in enumerate(incidents):
        others = (incidents[:number], incidents[number + 1 :])
        yield replace(case, incidents=(*others[0], *others[1]))
        for member in incident.members if len(incident.members) > 1 else ():
            less = replace(incident, members=incident.members - {member})
            yield replace(case, incidents=(*others[0], less, *others[1]))
    for kind in sorted(case.kinds, key=lambda kind: kind.name):
        yield replace(case, kinds=case.kinds - {kind})
    for rounds in sorted({shape.rounds // 2, shape.rounds - 1} - {0}):
        yield replace(case, shape=replace(shape, rounds=rounds))
    blunt = tuple(replace(one, start=round(one.start, 1), end=round(one.end, 1))
                  for one in incidents)  # fmt: skip
    if blunt != incidents:
        yield replace(case, incidents=blunt)


def kept(path: Path = FOUND) -> list[Case]:
    """The worlds of a list."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as missing:
        raise ErisError(f"{path} cannot be read: {missing.strerror}") from missing
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(Case.read(line))
        except (ValueError, KeyError, TypeError) as broken:
            raise ErisError(f"{path}, line {number}: no world ({broken!r})") from broken
    return found


def keep(case: Case, path: Path = FOUND) -> None:
    """Add a world to a list."""
    with path.open("a", encoding="utf-8") as file:
        file.write(case.line() + "\n")
