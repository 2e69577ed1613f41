"""Who leaves whom out of its sums: the mark of an owner that chooses its sets.

Masks hide a client inside one sum. An owner that leaves one client out of the next has the
difference of the two, which is nearly that client's update. Results say who is in them, so every
node can count the rounds in which one owner alone did so. A link that is down looks the same: what
is counted is worth a question, and proves nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

NAMED_AT = 3
"""Rounds from which an owner is named."""
WAITED = 3
"""Rounds after which no more results of a round are waited for."""


class Omissions:
    """Counts, by owner and client, rounds in which that owner alone left out a client that most
    other owners included.

    >>> seen = Omissions()
    >>> for round in (1, 2, 3):
    ...     for owner in (0, 1, 2):
    ...         seen.note(round, owner, frozenset({1, 2, 3} - ({3} if owner == 0 else set())),
    ...                   owners=(0, 1, 2))
    >>> seen.settle(7), dict(seen.rounds)
    ([(0, 3)], {(0, 3): 3})
    """

    def __init__(self) -> None:
        self.rounds: Counter[tuple[int, int]] = Counter()
        """By owner and client."""
        self._sets: dict[int, dict[int, frozenset[int]]] = defaultdict(dict)
        """By round and owner: the clients that are in all of its results."""
        self._owners: dict[int, frozenset[int]] = {}
        self._settled = 0

    def note(self, round: int, owner: int, included: frozenset[int], owners: Sequence[int]) -> None:
        """A result of an owner, one of those of the round; a withheld one says nothing."""
        if round <= self._settled or not included:
            return
        if round not in self._owners:
            self._owners[round] = frozenset(one for one in owners if one >= 0)
        before = self._sets[round].get(owner, included)
        self._sets[round][owner] = before & included

    def settle(self, round: int) -> list[tuple[int, int]]:
        """A round has begun: count those that are over. Returns the (owner, client) that are to be
        named now."""
        named = []
        for past in sorted(one for one in self._sets if one <= round - WAITED):
            for pair in self._alone(past):
                self.rounds[pair] += 1
                if self.rounds[pair] == NAMED_AT:
                    named.append(pair)
            del self._sets[past], self._owners[past]
            self._settled = max(self._settled, past)
        return named

    def _alone(self, round: int) -> list[tuple[int, int]]:
        sets, others = self._sets[round], len(self._owners[round]) - 1
        everyone = frozenset[int]().union(*sets.values())
        found = []
        for client in sorted(everyone):
            lacking = [owner for owner, included in sets.items() if client not in included]
            with_it = len(sets) - len(lacking)
            if len(lacking) == 1 and 2 * with_it > others and lacking[0] != client:
                found.append((lacking[0], client))
        return found
