"""How a mapping to clusters travels in bits: the packed index, and what goes with a filter.

The packed index is one little-endian bit string, ⌈log₂κ⌉ bits a coordinate, books joined without
gaps. With a filter go the sizes of the clusters (rule ``populous``) or a list of exceptions, the
coordinates whose cluster the filter's rule gets wrong (rule ``exact``). :mod:`eris.core.huffman`
has the code of variable length. Readers trust nothing: every bit of what they take is checked.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eris.core.books import Books, Clusters
from eris.core.errors import InvalidSetting, MalformedMessage, require
from eris.core.kernels import compiled, pack_codes, unpack_codes

Bytes = bytes | memoryview
"""What travels; what was read is a view into its message."""
Words = NDArray[np.uint16]


def packed_bytes(count: int, bits: int) -> int:
    """Bytes of ``count`` words of ``bits`` bits."""
    return -(-count * bits // 8)


def packed(words: Words, bits: int) -> bytes:
    """Words of 1 to 16 bits, one behind the other, lowest bit first.

    >>> packed(np.array([31, 0, 1, 17], np.uint16), 5).hex()
    '1f8408'
    """
    require(1 <= bits <= 16, "bits", bits, "1 to 16 bits a word")
    beyond = words >> np.uint16(bits - 1) > 1
    if beyond.any():
        at = int(beyond.argmax())
        raise InvalidSetting(f"words[{at}]", int(words[at]), f"a word of {bits} bits")
    out = np.empty(packed_bytes(len(words), bits), np.uint8)
    pack_codes(out, words, bits)
    return out.tobytes()


def unpacked(data: Bytes, count: int, bits: int) -> Words:
    """The words of :func:`packed`.

    >>> unpacked(bytes.fromhex("1f8408"), 4, 5)
    array([31,  0,  1, 17], dtype=uint16)
    """
    require(1 <= bits <= 16, "bits", bits, "1 to 16 bits a word")
    require(count >= 0, "count", count, "0 or more words")
    _check_packed("words", data, count * bits)
    out = np.empty(count, np.uint16)
    unpack_codes(out, np.frombuffer(data, np.uint8), bits)
    return out


def pack_index(mapping: Clusters, books: Books) -> bytes:
    """The mapping of a segment as a packed index.

    >>> pack_index(np.array([1, 0, 3, 1], np.uint16), Books((2, 2), (2, 4))).hex()
    '1d'
    """
    books.check(mapping)
    out, start = np.empty(packed_bytes(_index_bits(books), 1), np.uint8), 0
    for (where, _), width in zip(books, books.widths, strict=True):
        pack_codes(out, mapping[where], width, start)
        start += width * (where.stop - where.start)
    return out.tobytes()


def unpack_index(data: Bytes, books: Books) -> Clusters:
    """The mapping in a peer's packed index."""
    _check_packed("index", data, _index_bits(books))
    buffer, start = np.frombuffer(data, np.uint8), 0
    mapping = np.empty(books.size, np.uint16)
    for (where, _), width in zip(books, books.widths, strict=True):
        unpack_codes(mapping[where], buffer, width, start)
        start += width * (where.stop - where.start)
    check_mapping("index", mapping, books)
    return mapping


def check_mapping(field: str, mapping: Clusters, books: Books) -> None:
    """Refuse a peer's mapping in which an index is no cluster of its book."""
    coordinate = books.stray(mapping)
    if coordinate is not None:
        reason = f"coordinate {coordinate} has cluster {mapping[coordinate]}, which its book lacks"
        raise MalformedMessage(field, reason)


def _index_bits(books: Books) -> int:
    return sum(size * width for size, width in zip(books.sizes, books.widths, strict=True))


def _check_packed(field: str, data: Bytes, bits: int) -> None:
    size = -(-bits // 8)
    if len(data) != size:
        raise MalformedMessage(field, f"has {len(data)} bytes; expected {size}")
    if bits % 8 and data[-1] >> bits % 8:
        raise MalformedMessage(field, "has bits behind its end")


# -- with a filter --------------------------------------------------------------------------------


def encode_sizes(mapping: Clusters, books: Books) -> bytes:
    """How many coordinates each cluster of each book has, four bytes each, big-endian.

    >>> encode_sizes(np.array([1, 1, 0], np.uint16), Books((3,), (2,))).hex()
    '0000000100000002'
    """
    return np.concatenate(books.counts(mapping)).astype(">u4").tobytes()


def decode_sizes(data: Bytes, books: Books) -> list[NDArray[np.int64]]:
    """The sizes in a peer's bytes; those of a book add up to its coordinates."""
    size = 4 * sum(books.clusters)
    if len(data) != size:
        raise MalformedMessage("sizes", f"has {len(data)} bytes; expected {size}")
    counts = np.frombuffer(data, ">u4").astype(np.int64)
    sizes = np.split(counts, np.cumsum(books.clusters)[:-1])
    for book, (found, expected) in enumerate(zip(sizes, books.sizes, strict=True)):
        if int(found.sum()) != expected:
            reason = f"of book {book} add up to {found.sum()}; it has {expected} coordinates"
            raise MalformedMessage("sizes", reason)
    return sizes


def encode_exceptions(mapping: Clusters, matched: Clusters, books: Books) -> bytes:
    """The coordinates that were matched to a wrong cluster, in order, each with its true one.

    An entry is the distance of its position in the segment to the entry before, of the first its
    position, as a varint (seven bits a byte, the lowest first, the eighth set on all but the last),
    then the cluster: one byte, or two, big-endian, where the book has more than 256 clusters.

    >>> wrong, true = np.array([0, 1, 0], np.uint16), np.array([0, 2, 3], np.uint16)
    >>> encode_exceptions(true, wrong, Books((3,), (4,))).hex()
    '01020103'
    """
    books.check(mapping)
    books.check(matched)
    out = np.empty(7 * int(np.count_nonzero(mapping != matched)), np.uint8)
    return out[: _write_exceptions(out, mapping, matched, *_runs(books))].tobytes()


def with_exceptions(matched: Clusters, data: Bytes, books: Books) -> Clusters:
    """What a filter's rule gave, put right by a peer's list of exceptions.

    >>> with_exceptions(np.array([0, 1, 0], np.uint16), b"\\1\\2\\1\\3", Books((3,), (4,)))
    array([0, 2, 3], dtype=uint16)
    """
    books.check(matched)
    mapping = matched.copy()
    fault, at = _read_exceptions(mapping, np.frombuffer(data, np.uint8), *_runs(books))
    if fault:
        raise MalformedMessage("exceptions", f"{_FAULTS[fault]} at byte {at}")
    return mapping


_FAULTS = {
    1: "an entry that is cut off",
    2: "a distance that is written too long",
    3: "a coordinate that is not behind the one before",
    4: "a coordinate behind the segment's last",
    5: "a cluster that the book lacks",
}


def _runs(books: Books) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.cumsum(books.sizes), np.array(books.clusters, np.int64)


@compiled
def _write_exceptions(
    out: NDArray[np.uint8],
    mapping: Clusters,
    matched: Clusters,
    ends: NDArray[np.int64],
    clusters: NDArray[np.int64],
) -> int:
    at, before, book = 0, 0, 0
    for i in range(mapping.shape[0]):
        while i >= ends[book]:
            book += 1
        if mapping[i] == matched[i]:
            continue
        gap, before = i - before, i
        while gap >= 128:
            out[at] = (gap & 127) | 128
            gap >>= 7
            at += 1
        out[at] = gap
        at += 1
        if clusters[book] > 256:
            out[at] = mapping[i] >> 8
            at += 1
        out[at] = mapping[i] & 255
        at += 1
    return at


@compiled
def _read_exceptions(
    mapping: Clusters,
    data: NDArray[np.uint8],
    ends: NDArray[np.int64],
    clusters: NDArray[np.int64],
) -> tuple[int, int]:
    """Write the entries into ``mapping``; returns a number of :data:`_FAULTS`, and where, or 0."""
    at, size, position, book = 0, data.shape[0], np.int64(0), 0
    while at < size:
        entry = at
        gap, shift = np.int64(0), 0
        while True:
            if at == size:
                return 1, entry
            byte = np.int64(data[at])
            at += 1
            gap |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
            if shift == 35:  # more than any segment has
                return 2, entry
        if shift > 7 and byte == 0:
            return 2, entry
        if gap == 0 and entry > 0:
            return 3, entry
        position += gap
        if position >= mapping.shape[0]:
            return 4, entry
        while position >= ends[book]:
            book += 1
        width = 2 if clusters[book] > 256 else 1
        if at + width > size:
            return 1, entry
        cluster = np.int64(0)
        for _ in range(width):
            cluster = cluster << 8 | np.int64(data[at])
            at += 1
        if cluster >= clusters[book]:
            return 5, entry
        mapping[position] = cluster
    return 0, 0
