"""Follows a run with aggregators, round by round: what each observer gets to know of each client.

The observers know the protocol. They replay the model and the reference of shifted compression from
the results that reached them, undo the shift of every contribution they see, and take what is
published for what it is: a mean in which each client's update is hidden among those of the clients
that kept the coordinate. In the paper's mode they follow every client's own reference too.

Observers that received the same results hold the same model, so they share one replica.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from eris.audit.ciphertexts import ClusterReader, OpenedSegment
from eris.audit.heard import Heard, HeardRound, Known, Pieces, Sent
from eris.core.errors import InvalidSetting
from eris.core.vectors import Indices, Vector
from eris.protocol.agreement import Agreement, Key
from eris.protocol.authority.standing import Scheduled
from eris.protocol.messages import Contribution, Result, Reveal, Snapshot
from eris.protocol.observers import Observer
from eris.protocol.round.replica import Replica
from eris.protocol.schemes import Coding, EncryptedClusters, Rotated, Scheme
from eris.protocol.schemes.halves import Tables
from eris.protocol.secure.noise_terms import SharedNoise
from eris.protocol.secure.simulated import Opener
from eris.protocol.settings import Settings
from eris.protocol.transcript import Record, Transcript


@dataclass(frozen=True)
class Declared:
    """What a client's contributions say of its training."""

    samples: int
    steps: int


@dataclass(frozen=True)
class Averaged:
    """Whose updates the means of a round are of, all their samples, and the steps of each."""

    clients: tuple[int, ...]
    samples: int
    steps: int


@dataclass(frozen=True, eq=False)
class Sight:
    """A round as some observers have it, who all hold the same model."""

    round: int
    observers: tuple[int, ...]
    model: Vector
    """What clients trained from, as far as these observers know."""
    rate: float
    """The server's step: an update times this is what it moves the model by."""
    _known: Known = field(repr=False)
    _round: HeardRound = field(repr=False)

    def pieces(self, client: int, *, published: bool = False) -> Pieces | None:
        """What any of these observers may know of a client's update; None: it had no part."""
        return self._known.pieces(self._round, client, self.observers[0], published)

    def seen(self, client: int) -> NDArray[np.bool_]:
        """By observer and piece: whether the client's own contribution reached it."""
        return np.stack([self._round.seen(observer, client) for observer in self.observers])

    def declared(self, client: int) -> Declared:
        """What a client said of its training, to whoever was sent something of its update; zeros
        if nobody was."""
        sent = self._round.contributions.get(client, {})
        first = next(iter(sent.values()), Declared(0, 0))
        return Declared(first.samples, first.steps)

    def averaged(self, observer: int) -> Averaged | None:
        """What the results say of the means that were published to an observer; None if nothing
        was, or if they are not all of the same clients, each with the same number of steps."""
        results = [one for one in self._round.results_for(observer) if one.payload is not None]
        told = {(one.included, one.samples, one.sample_steps) for one in results}
        if len(told) != 1:
            return None
        ((clients, samples, sample_steps),) = told
        steps, rest = divmod(sample_steps, samples)
        return None if rest else Averaged(tuple(sorted(clients)), samples, steps)

    def completed(self, observer: int, client: int) -> Vector:
        """The model moved by what an observer saw of a client's update, or by what was published.

        On the coordinates of which it saw nothing the client's model is taken for everybody's.
        """
        seen = self.seen(client)[self.observers.index(observer)]
        pieces = self.pieces(client, published=not seen.any())
        model = self.placed(self.model).copy()
        if pieces is not None:
            values, which, steps = pieces.update, seen, pieces.steps
            if not seen.any():
                assert pieces.published is not None
                values, which, steps = pieces.published, self.published, pieces.mean_steps
            chosen = np.repeat(which, pieces.sizes)
            move = np.float32(self.rate * steps) * values[chosen]
            model[pieces.coordinates[chosen]] -= move
        return self.left(model)

    def left(self, model: Vector) -> Vector:
        """A model as clients evaluate it; undoes :meth:`placed`."""
        return self._known.agreement.coding.leave(model)

    def placed(self, vector: Vector) -> Vector:
        """A gradient or a model where the coordinates of pieces point into it."""
        return self._known.agreement.coding.enter(vector)

    @property
    def basis(self) -> Coding | None:
        """What leads where the coordinates of pieces point, if that is not the model's own."""
        return self._known.agreement.coding if isinstance(self.scheme, Rotated) else None

    def opened(self, observer: int) -> list[OpenedSegment]:
        """The segments of encrypted clusters whose sums an observer opened."""
        return list(self._round.opened(observer))

    def segment(self, key: Key) -> Indices:
        """The coordinates of a segment."""
        return self._round.agreement.segments(self.round)[key].coordinates

    @property
    def published(self) -> NDArray[np.bool_]:
        """By piece: whether its result reached these observers."""
        return self._known.published(self._round, self.observers[0])

    @property
    def samples(self) -> int:
        """How many samples are behind what was published, as the results that reached these
        observers say; 0 if none did."""
        results = self._round.results_for(self.observers[0])
        return max((result.samples for result in results), default=0)

    @property
    def stated(self) -> NDArray[np.bool_]:
        """By piece: whether a snapshot told these observers its whole state before this round."""
        return np.array([key in self._known.stated for key in self._round.places])

    @property
    def scheme(self) -> Scheme:
        """How segments travel."""
        return self._known.agreement.settings.scheme

    @property
    def noise(self) -> SharedNoise | None:
        """The noise on clipped samples, as it was agreed, where there is such."""
        noise = self._known.agreement.settings.noise
        return noise if noise is not None and noise.protects == "sample" else None

    @property
    def shifted(self) -> bool:
        """Whether what travels is a difference to a reference."""
        return self._known.replica.reference is not None


class Watch:
    """The observers of one run of a federation with aggregators.

    ``frame`` says what was agreed and who was who in which epoch; its records are not looked at.
    ``initial`` is the model everyone started from, which every member has. ``tables`` give
    logarithms, where centroids are encrypted.
    """

    def __init__(
        self, frame: Transcript, initial: Vector, observers: Sequence[Observer], *,
        tables: Tables | None = None,
    ) -> None:  # fmt: skip
        if not observers:
            raise InvalidSetting("observers", "none", "at least one")
        self._frame, self._views = frame, [Scheduled(frame.view_of(), 1)]
        self.agreement = Agreement(Settings.from_canonical(frame.settings), frame.view_of())
        if tables is not None:
            self.agreement.coding.equip(tables)
        self.observers = tuple(observers)
        self._opener = Opener(self.agreement) if self.agreement.settings.secure else None
        clustered = isinstance(self.agreement.settings.scheme, EncryptedClusters)
        self._clusters = ClusterReader(self.agreement) if clustered else None
        # Every observer starts from the same; where results did not reach all, ways part.
        known = Known(self.agreement, Replica(self.agreement, initial))
        self._groups: list[tuple[tuple[int, ...], Known]] = [
            (tuple(range(len(self.observers))), known)
        ]
        self._taps = [n for n, observer in enumerate(observers) if observer.link is not None]
        self._near: dict[int, list[int]] = defaultdict(list)
        for number, observer in enumerate(self.observers):
            for member in {*observer.members, *(observer.link or ())}:
                self._near[member].append(number)

    def follow(self, round: int, records: Iterable[Record]) -> Iterator[Sight]:
        """A round's messages; each sight holds until the next one is asked for."""
        heard = HeardRound(self.agreement, round, self._clusters)
        public: dict[int, list[int]] = defaultdict(list)
        before: dict[int, list[int]] = defaultdict(list)  # of earlier rounds: known as this began
        messages: list[Result | Snapshot] = []
        sent: list[tuple[int, Contribution]] = []
        for record in records:
            one = Heard(record.sender, record.receivers, record.arrived, record.message)
            message = one.message
            if isinstance(message, Contribution):
                sent += [(observer, message) for observer in self._reached(one)]
            elif isinstance(message, Reveal):
                for observer in self._who(one):
                    heard.shares[observer][message.header.key][one.sender] = message
            elif isinstance(message, Result | Snapshot) and (observers := self._who(one)):
                told = before if message.header.round < round else public
                for observer in observers:
                    told[observer].append(len(messages))
                messages.append(message)
                if isinstance(message, Result) and message.header.round == round:
                    heard.results.setdefault(message.header.key, message)
                    for observer in observers:
                        heard.published[observer].add(message.header.key)
        for observer, contribution in sent:  # of encrypted ones shares say more
            heard.note(observer, contribution, partial(self._read, observer, contribution, heard))
        if not messages and not heard.contributions:
            return  # a round of which nothing reached anybody here
        self._go_by({result.header.epoch for result in heard.results.values()}, round)
        if before:
            self._part(before)
            for company, known in self._groups:
                late = [messages[i] for i in before.get(company[0], ())]
                known.advance(HeardRound(self.agreement, round), company[0], late)
        self._part(public)
        for company, known in self._groups:
            model = known.replica.own_model()
            rate = self.agreement.settings.rule.learning_rate
            yield Sight(round, company, model, rate, known, heard)
            known.advance(heard, company[0], [messages[i] for i in public.get(company[0], ())])

    def models(self) -> list[Vector]:
        """Each observer's model now."""
        found: dict[int, Vector] = {}
        for observers, known in self._groups:
            found |= dict.fromkeys(observers, known.replica.model)
        return [found[number] for number in range(len(self.observers))]

    def _read(self, observer: int, message: Contribution, heard: HeardRound) -> Sent | None:
        """What an observer reads of a contribution; of masked words nothing, unless it is an owner
        with helpers enough."""
        header, based_on = message.header, message.based_on
        if self._clusters is not None:
            members, shares = self.observers[observer].members, heard.shares[observer][header.key]
            clusters = self._clusters.read(message, members, shares)
            if clusters is None:
                return None
            return Sent(based_on, message.samples, message.steps, clusters)
        if self._opener is not None:
            opened = self._opener.read(message, self.observers[observer].members)
            if opened is None:
                return None
            # Gauge coordinates are noise alone, and none of the model's.
            values = opened[0][:0] if header.key == self.agreement.gauge else opened[0]
            return Sent(based_on, *opened[1:], values)
        segment = self.agreement.segments(header.round)[header.key]
        values = self.agreement.coding.read(message, segment)
        return Sent(based_on, message.samples, message.steps, values)

    def _who(self, one: Heard) -> list[int]:
        near = {o for member in (one.sender, *one.arrived) for o in self._near.get(member, ())}
        near |= {o for member in one.receivers for o in self._near.get(member, ())}
        return [number for number in sorted(near) if self.observers[number].sees(one)]

    def _reached(self, one: Heard) -> list[int]:
        """The observers that a contribution came to; what one sends itself is no news to it."""
        found = []
        for member in one.arrived:
            found += [o for o in self._near.get(member, ()) if self.observers[o].takes]
        if self._taps:
            found += [o for o in self._taps if self.observers[o].sees(one)]
        return found

    def _go_by(self, epochs: set[int], round: int) -> None:
        """From this round on, judge results by the view of their epochs, as members do."""
        if epochs and (view := self._frame.view_of(epochs)) != self._views[-1].view:
            self._views.append(Scheduled(view, round))
            self.agreement.schedule(self._views)

    def _part(self, public: Mapping[int, list[int]]) -> None:
        """Give observers that received other results than their company a replica of their own."""
        groups = []
        for observers, known in self._groups:
            parts: dict[tuple[int, ...], list[int]] = defaultdict(list)
            for observer in observers:
                parts[tuple(public.get(observer, ()))].append(observer)
            for number, part in enumerate(parts.values()):
                shared = {id(self.agreement): self.agreement}  # anew: a copy notes itself in it
                groups.append((tuple(part), copy.deepcopy(known, shared) if number else known))
        self._groups = groups
