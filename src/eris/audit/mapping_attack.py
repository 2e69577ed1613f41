"""The attack on mappings and sums, on recorded messages: what an owner computed of every client.

An owner of encrypted clusters has the mappings and opens the sums with the shares it was given;
from there on :mod:`eris.audit.mappings` reads the clients' centroids. Where nothing but a sum is
opened (secure sums, or a member that is sent results), the same attacker has the mean as its guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from eris.audit.attack import FinalModel
from eris.audit.ciphertexts import OpenedSegment, ReadClusters
from eris.audit.mapping_measures import MappingMeasures, explained, measured
from eris.audit.mappings import MOST_UNKNOWNS, Mappings, ReadCentroids, read_centroids
from eris.audit.neighbour import NeighbourSight
from eris.audit.watch import Sight, Watch
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.protocol.agreement import Key
from eris.protocol.observers import Observer
from eris.protocol.schemes import EncryptedClusters
from eris.protocol.schemes.halves import Tables
from eris.protocol.transcript import Record, Transcript

Trained = Callable[[int, int], Vector]
"""By round and client: all that it clustered, before it did (weights, or updates)."""


class TrueClients:
    """What every client sent, from all messages and everybody's keys: for the statistics alone.

    ``trained`` says what clients had before they clustered it, where that is known: no message
    tells.
    """

    def __init__(
        self, frame: Transcript, initial: Vector, *, tables: Tables | None = None,
        trained: Trained | None = None,
    ) -> None:  # fmt: skip
        everyone = Observer("coalition", frozenset(range(len(frame.membership.members))))
        self._watch, self.trained = Watch(frame, initial, [everyone], tables=tables), trained
        self.books: dict[tuple[Key, int], ReadClusters] = {}
        self.updates: dict[int, Vector] = {}

    def note(self, round: int, records: Sequence[Record]) -> None:
        """All messages of a round."""
        self.books.clear()
        self.updates.clear()
        for sight in self._watch.follow(round, records):
            for segment in sight.opened(0):
                for client, book in zip(segment.clients, segment.books, strict=True):
                    self.books[segment.key, client] = book
            for client in sorted(self._watch.agreement.view_at(round).client_set):
                pieces = sight.pieces(client)
                if pieces is not None and sight.seen(client).all():
                    self.updates[client] = pieces.update


@dataclass(frozen=True, eq=False)
class AttackedSegment:
    """One segment of one round under attack."""

    round: int
    observer: str
    segment: OpenedSegment
    found: ReadCentroids
    models: NDArray[np.float32]
    """What clients had: a row each, on the segment's coordinates."""
    start: Vector
    """What they deviate from."""
    measures: MappingMeasures
    without_key: int
    """Differences of centroids from ciphertexts under one pad alone that are the clients' own."""

    @property
    def _place(self) -> dict[str, Any]:
        return {"round": self.round, "observer": self.observer, "shard": self.segment.key[0]}

    def solved(self) -> dict[str, Any]:
        """A line about the system, and the differences of centroids that it gives."""
        found = self.measures
        return self._place | {
            "N": found.clients,
            "d": found.coordinates,
            "rank": found.rank,
            "N(κ−1)+1": found.bound,
            "determined": found.determined,
            "exact": found.exact,
            "of": found.differences,
            "no key": self.without_key,
            "residual": found.residual,
        }

    def guessed(self, *, trained: bool) -> dict[str, Any]:
        """A line about the models; what clustering costs is known where it is known what clients
        ``trained``."""
        found = self.measures
        errors = {"error": found.attack.error, "of the mean": found.aggregate.error}
        shares = {
            "explained": found.attack.explained,
            "clipped mean": found.clipped.explained,
            "mean": found.aggregate.explained,
        }
        if trained:
            errors["of clustering"] = found.clustering.error
            shares["secure sum"] = found.mean.explained
        return self._place | errors | shares


@dataclass(frozen=True, eq=False)
class MappingReport:
    """What came of all segments."""

    attacked: tuple[AttackedSegment, ...] = ()
    controls: tuple[dict[str, Any], ...] = ()
    sums: tuple[dict[str, Any], ...] = ()
    skipped: tuple[dict[str, Any], ...] = ()
    """Segments with more unknowns than are solved for."""
    known: str = "sent"
    """What errors are taken against: what clients sent, or what they trained."""

    def figures(self) -> dict[str, list[dict[str, Any]]]:
        """Tables that have lines."""
        tables = {
            "mappings and sums: the system": [one.solved() for one in self.attacked],
            f"mappings and sums: models, against what clients {self.known}": [
                one.guessed(trained=self.known == "trained") for one in self.attacked
            ],
            "mappings and sums: control, each client's mapping permuted": list(self.controls),
            "a sum and nothing else: share of the updates that its mean explains": list(self.sums),
            f"mappings and sums: not solved, more than {MOST_UNKNOWNS:,} unknowns": [*self.skipped],
        }
        return {title: rows for title, rows in tables.items() if rows}


@dataclass
class MappingAttack:
    """The attack through the eyes of the ``looking`` ones among the observers."""

    observers: Sequence[Observer]
    looking: Sequence[int]
    truth: TrueClients
    seed: int = 0
    name: ClassVar[str] = "mappings"
    attacked: list[AttackedSegment] = field(default_factory=list)
    _controls: list[dict[str, Any]] = field(default_factory=list)
    _sums: list[dict[str, Any]] = field(default_factory=list)
    _skipped: list[dict[str, Any]] = field(default_factory=list)

    def see(self, sight: Sight | NeighbourSight | FinalModel) -> None:
        """Read what can be read of every client."""
        if not isinstance(sight, Sight):
            return
        for number in sight.observers:
            if number in self.looking:
                opened = sight.opened(number)
                for segment in opened:
                    self._attack(sight, number, segment)
                if not opened:
                    self._sums += self._mean_alone(sight, number)

    def report(self) -> MappingReport:
        """What came of it."""
        known = "sent" if self.truth.trained is None else "trained"
        controls, sums, skipped = map(tuple, (self._controls, self._sums, self._skipped))
        return MappingReport(tuple(self.attacked), controls, sums, skipped, known)

    def _attack(self, sight: Sight, number: int, segment: OpenedSegment) -> None:
        books = [self.truth.books.get((segment.key, client)) for client in segment.clients]
        true = [book for book in books if book is not None and book.base is not None]
        unknowns = len(books) * segment.clusters
        if len(true) < len(books):
            return
        if unknowns > MOST_UNKNOWNS:
            place = {"round": sight.round, "observer": self.observers[number].name}
            told = {"shard": segment.key[0], "N": len(books), "N·κ": unknowns}
            self._skipped.append(place | told)
            return
        name, at = self.observers[number].name, sight.segment(segment.key)
        integers = np.zeros((len(true), segment.clusters), np.int64)
        centroids = np.zeros((len(true), segment.clusters), np.float32)
        for row, book in enumerate(true):
            assert book.base is not None
            own = book.differences + book.base
            integers[row, : len(own)], centroids[row, : len(own)] = own, own * book.unit
        models = np.take_along_axis(centroids, segment.mappings.astype(np.int64), axis=1)
        if self.truth.trained is not None:
            given = [self.truth.trained(sight.round, client) for client in segment.clients]
            models = np.stack([one[at] for one in given])
        start = np.zeros(len(at), np.float32)
        if isinstance(sight.scheme, EncryptedClusters) and sight.scheme.relative:
            start = sight.placed(sight.model)[at]
        found = _read(segment, segment.mappings)
        right = [
            int((mine.differences == theirs.differences)[1:].sum())
            for mine, theirs in zip(segment.books, true, strict=True)
        ]
        measures = measured(found, models, centroids, integers, start)
        self.attacked.append(
            AttackedSegment(sight.round, name, segment, found, models, start, measures, sum(right))
        )
        if not any(row["observer"] == name for row in self._controls):
            lots = Stream(self.seed, "permuted mappings").permutations(*segment.mappings.shape)
            shuffled = np.take_along_axis(segment.mappings, lots, axis=1)
            wrong = measured(_read(segment, shuffled), models, centroids, integers, start)
            self._controls.append(
                {
                    "round": sight.round, "observer": name, "rank": wrong.rank,
                    "determined": wrong.determined, "exact": wrong.exact,
                    "residual": wrong.residual, "error": wrong.attack.error,
                }
            )  # fmt: skip

    def _mean_alone(self, sight: Sight, number: int) -> Iterator[dict[str, Any]]:
        shares = []
        for client, update in self.truth.updates.items():
            pieces = sight.pieces(client, published=True)
            if pieces is not None and pieces.published is not None and sight.published.all():
                shares.append(explained(update, pieces.published, np.zeros_like(update)))
        if shares:
            name, mean = self.observers[number].name, float(np.mean(shares))
            yield {"round": sight.round, "observer": name, "N": len(shares), "explained": mean}


def _read(segment: OpenedSegment, mappings: Mappings) -> ReadCentroids:
    return read_centroids(
        segment.sums, mappings, segment.samples, segment.clusters,
        fraction_bits=segment.fraction_bits, eligible=segment.eligible,
    )  # fmt: skip
