"""Clustered weights in the clear (FedAvg_wc): κ centroids, and the index of each coordinate.

What travels of a segment is the same where centroids are encrypted: of each codebook its κ and its
centroids, then one mapping for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np

from eris.core import huffman, kernels
from eris.core.books import Books, Clusters
from eris.core.clustering import MOST, Codebook, clustered
from eris.core.codings import Bytes, pack_index, unpack_index
from eris.core.compress import Encoded, Encoding
from eris.core.errors import InvalidSetting, MalformedMessage, RefusedContribution, one_of, require
from eris.core.exact_clip import Content
from eris.core.rules import ServerRule
from eris.core.vectors import Vector
from eris.protocol.messages import Contribution, Payload
from eris.protocol.schemes.layers import BooksOf, LayerPiece, check_books, check_layers, cut, place
from eris.protocol.schemes.masked import refuse_order_statistics
from eris.protocol.schemes.scheme import Coding, Scheme, Sender
from eris.protocol.schemes.weights import (
    Travelling,
    WeightCoding,
    WeightSender,
    check_travelling,
)

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Key, Segment
    from eris.protocol.round.replica import Replica
    from eris.protocol.secure.vault import Vault
    from eris.protocol.settings import Settings

Fewer = Literal["allow", "refuse"]
ClearCoding = Literal["packed", "huffman"]
COUNT = 4
"""Bytes in front of a codebook: κ."""


class _Codec(NamedTuple):
    encode: Callable[[Clusters, Books], bytes]
    decode: Callable[[Bytes, Books], Clusters]


CLEAR: Mapping[str, _Codec] = {
    "packed": _Codec(pack_index, unpack_index),
    "huffman": _Codec(huffman.encode, huffman.decode),
}
"""How a mapping travels in the clear."""


@dataclass(frozen=True)
class Clustered(Scheme):
    """k-means of a segment's weights in ``clusters``; a mapping by ``coding``.

    ``clusters_of`` is what is clustered: weights, as in the paper, or updates. Where a segment has
    fewer distinct values than clusters, ``fewer`` allows as many clusters, or refuses. A segment
    has one codebook or, with ``books`` of layers, one for its piece of each of ``layers``, the
    sizes of the model's layers.
    """

    clusters: int = 128
    coding: ClearCoding = "packed"
    clusters_of: Travelling = "weights"
    fewer: Fewer = "allow"
    books: BooksOf = "model"
    layers: tuple[int, ...] = ()
    name: ClassVar[str] = "clustered"
    whole_shards: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_clusters(self.clusters, self.fewer)
        check_books(self.books)
        check_travelling("clusters_of", self.clusters_of)
        if self.coding not in CLEAR:
            raise InvalidSetting("coding", self.coding, one_of(CLEAR, self.coding))

    @property
    def relative(self) -> bool:
        """Whether what travels is an update only beside the state that it was trained from."""
        return self.clusters_of == "weights"

    def fitted(self, rule: ServerRule, initial: Vector, layers: tuple[int, ...] = ()) -> Scheme:
        """With the model's layers."""
        return replace(self, layers=layers or self.layers)

    def rehearsed(self) -> Scheme:
        """The same with so little to do that a small model is enough to try it on."""
        return replace(self, clusters=min(self.clusters, 4), fewer="allow", layers=())

    def check(self, settings: Settings) -> None:
        """Refuse what does not go together with this scheme."""
        refuse_order_statistics(settings)
        check_layers(self.layers, settings.n)

    def at(self, agreement: Agreement) -> Coding:
        """This scheme at work."""
        check_worth(agreement, self.clusters, self.layers, self.books, each=4)
        return ClusterCoding(self, agreement, self)

    def __str__(self) -> str:
        of = " of each layer" if self.books == "layer" else ""
        return f"{self.clusters} clusters{of} of {self.clusters_of}, {self.coding}"


def check_clusters(clusters: int, fewer: str) -> None:
    """Refuse numbers of clusters that are none."""
    require(2 <= clusters <= MOST, "clusters", clusters, f"2 to {MOST}")
    if fewer not in ("allow", "refuse"):
        raise InvalidSetting("fewer", fewer, "one of allow, refuse")


def check_worth(
    agreement: Agreement, clusters: int, layers: tuple[int, ...], books: BooksOf, each: int
) -> None:
    """Refuse clusters that are no fewer bytes than the plain segment, of ``each`` a centroid."""
    found = [segment for segment in agreement.segments(1).values() if segment.size]
    for segment in found if books == "layer" else [min(found, key=lambda one: one.size)]:
        coded = 0
        for piece in cut(segment, layers, books):
            most = clusters if books == "model" else _most(clusters, piece)
            coded += each * most + -(-piece.size * (most - 1).bit_length() // 8)
        size = segment.size
        expected = f"fewer: a segment of {size} weights would be {coded} bytes, plain {4 * size}"
        require(coded < 4 * size, "clusters", clusters, expected)


def _most(clusters: int, piece: LayerPiece) -> int:
    """Clusters that a piece can have: not more than weights, and two at least."""
    return min(clusters, max(2, piece.size))


def codebooks_of(
    values: Vector, pieces: Sequence[LayerPiece], clusters: int, fewer: Fewer, client: str
) -> tuple[Codebook, ...]:
    """The clusters of a segment's pieces, or a refusal in its client's name."""
    found, start = [], 0
    for piece in pieces:
        try:
            found.append(clustered(values[start : start + piece.size], clusters, fewer=fewer))
        except InvalidSetting as refusal:
            layer = "" if piece.layer is None else f"layer {piece.layer}: "
            raise RefusedContribution(client, f"{layer}{refusal}") from None
        start += piece.size
    return tuple(found)


def joined(found: Sequence[Codebook]) -> tuple[Clusters, Books]:
    """The mapping of a segment to the clusters of its codebooks."""
    sizes, clusters = zip(*((len(book.assignment), book.clusters) for book in found), strict=True)
    return np.concatenate([book.assignment for book in found]), Books(sizes, clusters)


def write_books(centroids: Sequence[bytes], each: int) -> bytes:
    """Of each codebook its κ and its centroids, of ``each`` bytes."""
    parts = ((len(data) // each).to_bytes(COUNT, "little") + data for data in centroids)
    return b"".join(parts)


def read_books(
    data: Bytes, pieces: Sequence[LayerPiece], clusters: int, each: int
) -> tuple[list[Bytes], Books, Bytes]:
    """The centroids of a peer's codebooks as they came, the codebooks, and what is behind them."""
    found, counts = [], []
    for number, piece in enumerate(pieces):
        most, name = _most(clusters, piece), f"codebook {number}"
        if len(data) < COUNT:
            raise MalformedMessage("payload.data", f"ends before {name}")
        count = int.from_bytes(data[:COUNT], "little")
        if not 2 <= count <= most:
            reason = f"{name} has {count} clusters; expected 2 to {most}"
            raise MalformedMessage("payload.data", reason)
        end = COUNT + each * count
        if len(data) < end:
            reason = f"{name} has {len(data) - COUNT} bytes; expected {count} centroids"
            raise MalformedMessage("payload.data", reason)
        counts.append(count)
        found.append(data[COUNT:end])
        data = data[end:]
    return found, Books(tuple(piece.size for piece in pieces), tuple(counts)), data


def check_clustered(encoded: Encoded, encoding: Encoding, size: int) -> None:
    """Refuse a payload of another kind or size."""
    if encoded.encoding != encoding:
        expected = f"is {encoded.encoding!r}; this federation uses {encoding!r}"
        raise MalformedMessage("payload.encoding", expected)
    if encoded.count != size:
        raise MalformedMessage("payload.count", f"is {encoded.count}; expected {size} values")


class ClusterCoding(WeightCoding):
    """Clusters at work."""

    def __init__(self, scheme: Scheme, agreement: Agreement, terms: Clustered) -> None:
        super().__init__(scheme, agreement, terms.clusters_of)
        self.terms = terms

    def pieces(self, segment: Segment) -> tuple[LayerPiece, ...]:
        """What of a segment has a codebook of its own."""
        return cut(segment, self.terms.layers, self.terms.books)

    def sender(self, me: int, vault: Vault | None = None) -> Sender:
        """A client's half."""
        return ClusterSender(self, me)

    def clustered(self, piece: Vector, segment: Segment, client: int) -> tuple[Codebook, ...]:
        """The codebooks of a segment, or a refusal in its client's name."""
        terms, name = self.terms, self.agreement.view.members[client]
        return codebooks_of(piece, self.pieces(segment), terms.clusters, terms.fewer, name)

    def encode(self, piece: Vector, segment: Segment, round: int, client: int) -> Payload:
        """What travels of a segment: codebooks and the mapping; nothing of an empty one."""
        if not len(piece):
            return Payload(Encoded(Encoding.CLUSTERED, 0, b""))
        found = self.clustered(piece, segment, client)
        centroids = [book.centroids.astype("<f4").tobytes() for book in found]
        data = write_books(centroids, 4) + CLEAR[self.terms.coding].encode(*joined(found))
        return Payload(Encoded(Encoding.CLUSTERED, len(piece), data))

    def read(self, contribution: Contribution, segment: Segment) -> Vector:
        """What whoever holds a contribution can read: the centroid of each coordinate."""
        encoded = contribution.payload.encoded
        check_clustered(encoded, Encoding.CLUSTERED, segment.size)
        if not segment.size:
            return np.zeros(0, np.float32)
        data = memoryview(encoded.data)
        found, books, rest = read_books(data, self.pieces(segment), self.terms.clusters, 4)
        mapping = CLEAR[self.terms.coding].decode(rest, books)
        centroids = (np.frombuffer(one, "<f4").astype(np.float32, copy=False) for one in found)
        return np.concatenate(
            [one[mapping[where]] for one, (where, _) in zip(centroids, books, strict=True)]
        )


class ClusterSender(WeightSender):
    """A client that clusters what it sends; all of it, or nothing."""

    coding: ClusterCoding

    def prepare(
        self, update: Vector, samples: int, steps: int, round: int, replica: Replica,
        content: Content | None = None,
    ) -> dict[Key, Vector]:  # fmt: skip
        """By segment: the values that are sent of an update, if all can be clustered."""
        pieces = super().prepare(update, samples, steps, round, replica)
        settings, segments = self.agreement.settings, self.agreement.segments(round)
        for key, piece in pieces.items() if settings.non_finite == "refuse" else ():
            limit = settings.precision.value_range
            refused, first = kernels.beyond(piece, None, None, limit)
            if refused:
                where = place(int(segments[key].coordinates[first]), self.coding.terms.layers)
                reason = f"{where} is {float(piece[first]):g}; expected at most ±{limit:g}"
                raise RefusedContribution(self.name, reason)
        for key, piece in pieces.items() if self.coding.terms.fewer == "refuse" else ():
            if len(piece):
                self.coding.clustered(piece, segments[key], self.me)
        return pieces
