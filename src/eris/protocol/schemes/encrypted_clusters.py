"""EncCluster: encrypted centroids, and a mapping to them that the owner reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from eris.core.books import Books
from eris.core.errors import MalformedMessage, RefusedContribution
from eris.core.vectors import Vector
from eris.protocol.enccluster.coding import (
    Encrypted,
    EncryptingCoding,
    ReceivedSegment,
    SealedSegment,
)
from eris.protocol.enccluster.content import content, packed
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
    COUNT,
    Fewer,
    check_clusters,
    check_worth,
    codebook_of,
    read_count,
)
from eris.protocol.schemes.scheme import Coding, Scheme
from eris.protocol.schemes.weights import Travelling, check_travelling

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Segment

NOT_HIDDEN = (
    "EncCluster does not hide your model from the server: from what every client sends, the server "
    "can compute each client's clustered weights. Against those who watch the network it is TLS or "
    "the sealed index that protects you, not the encryption of the centroids. If the server must "
    "not see your model, use secure sums."
)
UPDATES_CLUSTERED = (
    "Where updates are clustered in place of weights, what the server computes is nearly each "
    "client's whole update."
)


@dataclass(frozen=True)
class EncryptedClusters(Encrypted):
    """``clusters`` encrypted centroids of a segment's weights; ``coding`` and ``policy`` are how
    the mapping travels (:mod:`eris.protocol.enccluster.mapped`).

    ``clusters_of`` and ``fewer`` are those of :class:`~eris.protocol.schemes.clustered.Clustered`.
    """

    clusters: int = 128
    coding: MappingCoding = "packed"
    policy: Policy = "exact"
    clusters_of: Travelling = "weights"
    fewer: Fewer = "allow"
    name: ClassVar[str] = "enccluster"
    unread: ClassVar[str] = (
        "what mappings and differences of centroids give whoever gets contributions is not read "
        "yet, and figures without it would be too low"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_clusters(self.clusters, self.fewer)
        check_travelling("clusters_of", self.clusters_of)
        MappingForm(self.coding, self.policy)

    @property
    def relative(self) -> bool:
        """Whether what travels is an update only beside the state that it was trained from."""
        return self.clusters_of == "weights"

    def rehearsed(self) -> Scheme:
        """The same with so little to do that a small model is enough to try it on."""
        return replace(self, weight_range=1024.0, fraction_bits=1, clusters=2, fewer="allow")

    def exposure(self) -> str:
        """What it does not hide, where a user might think that it does."""
        more = f" {UPDATES_CLUSTERED}" if self.clusters_of == "updates" else ""
        return NOT_HIDDEN + more

    def at(self, agreement: Agreement) -> Coding:
        """This scheme at work."""
        check_worth(agreement, self.clusters, each=POINT_BYTES)
        return EncryptedClusterCoding(self, agreement)

    def __str__(self) -> str:
        return f"{self.clusters} encrypted clusters of {self.clusters_of}, {self.coding}"


class EncryptedClusterCoding(EncryptingCoding):
    """EncCluster at work: one codebook a segment, all of it under one pad."""

    terms: EncryptedClusters

    def __init__(self, terms: EncryptedClusters, agreement: Agreement) -> None:
        super().__init__(terms, agreement, terms.clusters_of)

    @cached_property
    def form(self) -> MappingForm:
        """How a mapping travels."""
        return MappingForm(self.terms.coding, self.terms.policy)

    def examine(self, piece: Vector, client: int) -> None:
        """Refuse a segment that could not be encrypted, before anything of its update leaves."""
        if self.terms.fewer == "refuse":
            name = self.agreement.view.members[client]
            codebook_of(piece, self.terms.clusters, self.terms.fewer, name)

    def sealed(
        self, values: Vector, samples: int, segment: Segment, label: BookLabel, box: Box,
        draw: Callable[[], tuple[bytes, bytes]],
    ) -> SealedSegment:  # fmt: skip
        """κ, the centroids' ciphertexts, the mapping."""
        terms, name = self.terms, self.agreement.view.members[box.client]
        book = codebook_of(values, terms.clusters, terms.fewer, name)
        messages = self.scale(label.round).scaled(book.centroids, samples, box.client).tolist()
        said = content(messages, packed(as_indices(book.assignment), book.clusters))
        while True:
            secret, fresh = draw()
            try:
                scalars = ClientScalars.drawn(secret, fresh, label, said, self.slots)
                ciphertexts = encrypt(messages, label, scalars)
                break
            except UnusableFresh:  # with probability 2^−250
                continue
        nonce = mapping_nonce(extracted(secret + fresh), label, said)
        books = Books((len(values),), (book.clusters,))
        mapping = self.form.written(book.assignment, books, _first(segment), box, nonce)
        data = b"".join((book.clusters.to_bytes(COUNT, "little"), ciphertexts, mapping))
        return SealedSegment(data, ciphertexts, mapping, scalars)

    def integers(self, values: Vector, samples: int, scale: CentroidScale, client: int) -> Integers:
        """Of every coordinate that of its centroid."""
        name = self.agreement.view.members[client]
        book = codebook_of(values, self.terms.clusters, self.terms.fewer, name)
        return scale.scaled(book.centroids, samples, client)[as_indices(book.assignment)]

    def received(self, client: int, data: bytes, segment: Segment, box: Box) -> ReceivedSegment:
        """What a contribution holds, or a refusal by name."""
        count = read_count(data, self.terms.clusters)
        start = COUNT + POINT_BYTES * count
        ciphertexts, mapping = data[COUNT:start], data[start:]
        books = Books((segment.size,), (count,))
        name = self.agreement.view.members[client]
        try:
            indices = as_indices(self.form.read(mapping, books, _first(segment), box))
            book = ReceivedBook.read(client, ciphertexts, count, indices)
        except MalformedMessage as broken:
            raise RefusedContribution(name, str(broken)) from None
        except RefusedContribution as refused:
            raise RefusedContribution(name, refused.reason) from None
        return ReceivedSegment(book, ciphertexts, mapping)

    def opened(
        self, books: Sequence[ReceivedBook], key: Sequence[int], label: BookLabel,
        table: LogarithmTable, bound: int,
    ) -> Integers:  # fmt: skip
        """The sums of all coordinates, by differences of centroids and one opened sum."""
        return open_by_differences(books, key, label, table, bound)


def _first(segment: Segment) -> int:
    return int(segment.coordinates[0])
