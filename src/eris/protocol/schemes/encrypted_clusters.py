"""EncCluster: encrypted centroids, and a mapping to them that the owner reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from eris.core.books import Books
from eris.core.clustering import Codebook
from eris.core.codings import pack_index
from eris.core.errors import MalformedMessage, RefusedContribution
from eris.core.vectors import Vector
from eris.protocol.enccluster.coding import (
    Encrypted,
    EncryptingCoding,
    ReceivedSegment,
    SealedSegment,
)
from eris.protocol.enccluster.content import content
from eris.protocol.enccluster.encrypt import ClientScalars, encrypt
from eris.protocol.enccluster.group import POINT_BYTES
from eris.protocol.enccluster.labels import BookLabel, UnusableFresh, extracted
from eris.protocol.enccluster.logarithms import Integers, LogarithmTable
from eris.protocol.enccluster.mapped import (
    Box,
    MappingCoding,
    MappingForm,
    Policy,
    as_indices,
    mapping_nonce,
)
from eris.protocol.enccluster.opening import ReceivedBook, open_by_differences
from eris.protocol.enccluster.scale import CentroidScale
from eris.protocol.schemes.clustered import (
    Fewer,
    check_clusters,
    check_worth,
    codebooks_of,
    joined,
    read_books,
    write_books,
)
from eris.protocol.schemes.layers import BooksOf, LayerPiece, check_books, cut
from eris.protocol.schemes.scheme import Coding, Scheme
from eris.protocol.schemes.weights import Travelling, check_travelling

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Segment

NOT_HIDDEN = (
    "EncCluster does not hide your model from the server: from what every client sends, the server "
    "can compute each client's clustered weights. Against those who watch the network it is TLS or "
    "the sealed index that protects you, not the encryption of the centroids. If the server must "
    "not see your model, use secure sums (the method grid)."
)
UPDATES_CLUSTERED = (
    "Where updates are clustered in place of weights, what the server computes is nearly each "
    "client's whole update."
)


@dataclass(frozen=True)
class EncryptedClusters(Encrypted):
    """``clusters`` encrypted centroids of a segment's weights; ``coding`` and ``policy`` are how
    the mapping travels (:mod:`eris.protocol.enccluster.mapped`).

    ``clusters_of``, ``fewer`` and ``books`` are those of
    :class:`~eris.protocol.schemes.clustered.Clustered`.
    """

    clusters: int = 128
    coding: MappingCoding = "packed"
    policy: Policy = "exact"
    clusters_of: Travelling = "weights"
    fewer: Fewer = "allow"
    books: BooksOf = "model"
    name: ClassVar[str] = "enccluster"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_clusters(self.clusters, self.fewer)
        check_books(self.books)
        check_travelling("clusters_of", self.clusters_of)
        MappingForm(self.coding, self.policy)

    @property
    def relative(self) -> bool:
        """Whether what travels is an update only beside the state that it was trained from."""
        return self.clusters_of == "weights"

    @property
    def unread(self) -> str:
        """What contributions tell whoever gets them that no observer here reads yet, if any."""
        if self.books == "model":
            return ""
        return "codebooks of layers are not read yet, and figures without them would be too low"

    def rehearsed(self) -> Scheme:
        """The same with so little to do that a small model is enough to try it on."""
        return replace(
            self, weight_range=1024.0, fraction_bits=1, clusters=2, fewer="allow", layers=()
        )

    def exposure(self) -> str:
        """What it does not hide, where a user might think that it does."""
        more = f" {UPDATES_CLUSTERED}" if self.clusters_of == "updates" else ""
        return NOT_HIDDEN + more

    def at(self, agreement: Agreement) -> Coding:
        """This scheme at work."""
        check_worth(agreement, self.clusters, self.layers, self.books, each=POINT_BYTES)
        return EncryptedClusterCoding(self, agreement)

    def __str__(self) -> str:
        of = " of each layer" if self.books == "layer" else ""
        return f"{self.clusters} encrypted clusters{of} of {self.clusters_of}, {self.coding}"


class EncryptedClusterCoding(EncryptingCoding):
    """EncCluster at work: all of a codebook is under one pad."""

    terms: EncryptedClusters

    def __init__(self, terms: EncryptedClusters, agreement: Agreement) -> None:
        super().__init__(terms, agreement, terms.clusters_of)

    @cached_property
    def form(self) -> MappingForm:
        """How a mapping travels."""
        return MappingForm(self.terms.coding, self.terms.policy)

    def pieces(self, segment: Segment) -> tuple[LayerPiece, ...]:
        """What of a segment has a codebook of its own."""
        return cut(segment, self.terms.layers, self.terms.books)

    def examine(self, piece: Vector, segment: Segment, client: int) -> None:
        """Refuse a segment that could not be encrypted, before anything of its update leaves."""
        if self.terms.fewer == "refuse":
            self._clustered(piece, segment, client)

    def _clustered(self, values: Vector, segment: Segment, client: int) -> tuple[Codebook, ...]:
        terms, name = self.terms, self.agreement.view.members[client]
        return codebooks_of(values, self.pieces(segment), terms.clusters, terms.fewer, name)

    def codebooks(self, segment: Segment) -> int:
        """Of a segment: what is encrypted for one opens with no other's key."""
        return len(self.pieces(segment))

    def sealed(
        self, values: Vector, samples: int, segment: Segment, label: BookLabel, box: Box,
        draw: Callable[[], tuple[bytes, bytes]],
    ) -> SealedSegment:  # fmt: skip
        """Of each codebook κ and the centroids' ciphertexts, then the mapping."""
        scale = self.scale(label.round)
        found = self._clustered(values, segment, box.client)
        books = []
        for number, book in enumerate(found):
            messages = scale.scaled(book.centroids, samples, box.client).tolist()
            own = Books((len(book.assignment),), (book.clusters,))
            said = content(messages, pack_index(book.assignment, own))
            books.append(_encrypted(messages, label.of_book(number), said, draw, self.slots))
        contents = b"".join(one.content for one in books)
        nonce = mapping_nonce(books[0].extracted, label, contents)
        mapping = self.form.written(*joined(found), _first(segment), box, nonce)
        ciphertexts = tuple(one.ciphertexts for one in books)
        data = write_books(ciphertexts, POINT_BYTES) + mapping
        return SealedSegment(data, ciphertexts, mapping, tuple(one.scalars for one in books))

    def integers(
        self, values: Vector, samples: int, scale: CentroidScale, segment: Segment, client: int
    ) -> Integers:
        """Of every coordinate that of its centroid."""
        books = self._clustered(values, segment, client)
        parts = (
            scale.scaled(book.centroids, samples, client)[as_indices(book.assignment)]
            for book in books
        )
        return np.concatenate(list(parts))

    def received(self, client: int, data: bytes, segment: Segment, box: Box) -> ReceivedSegment:
        """What a contribution holds, or a refusal by name."""
        name = self.agreement.view.members[client]
        try:
            pieces = self.pieces(segment)
            found, books, rest = read_books(data, pieces, self.terms.clusters, POINT_BYTES)
            ciphertexts, mapping = tuple(map(bytes, found)), bytes(rest)
            indices = as_indices(self.form.read(mapping, books, _first(segment), box))
            read = tuple(
                ReceivedBook.read(client, points, clusters, indices[where])
                for points, (where, clusters) in zip(ciphertexts, books, strict=True)
            )
        except MalformedMessage as broken:
            raise RefusedContribution(name, str(broken)) from None
        except RefusedContribution as refused:
            raise RefusedContribution(name, refused.reason) from None
        return ReceivedSegment(read, ciphertexts, mapping)

    def opened(
        self, books: Sequence[ReceivedBook], key: Sequence[int], label: BookLabel,
        table: LogarithmTable, bound: int,
    ) -> Integers:  # fmt: skip
        """The sums of all coordinates, by differences of centroids and one opened sum."""
        return open_by_differences(books, key, label, table, bound)


def _first(segment: Segment) -> int:
    return int(segment.coordinates[0])


class _Encrypted(NamedTuple):
    """A codebook that is encrypted, and what of its secrets the mapping's nonce follows from."""

    ciphertexts: bytes
    scalars: ClientScalars
    content: bytes
    extracted: bytes


def _encrypted(
    messages: list[int], label: BookLabel, said: bytes, draw: Callable[[], tuple[bytes, bytes]],
    slots: int,
) -> _Encrypted:  # fmt: skip
    while True:
        secret, fresh = draw()
        try:
            scalars = ClientScalars.drawn(secret, fresh, label, said, slots)
            ciphertexts = encrypt(messages, label, scalars)
            return _Encrypted(ciphertexts, scalars, said, extracted(secret + fresh))
        except UnusableFresh:  # with probability 2^−250
            continue
