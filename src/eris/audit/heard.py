"""What one round's messages told some observers, and what follows from all results they had.

:mod:`eris.audit.watch` follows a run with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.audit.ciphertexts import ClusterReader, OpenedSegment, ReadClusters
from eris.core.errors import ErisError
from eris.core.vectors import Indices, Vector
from eris.protocol.agreement import Agreement, Key
from eris.protocol.messages import Contribution, Message, Result, Reveal, Snapshot
from eris.protocol.round.replica import Replica
from eris.protocol.schemes.weights import WeightCoding, moved


@dataclass(frozen=True)
class Heard:
    """A record whose message is read once, for all observers."""

    sender: int
    receivers: tuple[int, ...]
    arrived: set[int]
    message: Message


@dataclass(frozen=True, eq=False)
class Pieces:
    """What can be known of one client's update in a round, piece by piece (a piece is a segment).

    ``sent`` is what travelled, as it travelled; ``update`` the same with the shift undone;
    ``published`` the best guess from what was published. Where clients divide by their local steps
    (FedNova), ``steps`` says how many there were, ``mean_steps`` how many on average of those in
    ``published``.
    """

    coordinates: Indices
    edges: Indices
    sent: Vector
    update: Vector
    published: Vector | None = None
    steps: float = 1.0
    mean_steps: float = 1.0

    @property
    def sizes(self) -> Indices:
        """Coordinates in each piece."""
        return np.diff(self.edges)


@dataclass(frozen=True, eq=False)
class Sent:
    """A contribution as it travelled: its values unscaled, one a coordinate, or its clusters, whose
    values follow from what was published."""

    based_on: int
    samples: int
    steps: int
    values: Vector | ReadClusters


class HeardRound:
    """The messages of one round, and which observers have them."""

    def __init__(
        self, agreement: Agreement, round: int, reader: ClusterReader | None = None
    ) -> None:
        self.agreement, self.round, self._reader = agreement, round, reader
        self.places = {key: number for number, key in enumerate(agreement.keys)}
        self.contributions: dict[int, dict[Key, Sent]] = defaultdict(dict)
        self.results: dict[Key, Result] = {}
        self.published: dict[int, set[Key]] = defaultdict(set)
        self.shares: dict[int, dict[Key, dict[int, Reveal]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        """By observer: what members answered about a segment."""
        self._seen: dict[tuple[int, int], NDArray[np.bool_]] = defaultdict(
            lambda: np.zeros(len(self.places), np.bool_)
        )

    def note(self, observer: int, message: Contribution, read: Callable[[], Sent | None]) -> None:
        """A contribution reached an observer, who may be able to read it."""
        if message.header.round != self.round:
            return
        client, key = message.header.sender, message.header.key
        settings = self.agreement.settings
        by_all = settings.secure is None and not settings.scheme.keyed
        if key not in self.contributions[client] or not by_all:
            try:
                sent = read()
            except (ErisError, KeyError):
                return  # what an owner would have refused
            if sent is None:
                return
            if not self._told_less(self.contributions[client].get(key)):
                self.contributions[client][key] = sent
        self._seen[observer, client][self.places[key]] = True

    @staticmethod
    def _told_less(sent: Sent | None) -> bool:
        """Whether some observer that reads clusters does not know where they begin: pieces are for
        all who read them, so none may know more."""
        found = None if sent is None else sent.values
        return isinstance(found, ReadClusters) and found.base is None

    def seen(self, observer: int, client: int) -> NDArray[np.bool_]:
        """By piece: whether the client's contribution reached the observer."""
        return self._seen[observer, client]

    # -- reading ------------------------------------------------------------------------------

    def opened(self, observer: int) -> Iterator[OpenedSegment]:
        """The segments whose sums an observer opened, by all contributions and shares."""
        for key, shares in self.shares[observer].items() if self._reader else ():
            books = {
                client: sent[key].values
                for client, sent in self.contributions.items()
                if key in sent and self._seen[observer, client][self.places[key]]
            }
            read = {one: book for one, book in books.items() if isinstance(book, ReadClusters)}
            assert self._reader is not None
            try:
                found = self._reader.opened(key, self.round, read, shares)
            except ErisError:
                continue  # a share that was none: the owner withheld the result
            if found is not None:
                yield found

    def sent(self, client: int) -> Vector:
        """What a client sent, in its places of a whole vector; 0 where nothing was heard."""
        whole = np.zeros(self.agreement.settings.places, np.float32)
        for key, sent in self.contributions.get(client, {}).items():
            if not isinstance(sent.values, ReadClusters):
                whole[self.agreement.coding.coordinates(self.round, key, client)] = sent.values
        return whole

    def results_for(self, observer: int) -> list[Result]:
        """The results of this round that reached an observer."""
        return [self.results[key] for key in sorted(self.published.get(observer, ()))]


class Known:
    """What follows from the results that reached some observers."""

    def __init__(self, agreement: Agreement, replica: Replica) -> None:
        self.agreement, self.replica = agreement, replica
        self.reader = agreement.coding.reader()
        self.stated: set[Key] = set()
        """Segments of which a snapshot has told all, since the last round."""
        self._means: tuple[Vector, Vector] | None = None

    def published(self, round: HeardRound, observer: int) -> NDArray[np.bool_]:
        """By piece: whether a mean of this round was published to the observer."""
        keys = round.published.get(observer, set())
        return np.array(
            [key in keys and round.results[key].payload is not None for key in round.places]
        )

    def pieces(
        self, round: HeardRound, client: int, observer: int, published: bool
    ) -> Pieces | None:
        """See :meth:`Sight.pieces`."""
        mine = round.contributions.get(client, {})
        if not mine and not any(client in result.included for result in round.results.values()):
            return None
        coordinates, edges = self.agreement.coding.layout(round.round, client)
        sent, versions = np.zeros(len(coordinates), np.float32), self.replica.versions
        heard = np.zeros(len(coordinates), np.bool_)
        relative = self.agreement.settings.scheme.relative
        for key, contribution in mine.items():
            # Unless these observers hold another state than it was made against.
            if not relative or contribution.based_on == versions[key]:
                at = round.places[key]
                sent[edges[at] : edges[at + 1]] = self._values(round, observer, key, contribution)
                heard[edges[at] : edges[at + 1]] = True
        guess, steps, mean_steps = None, 1.0, 1.0
        if self.agreement.settings.rule.normalises_steps:
            steps = float(next((one.steps for one in mine.values()), 1))
            mean_steps = self._mean_steps(round, observer)
        update = self.reader.update(self.replica, client, coordinates, sent, heard)
        if published:
            guess = self._mean(round, observer, coordinates)
            if self.replica.reference is not None:
                guess = guess + self.reader.reference(
                    self.replica, client, coordinates, exact=False
                )
        return Pieces(coordinates, edges, sent, update, guess, steps, mean_steps)

    def _values(self, round: HeardRound, observer: int, key: Key, sent: Sent) -> Vector:
        """What travelled; of clusters whose base is not known, what fits the aggregate."""
        if not isinstance(sent.values, ReadClusters):
            return sent.values
        return sent.values.model(self._aggregate(round, observer, key))

    def _aggregate(self, round: HeardRound, observer: int, key: Key) -> Vector:
        """The mean of what travelled of a segment, or what it was trained from where the mean did
        not reach the observer."""
        coding, segment = self.agreement.coding, self.agreement.segments(round.round)[key]
        assert isinstance(coding, WeightCoding)
        mean, result = np.zeros(segment.size, np.float32), round.results.get(key)
        if result is not None and result.payload and key in round.published.get(observer, ()):
            mean = coding.published(result, segment)
        if not coding.of_weights:
            return mean
        return moved(self.replica.held.piece(segment), mean, coding.rate)

    # -- what was published -------------------------------------------------------------------

    def _mean(self, round: HeardRound, observer: int, at: Indices) -> Vector:
        """The mean over those who sent a coordinate; 0 where it is not known."""
        if self._means is None:
            self._means = self.reader.sums(round.round, round.results_for(observer))
        sums, weights = self._means[0][at], self._means[1][at]
        return np.divide(sums, weights, out=np.zeros(len(at), np.float32), where=weights > 0)

    def _mean_steps(self, round: HeardRound, observer: int) -> float:
        """The local steps of the included clients, by their samples."""
        results = round.results_for(observer)
        samples = sum(result.samples for result in results)
        return sum(result.sample_steps for result in results) / samples if samples else 1.0

    # -- going on -----------------------------------------------------------------------------

    def advance(
        self, round: HeardRound, observer: int, messages: Sequence[Result | Snapshot]
    ) -> None:
        """Take in what reached these observers in a round."""
        self.reader.follow(
            round.round,
            round.results_for(observer),
            lambda at: self._mean(round, observer, at),
            round.sent,
        )
        self._means = None
        self.stated.clear()
        for message in messages:
            try:
                if isinstance(message, Snapshot):
                    if self.replica.adopt(message):
                        self.stated.add(message.header.key)
                else:
                    self.replica.offer(message)
            except ErisError:
                continue  # what a member would have refused tells an observer nothing
