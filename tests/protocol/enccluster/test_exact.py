"""What is opened is the sum, exactly, by both paths; and nothing that is too large is opened."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eris.core.errors import InvalidSetting, RefusedContribution
from eris.protocol.enccluster.content import content
from eris.protocol.enccluster.encrypt import ClientScalars, encrypt, encrypt_each
from eris.protocol.enccluster.group import SHIFT, added, negated, of_public
from eris.protocol.enccluster.labels import UnusableFresh
from eris.protocol.enccluster.opening import (
    NoLogarithm,
    ReceivedBook,
    open_by_differences,
    open_each,
    open_fully,
)
from eris.protocol.enccluster.scale import CentroidScale
from eris.protocol.enccluster.sets import SetStatement
from eris.protocol.enccluster.shares import ShareDesk, key_share
from support.enccluster import (
    LABEL,
    REACH,
    Contributor,
    key_of,
    known_bytes,
    member_keys,
    packed,
    plain_sums,
    random_clients,
    table,
)

PATHS = (open_fully, open_by_differences)


@st.composite
def clients(draw: st.DrawFn) -> list[Contributor]:
    count = draw(st.sampled_from([2, 3, 10, 30]))
    weighted = draw(st.booleans())
    most = REACH // (count * 3)
    edge = st.sampled_from([0, most, -most, 1, -1])
    seed = draw(st.integers(0, 1 << 30))
    rng = np.random.default_rng(seed)
    clusters, size = draw(st.integers(2, 5)), draw(st.integers(1, 8))
    found = []
    for number in range(count):
        messages = draw(
            st.lists(edge | st.integers(-most, most), min_size=clusters, max_size=clusters)
        )
        mapping = rng.integers(0, clusters, size).astype(np.uint32)
        weight = int(rng.integers(1, 4)) if weighted else 1
        found.append(Contributor(3 * number + 1, messages, mapping, weight))
    return found


def same(count: int, weight: int, *values: int) -> list[Contributor]:
    mapping = np.arange(len(values), dtype=np.uint32)
    return [Contributor(number, values, mapping, weight) for number in range(count)]


@settings(max_examples=40)
@given(clients())
@example(same(2, 1, REACH // 2, -REACH // 2))
@example(same(30, 1, 0, 0))
@example(same(3, 3, REACH // 9, -(REACH // 9)))
def test_both_paths_open_the_plain_sums(parts: list[Contributor]) -> None:
    key, books = key_of(parts), [one.book() for one in parts]
    for path in PATHS:
        assert path(books, key, LABEL, table(), REACH).tolist() == plain_sums(parts)


def test_sums_of_zero_are_zero() -> None:
    mapping = np.array([0, 1, 2], np.uint32)
    parts = [Contributor(1, [5, -7, 0], mapping), Contributor(2, [-5, 7, 0], mapping)]
    for path in PATHS:
        books = [one.book() for one in parts]
        assert path(books, key_of(parts), LABEL, table(), 10).tolist() == [0, 0, 0]


@pytest.mark.parametrize("samples", [(1, 1, 1), (3, 1, 2)])
def test_weights_at_the_edge_of_the_range_are_opened(samples: tuple[int, ...]) -> None:
    scale = CentroidScale(3, sum(samples), most=1.96875, fraction_bits=12, reach=REACH)
    edges = np.array([1.96875, -1.96875, 0, 2**-12], np.float32)
    mapping = np.arange(4, dtype=np.uint32)
    parts = [
        Contributor(k, scale.scaled(edges, s).tolist(), mapping) for k, s in enumerate(samples)
    ]
    sums = plain_sums(parts)
    assert max(map(abs, sums)) <= scale.bound <= REACH
    for path in PATHS:
        opened = path([p.book() for p in parts], key_of(parts), LABEL, table(), scale.bound)
        assert opened.tolist() == sums
        error = np.abs(scale.mean(opened, sum(samples)) - edges)
        assert error.max() <= 3 / 2 * 2.0**-12


def test_several_books_have_a_label_and_a_key_each() -> None:
    labels = [LABEL.of_book(book) for book in range(2)]
    columns = [
        [replace(one, label=label) for one in random_clients(3, seed=book)]
        for book, label in enumerate(labels)
    ]
    entries = tuple(one.entry() for one in columns[0])
    statement = SetStatement(LABEL, entries)
    desk = ShareDesk(statement, books=2)
    for pair in zip(*columns, strict=True):
        scalars = [one.scalars().values() for one in pair]
        desk.take(pair[0].number,
                  key_share(pair[0].keys, pair[0].number, statement, labels, scalars))  # fmt: skip
    for parts, label, key in zip(columns, labels, desk.key(), strict=True):
        for path in PATHS:
            opened = path([one.book() for one in parts], key, label, table(), REACH)
            assert opened.tolist() == plain_sums(parts)
    books = [one.book() for one in columns[1]]
    with pytest.raises(NoLogarithm, match="book 1"):
        open_fully(books, desk.key()[0], labels[1], table(), REACH)


@pytest.mark.parametrize("weights", [(1, 1, 1), (2, 1, 3)])
def test_detrust_fl_opens_every_weight(weights: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    parts, sent = [], []
    for number, weight in enumerate(weights):
        values = [*rng.integers(-900, 900, 9).tolist(), 0]
        part = Contributor(number, values, np.arange(10, dtype=np.uint32), weight, slots=2)
        scalars = ClientScalars.drawn(
            part.keys.process_secret, part.fresh, LABEL, content(values), 2
        )
        data = encrypt_each(values, LABEL, scalars)
        parts.append((part, scalars))
        sent.append(ReceivedBook.read_each(number, data, 10, weight))
    statement = SetStatement(LABEL, tuple(part.entry() for part, _ in parts))
    desk = ShareDesk(statement, slots=2)
    for part, scalars in parts:
        share = key_share(part.keys, part.number, statement, [LABEL], [scalars.values()])
        desk.take(part.number, share)
    opened = open_each(sent, desk.key()[0], LABEL, table(), REACH)
    assert opened.tolist() == plain_sums([part for part, _ in parts])
    # No two weights lie under one pad: differences without a key have no logarithm.
    off = negated(sent[0].points[0])
    assert not table().find([added([p, off]) for p in sent[0].points[1:]], REACH)[1].any()


def test_equal_messages_give_equal_points_and_one_pad_gives_differences() -> None:
    part = random_clients(1)[0]
    data = encrypt([7, 7, 9], LABEL, part.scalars())
    assert data[:33] == data[33:66] != data[66:]
    book = ReceivedBook.read(1, data, 3, np.zeros(1, np.uint32))
    off = negated(book.points[0])
    # Without any key: the leak that the short path uses.
    differences, found = table().find([added([p, off]) for p in book.points], REACH)
    assert found.all()
    assert differences.tolist() == [0, 0, 2]


def test_a_sum_out_of_range_is_named_by_its_place() -> None:
    mapping = np.array([0, 0, 1, 0], np.uint32)
    parts = [Contributor(1, [5, 60], mapping), Contributor(2, [5, 61], mapping)]
    key, books = key_of(parts), [one.book() for one in parts]
    for path in PATHS:
        assert path(books, key, LABEL, table(), 121).tolist() == [10, 10, 121, 10]
        with pytest.raises(NoLogarithm, match=r"round 17, shard 2, segment 5, book 0") as found:
            path(books, key, LABEL, table(), 120)
        assert found.value.coordinate == 2
        assert isinstance(found.value, OverflowError)


def test_the_short_path_names_a_client_whose_centroids_are_off() -> None:
    mapping = np.array([0, 1], np.uint32)
    parts = [Contributor(1, [0, 9], mapping), Contributor(2, [0, 4 * REACH], mapping)]
    books = [one.book() for one in parts]
    with pytest.raises(NoLogarithm, match="client 2, cluster 1") as found:
        open_by_differences(books, key_of(parts), LABEL, table(), REACH)
    assert (found.value.client, found.value.coordinate) == (2, 1)


def test_a_wrong_key_is_not_taken_for_right_by_a_prefix() -> None:
    parts = random_clients(3)
    books, wrong = [one.book() for one in parts], [12345]
    lying = type(table())(1, *(getattr(table(), n) for n in ("prefixes", "multiples", "odd")))

    def hits(points: list[object], bound: int) -> object:
        return np.ones(len(points), np.int64), np.ones(len(points), bool)

    object.__setattr__(lying, "find", hits)
    for path in PATHS:
        with pytest.raises(NoLogarithm):
            path(books, wrong, LABEL, lying, REACH)


def test_contributions_that_are_none_are_refused_by_their_sender() -> None:
    part = random_clients(1)[0]
    data, none = part.ciphertexts, np.zeros(2, np.uint32)
    for bad, mapping, reason in (
        (data[:-1], none, "131 bytes of ciphertexts; expected 4 of 33"),
        (data + data[:33], none, "165 bytes"),
        (data[:33] + b"\x05" + data[34:], none, "ciphertext 1: .* is not on the curve"),
        (data, np.array([0, 4], np.uint32), "coordinate 1 is in cluster 4 of 4"),
    ):
        with pytest.raises(RefusedContribution, match=f"client 8: {reason}") as found:
            ReceivedBook.read(8, bad, 4, mapping)
        assert found.value.client == 8
    short = replace(part.book(), client=2, mapping=none)
    with pytest.raises(RefusedContribution, match="client 2: 2 coordinates; expected 6"):
        open_fully([part.book(), short], [1], LABEL, table(), REACH)
    with pytest.raises(RefusedContribution, match="nothing to open"):
        open_fully([], [1], LABEL, table(), REACH)


def test_what_cannot_be_encrypted_is_refused() -> None:
    part = random_clients(1)[0]
    for beyond in (SHIFT, -SHIFT):
        with pytest.raises(InvalidSetting, match="message 1"):
            encrypt([0, beyond], LABEL, part.scalars())
    with pytest.raises(InvalidSetting, match="slots is 1; expected 2"):
        encrypt_each([1, 2], LABEL, part.scalars())
    with pytest.raises(InvalidSetting, match="clusters is 1"):
        content([4], b"")
    with pytest.raises(InvalidSetting, match="slots"):
        ClientScalars([1, 2, 3])
    with pytest.raises(InvalidSetting, match="fresh is '31 bytes'"):
        ClientScalars.drawn(bytes(32), bytes(31), LABEL, bytes(32))
    forgotten = part.scalars()
    forgotten.forget()
    with pytest.raises(UnusableFresh, match="forgotten"):
        encrypt([1, 2], LABEL, forgotten)
    assert "slots" in repr(forgotten)


def test_no_secret_meets_a_call_that_takes_variable_time(monkeypatch: pytest.MonkeyPatch) -> None:
    part, two = random_clients(1)[0], replace(random_clients(1)[0], slots=2)
    expected = part.ciphertexts
    for name in ("multiply", "add"):
        monkeypatch.setattr(f"coincurve.PublicKey.{name}", lambda *_: pytest.fail("variable time"))
    assert encrypt(part.messages, LABEL, part.scalars()) == expected
    assert len(encrypt_each([5, -5], LABEL, two.scalars())) == 66


def test_a_ciphertext_that_would_be_infinity_asks_for_other_randomness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eris.protocol.enccluster.encrypt.pad", lambda *_: of_public(5))
    with pytest.raises(UnusableFresh, match="infinity"):
        encrypt([3, -5], LABEL, random_clients(1)[0].scalars())


def test_label_content_and_randomness_all_change_the_scalars() -> None:
    keys, fresh = member_keys(1), known_bytes("a")
    said = content([1, 2], packed(np.array([0, 1], np.uint32), 2))
    drawn = [
        ClientScalars.drawn(keys.process_secret, fresh, LABEL, said, 2),
        ClientScalars.drawn(keys.process_secret, known_bytes("b"), LABEL, said, 2),
        ClientScalars.drawn(keys.process_secret, fresh, replace(LABEL, epoch=4), said, 2),
        ClientScalars.drawn(keys.process_secret, fresh, LABEL, content([1, 3]), 2),
        ClientScalars.drawn(known_bytes("c"), fresh, LABEL, said, 2),
    ]
    values = [value for one in drawn for value in one.values()]
    assert len(set(values)) == len(values) == 10
