"""Paillier's sums against plain integers, one at a time and packed."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.core.errors import InvalidSetting, MalformedMessage, MissingExtra
from eris.protocol.enccluster.paillier import SECURITY, Packing, PaillierKey, PaillierPair

BITS = 256
"""Of n: quick, and no secret to anyone."""
VALUES = [0, 1, -1, 703, -(2**62), 2**62, -7, 1234]


def repeated(name: str) -> Callable[[int], bytes]:
    """Bytes that follow from a name and are never the same twice."""
    drawn = 0

    def entropy(count: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return hashlib.shake_256(f"{name} {drawn}".encode()).digest(count)

    return entropy


@lru_cache(1)
def pair() -> PaillierPair:
    return PaillierPair.drawn(BITS, os.urandom)


@pytest.mark.parametrize("clients", [1, 2, 3, 10])
def test_sums_of_ciphertexts_are_those_of_the_integers(clients: int) -> None:
    public = pair().public
    total = public.encrypt(VALUES, os.urandom)
    for client in range(1, clients):
        more = public.encrypt([client * value for value in VALUES], os.urandom)
        total = [public.added(one, other) for one, other in zip(total, more, strict=True)]
    factor = 1 + clients * (clients - 1) // 2
    assert pair().decrypt(total) == [factor * value for value in VALUES]


def test_a_ciphertext_is_what_the_textbook_says() -> None:
    """(1 + m·n)·r^n mod n², by Python's integers alone, for r of given bytes."""
    n = pair().public.n
    for value in VALUES:
        (found,) = pair().public.encrypt([value], repeated("textbook"))
        r = int.from_bytes(repeated("textbook")(BITS // 8 + 16), "big") % n
        assert found == (1 + value % n * n) * pow(r, n, n * n) % (n * n)
    p, q = pair().primes
    assert p * q == n
    assert gcd(n, (p - 1) * (q - 1)) == 1


def test_the_edges_of_the_plaintexts() -> None:
    public, most = pair().public, (pair().public.n - 1) // 2
    assert pair().decrypt(public.encrypt([most, -most], os.urandom)) == [most, -most]
    for value in (most + 1, -most - 1):
        with pytest.raises(InvalidSetting, match="plaintext 0 is"):
            public.encrypt([value], os.urandom)


def test_bytes_come_back_and_what_is_no_ciphertext_is_refused() -> None:
    public = pair().public
    sent = public.encrypt(VALUES, os.urandom)
    data = public.write(sent)
    assert len(data) == len(VALUES) * public.ciphertext_bytes == len(VALUES) * 64
    assert public.read("data", data, len(VALUES)) == sent
    for bad, reason in (
        (data[:-1], "data: has 511 bytes; expected at most 8 ciphertexts of 64"),
        (data + data[:64], "has 576 bytes"),
        (bytes(64) + data[64:], "ciphertext 0 is no unit"),
        (data[:-64] + (public.n**2).to_bytes(64, "big"), "ciphertext 7 is no unit"),
        (data[:-64] + b"\xff" * 64, "ciphertext 7 is no unit"),
        (data[:-64] + pair().primes[0].to_bytes(64, "big"), "ciphertext 7 is no unit"),
        (data[:-64] + public.n.to_bytes(64, "big"), "ciphertext 7 is no unit"),
    ):
        with pytest.raises(MalformedMessage, match=reason):
            public.read("data", bad, len(VALUES))


def test_two_encryptions_of_one_integer_differ() -> None:
    public = pair().public
    assert len(set(public.encrypt([5] * 20, os.urandom))) == 20
    assert public.encrypt([5], repeated("a")) == public.encrypt([5], repeated("a"))
    assert public.encrypt([5], repeated("a")) != public.encrypt([5], repeated("b"))


def test_who_repeats_randomness_gives_the_difference_away() -> None:
    """Why a client's randomness is bound to what it encrypts: no key is needed for this."""
    public = pair().public
    n = public.n
    (one,), (other,) = (public.encrypt([value], repeated("same")) for value in (40, 33))
    quotient = int(one) * pow(int(other), -1, n * n) % (n * n)
    assert (quotient - 1) // n == 7


@given(
    st.lists(st.integers(-(2**60), 2**60), min_size=1, max_size=9),
    st.sampled_from(sorted(SECURITY)),
    st.integers(1, 7),
)
def test_packed_sums_keep_every_sign(values: list[int], key_bits: int, clients: int) -> None:
    packing = Packing.of(key_bits)
    assert packing.places == {256: 3, 2048: 31, 3072: 47}[key_bits]
    words = packing.join(values)
    assert len(words) == packing.count(len(values))
    total = [clients * word for word in words]
    assert packing.split(total, len(values)) == [clients * value for value in values]
    # A number n of k bits is at least 2^(k−1), and what is negative lies above n/2.
    assert all(2 * abs(one) < 1 << key_bits - 1 for one in total)


def test_packed_integers_at_their_edges() -> None:
    packing, most = Packing.of(BITS), 2**63 - 1
    for value in (most, -most):
        words = packing.join([value] * 5)
        assert pair().decrypt(pair().public.encrypt(words, os.urandom)) == words
        assert packing.split(words, 5) == [value] * 5
    for value in (most + 1, -most - 1):
        with pytest.raises(InvalidSetting, match=r"packed value 1 .*expected below 2\^63"):
            packing.join([0, value])
    with pytest.raises(MalformedMessage, match="plaintext: 1 has more than its integers"):
        packing.split([5, 1 << 128], 5)


def test_keys() -> None:
    public = pair().public
    assert (public.key_bits, public.ciphertext_bytes) == (256, 64)
    assert PaillierPair.drawn(128, repeated("key")) == PaillierPair.drawn(128, repeated("key"))
    assert PaillierPair.drawn(128, os.urandom) != PaillierPair.drawn(128, os.urandom)
    assert str(pair().primes[0]) not in repr(pair())
    for bits in (112, 257):
        with pytest.raises(InvalidSetting, match="Paillier key bits"):
            PaillierPair.drawn(bits, os.urandom)


@pytest.mark.parametrize("missing", ["phe", "gmpy2"])
def test_without_its_libraries_it_says_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = PaillierKey(pair().public.n)
    monkeypatch.setitem(sys.modules, missing, None)
    for attempt in (
        lambda: PaillierPair.drawn(BITS, os.urandom),
        lambda: key.encrypt([1], os.urandom),
    ):
        with pytest.raises(MissingExtra, match=rf"not installed: {missing}.*eris-fl\[crypto\]"):
            attempt()
