"""An update on its way to the owners: which of its segments may be handed out now.

An owner is not sent more than ``WINDOW`` segments ahead of its results. Members that ran ahead
would fill its link with what it cannot close yet, and keep those back it waits for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from eris.protocol.agreement import Key
from eris.protocol.round.client import Prepared

WINDOW = 4
"""Segments that a client sends an owner ahead of that owner's results."""


class Dispatch:
    """One update and what of it is still to be sent, shard by shard."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.unbounded = False
        """Whether segments are handed out although results of earlier ones do not come."""
        self._unsent: dict[int, deque[Key]] = {}
        for key in prepared.pieces:
            self._unsent.setdefault(key[0], deque()).append(key)

    @property
    def held(self) -> bool:
        """Whether segments are held back until earlier ones have results."""
        return not self.unbounded and any(self._unsent.values())

    def take(self, over: Callable[[Key], bool], waits: Callable[[int], bool]) -> list[Key]:
        """The next segment of each shard that may go; one whose shard ``waits`` may not.

        ``over`` says whether the result of an earlier segment is in, or will not come.
        """
        found = []
        for shard, unsent in self._unsent.items():
            if unsent and not waits(shard) and self._due(unsent[0], over):
                found.append(unsent.popleft())
        return found

    def _due(self, key: Key, over: Callable[[Key], bool]) -> bool:
        shard, number = key
        return self.unbounded or number < WINDOW or over((shard, number - WINDOW))

    def drop(self) -> None:
        """Hold nothing back any more: what is wanted is asked for."""
        self._unsent.clear()
