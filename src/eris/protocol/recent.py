"""The latest of many things, and how many there have been."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

Item = TypeVar("Item")


class Recent(deque[Item]):
    """Keeps the latest ``most`` items and counts all that were ever appended.

    What peers can make a node remember has a limit; what it counts goes on.

    >>> recent = Recent(2)
    >>> for word in "abc":
    ...     recent.append(word)
    >>> list(recent), recent.count_of_all
    (['b', 'c'], 3)
    """

    def __init__(self, most: int) -> None:
        super().__init__(maxlen=most)
        self.count_of_all = 0

    def append(self, item: Item) -> None:
        """Add an item; the oldest may go."""
        self.count_of_all += 1
        super().append(item)
