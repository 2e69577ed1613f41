"""A neighbour in gossip, or a tap on a link: what it gets, and what that tells of others' models.

A neighbour's own model and what others tell of theirs are read as its method says
(:class:`~eris.protocol.gossip.peer.Neighbour`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from eris.core.errors import ErisError, InvalidSetting, require
from eris.core.vectors import Vector
from eris.methods.registry import agreed
from eris.protocol.gossip.peer import Arrived, GossipSettings, Piece
from eris.protocol.messages import Share
from eris.protocol.observers import Observer
from eris.protocol.transcript import Record


@dataclass(frozen=True, eq=False)
class NeighbourSight:
    """A round as a neighbour has it: its own last average, and what others sent it.

    A tap has no average; the model that everyone started from stands for it.
    """

    round: int
    observer: Observer
    model: Vector = field(repr=False)
    pieces: tuple[Piece, ...]
    shares: tuple[Arrived, ...] = field(default=(), repr=False)
    """Of a tap: what was on its wire."""

    @property
    def fresh(self) -> tuple[Piece, ...]:
        """The pieces of the first gossip step: later ones hold more of others and less of who
        sends them."""
        first = min((piece.step for piece in self.pieces), default=0)
        return tuple(piece for piece in self.pieces if piece.step == first)

    def completed(self, pieces: Iterable[Piece]) -> Vector:
        """The own average with these pieces written over it."""
        model = self.model.copy()
        for piece in pieces:
            model[piece.coordinates] = piece.values
        return model


class NeighbourWatch:
    """One node of a gossiping federation that looks at what it is sent.

    ``settings`` are the public ones (``GossipSettings.from_canonical(transcript.settings)``),
    ``initial`` is the model everyone started from.

    >>> import numpy as np
    >>> settings = GossipSettings(n=2, nodes=3, method="el", parameters=(("degree", 2),))
    >>> NeighbourWatch(settings, np.zeros(2, np.float32), Observer("neighbour", frozenset({3})))
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: observer is 'neighbour 3'; expected a node that trains, 0 to 2
    """

    def __init__(self, settings: GossipSettings, initial: Vector, observer: Observer) -> None:
        if observer.kind != "neighbour" or len(observer.members) != 1:
            raise InvalidSetting("observer", observer.name, "one neighbour")
        self.settings, self.observer = settings, observer
        self.me = min(observer.members)
        expected = f"a node that trains, 0 to {settings.nodes - 1}"
        require(0 <= self.me < settings.nodes, "observer", observer.name, expected)
        self._machine = agreed(settings).neighbour(settings, self.me, initial)

    @property
    def model(self) -> Vector:
        """The own average after the rounds so far."""
        return self._machine.model

    @property
    def names_clients(self) -> bool:
        """Whether the sender of a piece is the client it comes from."""
        return self._machine.names_clients

    def follow(self, round: int, records: Iterable[Record]) -> NeighbourSight:
        """Take in a round's messages, of which those in the observer's view are looked at."""
        own: list[Arrived] = []
        came: list[Arrived] = []
        for record in filter(self.observer.sees, records):
            try:
                share = record.message
            except ErisError:
                continue  # what a node would have refused tells it nothing
            if not isinstance(share, Share):
                continue
            if (share.header.federation, share.header.round) != (self.settings.fingerprint, round):
                continue
            one = Arrived(record.sender, record.receivers, share)
            (own if record.sender == self.me else came).append(one)
        before = self.model
        found = self._machine.overhear(round, own, came)
        ordered = sorted(found, key=lambda piece: (piece.step, piece.sender))
        return NeighbourSight(round, self.observer, before, tuple(ordered))


class TapWatch:
    """A tapped link of a gossiping federation, or all links of one of its members."""

    def __init__(self, settings: GossipSettings, initial: Vector, observer: Observer) -> None:
        self.settings, self.observer, self._initial = settings, observer, initial
        self._reader = agreed(settings).neighbour(settings, 0, initial)

    @property
    def sends(self) -> Literal["models", "increments"]:
        """What travels."""
        return self._reader.sends

    def follow(self, round: int, records: Iterable[Record]) -> NeighbourSight:
        """What is on the wire in a round."""
        pieces, shares = [], []
        for record in filter(self.observer.sees, records):
            try:
                share = record.message
                if not isinstance(share, Share):
                    continue
                if (share.header.federation, share.header.round) == (
                    self.settings.fingerprint,
                    round,
                ):
                    one = Arrived(record.sender, record.receivers, share)
                    pieces.append(self._reader.tapped(one))
                    shares.append(one)
            except ErisError:
                continue  # what nobody can read tells a tap nothing
        return NeighbourSight(round, self.observer, self._initial, tuple(pieces), tuple(shares))


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Neighbours of one run and taps on its links, each with a sight of its own."""

    watches: tuple[NeighbourWatch, ...]
    taps: tuple[TapWatch, ...] = ()

    @classmethod
    def of(
        cls, settings: GossipSettings, initial: Vector, observers: Iterable[Observer]
    ) -> Neighbourhood:
        """These observers at the start of a run."""
        given = tuple(observers)
        return cls(
            tuple(NeighbourWatch(settings, initial, one) for one in given if one.link is None),
            tuple(TapWatch(settings, initial, one) for one in given if one.link is not None),
        )

    def follow(self, round: int, records: Iterable[Record]) -> Iterator[NeighbourSight]:
        """What each of them has of a round."""
        given = tuple(records)
        for watch in self.watches:
            yield watch.follow(round, given)
        for tap in self.taps:
            yield tap.follow(round, given)
