"""What must hold of sums that owners open with the help of members (:mod:`eris.testing.shares`)."""

from __future__ import annotations

from collections.abc import Callable

from eris.protocol.agreement import Key
from eris.protocol.messages import Result, Reveal, RevealRequest
from eris.protocol.view import View
from eris.testing.broken import LawBroken

Place = tuple[Key, int]
"""A segment and a round."""


class Openings:
    """Checks every question and answer: one set a segment and round, of enough clients."""

    def __init__(self, view_of: Callable[[int], View], least: Callable[[View], int]) -> None:
        self._view_of, self._least = view_of, least
        self._asked: dict[Place, frozenset[int]] = {}
        self._told: dict[tuple[Place, int], frozenset[int]] = {}

    def asks(self, request: RevealRequest) -> None:
        """An owner asks a member to open a sum."""
        header = request.header
        where, place = f"round {header.round}, segment {header.key}", (header.key, header.round)
        view = self._view_of(header.round)
        if view.owners[header.shard] != header.sender or header.epoch != view.epoch:
            raise LawBroken(f"{where}: member {header.sender} opens a sum that is not its own")
        if len(request.included) < self._least(view):
            raise LawBroken(f"{where}: a sum of {len(request.included)} clients is opened")
        if self._asked.setdefault(place, request.included) != request.included:
            raise LawBroken(f"{where}: sums of two sets are opened")

    def tells(self, answer: Reveal, to: int) -> None:
        """A member answers."""
        header = answer.header
        where, place = f"round {header.round}, segment {header.key}", (header.key, header.round)
        if self._view_of(header.round).owners[header.shard] != to:
            raise LawBroken(f"{where}: member {header.sender} answers {to}, who does not own it")
        if len(answer.included) < self._least(self._view_of(header.round)):
            raise LawBroken(f"{where}: member {header.sender} opens a sum of too few clients")
        first = self._told.setdefault((place, header.sender), answer.included)
        if first != answer.included:
            raise LawBroken(f"{where}: member {header.sender} has told of two sets")

    def ends(self, result: Result) -> None:
        """A result is published."""
        place = (result.header.key, result.header.round)
        asked = self._asked.get(place)
        if asked is not None and result.payload is not None and result.included != asked:
            raise LawBroken(f"round {place[1]}, segment {place[0]} ends in another set than the "
                            f"one that was opened")  # fmt: skip
