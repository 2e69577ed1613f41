"""SEFL's sums under Paillier against plain integers, one at a time and packed."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.core.errors import InvalidSetting, RefusedContribution
from eris.protocol.enccluster.paillier import PackedWords, SeflKey, SeflUpdate, kept_places

BITS = 256
"""Of n: quick, and no secret to anyone."""


@lru_cache(1)
def key() -> SeflKey:
    return SeflKey.drawn(BITS)


def updates(count: int = 4, size: int = 20) -> list[np.ndarray[tuple[int], np.dtype[np.float32]]]:
    rng = np.random.default_rng(3)
    return [rng.normal(0, 0.1, size).astype(np.float32) for _ in range(count)]


def plain(
    vectors: list[np.ndarray[tuple[int], np.dtype[np.float32]]], sent: list[SeflUpdate]
) -> list[int]:
    total = np.zeros(len(vectors[0]), np.int64)
    for vector, update in zip(vectors, sent, strict=True):
        scaled = np.rint(vector.astype(np.float64) * 2**20).astype(np.int64)
        total[update.places] += scaled[update.places]
    return total.tolist()


@pytest.mark.parametrize("share", [0.3, 0.4, 1.0])
def test_sums_of_kept_entries_are_exact(share: float) -> None:
    vectors = updates()
    sent = [key().encrypt(k, vector, share) for k, vector in enumerate(vectors)]
    assert {len(one.places) for one in sent} == {int(share * 20)}
    places, total = key().add(sent)
    found = np.zeros(20, np.int64)
    found[places] = key().decrypt(len(places), total)
    assert found.tolist() == plain(vectors, sent)
    assert min(found) < 0 < max(found)


def test_packed_sums_are_the_same_in_fewer_ciphertexts() -> None:
    packing = PackedWords(bits=24, clients=4)
    packed, vectors = replace(key(), packing=packing), updates()
    places = kept_places(vectors[0], 0.7)
    sent = [packed.encrypt_at(k, vector, places) for k, vector in enumerate(vectors)]
    assert packing.width == 26
    assert [len(one.ciphertexts) for one in sent] == [2] * 4  # 14 places, 9 to a plaintext
    where, total = packed.add(sent)
    found = np.zeros(20, np.int64)
    found[where] = packed.decrypt(len(where), total)
    assert found.tolist() == plain(vectors, sent)
    other = packed.encrypt(4, vectors[1], 0.7)
    with pytest.raises(RefusedContribution, match="client 4: packed, and keeps other places"):
        packed.add([*sent, other])


@given(st.lists(st.integers(-127, 127), min_size=1, max_size=40), st.integers(1, 5))
def test_packing_keeps_signs_at_every_edge(values: list[int], clients: int) -> None:
    packing = PackedWords(8, clients)
    total = [clients * one for one in packing.join(values, 64)]
    assert packing.split(total, len(values), 64) == [clients * value for value in values]
    most = (1 << 63) - 1
    assert all(abs(one) <= most // 2 + 1 for one in total)


def test_what_does_not_fit_a_place_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="packed value 1 is 128; expected at most ±127"):
        PackedWords(8, 2).join([0, 128], 64)
    with pytest.raises(InvalidSetting, match="places that fit 8 bits"):
        PackedWords(8, 2).places(8)
    for words in ((1, 2), (63, 2), (8, 0)):
        with pytest.raises(InvalidSetting, match="packed"):
            PackedWords(*words)


def test_two_encryptions_of_one_update_differ() -> None:
    vector = updates()[0]
    one, other = key().encrypt(1, vector, 0.3), key().encrypt(1, vector, 0.3)
    assert not set(one.ciphertexts) & set(other.ciphertexts)


def test_the_largest_magnitudes_are_kept_and_of_equal_ones_the_first() -> None:
    vector = np.array([1, -2, 2, 0, 2], np.float32)
    assert kept_places(vector, 0.4).tolist() == [1, 2]
    assert kept_places(vector, 0.5).tolist() == [1, 2, 4]
    for share in (0, 1.1):
        with pytest.raises(InvalidSetting, match="kept share"):
            kept_places(vector, share)


def test_what_is_no_update_is_refused_by_its_sender() -> None:
    good = key().encrypt(7, updates()[0], 0.3)
    for bad, reason in (
        (replace(good, ciphertexts=good.ciphertexts[1:]), "5 ciphertexts; expected 6"),
        (replace(good, ciphertexts=(0, *good.ciphertexts[1:])), "not from 1 to n² − 1"),
        (replace(good, ciphertexts=(key().public.nsquare, *good.ciphertexts[1:])), "not from 1"),
    ):
        with pytest.raises(RefusedContribution, match=f"client 7: .*{reason}"):
            key().add([bad])
    for value in (np.nan, np.inf, 1e30):
        with pytest.raises(RefusedContribution, match="client 7: coordinate 1 is"):
            key().encrypt(7, np.array([0, value], np.float32), 1.0)


def test_sizes() -> None:
    assert (key().key_bits, key().ciphertext_bytes) == (256, 64)
    for bits in (64, 257):
        with pytest.raises(InvalidSetting, match="Paillier key bits"):
            SeflKey.drawn(bits)
