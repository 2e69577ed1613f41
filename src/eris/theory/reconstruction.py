"""How much must be hidden: what our measurements say of a plan with A aggregators and a kept share.

An owner sees p/A of every client's update. ``reconstruction.toml`` holds what each attacker made of
such shares (one image, its coordinates seen at random), as ``eris reproduce audit-visible``
measured it. Nothing here is a proof: an attacker with a better prior may do better, and one who
finds nothing in our measurements found nothing with our budget.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from eris.core.errors import InvalidSetting, require
from eris.theory.completion import Verdict, completes

MARGIN = 0.05
"""In LPIPS: what is found is no nearer than this to the truth than what is found in random numbers.
Chosen with the curves in view (seen whole, the difference is 0.34 on CIFAR-10); a test for 0 would
call an attacker stopped at 12.5 % and not at 2 %, by chance."""

FOUND = 0.1
"""LPIPS with everything seen, above which a search was too short for its curve to say what stops
it."""


@dataclass(frozen=True)
class Measured:
    """An attacker at one visible share, mean over the images: LPIPS, how far it lies below that of
    random numbers, and half the width of that difference's 95 % interval."""

    data: str
    attack: str
    mode: str
    share: float
    images: int
    lpips: float
    below: float
    interval: float

    @property
    def stopped(self) -> bool:
        """Whether what is found is hardly nearer to the truth than what random numbers give."""
        return self.below <= MARGIN


@dataclass(frozen=True)
class Advice:
    """What one attacker does to a plan; ``measured`` is at the next larger share (the attacker is
    not weaker there), None where the plan shows less than the least that was measured."""

    data: str
    attack: str
    mode: str
    measured: Measured | None
    enough: float | None
    """The largest measured share at which it is stopped, there and below; None: at none."""

    @property
    def stopped(self) -> bool:
        """Whether the measurements say that the plan stops it."""
        if self.measured is None:
            return self.enough is not None
        return self.enough is not None and self.measured.share <= self.enough

    @property
    def aggregators(self) -> int | None:
        """How many aggregators stop it where everything is sent; None: no number that was
        measured."""
        return None if self.enough is None else -int(-1 // self.enough)


@cache
def measurements() -> tuple[Measured, ...]:
    """All that was measured."""
    text = files("eris.theory").joinpath("reconstruction.toml").read_text(encoding="utf-8")
    return tuple(Measured(**one) for one in tomllib.loads(text)["points"])


def advise(
    aggregators: int,
    kept: float = 1.0,
    samples: int = 1,
    *,
    known: Sequence[Measured] | None = None,
) -> list[Advice]:
    """What every attacker that was measured makes of a plan with so many ``aggregators`` and the
    share ``kept`` of the coordinates.

    The measurements are of one sample a client. More are harder to tell apart, so what stops an
    attacker for one stops it for several, and what does not may. Attackers that did not find whole
    updates are left out: iDLG on CIFAR-10, whose search was short.

    >>> [one.stopped for one in advise(1) if one.mode == "mask-aware"].count(True)
    0
    """
    require(aggregators >= 1, "aggregators", aggregators, "at least 1")
    require(0 < kept <= 1, "kept", kept, "a share in (0, 1]")
    require(samples >= 1, "samples", samples, "at least 1")
    share = kept / aggregators
    found = []
    points = measurements() if known is None else known
    for data, attack, mode in dict.fromkeys((one.data, one.attack, one.mode) for one in points):
        mine = sorted(
            (one for one in points if (one.data, one.attack, one.mode) == (data, attack, mode)),
            key=lambda one: one.share,
        )
        # Above the largest share of all there is nothing to go by.
        if share > mine[-1].share:
            expected = f"at most {mine[-1].share:g}, the largest share that was measured"
            raise InvalidSetting("visible share", share, expected)
        if mine[-1].lpips > FOUND:
            continue
        at = None if share < mine[0].share else next(one for one in mine if one.share >= share)
        enough = None
        for one in mine:
            if not one.stopped:
                break
            enough = one.share
        found.append(Advice(data, attack, mode, at, enough))
    return found


def layers_completed(
    layers: Sequence[tuple[int, int]], aggregators: int, kept: float, samples: int
) -> dict[tuple[int, int], Verdict]:
    """Beside the inversions: which linear layers (rows, columns with the bias) the owner of one
    shard completes by counting, whatever its prior.

    >>> layers_completed([(256, 785), (10, 257)], 16, 1.0, 2)
    {(256, 785): 'yes', (10, 257): 'no'}
    """
    return {
        (rows, columns): completes(rows, columns, aggregators, kept, samples)
        for rows, columns in layers
    }
