"""The filter of a mapping: published vectors, a slow oracle, and the rates that theory gives."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.core import fuse
from eris.core.books import Books, Clusters
from eris.core.clustering import clustered
from eris.core.codings import encode_exceptions, with_exceptions
from eris.core.errors import InvalidSetting, MalformedMessage
from eris.core.fuse import FuseFilter, Layout, build, hits, matched, siphash
from eris.core.streams import Stream

# Three programs that share no code agreed on these.
V: dict[str, Any] = json.loads(Path(__file__).with_name("enccluster_vectors.json").read_text())


def keys(name: str) -> Callable[[int], bytes]:
    return lambda attempt: hashlib.sha256(f"{name}/{attempt}".encode()).digest()[:16]


def mapping(n: int, clusters: int, number: int = 0) -> Clusters:
    words = Stream(3, "test-fuse", number).words(0, n)
    return (words % np.uint32(clusters)).astype(np.uint16)


def listed(found: tuple[np.ndarray[Any, Any], Clusters]) -> list[list[int]]:
    ends, clusters = found
    return [part.tolist() for part in np.split(clusters, ends[:-1])]


# -- vectors --------------------------------------------------------------------------------------


def test_siphash() -> None:
    key, message = (bytes.fromhex(V["siphash"][name]) for name in ("key", "message_le64"))
    words = np.frombuffer(key + message, "<u8").astype(np.uint64)
    assert siphash(*words) == int(V["siphash"]["value"], 16)


@pytest.mark.parametrize("case", V["layouts"], ids=lambda case: str(case["n"]))
def test_layouts(case: dict[str, int]) -> None:
    layout = Layout.of(case["n"])
    assert (layout.length, layout.segments, layout.slots) == (
        case["segment_length"],
        case["segment_count"],
        case["slots"],
    )


@pytest.mark.parametrize("case", V["filters"], ids=lambda case: f"{case['n']}-{case['bits']}")
@pytest.mark.parametrize("own", [False, True], ids=["theirs", "ours"])
def test_filters_have_the_hits_of_the_vectors(case: dict[str, Any], own: bool) -> None:
    key, clusters = bytes.fromhex(case["siphash_key"]), np.array(case["clusters"], np.uint16)
    head = bytes([case["bits"], case["attempt"]]) + case["n"].to_bytes(4, "big")
    wire = head + bytes.fromhex(case["fingerprints_le"])
    if own:
        built = build(lambda attempt: key, case["first"], clusters, case["bits"])
        assert built.attempt == case["attempt"]
        assert len(built.wire()) == len(wire)
        wire = built.wire()
    found = FuseFilter.parsed(wire, case["n"], case["bits"])
    books = Books((case["n"],), (case["kappa"],))
    assert listed(hits(found, key, case["first"], books)) == case["hits"]
    first = [hit[0] for hit in case["hits"]]
    assert matched(found, key, case["first"], books).tolist() == first


# -- a slow oracle --------------------------------------------------------------------------------

MASK = 2**64 - 1


def slow_siphash(key: bytes, message: bytes) -> int:
    """From the paper's figure, on whole bytes."""
    low, high = (int.from_bytes(key[at : at + 8], "little") for at in (0, 8))
    v = [int.from_bytes(b"somepseudorandomlygeneratedbytes"[at : at + 8], "big") for at in
         (0, 8, 16, 24)]  # fmt: skip
    v = [v[0] ^ low, v[1] ^ high, v[2] ^ low, v[3] ^ high]

    def turn(word: int, by: int) -> int:
        return (word << by | word >> (64 - by)) & MASK

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = (v[0] + v[1]) & MASK
            v[2] = (v[2] + v[3]) & MASK
            v[1], v[3] = turn(v[1], 13) ^ v[0], turn(v[3], 16) ^ v[2]
            v[0] = turn(v[0], 32)
            v[2] = (v[2] + v[1]) & MASK
            v[0] = (v[0] + v[3]) & MASK
            v[1], v[3] = turn(v[1], 17) ^ v[2], turn(v[3], 21) ^ v[0]
            v[2] = turn(v[2], 32)

    blocks = message + bytes(7 - len(message) % 8) + bytes([len(message)])
    for at in range(0, len(blocks), 8):
        block = int.from_bytes(blocks[at : at + 8], "little")
        v[3] ^= block
        rounds(2)
        v[0] ^= block
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def slow_mix(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & MASK
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return h ^ h >> 33


def slow_member(found: FuseFilter, key: bytes, coordinate: int, cluster: int) -> bool:
    layout = Layout.of(found.pairs)
    keyed = slow_siphash(key, coordinate.to_bytes(8, "little"))
    h = slow_mix((keyed + cluster * 0x9E3779B97F4A7C15) & MASK)
    g = slow_mix((h + 0xD1B54A32D192ED03) & MASK)
    start = h * layout.segments * layout.length >> 64
    places = [start] + [
        (start + r * layout.length) ^ ((g >> 18 * (r - 1)) % layout.length) for r in (1, 2, 3)
    ]
    assert [place // layout.length for place in places] == [
        start // layout.length + r for r in range(4)
    ]
    held = 0
    for place in places:
        held ^= int(found.fingerprints[place])
    return bool(held == h % 2**found.bits)


def test_the_oracle_has_the_vector_of_siphash() -> None:
    key, message = (bytes.fromhex(V["siphash"][name]) for name in ("key", "message_le64"))
    assert slow_siphash(key, message) == int(V["siphash"]["value"], 16)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(2, 40)), min_size=1, max_size=4),
    st.sampled_from(fuse.BITS),
    st.integers(0, 2**40),
    st.integers(0, 2**30),
)
def test_hits_of_many_books_beside_the_oracle(
    shape: list[tuple[int, int]], bits: int, first: int, seed: int
) -> None:
    books = Books(tuple(size for size, _ in shape), tuple(clusters for _, clusters in shape))
    true = np.concatenate(
        [mapping(size, kappa, seed + at) for at, (size, kappa) in enumerate(shape)]
    )
    built = build(keys(str(seed)), first, true, bits)
    key = keys(str(seed))(built.attempt)
    expected = [
        [c for c in range(kappa) if slow_member(built, key, first + where.start + i, c)]
        for where, kappa in books
        for i in range(where.stop - where.start)
    ]
    assert listed(hits(built, key, first, books)) == expected
    assert all(own in clusters for own, clusters in zip(true.tolist(), expected, strict=True))
    assert matched(built, key, first, books).tolist() == [clusters[0] for clusters in expected]
    # The most populous of those that hit, of equals the lower.
    sizes = books.counts(true)
    book_of = np.repeat(np.arange(len(shape)), books.sizes)
    populous = [
        min(clusters, key=lambda c: (-sizes[book][c], c))
        for book, clusters in zip(book_of, expected, strict=True)
    ]
    assert matched(built, key, first, books, sizes).tolist() == populous


# -- rates ----------------------------------------------------------------------------------------


def check_no_false_negative(n: int, clusters: int, bits: int) -> None:
    true = mapping(n, clusters)
    built = build(keys("negatives"), 5, true, bits)
    ends, found = hits(built, keys("negatives")(built.attempt), 5, Books((n,), (clusters,)))
    counts = np.diff(ends, prepend=0)
    # Clusters are listed once each, so as many are right as there are coordinates.
    assert int((found == np.repeat(true, counts)).sum()) == n


@pytest.mark.parametrize("bits", fuse.BITS)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 100, 1000, 10_000])
def test_no_false_negatives_at_any_size(n: int, bits: int) -> None:
    if n:
        check_no_false_negative(n, 128, bits)
    else:
        assert build(keys("none"), 0, mapping(0, 2), bits).fingerprints.tolist() == [0] * 16


def test_no_false_negatives_among_a_million() -> None:
    check_no_false_negative(10**6, 32, 8)


@pytest.mark.slow
@pytest.mark.parametrize("bits", fuse.BITS)
def test_no_false_negatives_among_ten_millions(bits: int) -> None:
    check_no_false_negative(10**7, 8, bits)


@pytest.mark.parametrize("apart", [False, True], ids=["wrong clusters", "other coordinates"])
def test_the_rate_of_false_positives(apart: bool) -> None:
    n, clusters = 200_000, 128
    true = mapping(n, clusters)
    for bits, share in ((8, 0.05), (16, 0.25)):
        built = build(keys("rate"), 0, true, bits)
        books = Books((n,), (clusters,))
        ends, _ = hits(built, keys("rate")(built.attempt), n if apart else 0, books)
        asked = n * clusters - (0 if apart else n)
        expected = asked / 2**bits
        assert abs(int(ends[-1]) - (0 if apart else n) - expected) < share * expected
        # Chance alone is five standard deviations within that, for 8 bits sixteen.
        assert share * expected > 4.9 * math.sqrt(expected)


@pytest.mark.parametrize(
    ("bits", "first", "populous"), [(8, (0.20, 0.24), (0.13, 0.16)), (16, (8e-4, 1.1e-3), None)]
)
def test_wrong_clusters_are_as_many_as_theory_has(
    bits: int, first: tuple[float, float], populous: tuple[float, float] | None
) -> None:
    n = 100_000
    weights = Stream(3, "test-fuse-weights").normal(0, n).astype(np.float32)
    true = clustered(weights, 128).assignment
    books, sizes = Books((n,), (128,)), np.bincount(true, minlength=128)
    built = build(keys("rules"), 0, true, bits)
    for rule, within in ((None, first), ([sizes], populous)):
        asked_before = np.arange(128)
        if rule is not None:
            asked_before[np.argsort(-sizes, kind="stable")] = np.arange(128)
        # Wrong where one of the clusters that are asked before the true one hits.
        theory = float((1 - (1 - 2.0**-bits) ** asked_before[true]).mean())
        found = matched(built, keys("rules")(built.attempt), 0, books, rule)
        wrong = float((found != true).mean())
        assert abs(wrong - theory) < 5 * math.sqrt(theory / n)
        assert within is None or within[0] < theory < within[1]


@pytest.mark.parametrize("bits", fuse.BITS)
def test_with_exceptions_every_cluster_is_right(bits: int) -> None:
    books = Books((3000, 2000), (128, 300))
    true = np.concatenate([mapping(3000, 128), mapping(2000, 300, 1)])
    built = build(keys("exact"), 9, true, bits)
    found = matched(built, keys("exact")(built.attempt), 9, books)
    assert bits > 8 or not np.array_equal(found, true)
    sent = encode_exceptions(true, found, books)
    assert np.array_equal(with_exceptions(found, sent, books), true)


def test_attempts_are_few() -> None:
    # By the vectors' authors 0.06, 0.2, 0.08 and 0 more than one on average over 200 builds.
    for n, mean in ((10, 0.06), (100, 0.2), (1000, 0.08), (10_000, 0.0)):
        more = [build(keys(f"{n}/{run}"), 0, mapping(n, 8), 8).attempt for run in range(100)]
        assert abs(np.mean(more) - mean) < 0.15
    assert max(more) == 0


# -- refusals -------------------------------------------------------------------------------------


def test_layouts_do_not_hang_on_the_last_bits_of_a_logarithm() -> None:
    # Length: the step from 2^e to 2^(e+1) is at n = 2.91^(e + 3/2), in exact fractions.
    for e in range(2, 18):
        step = math.isqrt(291 ** (2 * e + 3) // 100 ** (2 * e + 3))
        assert Layout.of(step).length == 2**e
        assert Layout.of(step + 1).length == 2 ** (e + 1)
    # Slots: with logarithms that are off by far more than any library's, the same below the
    # 600,000 pairs from which on none is taken.
    pairs = np.arange(2, 600_000, dtype=np.float64)
    spread = 0.77 + 0.305 * np.log(600_000) / np.log(pairs)
    for error in (1 - 1e-13, 1 + 1e-13):
        low, high = pairs * spread, pairs * (0.77 + (spread - 0.77) * error)
        assert np.array_equal(np.rint(low), np.rint(high))


def test_the_attempt_is_counted_and_has_an_end() -> None:
    run = next(
        run for run in range(1000)
        if build(keys(f"again/{run}"), 0, mapping(100, 8), 8).attempt == 1
    )  # fmt: skip
    unlucky = keys(f"again/{run}")(0)
    asked: list[int] = []

    def always(attempt: int) -> bytes:
        asked.append(attempt)
        return unlucky

    with pytest.raises(InvalidSetting, match="key_of_attempt is '256 keys'; expected another"):
        build(always, 0, mapping(100, 8), 8)
    assert asked == list(range(256))


def test_wire_bytes() -> None:
    built = build(keys("wire"), 0, mapping(300, 8), 16)
    wire = built.wire()
    assert wire[:6] == bytes([16, built.attempt, 0, 0, 1, 44])
    assert len(wire) == 6 + 2 * Layout.of(300).slots
    again = FuseFilter.parsed(memoryview(wire), 300, 16)
    assert again.wire() == wire
    assert again.attempt == built.attempt


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda wire: wire[:-1], "filter: has 901 bytes; expected 902"),
        (lambda wire: wire + b"\0", "filter: has 903 bytes; expected 902"),
        (lambda wire: b"", "filter: has 0 bytes"),
        (lambda wire: b"\x08" + wire[1:], "filter.bits: is 8; this federation uses 16"),
        (lambda wire: wire[:2] + b"\xff" * 4 + wire[6:], "filter.pairs: is 4294967295; expected"),
        (lambda wire: wire[:5] + b"\0" + wire[6:], "filter.pairs: is 256; expected 300"),
    ],
)
def test_hostile_bytes_are_refused(change: Callable[[bytes], bytes], says: str) -> None:
    wire = build(keys("hostile"), 0, mapping(300, 8), 16).wire()
    with pytest.raises(MalformedMessage) as refused:
        FuseFilter.parsed(change(wire), 300, 16)
    assert str(refused.value).startswith(says)


def test_a_filter_without_a_hit_is_refused_by_coordinate() -> None:
    true = mapping(300, 8)
    built = build(keys("broken"), 70, true, 32)
    key, books = keys("broken")(built.attempt), Books((100, 200), (8, 8))
    assert np.array_equal(matched(built, key, 70, books), true)
    with pytest.raises(MalformedMessage, match="filter: has no cluster for coordinate 70"):
        matched(built, keys("another")(0), 70, books)
    with pytest.raises(MalformedMessage, match="filter: has no cluster for coordinate 370"):
        matched(built, key, 71, books)  # it has 70 to 369
    # One slot damaged: whoever has it is refused, nobody else.
    slots = built.fingerprints.copy()
    slots[np.flatnonzero(slots)[-1]] ^= 1
    broken = FuseFilter(32, built.attempt, 300, slots)
    hit = [
        own
        for own, cluster in enumerate(true.tolist())
        if not slow_member(broken, key, 70 + own, cluster)
    ]
    assert hit
    with pytest.raises(MalformedMessage, match=f"has no cluster for coordinate {70 + hit[0]}"):
        matched(broken, key, 70, books)


def test_arguments_that_mean_nothing() -> None:
    true, books = mapping(30, 8), Books((30,), (8,))
    built = build(keys("x"), 0, true, 8)
    for call, says in (
        (lambda: build(keys("x"), 0, true, 12), "bits is 12; expected 8, 16 or 32"),
        (lambda: build(keys("x"), -1, true, 8), "first is -1"),
        (lambda: build(lambda attempt: b"short", 0, true, 8), "key is '5 bytes'; expected 16"),
        (lambda: build(keys("x"), 0, true.astype(np.int64), 8), "clusters is '1-d int64'"),
        (lambda: matched(built, bytes(16), 0, Books((31,), (8,))), "filter.pairs is 30"),
        (lambda: matched(built, bytes(16), 0, books, [np.zeros(7, np.int64)]), "sizes[0] is 7"),
        (lambda: matched(built, bytes(16), 0, books, []), "sizes is 'of 0 books'; expected those"),
        (lambda: Layout.of(2**31 + 1), "pairs is"),
    ):
        with pytest.raises(InvalidSetting) as refused:
            call()
        assert says in str(refused.value)
