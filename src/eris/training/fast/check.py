"""Whether a real pass of several clients gave what the plain loop gives.

A forward pass may branch on the size of its batch, or on a value that the few probed samples do not
have; with the samples of many clients in one batch it then takes another way than a client's own
would. So real passes are compared with the loop: all of the first round, and one of a round in
twenty, drawn at random.

Rounding alone can carry an activation across the kink of a ReLU, and further steps amplify that. A
client that differs is therefore trained again from models changed in their last bit: where the
loop's own update moves as much, the difference says nothing about the pass.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eris.core.streams import Stream
from eris.core.vectors import Vector

AGREEMENT = 1e-4
"""The largest difference between the updates of a pass and of the loop, relative to the latter."""
ONE_IN = 20
TRIES, MARGIN = 8, 4.0
"""Models changed in their last bit, and how far beyond what they give a pass may be off."""


def is_checked(seed: int, round: int, lane: int, lanes: int) -> bool:
    """Whether passes of a lane are checked in a round: all in the first, later one lane in some.

    >>> [round for round in range(40) if any(is_checked(0, round, lane, 4) for lane in range(4))]
    [0, 1, 4, 39]
    """
    if round <= 1:
        return True
    chance, place = map(int, Stream(seed, "checked pass", round=round).words(0, 2))
    return chance % ONE_IN == 0 and lane == place % lanes


def difference(found: Vector, expected: Vector) -> float:
    """How far one update is off another, relative to it; two that are not finite agree.

    >>> difference(np.array([1.0, 1.0]), np.array([1.0, 0.0]))
    1.0
    """
    finite = np.isfinite(found).all(), np.isfinite(expected).all()
    if not all(finite):
        return float("inf") if any(finite) else 0.0
    scale, off = np.linalg.norm(expected), np.linalg.norm(found - expected)
    return float(off / scale) if scale else float("inf") if off else 0.0


def is_wrong(
    found: Vector, expected: Vector, start: Vector, name: Stream, loop: Callable[[Vector], Vector]
) -> float | None:
    """How far a client's update is off the loop's, if more than rounding explains; else None.

    ``loop`` gives the update from another model; ``name`` is the stream of the changed bits.
    """
    off = difference(found, expected)
    if off <= AGREEMENT:
        return None
    for number in range(TRIES):
        signs = name.words(number * len(start), len(start)) & 1
        ends = np.where(signs == 1, np.float32(np.inf), np.float32(-np.inf))
        if off <= MARGIN * difference(loop(np.nextafter(start, ends)), expected):
            return None
    return off
