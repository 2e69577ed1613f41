"""Bytes of EncCluster and its relatives by law, also of key sizes that are not built.

What a message holds beside its header of at most :data:`HEADER` bytes. Curves other than the one of
256 bits are not built: their points have 1 + ⌈bits/8⌉ bytes, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eris.core.codings import packed_bytes
from eris.core.errors import require
from eris.core.fuse import HEAD_BYTES, Layout

HEADER = 128
"""Bytes that a message may have beside what the law counts."""
SEALED = 28
"""A nonce and a tag."""
COUNT, SCALAR, NAME, SIGNATURE = 4, 32, 32, 64
FLOAT = 4


def point_bytes(key_bits: int = 256) -> int:
    """A point of a curve of this size, compressed.

    >>> point_bytes(), point_bytes(521)
    (33, 67)
    """
    require(key_bits >= 2, "key bits", key_bits, "at least 2")
    return 1 + -(-key_bits // 8)


def packed_mapping(coordinates: int, clusters: int) -> int:
    """⌈d·⌈log₂κ⌉/8⌉; sealed, 28 more."""
    return packed_bytes(coordinates, (clusters - 1).bit_length())


def huffman_mapping(counts: Sequence[int], lengths: Sequence[int]) -> int:
    """κ lengths of a byte each, and the bits of every coordinate's code.

    >>> huffman_mapping([4, 2, 2], [1, 2, 2])
    5
    """
    bits = sum(count * length for count, length in zip(counts, lengths, strict=True))
    return len(lengths) + -(-bits // 8)


def filter_mapping(coordinates: int, bits: int) -> int:
    """A filter of ``bits`` a slot, without what a policy adds to it."""
    return HEAD_BYTES + Layout.of(coordinates).slots * bits // 8


@dataclass(frozen=True)
class RoundBytes:
    """What travels of one segment in one round, a message each."""

    contribution: int
    """From each client."""
    question: int = 0
    """To each client of the set."""
    share: int = 0
    """From each of them."""
    result: int = 0
    """To each client."""

    @property
    def up(self) -> int:
        """What a client sends."""
        return self.contribution + self.share

    def times_fedavg(self, coordinates: int) -> float:
        """A client's upload beside four bytes a weight."""
        return self.up / (FLOAT * coordinates)


def enccluster_round(
    coordinates: int, clusters: int, mapping: int, clients: int, key_bits: int = 256
) -> RoundBytes:
    """EncCluster with one codebook, all of ``clients`` in the set; ``mapping`` is its bytes.

    >>> law = enccluster_round(270_000, 128, packed_mapping(270_000, 128), clients=10)
    >>> law, round(law.times_fedavg(270_000), 4)
    (RoundBytes(contribution=240478, question=386, share=64, result=1080018), 0.2227)
    """
    voters = -(-clients // 8)
    scalars = -(-key_bits // 8)
    return RoundBytes(
        COUNT + clusters * point_bytes(key_bits) + mapping,
        voters + 32 * clients + SIGNATURE,
        NAME + scalars,
        FLOAT * coordinates + voters + 16,
    )


def detrust_round(coordinates: int, clients: int, key_bits: int = 256) -> RoundBytes:
    """DeTrust-FL: a point a weight, two scalars a share."""
    law = enccluster_round(coordinates, 0, 0, clients, key_bits)
    points = coordinates * point_bytes(key_bits)
    return RoundBytes(points, law.question, NAME + 2 * -(-key_bits // 8), law.result)


def sefl_upload(coordinates: int, kept: int, key_bits: int) -> int:
    """SEFL: a bit a coordinate says what is kept, and a number below n² for each that is.

    >>> round(sefl_upload(270_000, 81_000, 3072) / (4 * 270_000), 1)
    57.6
    """
    return -(-coordinates // 8) + kept * 2 * key_bits // 8
