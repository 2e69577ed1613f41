"""What recorded messages of encrypted clusters say to whoever has them.

A client's ciphertexts lie under one pad, so differences of its centroids are logarithms that need
no key. A mapping travels in the clear, or its owner reads it by an X25519 key of its own, which
follows from the seed in a simulation. The shares of all members of a set add up to the key of its
sums. All that is left open of a client is one number a segment: what is added to all its centroids.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.audit.low_rank import Matrix
from eris.audit.mappings import Mappings, clipped_to_cells
from eris.core.vectors import Vector
from eris.protocol.agreement import Agreement, Key
from eris.protocol.enccluster.group import ORDER, added, negated, times_public
from eris.protocol.enccluster.labels import BookLabel, point
from eris.protocol.enccluster.logarithms import Integers
from eris.protocol.enccluster.mapped import Box
from eris.protocol.enccluster.opening import NoLogarithm, ReceivedBook
from eris.protocol.enccluster.shares import masks
from eris.protocol.enccluster.wire import read_share
from eris.protocol.messages import Contribution, Reveal
from eris.protocol.schemes.encrypted_clusters import EncryptedClusterCoding
from eris.protocol.secure.simulated import Vaults

IN_THE_CLEAR = ("packed", "huffman")
"""Codings of a mapping that everyone reads who has it."""
Shares = Mapping[int, Reveal]
"""What members answered about a segment, by their numbers."""


@dataclass(frozen=True, eq=False)
class ReadClusters:
    """A client's contribution to a segment, as far as it is read."""

    book: ReceivedBook
    differences: Integers
    """m_j − m_0, by cluster."""
    unit: float
    """A step of its integers, as a weight (or as an update, where those are clustered)."""
    samples: int
    """What it counts."""
    base: int | None = None
    """m_0, where it is known."""

    @property
    def mapping(self) -> NDArray[np.uint32]:
        """The cluster of every coordinate, as the owner reads it."""
        return self.book.mapping

    def centroids(self, aggregate: Vector) -> Matrix:
        """By cluster; where no base is known, the client's mean is taken for the aggregate's."""
        base = self.base
        if base is None:
            steps = self.differences[self.mapping].mean(dtype=np.float64)
            base = aggregate.mean(dtype=np.float64) / self.unit - steps
        return np.asarray((self.differences + base) * self.unit)

    def model(self, aggregate: Vector) -> Vector:
        """What travelled of a segment: every coordinate is its centroid."""
        return np.asarray(self.centroids(aggregate).astype(np.float32)[self.mapping])

    def clipped(self, aggregate: Vector) -> Vector:
        """The aggregate, clipped to the client's cells."""
        mapping = self.mapping.astype(np.uint16)
        return clipped_to_cells(aggregate, mapping, self.centroids(aggregate))


@dataclass(frozen=True, eq=False)
class OpenedSegment:
    """A segment of one round with the clients of its set, and the sums that its owner opened."""

    key: Key
    clients: tuple[int, ...]
    books: tuple[ReadClusters, ...]
    sums: Integers
    clusters: int
    fraction_bits: int
    eligible: int
    """S_ref: what all clients count that could have taken part."""

    @property
    def mappings(self) -> Mappings:
        """A row a client."""
        return np.stack([book.mapping for book in self.books]).astype(np.uint16)

    @property
    def samples(self) -> tuple[int, ...]:
        """What each client counts."""
        return tuple(book.samples for book in self.books)


class ClusterReader:
    """Reads messages with what some members know: keys of their own, which in a simulation follow
    from the seed."""

    def __init__(self, agreement: Agreement) -> None:
        coding = agreement.coding
        assert isinstance(coding, EncryptedClusterCoding)
        self._agreement, self.coding = agreement, coding
        self._vaults = Vaults(agreement.settings)

    def read(
        self, message: Contribution, members: AbstractSet[int], shares: Shares
    ) -> ReadClusters | None:
        """A contribution, if these members can read its mapping; nobody is on a link.

        Who sent it knows what it sent, base and all: here its share says it.
        """
        header, coding = message.header, self.coding
        client, segment = header.sender, self._agreement.segments(header.round)[header.key]
        label = coding.label(header.round, segment)
        box = self._box(client, label, members)
        if box is None:
            return None
        book, *more = coding.received(client, message.payload.encoded.data, segment, box).books
        if more:  # of layers: Scheme.unread says so to whoever asks
            return None
        weight, scale = coding.weight(message.samples), coding.scale(header.round)
        base = None
        if client in members and client in shares:
            base = self._own_base(book, label, shares[client])
        unit = scale.reference / (weight * 2.0**scale.fraction_bits)
        return ReadClusters(book, self.differences(book, label), unit, weight, base)

    def differences(self, book: ReceivedBook, label: BookLabel) -> Integers:
        """m_j − m_0: from one client's ciphertexts, and no key."""
        bound = self.coding.scale(label.round).bound
        off, table = negated(book.points[0]), self.coding.table(label.round)
        values, found = table.find([added([one, off]) for one in book.points], 2 * bound)
        if not found.all():
            raise NoLogarithm(label, f"client {book.client}, a cluster less its first", 2 * bound)
        return values

    def opened(
        self, key: Key, round: int, books: Mapping[int, ReadClusters], shares: Shares
    ) -> OpenedSegment | None:
        """The sums of a segment's set, for who has all contributions to it and all shares."""
        included = next(iter(shares.values())).included if shares else frozenset()
        if not included or not included <= shares.keys() & books.keys():
            return None
        segment = self._agreement.segments(round)[key]
        label, scale = self.coding.label(round, segment), self.coding.scale(round)
        clients = tuple(sorted(included))
        chosen = tuple(books[client] for client in clients)
        # The masks of the shares cancel; a key of other shares opens nothing.
        total = sum(_scalar(shares[client]) for client in clients)
        sums = self.coding.opened(
            [one.book for one in chosen], [total % ORDER], label, self.coding.table(label.round),
            scale.bound,
        )  # fmt: skip
        return OpenedSegment(
            key, clients, chosen, sums, max(len(one.differences) for one in chosen),
            scale.fraction_bits, scale.reference,
        )  # fmt: skip

    def _box(self, client: int, label: BookLabel, members: AbstractSet[int]) -> Box | None:
        """By which a mapping is read: an owner's with its client, or none that is needed."""
        view = self._agreement.view_at(label.round)
        owner = view.owners[label.shard]
        if owner in members:
            keys, theirs = self._vaults[owner].newest, self._vaults[client].newest.public
            return Box.between(keys, client, theirs.exchange, client, label)
        if client in members:
            keys, theirs = self._vaults[client].newest, self._vaults[owner].newest.public
            return Box.between(keys, owner, theirs.exchange, client, label)
        unkeyed = Box(bytes(32), client, label.first)
        return unkeyed if self.coding.terms.coding in IN_THE_CLEAR else None

    def _own_base(self, book: ReceivedBook, label: BookLabel, share: Reveal) -> int | None:
        """m_0 of who gave the share, for it knows its scalar; None where the seed does not tell its
        keys, as of a real node."""
        me, said = book.client, read_share(share.data)
        others = [(one, self._vaults[one].newest.public.exchange) for one in share.included]
        mask = masks(
            self._vaults[me].newest, me, [one for one in others if one[0] != me], label.encoded,
            said.statement, 0,
        )  # fmt: skip
        scalar = (_scalar(share) - mask) % ORDER
        lock = times_public(-scalar, point(label.encoded))
        bound = self.coding.scale(label.round).bound
        values, found = self.coding.table(label.round).find([added([book.points[0], lock])], bound)
        return int(values[0]) if found[0] else None


def _scalar(share: Reveal) -> int:
    return int.from_bytes(read_share(share.data).data, "big")
