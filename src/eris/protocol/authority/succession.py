"""Who owns which shard: a deterministic, balanced rule with named successors.

Every shard has a *home* among the candidates; while the home is alive and its limit allows, the
shard is its own. A shard without its home goes to the living candidate that carries least, and
waits if all have reached their limits: no member is ever given more of a client's update than it
accepts (``max_share``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eris.protocol.view import NOBODY

TOLERANCE = 1e-9
"""Relative: a limit of 2/3 takes two shards of a third, whatever floating point makes of it."""


@dataclass(frozen=True)
class Candidate:
    """A member that may own shards, up to ``max_share`` of the model."""

    number: int
    max_share: float = 1.0
    alive: bool = True


def successors(shard: int, candidates: Sequence[Candidate]) -> tuple[int, ...]:
    """The candidates in the order in which ties over a shard are decided: its home, then the ring.

    >>> successors(1, [Candidate(0), Candidate(3), Candidate(7)])
    (3, 7, 0)
    """
    ring = sorted(candidate.number for candidate in candidates)
    home = shard % len(ring) if ring else 0
    return (*ring[home:], *ring[:home])


def assign(sizes: Sequence[int], candidates: Sequence[Candidate]) -> tuple[int, ...]:
    """The owner of each shard of the given sizes, ``NOBODY`` for one that must wait.

    >>> assign([10, 10, 10], [Candidate(0), Candidate(1), Candidate(2)])
    (0, 1, 2)
    >>> assign([10, 10, 10], [Candidate(0, 0.5), Candidate(1, alive=False), Candidate(2)])
    (0, 2, 2)
    """
    ring = sorted(candidate.number for candidate in candidates)
    total = sum(sizes)
    room = {c.number: c.max_share * total * (1 + TOLERANCE) for c in candidates if c.alive}
    load = dict.fromkeys(room, 0)  # in coordinates: whole numbers, so that ties are ties
    owners = [NOBODY] * len(sizes)

    def offer(shard: int, line: Sequence[int]) -> None:
        size = sizes[shard]
        fits = [c for c in line if c in room and load[c] + size <= room[c]]
        if fits:
            owners[shard] = min(fits, key=load.__getitem__)  # the first in line of those alike
            load[owners[shard]] += size

    # Homes first, so that what a living home keeps does not depend on anybody else.
    for shard in range(len(sizes) if ring else 0):
        offer(shard, [ring[shard % len(ring)]])
    for shard, owner in enumerate(owners):
        if owner == NOBODY:
            offer(shard, successors(shard, candidates))
    return tuple(owners)


def heirs(sizes: Sequence[int], candidates: Sequence[Candidate]) -> tuple[int, ...]:
    """Who would own each shard if its owner died now.

    >>> heirs([10, 10, 10], [Candidate(0), Candidate(1, 0.4), Candidate(2)])
    (2, 2, 0)
    """
    owners = assign(sizes, candidates)
    without = {
        owner: assign(sizes, [replace(c, alive=c.alive and c.number != owner) for c in candidates])
        for owner in set(owners)
    }
    return tuple(
        NOBODY if owner == NOBODY else without[owner][shard] for shard, owner in enumerate(owners)
    )
