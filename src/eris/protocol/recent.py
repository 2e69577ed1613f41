"""A memory with a limit, beside a count without one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")


class Recent(Sequence[Item]):
    """Keeps the latest ``most`` items and counts all that were ever appended.

    What peers can make a node remember has a limit; what it counts goes on.

    >>> recent = Recent(2)
    >>> for word in "abc":
    ...     recent.append(word)
    >>> list(recent), recent.count_of_all
    (['b', 'c'], 3)
    """

    def __init__(self, most: int) -> None:
        self._kept: deque[Item] = deque(maxlen=most)
        self.count_of_all = 0

    def append(self, item: Item) -> None:
        """Add an item; the oldest may go."""
        self.count_of_all += 1
        self._kept.append(item)

    def clear(self) -> None:
        """Forget the items, not their number."""
        self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, index: Any) -> Any:
        return self._kept[index]

    def __iter__(self) -> Iterator[Item]:
        return iter(self._kept)
