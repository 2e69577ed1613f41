"""Who helps which shard: seats that stay, and never two of one party at a shard.

Whoever is owner and helpers of a shard at once reads it. So owner and seats are of different
parties, and every member checks that of every view by itself. A seat that is held is kept: were
seats moved about, more members would meet at a shard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from eris.protocol.view import NOBODY, lawful

__all__ = ["Seats", "lawful", "seated"]

Seats = tuple[tuple[int, ...], ...]
"""For every shard the member in each seat, ``NOBODY`` in one that is vacant."""


def seated(
    owners: Sequence[int], parties: Mapping[int, str], seats: int, before: Seats = ()
) -> Seats:
    """The helpers of every shard; ``parties`` are those of the members that are there.

    >>> seated([0, 1], {0: "anna", 1: "ben", 2: "cleo", 3: "dora"}, 2)
    ((1, 2), (3, 0))
    """
    kept = [
        _kept(owner, parties, before[shard] if shard < len(before) else (), seats)
        for shard, owner in enumerate(owners)
    ]
    held = Counter(member for line in kept for member in line if member != NOBODY)
    for owner, line in zip(owners, kept, strict=True):
        for seat, member in enumerate(line):
            if member == NOBODY and owner != NOBODY:
                line[seat] = _newcomer(owner, line, parties, held)
                held[line[seat]] += 1
    return tuple(map(tuple, kept))


def _kept(owner: int, parties: Mapping[int, str], before: Sequence[int], seats: int) -> list[int]:
    """The seats of a shard as they were, without those that may not stay."""
    line: list[int] = []
    for member in [*before, *[NOBODY] * seats][:seats]:
        stays = member in parties and owner != NOBODY and lawful(owner, (*line, member), parties)
        line.append(member if stays else NOBODY)
    return line


def _newcomer(
    owner: int, line: Sequence[int], parties: Mapping[int, str], held: Mapping[int, int]
) -> int:
    """The member with fewest seats, the first in the ring after the owner of those alike."""
    ring = sorted(parties, key=lambda member: (member <= owner, member))
    fits = [member for member in ring if lawful(owner, (*line, member), parties)]
    return min(fits, key=lambda member: held.get(member, 0), default=NOBODY)
