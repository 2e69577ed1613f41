"""What travels of a mapping besides Huffman codes: packed words, sizes, exceptions."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.core.books import Books, Clusters
from eris.core.codings import (
    decode_sizes,
    encode_exceptions,
    encode_sizes,
    pack_index,
    packed,
    unpack_index,
    unpacked,
    with_exceptions,
)
from eris.core.errors import InvalidSetting, MalformedMessage
from eris.core.streams import Stream

# Three programs that share no code agreed on these.
V: dict[str, Any] = json.loads(Path(__file__).with_name("enccluster_vectors.json").read_text())
shapes = st.lists(
    st.tuples(st.integers(1, 40), st.integers(2, 300) | st.just(2**16)), min_size=1, max_size=4
)


def books_of(shape: list[tuple[int, int]]) -> Books:
    return Books(tuple(size for size, _ in shape), tuple(clusters for _, clusters in shape))


def mapping(books: Books, seed: int = 0) -> Clusters:
    words = Stream(seed, "test-codings").words(0, books.size)
    kappa = np.repeat(books.clusters, books.sizes)
    return np.asarray(words % kappa, np.uint16)


# -- packed words and indices ---------------------------------------------------------------------


@pytest.mark.parametrize("case", V["packing"], ids=lambda case: f"{case['bits']} bits")
def test_packing_of_the_vectors(case: dict[str, Any]) -> None:
    words, data = np.array(case["values"], np.uint16), bytes.fromhex(case["packed"])
    assert packed(words, case["bits"]) == data
    assert unpacked(data, len(words), case["bits"]).tolist() == case["values"]


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 16), st.integers(0, 50), st.integers(0, 99))
def test_words_of_any_width_beside_one_large_number(bits: int, count: int, seed: int) -> None:
    words = (Stream(seed, "words").words(0, count) >> np.uint32(32 - bits)).astype(np.uint16)
    number = sum(word << (bits * i) for i, word in enumerate(words.tolist()))
    data = packed(words, bits)
    assert data == number.to_bytes(-(-count * bits // 8), "little")
    assert np.array_equal(unpacked(memoryview(data), count, bits), words)


@settings(deadline=None, derandomize=True)
@given(shapes, st.integers(0, 99))
def test_an_index_of_many_books_beside_one_large_number(
    shape: list[tuple[int, int]], seed: int
) -> None:
    books = books_of(shape)
    true, number, bits = mapping(books, seed), 0, 0
    for where, clusters in books:
        for cluster in true[where].tolist():
            number |= cluster << bits
            bits += (clusters - 1).bit_length()
    data = pack_index(true, books)
    assert data == number.to_bytes(-(-bits // 8), "little")
    assert np.array_equal(unpack_index(data, books), true)
    if len(shape) == 1:
        assert data == packed(true, books.widths[0])


def test_the_last_cluster_of_a_book_is_read_and_the_next_is_not() -> None:
    books = Books((2, 2), (2, 5))
    assert unpack_index(b"\x80", books).tolist() == [0, 0, 0, 4]
    with pytest.raises(MalformedMessage, match="index: coordinate 3 has cluster 5, which its"):
        unpack_index(b"\xa0", books)


def test_an_index_of_128_clusters_has_seven_bits_a_weight() -> None:
    books = Books((270_000,), (128,))
    assert len(pack_index(mapping(books), books)) == 270_000 * 7 // 8


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (lambda: unpacked(b"", 1, 7), "words: has 0 bytes; expected 1"),
        (lambda: unpacked(b"\0\0", 1, 7), "words: has 2 bytes; expected 1"),
        (lambda: unpacked(b"\x80", 1, 7), "words: has bits behind its end"),
        (lambda: unpack_index(bytes(1), Books((4,), (8,))), "index: has 1 bytes; expected 2"),
        (lambda: unpack_index(bytes(3), Books((4,), (8,))), "index: has 3 bytes; expected 2"),
        (lambda: unpack_index(b"\0\x10", Books((4,), (8,))), "index: has bits behind its end"),
    ],
)
def test_packed_bytes_that_are_refused(read: Callable[[], object], says: str) -> None:
    with pytest.raises(MalformedMessage) as refused:
        read()
    assert str(refused.value) == says


def test_what_a_client_may_not_pack() -> None:
    with pytest.raises(InvalidSetting, match=r"words\[1\] is 32; expected a word of 5 bits"):
        packed(np.array([31, 32], np.uint16), 5)
    for bits in (0, 17):
        with pytest.raises(InvalidSetting, match="bits"):
            packed(np.zeros(1, np.uint16), bits)
        with pytest.raises(InvalidSetting, match="bits"):
            unpacked(b"", 0, bits)
    with pytest.raises(InvalidSetting, match=r"mapping\[2\] is 4; expected an index below"):
        pack_index(np.array([0, 3, 4, 5], np.uint16), Books((4,), (4,)))
    with pytest.raises(InvalidSetting, match="mapping"):
        pack_index(np.zeros(3, np.uint16), Books((4,), (4,)))
    with pytest.raises(InvalidSetting, match="mapping"):
        pack_index(np.zeros(4, np.int64), Books((4,), (4,)))


@pytest.mark.parametrize(
    ("sizes", "clusters", "says"),
    [
        ((), (), "sizes"),
        ((3,), (4, 4), "clusters"),
        ((3, 0), (4, 4), r"sizes\[1\]"),
        ((3, 3), (4, 1), r"clusters\[1\]"),
        ((3,), (2**16 + 1,), r"clusters\[0\]"),
    ],
)
def test_books_that_are_none(sizes: tuple[int, ...], clusters: tuple[int, ...], says: str) -> None:
    with pytest.raises(InvalidSetting, match=says):
        Books(sizes, clusters)


# -- sizes ----------------------------------------------------------------------------------------


@settings(deadline=None, derandomize=True, max_examples=30)
@given(shapes, st.integers(0, 99))
def test_sizes_come_back(shape: list[tuple[int, int]], seed: int) -> None:
    books = books_of(shape)
    data = encode_sizes(mapping(books, seed), books)
    assert len(data) == 4 * sum(books.clusters)
    found = decode_sizes(memoryview(data), books)
    for one, other in zip(found, books.counts(mapping(books, seed)), strict=True):
        assert np.array_equal(one, other)


def test_sizes_that_are_refused() -> None:
    books = Books((3, 2), (2, 2))
    good = encode_sizes(np.array([1, 1, 0, 0, 0], np.uint16), books)
    assert good.hex() == "00000001000000020000000200000000"
    for data, says in (
        (good[:-1], "sizes: has 15 bytes; expected 16"),
        (good + b"\0", "sizes: has 17 bytes; expected 16"),
        (good[:-1] + b"\1", "sizes: of book 1 add up to 3; it has 2 coordinates"),
        (b"\xff" + good[1:], "sizes: of book 0 add up to 4278190083; it has 3 coordinates"),
    ):
        with pytest.raises(MalformedMessage) as refused:
            decode_sizes(data, books)
        assert str(refused.value) == says


# -- exceptions -----------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    if number < 128:
        return bytes([number])
    return bytes([number & 127 | 128]) + varint(number >> 7)


@settings(deadline=None, derandomize=True)
@given(shapes, st.integers(0, 99), st.floats(0, 1))
def test_exceptions_beside_a_slow_writer(
    shape: list[tuple[int, int]], seed: int, share: float
) -> None:
    books = books_of([(20 * size, clusters) for size, clusters in shape])
    true, other = mapping(books, seed), mapping(books, seed + 1)
    found = np.where(Stream(seed, "wrong").uniform(0, books.size) < share, other, true)
    kappa, data, before = np.repeat(books.clusters, books.sizes), b"", 0
    for i in np.flatnonzero(found != true).tolist():
        data += varint(i - before) + int(true[i]).to_bytes(2 if kappa[i] > 256 else 1, "big")
        before = i
    assert encode_exceptions(true, found, books) == data
    assert np.array_equal(with_exceptions(found, memoryview(data), books), true)


def test_far_exceptions() -> None:
    books = Books((3_000_000,), (256,))
    found = np.zeros(books.size, np.uint16)
    true = found.copy()
    true[[0, 127, 128, 2**14 + 128, 2**21 + 2**14 + 128, 2_999_999]] = 255
    data = encode_exceptions(true, found, books)
    assert data.hex() == "00ff7fff01ff808001ff80808001ff" + (
        varint(2_999_999 - 2**21 - 2**14 - 128).hex() + "ff"
    )
    assert np.array_equal(with_exceptions(found, data, books), true)
    assert np.array_equal(with_exceptions(found, b"", books), found)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("01", "an entry that is cut off at byte 0"),
        ("010281", "an entry that is cut off at byte 2"),
        ("0201", "an entry that is cut off at byte 0"),
        ("818000", "a distance that is written too long at byte 0"),
        ("8000", "a distance that is written too long at byte 0"),
        ("808080808001", "a distance that is written too long at byte 0"),
        ("01010001", "a coordinate that is not behind the one before at byte 2"),
        ("030001010002", "a coordinate behind the segment's last at byte 3"),
        ("0402", "a coordinate behind the segment's last at byte 0"),
        ("ffffffff7f00", "a coordinate behind the segment's last at byte 0"),
        ("0104", "a cluster that the book lacks at byte 0"),
        ("02012c", "a cluster that the book lacks at byte 0"),
    ],
)
def test_exceptions_that_are_refused(data: str, says: str) -> None:
    books = Books((2, 2), (4, 300))
    found = np.zeros(4, np.uint16)
    with pytest.raises(MalformedMessage) as refused:
        with_exceptions(found, bytes.fromhex(data), books)
    assert str(refused.value) == f"exceptions: {says}"
    assert found.tolist() == [0, 0, 0, 0]


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=12), shapes)
def test_any_bytes_are_refused_or_fit(data: bytes, shape: list[tuple[int, int]]) -> None:
    books = books_of(shape)
    with suppress(MalformedMessage):
        books.check(unpack_index(data, books))
    with suppress(MalformedMessage):
        books.check(with_exceptions(np.zeros(books.size, np.uint16), data, books))
