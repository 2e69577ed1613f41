"""Clustered weights in the clear (FedAvg_wc): κ centroids, and the index of each coordinate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np

from eris.core import huffman
from eris.core.books import Books, Clusters
from eris.core.clustering import MOST, Codebook, clustered
from eris.core.codings import Bytes, pack_index, unpack_index
from eris.core.compress import Encoded, Encoding
from eris.core.errors import InvalidSetting, MalformedMessage, RefusedContribution, one_of, require
from eris.core.vectors import Vector
from eris.protocol.messages import Contribution, Payload
from eris.protocol.schemes.masked import refuse_order_statistics
from eris.protocol.schemes.scheme import Coding, Scheme
from eris.protocol.schemes.weights import Travelling, WeightCoding, check_travelling

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Segment
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
    fewer distinct values than clusters, ``fewer`` allows as many clusters, or refuses.
    """

    clusters: int = 128
    coding: ClearCoding = "packed"
    clusters_of: Travelling = "weights"
    fewer: Fewer = "allow"
    name: ClassVar[str] = "clustered"
    whole_shards: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_clusters(self.clusters, self.fewer)
        check_travelling("clusters_of", self.clusters_of)
        if self.coding not in CLEAR:
            raise InvalidSetting("coding", self.coding, one_of(CLEAR, self.coding))

    @property
    def relative(self) -> bool:
        """Whether what travels is an update only beside the state that it was trained from."""
        return self.clusters_of == "weights"

    def rehearsed(self) -> Scheme:
        """The same with so little to do that a small model is enough to try it on."""
        return replace(self, clusters=min(self.clusters, 4), fewer="allow")

    def check(self, settings: Settings) -> None:
        """Refuse what does not go together with this scheme."""
        refuse_order_statistics(settings)

    def at(self, agreement: Agreement) -> Coding:
        """This scheme at work."""
        check_worth(agreement, self.clusters, each=4)
        return ClusterCoding(self, agreement, self)

    def __str__(self) -> str:
        return f"{self.clusters} clusters of {self.clusters_of}, {self.coding}"


def check_clusters(clusters: int, fewer: str) -> None:
    """Refuse numbers of clusters that are none."""
    require(2 <= clusters <= MOST, "clusters", clusters, f"2 to {MOST}")
    if fewer not in ("allow", "refuse"):
        raise InvalidSetting("fewer", fewer, "one of allow, refuse")


def check_worth(agreement: Agreement, clusters: int, each: int) -> None:
    """Refuse clusters that are no fewer bytes than the plain segment, of ``each`` a centroid."""
    sizes = {segment.size for segment in agreement.segments(1).values()} - {0}
    size, width = min(sizes), (clusters - 1).bit_length()
    coded = each * clusters + -(-size * width // 8)
    expected = f"fewer: a segment of {size} weights would be {coded} bytes, plain {4 * size}"
    require(coded < 4 * size, "clusters", clusters, expected)


def codebook_of(values: Vector, clusters: int, fewer: Fewer, client: str) -> Codebook:
    """The clusters of a segment, or a refusal in its client's name."""
    try:
        return clustered(values, clusters, fewer=fewer)
    except InvalidSetting as refusal:
        raise RefusedContribution(client, str(refusal)) from None


def read_count(data: Bytes, most: int) -> int:
    """κ of a peer's codebook."""
    if len(data) < COUNT:
        raise MalformedMessage("payload.data", f"has {len(data)} bytes; expected a codebook")
    count = int.from_bytes(data[:COUNT], "little")
    if not 2 <= count <= most:
        raise MalformedMessage("payload.data", f"has {count} clusters; expected 2 to {most}")
    return count


def check_clustered(encoded: Encoded, encoding: Encoding, size: int) -> None:
    """Refuse a payload of another kind or size."""
    if encoded.encoding != encoding:
        expected = f"is {encoded.encoding!r}; this federation uses {encoding!r}"
        raise MalformedMessage("payload.encoding", expected)
    if encoded.count != size:
        raise MalformedMessage("payload.count", f"is {encoded.count}; expected {size} values")


class ClusterCoding(WeightCoding):
    """Clusters at work: one codebook a segment."""

    def __init__(self, scheme: Scheme, agreement: Agreement, terms: Clustered) -> None:
        super().__init__(scheme, agreement, terms.clusters_of)
        self.terms = terms

    def encode(self, piece: Vector, segment: Segment, round: int, client: int) -> Payload:
        """What travels of a segment: κ, the centroids, the mapping; nothing of an empty one."""
        if not len(piece):
            return Payload(Encoded(Encoding.CLUSTERED, 0, b""))
        terms, name = self.terms, self.agreement.view.members[client]
        book = codebook_of(piece, terms.clusters, terms.fewer, name)
        mapping = CLEAR[terms.coding].encode(
            book.assignment, Books((len(piece),), (book.clusters,))
        )
        centroids = book.centroids.astype("<f4").tobytes()
        data = b"".join((book.clusters.to_bytes(COUNT, "little"), centroids, mapping))
        return Payload(Encoded(Encoding.CLUSTERED, len(piece), data))

    def read(self, contribution: Contribution, segment: Segment) -> Vector:
        """What whoever holds a contribution can read: the centroid of each coordinate."""
        encoded = contribution.payload.encoded
        check_clustered(encoded, Encoding.CLUSTERED, segment.size)
        if not segment.size:
            return np.zeros(0, np.float32)
        data = memoryview(encoded.data)
        count = read_count(data, self.terms.clusters)
        start = COUNT + 4 * count
        if len(data) < start:
            expected = f"has {len(data)} bytes; expected {count} centroids and a mapping"
            raise MalformedMessage("payload.data", expected)
        centroids = np.frombuffer(data[COUNT:start], "<f4").astype(np.float32, copy=False)
        books = Books((segment.size,), (count,))
        values: Vector = centroids[CLEAR[self.terms.coding].decode(data[start:], books)]
        return values
