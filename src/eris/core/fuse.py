"""A 4-wise binary fuse filter (Graf and Lemire, 2022) of a mapping: which cluster a weight has.

The filter holds the pairs (i, c), i being a coordinate of the model and c its cluster. Whoever has
the key asks it for every cluster of a coordinate's book: the true one always hits, each other one
with probability 2^−bits. What is hashed is a keyed function of i (SipHash-2-4), shifted by c. Every
i is there once, so to anyone without the key the filter is independent of the mapping.

The bytes of a filter depend on the order of peeling, its hits on the pairs and the key alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.core.books import Books, Clusters
from eris.core.errors import InvalidSetting, MalformedMessage, require
from eris.core.kernels import compiled
from eris.core.vectors import Indices

BITS = (8, 16, 32)
"""Of a fingerprint."""
ATTEMPTS = 256
"""Keys that are tried before a filter is given up: the attempt travels as one byte."""
MOST_PAIRS = 1 << 31
"""In one filter: places in it fit into 32 bits."""
KEY_BYTES = 16
HEAD_BYTES = 6
_FINGERPRINTS: dict[int, Any] = {8: np.dtype("<u1"), 16: np.dtype("<u2"), 32: np.dtype("<u4")}
_WORD = np.dtype("<u8")
_GOLDEN, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)
_MIX_1, _MIX_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_Places = tuple[np.int64, np.int64, np.int64, np.int64]
_33, _32, _18 = np.uint64(33), np.uint64(32), np.uint64(18)


@dataclass(frozen=True)
class Layout:
    """Where the pairs of a filter may lie: ``segments`` + 3 segments of ``length`` slots.

    >>> Layout.of(270_000).slots
    296960
    """

    length: int
    segments: int

    @staticmethod
    def of(pairs: int) -> Layout:
        """The layout for a number of pairs."""
        require(0 <= pairs <= MOST_PAIRS, "pairs", pairs, f"0 to {MOST_PAIRS}")
        if pairs <= 1:
            return Layout(4, 1)
        # No number of pairs is so near a step of these that a logarithm's last bits decide.
        power = math.floor(math.log(pairs) / math.log(2.91) - 0.5)
        length = 1 << min(18, max(2, power))
        spread = 0.77 + 0.305 * math.log(600_000) / math.log(pairs)
        capacity = round(pairs * max(1.075, spread))
        return Layout(length, max(1, -(-capacity // length) - 3))

    @property
    def slots(self) -> int:
        """Fingerprints of the filter."""
        return (self.segments + 3) * self.length


@dataclass(frozen=True, eq=False)
class FuseFilter:
    """A filter as it travels: the attempt that says which key it has, and its fingerprints."""

    bits: int
    attempt: int
    pairs: int
    fingerprints: NDArray[np.unsignedinteger]

    def wire(self) -> bytes:
        """``bits u8 ‖ attempt u8 ‖ pairs u32 ‖ fingerprints``, the last little-endian."""
        head = bytes([self.bits, self.attempt]) + self.pairs.to_bytes(4, "big")
        return head + self.fingerprints.astype(_FINGERPRINTS[self.bits], copy=False).tobytes()

    @staticmethod
    def parsed(data: bytes | memoryview, pairs: int, bits: int) -> FuseFilter:
        """The filter in a peer's bytes, which must be one of so many pairs and bits."""
        _check_bits(bits)
        size = HEAD_BYTES + Layout.of(pairs).slots * bits // 8
        if len(data) != size:
            raise MalformedMessage("filter", f"has {len(data)} bytes; expected {size}")
        found = int.from_bytes(data[2:HEAD_BYTES], "big")
        if data[0] != bits:
            raise MalformedMessage("filter.bits", f"is {data[0]}; this federation uses {bits}")
        if found != pairs:
            raise MalformedMessage("filter.pairs", f"is {found}; expected {pairs}")
        fingerprints = np.frombuffer(data, _FINGERPRINTS[bits], offset=HEAD_BYTES)
        return FuseFilter(bits, data[1], pairs, fingerprints)


def build(
    key_of_attempt: Callable[[int], bytes], first: int, clusters: Clusters, bits: int
) -> FuseFilter:
    """A filter of the pairs (``first`` + position, cluster), under the first key that allows one.

    >>> mapping = np.array([1, 0, 3], np.uint16)
    >>> built = build(lambda attempt: bytes([attempt] * 16), first=10, clusters=mapping, bits=32)
    >>> matched(built, bytes([built.attempt] * 16), 10, Books((3,), (4,)))
    array([1, 0, 3], dtype=uint16)
    """
    _check_bits(bits)
    _check_first(first)
    is_mapping = clusters.ndim == 1 and clusters.dtype == np.uint16
    require(is_mapping, "clusters", f"{clusters.ndim}-d {clusters.dtype}", "1-d uint16")
    layout = Layout.of(len(clusters))
    fingerprints = np.zeros(layout.slots, _FINGERPRINTS[bits])
    for attempt in range(ATTEMPTS):
        hashes = np.empty(len(clusters), np.uint64)
        _hash_pairs(hashes, *_key(key_of_attempt(attempt)), np.uint64(first), clusters)
        if _peel(fingerprints, hashes, layout.length, layout.segments):
            return FuseFilter(bits, attempt, len(clusters), fingerprints)
    raise InvalidSetting("key_of_attempt", f"{ATTEMPTS} keys", "another random key each attempt")


def matched(
    filter: FuseFilter,
    key: bytes,
    first: int,
    books: Books,
    sizes: list[NDArray[np.int64]] | None = None,
) -> Clusters:
    """The cluster of each coordinate: the first that hits, in order of its index.

    With ``sizes``, how many coordinates each cluster of each book has, larger ones are asked for
    first, equal ones in order of their index. A coordinate for which nothing hits is refused by
    name: then it is not the filter of any mapping.
    """
    _check_first(first)
    layout = _layout(filter, books)
    if sizes is not None:
        expected = f"those of {len(books.sizes)} books"
        require(len(sizes) == len(books.sizes), "sizes", f"of {len(sizes)} books", expected)
    out = np.empty(books.size, np.uint16)
    for book, (where, clusters) in enumerate(books):
        order = np.arange(clusters)
        if sizes is not None:
            expected = f"{clusters} sizes"
            require(len(sizes[book]) == clusters, f"sizes[{book}]", len(sizes[book]), expected)
            order = np.argsort(-sizes[book], kind="stable")
        lost = _first_hits(
            out[where],
            filter.fingerprints,
            layout.length,
            layout.segments,
            *_key(key),
            np.uint64(first + where.start),
            order.astype(np.uint16),
        )
        if lost >= 0:
            coordinate = first + where.start + lost
            raise MalformedMessage("filter", f"has no cluster for coordinate {coordinate}")
    return out


def hits(filter: FuseFilter, key: bytes, first: int, books: Books) -> tuple[Indices, Clusters]:
    """(ends, clusters): the hits of position p are ``clusters[ends[p - 1] : ends[p]]``, ascending.

    Those of position 0 begin at 0.

    >>> mapping = np.array([1, 0, 3], np.uint16)
    >>> built = build(lambda attempt: bytes(16), first=0, clusters=mapping, bits=32)
    >>> hits(built, bytes(16), 0, Books((3,), (4,)))
    (array([1, 2, 3]), array([1, 0, 3], dtype=uint16))
    """
    _check_first(first)
    layout = _layout(filter, books)
    shape = (filter.fingerprints, layout.length, layout.segments, *_key(key))
    counts = np.empty(books.size, np.int64)
    for where, clusters in books:
        _all_hits(counts[where], None, *shape, np.uint64(first + where.start), clusters)
    ends = np.cumsum(counts)
    out = np.empty(int(ends[-1]), np.uint16)
    for where, clusters in books:
        start = int(ends[where.start - 1]) if where.start else 0
        _all_hits(counts[where], out[start:], *shape, np.uint64(first + where.start), clusters)
    return ends, out


def _check_bits(bits: int) -> None:
    if bits not in BITS:
        raise InvalidSetting("bits", bits, "8, 16 or 32")


def _check_first(first: int) -> None:
    require(0 <= first < 1 << 63, "first", first, "a coordinate, 0 or more")


def _key(key: bytes) -> tuple[np.uint64, np.uint64]:
    require(len(key) == KEY_BYTES, "key", f"{len(key)} bytes", f"{KEY_BYTES} bytes")
    low, high = np.frombuffer(key, _WORD).astype(np.uint64)
    return low, high


def _layout(filter: FuseFilter, books: Books) -> Layout:
    expected = f"a filter of {books.size} pairs"
    require(filter.pairs == books.size, "filter.pairs", filter.pairs, expected)
    return Layout.of(filter.pairs)


@compiled
def _rotated(word: np.uint64, by: int) -> np.uint64:
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))


@compiled
def _sip_round(
    a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    a += b
    b = _rotated(b, 13) ^ a
    a = _rotated(a, 32)
    c += d
    d = _rotated(d, 16) ^ c
    a += d
    d = _rotated(d, 21) ^ a
    c += b
    b = _rotated(b, 17) ^ c
    c = _rotated(c, 32)
    return a, b, c, d


@compiled
def siphash(low: np.uint64, high: np.uint64, word: np.uint64) -> np.uint64:
    """SipHash-2-4 (Aumasson and Bernstein, 2012) of eight bytes, all little-endian words."""
    a = low ^ np.uint64(0x736F6D6570736575)
    b = high ^ np.uint64(0x646F72616E646F6D)
    c = low ^ np.uint64(0x6C7967656E657261)
    d = high ^ np.uint64(0x7465646279746573)
    for block in (word, np.uint64(8 << 56)):
        d ^= block
        a, b, c, d = _sip_round(a, b, c, d)
        a, b, c, d = _sip_round(a, b, c, d)
        a ^= block
    c ^= np.uint64(0xFF)
    for _ in range(4):
        a, b, c, d = _sip_round(a, b, c, d)
    return a ^ b ^ c ^ d


@compiled
def _mixed(h: np.uint64) -> np.uint64:
    h = (h ^ (h >> _33)) * _MIX_1
    h = (h ^ (h >> _33)) * _MIX_2
    return h ^ (h >> _33)


@compiled
def _hash_pairs(
    out: NDArray[np.uint64], low: np.uint64, high: np.uint64, first: np.uint64, clusters: Clusters
) -> None:
    for i in range(out.shape[0]):
        keyed = siphash(low, high, first + np.uint64(i))
        out[i] = _mixed(keyed + np.uint64(clusters[i]) * _GOLDEN)


@compiled
def _places(h: np.uint64, length: int, segments: int) -> _Places:
    """The four slots of a pair, in four segments one behind the other."""
    span = np.uint64(segments * length)  # below 2³²
    upper, lower = h >> _32, h & np.uint64(0xFFFFFFFF)
    start = np.int64((upper * span + ((lower * span) >> _32)) >> _32)
    g = _mixed(h + _SECOND)
    mask = np.uint64(length - 1)
    return (
        start,
        (start + length) ^ np.int64(g & mask),
        (start + 2 * length) ^ np.int64((g >> _18) & mask),
        (start + 3 * length) ^ np.int64((g >> (_18 + _18)) & mask),
    )


@compiled
def _peel(
    fingerprints: NDArray[np.unsignedinteger],
    hashes: NDArray[np.uint64],
    length: int,
    segments: int,
) -> bool:
    """Fill the slots, all 0 before, so that every pair hits; False where that cannot be.

    A slot that one pair alone has is that pair's own; the pair is put on a pile and taken from its
    other slots, which may leave others alone. From the top of the pile down, each pair's own slot
    is then set by what its others hold.
    """
    slots = fingerprints.shape[0]
    counts = np.zeros(slots, np.uint32)
    together = np.zeros(slots, np.uint64)
    for i in range(hashes.shape[0]):
        for place in _places(hashes[i], length, segments):
            counts[place] += np.uint32(1)
            together[place] ^= hashes[i]
    alone = np.empty(slots, np.int64)
    waiting = 0
    for slot in range(slots):
        if counts[slot] == 1:
            alone[waiting] = slot
            waiting += 1
    own, pile = np.empty(hashes.shape[0], np.int64), np.empty(hashes.shape[0], np.uint64)
    piled = 0
    while waiting:
        waiting -= 1
        slot = alone[waiting]
        if counts[slot] != 1:
            continue
        h = together[slot]
        own[piled], pile[piled] = slot, h
        piled += 1
        for place in _places(h, length, segments):
            counts[place] -= np.uint32(1)
            together[place] ^= h
            if counts[place] == 1:
                alone[waiting] = place
                waiting += 1
    if piled < hashes.shape[0]:
        return False
    for i in range(piled - 1, -1, -1):
        a, b, c, d = _places(pile[i], length, segments)
        held = fingerprints[a] ^ fingerprints[b] ^ fingerprints[c] ^ fingerprints[d]
        fingerprints[own[i]] = held ^ fingerprints.dtype.type(pile[i])
    return True


@compiled
def _is_member(
    fingerprints: NDArray[np.unsignedinteger], h: np.uint64, length: int, segments: int
) -> bool:
    a, b, c, d = _places(h, length, segments)
    held = fingerprints[a] ^ fingerprints[b] ^ fingerprints[c] ^ fingerprints[d]
    return bool(held == fingerprints.dtype.type(h))


@compiled
def _first_hits(
    out: Clusters,
    fingerprints: NDArray[np.unsignedinteger],
    length: int,
    segments: int,
    low: np.uint64,
    high: np.uint64,
    first: np.uint64,
    order: Clusters,
) -> int:
    """Of each coordinate the first cluster of ``order`` that hits; the position of one that has
    none, or −1."""
    for i in range(out.shape[0]):
        keyed = siphash(low, high, first + np.uint64(i))
        found = False
        for cluster in order:
            h = _mixed(keyed + np.uint64(cluster) * _GOLDEN)
            if _is_member(fingerprints, h, length, segments):
                out[i] = cluster
                found = True
                break
        if not found:
            return i
    return -1


@compiled
def _all_hits(
    counts: Indices,
    out: Clusters | None,
    fingerprints: NDArray[np.unsignedinteger],
    length: int,
    segments: int,
    low: np.uint64,
    high: np.uint64,
    first: np.uint64,
    clusters: int,
) -> None:
    """Count the hits of each coordinate and, where there is room for them, list them."""
    at = 0
    for i in range(counts.shape[0]):
        keyed = siphash(low, high, first + np.uint64(i))
        found = 0
        for cluster in range(clusters):
            h = _mixed(keyed + np.uint64(cluster) * _GOLDEN)
            hit = _is_member(fingerprints, h, length, segments)
            found += hit
            if out is not None and hit:
                out[at] = cluster
                at += 1
        counts[i] = found
