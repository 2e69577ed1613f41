"""A mapping to clusters in a canonical Huffman code for each codebook.

What travels: of each book one byte a cluster, the length of its code (0 for a cluster that no
coordinate has), then the codes of all coordinates in order, books joined without gaps, the most
significant bit first. Codes follow from the lengths: they are given in order of (length, cluster),
each the one before plus 1, moved to its length. A book with one used cluster has length 1 for it.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from eris.core.books import Books, Clusters
from eris.core.codings import Bytes
from eris.core.errors import MalformedMessage
from eris.core.kernels import compiled

LONGEST = 32
"""Bits of a code."""
_Lengths = NDArray[np.uint8]
_Words = NDArray[np.uint64]


def encode(mapping: Clusters, books: Books) -> bytes:
    """Code lengths of all books, then the codes of all coordinates.

    >>> encode(np.array([2, 0, 2, 3, 2], np.uint16), Books((5,), (4,))).hex()
    '020001024c'
    """
    counts = books.counts(mapping)
    lengths = [code_lengths(found) for found in counts]
    bits = sum(int(found @ length) for found, length in zip(counts, lengths, strict=True))
    out, at = np.zeros(-(-bits // 8), np.uint8), 0
    for (where, _), length in zip(books, lengths, strict=True):
        at = _write(out, at, mapping[where], length, _codes(length))
    return b"".join([*(length.tobytes() for length in lengths), out.tobytes()])


def decode(data: Bytes, books: Books) -> Clusters:
    """The mapping in a peer's bytes."""
    heads = sum(books.clusters)
    least, most = heads + -(-books.size // 8), heads + -(-books.size * LONGEST // 8)
    if not least <= len(data) <= most:
        reason = f"has {len(data)} bytes; expected {least} to {most}"
        raise MalformedMessage("huffman", reason)
    buffer = np.frombuffer(data, np.uint8)
    body, start, at = buffer[heads:], 0, 0
    mapping = np.empty(books.size, np.uint16)
    for book, (where, clusters) in enumerate(books):
        lengths = buffer[start : start + clusters]
        start += clusters
        _check_lengths(book, lengths)
        at, read = _read(mapping[where], body, at, *_tables(lengths))
        if at < 0:
            reason = f"has no code for coordinate {where.start + read}"
            raise MalformedMessage("huffman", reason)
    if -(-at // 8) != len(body) or (at % 8 and int(body[-1]) << at % 8 & 0xFF):
        raise MalformedMessage("huffman", f"does not end at bit {at}, with its last coordinate")
    return mapping


def code_lengths(counts: NDArray[np.int64]) -> _Lengths:
    """Lengths of a Huffman code for symbols with these counts; 0 for those with none.

    Of equal weights a symbol comes before a pair, the lower symbol and the older pair first. Where
    a code would be longer than 32 bits, counts are halved, 1 staying 1, until it is not.

    >>> code_lengths(np.array([1, 0, 3, 1]))
    array([2, 0, 1, 2], dtype=uint8)
    """
    used = np.flatnonzero(counts)
    lengths = np.zeros(len(counts), np.uint8)
    if len(used) == 1:
        lengths[used] = 1
        return lengths
    weights = counts[used]
    while True:
        depths = _depths(weights.tolist())
        if max(depths, default=0) <= LONGEST:
            lengths[used] = depths
            return lengths
        weights = np.maximum(weights // 2, 1)


def _depths(weights: list[int]) -> list[int]:
    """How deep each leaf of the tree lies that joins the two lightest until one is left."""
    parents = list(range(2 * len(weights) - 1))
    heap = list(zip(weights, parents, strict=False))
    heapq.heapify(heap)
    for node in range(len(weights), len(parents)):
        light, one = heapq.heappop(heap)
        weight, other = heapq.heappop(heap)
        parents[one] = parents[other] = node
        heapq.heappush(heap, (light + weight, node))
    depths = [0] * len(parents)
    for node in range(len(parents) - 2, -1, -1):
        depths[node] = depths[parents[node]] + 1
    return depths[: len(weights)]


def _check_lengths(book: int, lengths: _Lengths) -> None:
    used = lengths[lengths > 0].astype(np.int64)
    if len(used) == 0:
        raise MalformedMessage("huffman", f"book {book} has no codes")
    if used.max() > LONGEST:
        reason = f"book {book} has a code of {used.max()} bits; at most {LONGEST} are allowed"
        raise MalformedMessage("huffman", reason)
    if len(used) == 1:
        if used[0] != 1:
            reason = f"the only code of book {book} has {used[0]} bits; expected 1"
            raise MalformedMessage("huffman", reason)
    elif int((1 << (LONGEST - used)).sum()) != 1 << LONGEST:
        raise MalformedMessage("huffman", f"the lengths of book {book} are of no complete code")


def _tables(lengths: _Lengths) -> tuple[Clusters, _Words, _Words, _Words]:
    """Symbols in the order of their codes and, of each length: where the codes of 32 bits that
    begin with a code of at most that length end; its first code; its first place among symbols."""
    order = np.lexsort((np.arange(len(lengths)), lengths))
    counts = np.bincount(lengths, minlength=LONGEST + 1)
    symbols = order[counts[0] :].astype(np.uint16)
    ends, firsts, places = (np.zeros(LONGEST + 1, np.uint64) for _ in range(3))
    code, place = 0, 0
    for length in range(1, LONGEST + 1):
        firsts[length], places[length] = code, place
        code += int(counts[length])
        place += int(counts[length])
        ends[length] = code << (LONGEST - length)
        code <<= 1
    return symbols, ends, firsts, places


def _codes(lengths: _Lengths) -> _Words:
    symbols, _, firsts, places = _tables(lengths)
    codes = np.zeros(len(lengths), np.uint64)
    used = lengths[symbols]
    codes[symbols] = firsts[used] + np.arange(len(symbols), dtype=np.uint64) - places[used]
    return codes


@compiled
def _write(
    out: NDArray[np.uint8], start: int, mapping: Clusters, lengths: _Lengths, codes: _Words
) -> int:
    """Write codes from bit ``start`` on; returns the bit behind the last."""
    at, filled = start >> 3, np.int64(start & 7)
    buffer = np.uint64(out[at]) >> np.uint64(8 - filled) if filled else np.uint64(0)
    for i in range(mapping.shape[0]):
        length = np.int64(lengths[mapping[i]])
        buffer = (buffer << np.uint64(length)) | codes[mapping[i]]
        filled += length
        while filled >= 8:
            filled -= 8
            out[at] = np.uint8((buffer >> np.uint64(filled)) & np.uint64(0xFF))
            at += 1
        buffer &= (np.uint64(1) << np.uint64(filled)) - np.uint64(1)
    if filled:
        out[at] = np.uint8((buffer << np.uint64(8 - filled)) & np.uint64(0xFF))
    return int(8 * at + filled)


@compiled
def _read(
    out: Clusters,
    data: NDArray[np.uint8],
    start: int,
    symbols: Clusters,
    ends: _Words,
    firsts: _Words,
    places: _Words,
) -> tuple[int, int]:
    """Read codes from bit ``start`` on; returns the bit behind the last, or −1, and how many."""
    left = 8 * data.shape[0] - start
    at, filled = (start >> 3), 0
    buffer = np.uint64(0)
    if start & 7:
        filled = 8 - (start & 7)
        buffer = np.uint64(data[at]) & ((np.uint64(1) << np.uint64(filled)) - np.uint64(1))
        at += 1
    for i in range(out.shape[0]):
        while filled < LONGEST:
            byte = np.uint64(data[at]) if at < data.shape[0] else np.uint64(0)
            buffer = (buffer << np.uint64(8)) | byte
            filled += 8
            at += 1
        word = (buffer >> np.uint64(filled - LONGEST)) & np.uint64(0xFFFFFFFF)
        length = 1
        while length <= LONGEST and word >= ends[length]:
            length += 1
        if length > LONGEST or length > left:
            return -1, i
        place = (word >> np.uint64(LONGEST - length)) - firsts[length] + places[length]
        out[i] = symbols[np.int64(place)]
        filled -= length
        left -= length
    return 8 * data.shape[0] - left, out.shape[0]
