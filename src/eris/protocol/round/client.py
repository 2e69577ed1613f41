"""A client's half of the round: cut its update into segments, follow results, catch up.

A machine without I/O: an update, a message or the time goes in, messages come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eris.core.exact_clip import Content
from eris.core.vectors import Vector
from eris.protocol.agreement import Agreement, Key
from eris.protocol.messages import CatchUp, Contribution, Outgoing, Result
from eris.protocol.recent import Recent
from eris.protocol.round.replica import Replica
from eris.protocol.secure.vault import Vault
from eris.protocol.view import NOBODY

MOST_LEFT_OUT = 10_000


@dataclass(frozen=True, eq=False)
class Prepared:
    """An update as it is sent. It is made once, so that what is sent again is the same bytes."""

    round: int
    samples: int
    steps: int
    based_on: Mapping[Key, int]
    """By segment: the version that the update was trained from."""
    pieces: Mapping[Key, Vector]
    """By segment: the values that are sent."""


class Client:
    """One member's client machine, on the node's replica."""

    def __init__(
        self, agreement: Agreement, me: int, replica: Replica, vault: Vault | None = None
    ) -> None:
        self.agreement, self.me, self.replica = agreement, me, replica
        self.round = 0
        self.left_out: Recent[tuple[int, Key]] = Recent(MOST_LEFT_OUT)
        """(round, segment) of the latest contributions that are in no result."""
        self._sent: dict[Key, dict[int, Vector | None]] = {key: {} for key in agreement.keys}
        """By segment and round: contributions without a result yet, and what is remembered."""
        self._asked = 0
        self.sender = agreement.halves.sender(me, vault)

    # -- contributing -------------------------------------------------------------------------

    def begin(self, round: int) -> None:
        """Enter a round."""
        self.round = round
        self._asked = 0

    def contribute(
        self, update: Vector, samples: int, steps: int = 1, content: Content | None = None
    ) -> list[Outgoing]:
        """This round's contributions, one a segment, each for the owner of its shard.

        In an order that keeps all owners busy, so that each can publish early segments while later
        ones still arrive.
        """
        prepared = self.prepare(update, samples, steps, content=content)
        keys = sorted(self.agreement.keys, key=lambda key: (key[1], key[0]))
        return self.contributions(prepared, keys)

    def prepare(
        self,
        update: Vector,
        samples: int,
        steps: int = 1,
        based_on: Mapping[Key, int] | None = None,
        content: Content | None = None,
    ) -> Prepared:
        """An update of this round, checked and cut; it was trained from these versions."""
        versions = self.replica.versions
        if based_on is None:
            based_on = dict(versions)
            self.sender.bind(self.round, self.replica)
        pieces = self.sender.prepare(update, samples, steps, self.round, self.replica, content)
        fresh = {key: piece for key, piece in pieces.items() if based_on[key] == versions[key]}
        return Prepared(self.round, samples, steps, based_on, fresh)

    def contributions(self, prepared: Prepared, keys: Iterable[Key]) -> list[Outgoing]:
        """The contributions of some segments, each for the owner of its shard.

        Segments that nobody owns stay at home, and so do those that have moved on.
        """
        made = (self._contribution(prepared, key) for key in keys if key in prepared.pieces)
        return [outgoing for outgoing in made if outgoing is not None]

    def fits(self, prepared: Prepared, key: Key) -> bool:
        """Whether a segment is as it was when an update was trained."""
        return self.replica.versions[key] == prepared.based_on[key]

    def _contribution(self, prepared: Prepared, key: Key) -> Outgoing | None:
        round, piece = prepared.round, prepared.pieces[key]
        owner, based_on = self.agreement.view_at(round).owners[key[0]], prepared.based_on[key]
        if owner == NOBODY or not self.fits(prepared, key):
            return None
        if not self.sender.gives(round, key[0]):
            return None
        segment = self.agreement.segments(round)[key]
        payload = self.sender.payload(piece, segment, round, based_on)
        self._sent[key][round] = self.sender.remember(piece)
        header = self.agreement.header(self.me, round, key)
        weight = (prepared.samples, prepared.steps) if self.sender.tells_weight else (0, 0)
        message = Contribution(header, based_on, *weight, payload)
        return Outgoing((owner,), message)

    # -- following ----------------------------------------------------------------------------

    @property
    def unanswered(self) -> list[tuple[int, Key]]:
        """(round, segment) of the contributions without a result yet."""
        return [(round, key) for key, rounds in self._sent.items() for round in rounds]

    def follow(self, result: Result) -> None:
        """Learn from an applied result whether this client is in it."""
        key, round = result.header.key, result.header.round
        sent = self._sent[key]
        for past in list(sent):  # in order: a client contributes to one round after another
            if past > round:
                break
            remembered = sent.pop(past)
            self.sender.over(past, key)
            if past < round or self.me not in result.included:
                self.left_out.append((past, key))
            elif remembered is not None:
                self.sender.included(result, self.agreement.segments(round)[key], remembered)

    def jumped(self, key: Key, *, astray: bool) -> None:
        """A segment has skipped results: what was sent may be in one of them, or not. One that was
        ``astray`` had gone by a result that is none."""
        at = self.replica.versions[key]
        for round in self._sent[key]:
            if round <= at:
                self.sender.uncertain(round)
        if astray:
            self.sender.uncertain(at)

    @property
    def wants_epoch(self) -> bool:
        """Whether its member should join once more, for an epoch to begin in which it can give."""
        return self.me in self.agreement.view.client_set and self.sender.astray

    def ask(
        self, missing: Iterable[Key], *, everyone: bool = False, at_once: int = 1
    ) -> list[Outgoing]:
        """Ask for what is missing: the owner first, the next time other members in turn.

        Those that have a role, unless ``everyone`` is to be asked; so many of them ``at_once``.
        """
        members = range(len(self.agreement.view.members))
        there = members if everyone else self.agreement.view.roles
        others = [m for m in there if m != self.me] or [m for m in members if m != self.me]
        asks = [self._ask(key, others, at_once) for key in missing if others]
        self._asked += 1
        return asks

    def _ask(self, key: Key, others: Sequence[int], at_once: int) -> Outgoing:
        header = self.agreement.header(self.me, max(1, self.round), key)
        whole = key in self.replica.astray
        have = 0 if key in self.replica.orphaned else self.replica.versions[key]
        return Outgoing(self._peers(key, others, at_once), CatchUp(header, have, whole))

    def _peers(self, key: Key, others: Sequence[int], at_once: int) -> tuple[int, ...]:
        owner = self.agreement.view.owners[key[0]]
        if self._asked == 0 and owner not in (self.me, NOBODY):
            return (owner,)
        turn = at_once * self._asked + sum(key)
        return tuple({others[(turn + next) % len(others)]: None for next in range(at_once)})
