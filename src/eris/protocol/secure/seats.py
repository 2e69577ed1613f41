"""Which helper knows which part of a mask, and who gives which in an answer.

With ``need`` of ``seats`` helpers a mask is the sum of one part for every set T of need − 1 seats
that do *not* know it. So need − 1 helpers together lack a part, and any ``need`` have them all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from eris.core.errors import InvalidSetting

MOST_SEATS = 5


@dataclass(frozen=True)
class Threshold:
    """``need`` of ``seats`` helpers open a sum; one fewer learn nothing, together with the owner.

    >>> Threshold.parse("2 of 3")
    Threshold(need=2, seats=3)
    >>> Threshold(3, 4).parts
    (3, 5, 6, 9, 10, 12)
    """

    need: int
    seats: int

    def __post_init__(self) -> None:
        known = (self.need, self.seats) in ((2, 3), (3, 4))
        if not known and not 2 <= self.need == self.seats <= MOST_SEATS:
            raise InvalidSetting("secure_sums", str(self), "2 of 3, 3 of 4, or 2 of 2 to 5 of 5")

    @classmethod
    def parse(cls, words: str) -> Threshold:
        """From a setting's words, such as ``2 of 3`` or ``2of3``."""
        found = re.fullmatch(r"(\d) ?of ?(\d)", words.strip())
        if found is None:
            raise InvalidSetting("secure_sums", words, "2 of 3, 3 of 4, or 2 of 2 to 5 of 5")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.need} of {self.seats}"

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """The parts, each the bitmap of the seats that do not know it, ascending."""
        apart = combinations(range(self.seats), self.need - 1)
        return tuple(sorted(bitmap(seats) for seats in apart))

    @cached_property
    def _known(self) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(part for part in self.parts if not part >> seat & 1) for seat in range(self.seats)
        )

    def known_to(self, seat: int) -> tuple[int, ...]:
        """The parts that a seat knows, ascending.

        >>> Threshold(2, 3).known_to(0)
        (2, 4)
        """
        return self._known[seat]

    def duties(self, asked: Sequence[int], segment: int) -> dict[int, tuple[int, ...]]:
        """Which parts each of the seats that are asked gives: every part once, evenly.

        >>> Threshold(2, 3).duties((0, 1), segment=1)
        {0: (2,), 1: (1, 4)}
        """
        asked = sorted(asked)
        if len(set(asked)) != self.need or not set(asked) <= set(range(self.seats)):
            raise InvalidSetting("seats that answer", asked, f"{self.need} different ones")
        given: dict[int, list[int]] = {seat: [] for seat in asked}
        knowing = {part: [s for s in asked if not part >> s & 1] for part in self.parts}
        for part in sorted(self.parts, key=lambda part: (len(knowing[part]), part)):
            away = [place for place, seat in enumerate(asked) if part >> seat & 1]
            first = away[0] + 1 if away else segment % self.need
            walk = [asked[(first + step) % self.need] for step in range(self.need)]
            doer = min((s for s in walk if s in knowing[part]), key=lambda s: len(given[s]))
            given[doer].append(part)
        return {seat: tuple(parts) for seat, parts in given.items()}


def bitmap(seats: Sequence[int]) -> int:
    """A set of seats as bits.

    >>> bitmap([0, 2])
    5
    """
    return sum(1 << seat for seat in seats)
