"""Huffman codes of a mapping: beside a slow coder of texts of bits, and against hostile bytes."""

from __future__ import annotations

import heapq
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.core.books import Books, Clusters
from eris.core.errors import MalformedMessage
from eris.core.huffman import code_lengths, decode, encode
from eris.core.streams import Stream

shapes = st.lists(st.tuples(st.integers(1, 60), st.integers(2, 300)), min_size=1, max_size=4)


def mapping(books: Books, seed: int = 0) -> Clusters:
    """Low clusters are used more often than high ones."""
    draws = Stream(seed, "test-huffman").uniform(0, books.size) ** 4
    return np.asarray(draws * np.repeat(books.clusters, books.sizes), np.uint16)


def texts(lengths: list[int]) -> dict[int, str]:
    """The canonical code of these lengths."""
    code, before, found = 0, 0, {}
    for length, symbol in sorted((length, at) for at, length in enumerate(lengths) if length):
        code <<= length - before
        found[symbol], before = f"{code:0{length}b}", length
        code += 1
    return found


def slow_encode(true: Clusters, books: Books) -> bytes:
    heads, text = b"", ""
    for where, clusters in books:
        lengths = code_lengths(np.bincount(true[where], minlength=clusters)).tolist()
        codes = texts(lengths)
        heads += bytes(lengths)
        text += "".join(codes[cluster] for cluster in true[where].tolist())
    text += "0" * (-len(text) % 8)
    return heads + bytes(int(text[at : at + 8], 2) for at in range(0, len(text), 8))


@settings(deadline=None, derandomize=True)
@given(shapes, st.integers(0, 99))
def test_many_books_beside_the_slow_coder(shape: list[tuple[int, int]], seed: int) -> None:
    books = Books(tuple(size for size, _ in shape), tuple(clusters for _, clusters in shape))
    true = mapping(books, seed)
    data = encode(true, books)
    assert data == slow_encode(true, books)
    assert np.array_equal(decode(memoryview(data), books), true)


def test_golden() -> None:
    """By hand. Cluster 1 has length 1 (code 0), 0 and 3 have 2 (10, 11); of the second book the
    one used cluster has length 1 (code 0): 0 10 0 11 0, then 0 0 0."""
    books = Books((5, 3), (4, 3))
    true = np.array([1, 0, 1, 3, 1, 2, 2, 2], np.uint16)
    assert encode(true, books).hex() == "02010002" + "000001" + f"{0b0100_1100:02x}00"
    assert np.array_equal(decode(encode(true, books), books), true)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=200))
def test_no_code_is_shorter(counts: list[int]) -> None:
    lengths = code_lengths(np.array(counts)).tolist()
    assert [length > 0 for length in lengths] == [count > 0 for count in counts]
    # The cost of joining the two lightest until one is left is that of the best code.
    heap, cost = [count for count in counts if count], 0
    heapq.heapify(heap)
    if len(heap) == 1:
        cost = heap[0]
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heapq.heappop(heap)
        heapq.heappush(heap, joined)
        cost += joined
    assert sum(c * length for c, length in zip(counts, lengths, strict=True)) == cost


def test_no_code_is_longer_than_32_bits() -> None:
    fibonacci = [1, 1]
    while len(fibonacci) < 60:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    for used in (33, 34, 60):
        lengths = code_lengths(np.array(fibonacci[:used])).tolist()
        assert max(lengths) <= 32
        assert used > 33 or max(lengths) == 32
        assert sum(Fraction(1, 2**length) for length in lengths) == 1


def test_codes_of_32_bits_are_written_and_read() -> None:
    # Lengths 1, 2, … 32, 32 by hand: the longest codes in a stream of their own.
    books = Books((70,), (33,))
    lengths = [*range(1, 33), 32]
    true = np.array([*range(33), *range(32, -1, -1), 31, 32, 0, 31], np.uint16)
    codes = texts(lengths)
    text = "".join(codes[cluster] for cluster in true.tolist())
    text += "0" * (-len(text) % 8)
    body = bytes(int(text[at : at + 8], 2) for at in range(0, len(text), 8))
    assert np.array_equal(decode(bytes(lengths) + body, books), true)


def test_the_bits_are_those_of_the_entropy_and_at_most_one_more() -> None:
    books = Books((200_000,), (128,))
    true = mapping(books)
    shares = np.bincount(true, minlength=128) / books.size
    entropy = -float((shares[shares > 0] * np.log2(shares[shares > 0])).sum())
    bits = 8 * (len(encode(true, books)) - 128) / books.size
    assert entropy <= bits <= entropy + 0.1
    assert np.array_equal(decode(encode(true, books), books), true)


BOOKS = Books((5, 3), (4, 3))
GOOD = bytes([2, 1, 0, 2, 0, 0, 1, 0b0100_1100, 0])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "has 0 bytes; expected 8 to 39"),
        (GOOD[:7], "has 7 bytes; expected 8 to 39"),
        (GOOD + bytes(31), "has 40 bytes; expected 8 to 39"),
        (GOOD[:-1], "has no code for coordinate 6"),
        (GOOD + b"\0", "does not end at bit 10, with its last coordinate"),
        (GOOD[:-1] + b"\1", "does not end at bit 10, with its last coordinate"),
        (GOOD[:-1] + b"\x40", "has no code for coordinate 7"),
        (GOOD[:-1] + b"\x20", "does not end at bit 10, with its last coordinate"),
        (b"\x21" + GOOD[1:], "book 0 has a code of 33 bits; at most 32 are allowed"),
        (b"\xff" + GOOD[1:], "book 0 has a code of 255 bits; at most 32 are allowed"),
        (b"\3" + GOOD[1:], "the lengths of book 0 are of no complete code"),
        (b"\1" + GOOD[1:], "the lengths of book 0 are of no complete code"),
        (bytes([1, 1, 1, 1]) + GOOD[4:], "the lengths of book 0 are of no complete code"),
        (bytes(4) + GOOD[4:], "book 0 has no codes"),
        (GOOD[:6] + b"\2" + GOOD[7:], "the only code of book 1 has 2 bits; expected 1"),
    ],
)
def test_bytes_that_are_refused(data: bytes, says: str) -> None:
    decode(GOOD, BOOKS)
    with pytest.raises(MalformedMessage) as refused:
        decode(data, BOOKS)
    assert str(refused.value) == f"huffman: {says}"


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from([0, 1, 1, 2, 2, 3, 32, 33, 255]), min_size=7, max_size=7),
    st.binary(max_size=34),
)
def test_any_bytes_are_refused_or_fit(lengths: list[int], body: bytes) -> None:
    try:
        true = decode(bytes(lengths) + body, BOOKS)
    except MalformedMessage:
        return
    BOOKS.check(true)
    assert np.array_equal(decode(encode(true, BOOKS), BOOKS), true)
