"""Recorded EncCluster runs of a few clients, and their messages as attackers read them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from eris.audit.ciphertexts import ClusterReader, ReadClusters
from eris.audit.watch import Watch
from eris.core.clustering import clustered
from eris.federation import Federation
from eris.protocol.enccluster.group import (
    ORDER,
    POINT_BYTES,
    MaybeInfinite,
    parsed,
)
from eris.protocol.enccluster.labels import BookLabel
from eris.protocol.enccluster.opening import ReceivedBook
from eris.protocol.enccluster.wire import read_share
from eris.protocol.messages import Contribution, Reveal
from eris.protocol.observers import Observer
from eris.protocol.schemes.encrypted_clusters import EncryptedClusterCoding
from eris.protocol.transcript import Transcript
from eris.session import Fit
from support.crowd import Crowd
from support.encrypted import CLIENTS, CLUSTERS, START, fitted

SERVER = CLIENTS
KEY = (0, 0)
Patch = pytest.MonkeyPatch


@dataclass(frozen=True, eq=False)
class Recorded:
    """A run, and its messages by round as an attacker reads them."""

    fit: Fit
    crowd: Crowd
    made: Federation

    @property
    def transcript(self) -> Transcript:
        assert self.fit.transcript is not None
        return self.fit.transcript

    @property
    def reader(self) -> ClusterReader:
        return ClusterReader(Watch(self.transcript, START, [self.transcript.server()]).agreement)

    @property
    def coding(self) -> EncryptedClusterCoding:
        return self.reader.coding

    def label(self, round: int) -> BookLabel:
        (segment,) = self.coding.agreement.segments(round).values()
        return self.coding.label(round, segment)

    def messages(self, round: int, kind: type[Any], observer: Observer | None = None) -> list[Any]:
        """Of one kind in a round, that reach an observer: the server, if none is named."""
        seen = self.transcript.seen_by(observer or self.transcript.server())
        found = [one for one in seen.messages() if isinstance(one, kind)]
        return [one for one in found if one.header.round == round]

    def shares(self, round: int) -> dict[int, Reveal]:
        return {one.header.sender: one for one in self.messages(round, Reveal)}

    def read(self, round: int, *members: int) -> dict[int, ReadClusters]:
        """Contributions as some members read them."""
        found = {}
        for one in self.messages(round, Contribution):
            book = self.reader.read(one, frozenset(members), self.shares(round))
            if book is not None:
                found[one.header.sender] = book
        return found

    def books(self, round: int) -> dict[int, ReceivedBook]:
        return {client: one.book for client, one in self.read(round, SERVER).items()}

    def sums(self, round: int, key: Iterable[int], books: Collection[ReceivedBook]) -> list[int]:
        scale = self.coding.scale(round)
        table = self.coding.table(scale.bound)
        return list(
            self.coding.opened(list(books), list(key), self.label(round), table, scale.bound)
        )

    def key(self, round: int) -> list[int]:
        """dk: all shares of a round's set, slot by slot."""
        rows = [scalars(one) for one in self.shares(round).values()]
        return [sum(column) % ORDER for column in zip(*rows, strict=True)]

    def own(self, round: int, client: int) -> list[int]:
        """The integers that a client encrypted, as it knows them itself."""
        book = self.read(round, client)[client]
        assert book.base is not None
        return [int(one) + book.base for one in book.differences]

    def logarithms(self, points: list[MaybeInfinite]) -> list[int]:
        """Those that the points have in the table's reach."""
        bound = 2 * self.coding.scale(1).bound
        values, found = self.coding.table(bound).find(points, bound)
        return [int(value) for value, there in zip(values, found, strict=True) if there]


def scalars(share: Reveal) -> list[int]:
    data = read_share(share.data).data
    return [int.from_bytes(data[at : at + 32], "big") for at in range(0, len(data), 32)]


def points(message: Contribution, clusters: int = CLUSTERS) -> list[MaybeInfinite]:
    """The ciphertexts in a contribution's bytes."""
    data = message.payload.encoded.data[4:]
    return [parsed(data[POINT_BYTES * j : POINT_BYTES * (j + 1)]) for j in range(clusters)]


def recorded(rounds: int = 2, **method: Any) -> Recorded:
    return Recorded(*fitted(rounds=rounds, **method))


@cache
def usual() -> Recorded:
    return recorded()


def centroids_of(run: Recorded, client: int, round: int) -> list[int]:
    """The integers that a client must have encrypted, by what it trained."""
    model, update = run.crowd.given[client, round]
    weights = (model - run.coding.rate * update.astype(np.float64)).astype(np.float32)
    book = clustered(weights, CLUSTERS, fewer="allow")
    found: list[int] = (
        run.coding.scale(round).scaled(book.centroids, run.crowd.samples(client)).tolist()
    )
    return found
