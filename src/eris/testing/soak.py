"""Simulates federations under trouble for a long time: ``python -m eris.testing.soak``.

One world after another (:mod:`eris.testing.world`), each a pure function of its seed, until as many
*faulted* rounds have passed as were asked for: rounds in which trouble struck. A finding is a law
that was broken; its seed repeats it. Worlds that once broke one come first, and a new finding is
shrunk and added to them (:mod:`eris.testing.found`).
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from eris.core.errors import ErisError
from eris.testing.found import FOUND, Case, keep, kept, shrunk
from eris.testing.shape import Shape
from eris.testing.weather import Trouble

BATCH = 10
"""Seeds that a process is given at once."""
MOST_FINDINGS = 20
MASKED = frozenset(Trouble) - {Trouble.POISON}
"""What may strike where sums are sealed: values that nobody can look at are not refused."""
Sums = Literal["open", "secure", "encrypted"]
OPEN = frozenset(Trouble) - {Trouble.REWIND}
"""What may strike where they are not."""


@dataclass
class Tally:
    """What a number of worlds amounted to."""

    first: int
    last: int
    rounds: int = 0
    faulted: int = 0
    struck: Counter[Trouble] = field(default_factory=Counter)
    saw: Counter[str] = field(default_factory=Counter)
    findings: dict[int, str] = field(default_factory=dict)
    """By seed."""

    def add(self, other: Tally) -> None:
        """Take in what came after."""
        self.last = other.last
        self.rounds += other.rounds
        self.faulted += other.faulted
        self.struck += other.struck
        self.saw += other.saw
        self.findings |= other.findings

    def __str__(self) -> str:
        lines = [f"{kind.value}: {self.struck[kind]:,}" for kind in Trouble]
        lines += [f"{what}: {times:,}" for what, times in sorted(self.saw.items())]
        seeds = f"seeds {self.first} to {self.last}"
        lines.append(f"{self.faulted:,} faulted rounds of {self.rounds:,}; {seeds}; "
                     f"{len(self.findings)} findings")  # fmt: skip
        return "\n".join(lines)


Kind = Literal["any", "secure", "encrypted", "gossip", "references"]
"""Which worlds: members that aggregate, with secure or encrypted sums alone, that gossip, or whose
clients have references of their own."""


def run_seeds(first: int, last: int, kind: Kind = "any") -> Tally:
    """The worlds of some seeds, both ends included.

    >>> run_seeds(3, 4).findings
    {}
    """
    tally = Tally(first, last)
    for seed in range(first, last + 1):
        world = _case(seed, kind).world()
        try:
            world.run()
        except Exception as error:  # whatever it is, the seed repeats it
            tally.findings[seed] = f"seed {seed}: {type(error).__name__}: {error}"
        rounds = set(range(1, world.shape.rounds + 1))
        tally.rounds += len(rounds & world.entered.keys())
        tally.faulted += len(rounds & world.faulted)
        tally.struck += world.weather.struck
        tally.saw += world.witness.saw
    return tally


def _case(seed: int, kind: Kind) -> Case:
    match kind:
        case "secure":
            return Case(seed, Shape.secured(seed), MASKED)
        case "encrypted":
            return Case(seed, Shape.encrypting(seed), MASKED)
        case "gossip":
            return Case(seed, Shape.gossiping(seed), OPEN)
        case "references":
            return Case(seed, Shape.referring(seed), OPEN - {Trouble.LIE})
    return Case(seed)


def _batch(kind: Kind, first: int) -> Tally:
    return run_seeds(first, first + BATCH - 1, kind)


def soak(
    rounds: int, first: int = 0, jobs: int = 1, advance: Callable[[int], object] = int,
    *, kind: Kind = "any",
) -> Tally:  # fmt: skip
    """Worlds from seed ``first`` on until ``rounds`` faulted rounds have passed, or Ctrl-C.

    ``advance`` is told how many more have.
    """
    total = Tally(first, first - 1)
    with suppress(KeyboardInterrupt):  # what was seen until then counts
        for tally in _tallies(first, jobs, partial(_batch, kind)):
            total.add(tally)
            advance(tally.faulted)
            if total.faulted >= rounds or len(total.findings) >= MOST_FINDINGS:
                break
    return total


def _tallies(first: int, jobs: int, batch: Callable[[int], Tally]) -> Iterator[Tally]:
    """Batch by batch, in the order of seeds: the count does not depend on ``jobs``."""
    starts = count(first, BATCH)
    if jobs == 1:
        yield from map(batch, starts)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        ahead = [pool.apply_async(batch, (next(starts),)) for _ in range(2 * jobs)]
        while True:
            yield ahead.pop(0).get()
            ahead.append(pool.apply_async(batch, (next(starts),)))


def replay(found: Path = FOUND) -> list[str]:
    """Which of the worlds that once broke a law break one now."""
    laws = ((number, case.breaks()) for number, case in enumerate(kept(found), 1))
    return [f"found {number}: {law}" for number, law in laws if law]


def main(arguments: list[str] | None = None) -> int:
    """Run a campaign, with a progress bar; the exit status says whether a law was broken."""
    parser = argparse.ArgumentParser(prog="python -m eris.testing.soak", description=soak.__doc__)
    parser.add_argument("--rounds", type=int, default=100_000, help="faulted rounds")
    parser.add_argument("--first-seed", type=int, default=0, help="of the worlds")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--found", type=Path, default=FOUND, help="worlds that once broke a law")
    only = parser.add_mutually_exclusive_group()
    worlds = {"secure": "with secure sums", "encrypted": "with encrypted sums",
              "gossip": "whose members gossip",
              "references": "whose clients have references of their own"}  # fmt: skip
    for name, what in worlds.items():
        only.add_argument(f"--{name}", dest="kind", action="store_const", const=name,
                          default="any", help=f"only worlds {what}")  # fmt: skip
    wanted = parser.parse_args(arguments)
    try:
        again = replay(wanted.found)
    except ErisError as unreadable:
        parser.error(str(unreadable))
    if again:
        print("\n".join(again))
        return 1
    columns = (*Progress.get_default_columns()[:3], MofNCompleteColumn(), TimeElapsedColumn(),
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("faulted rounds", total=wanted.rounds)
        advance = partial(progress.advance, task)
        tally = soak(wanted.rounds, wanted.first_seed, wanted.jobs, advance, kind=wanted.kind)
    for seed, finding in tally.findings.items():
        case = shrunk(_case(seed, wanted.kind))
        keep(case, wanted.found)
        print(f"{finding}\n  shrunk: {case.line()}")
    print(tally)
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
