"""The group against its definition, and against a library that has changed."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.core.errors import MissingExtra, PrivacyWarning
from eris.protocol.enccluster import group
from eris.protocol.enccluster.group import (
    ORDER,
    SHIFT,
    RefusedPoint,
    added,
    encoded,
    negated,
    of_public,
    of_shifted,
    parsed,
    reseed,
    times_public,
    times_secret,
)
from eris.protocol.enccluster.paillier import PaillierPair

PRIME = 2**256 - 2**32 - 977
BASE = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)
"""SEC 2: secp256k1's field and generator."""
Affine = tuple[int, int] | None


def slow_sum(one: Affine, other: Affine) -> Affine:
    """The textbook's addition."""
    if one is None or other is None:
        return one or other
    if one[0] == other[0]:
        if (one[1] + other[1]) % PRIME == 0:
            return None
        slope = 3 * one[0] ** 2 * pow(2 * one[1], -1, PRIME)
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, PRIME)
    x = (slope**2 - one[0] - other[0]) % PRIME
    return x, (slope * (one[0] - x) - one[1]) % PRIME


def slow_times(scalar: int, point: Affine) -> Affine:
    total: Affine = None
    for bit in bin(scalar % ORDER)[2:]:
        total = slow_sum(total, total)
        if bit == "1":
            total = slow_sum(total, point)
    return total


def slow_bytes(point: Affine) -> bytes | None:
    return None if point is None else bytes([2 + point[1] % 2]) + point[0].to_bytes(32, "big")


def bytes_of(point: Any) -> bytes | None:
    return None if point is None else encoded(point)


SCALARS = st.one_of(
    st.integers(1, ORDER - 1), st.sampled_from([1, 2, ORDER - 1, ORDER - 2, 1 << 128])
)


@pytest.fixture
def library_anew() -> Iterator[None]:
    """What was found out about the library is forgotten, before and after."""
    group._keys.cache_clear()
    group._multiplier.cache_clear()
    yield
    group._keys.cache_clear()
    group._multiplier.cache_clear()


@settings(max_examples=30)
@given(SCALARS, SCALARS)
def test_both_multiplications_are_the_textbooks(scalar: int, other: int) -> None:
    point = of_public(other)
    assert point is not None
    expected = slow_bytes(slow_times(scalar * other, BASE))
    assert bytes_of(times_secret(scalar, point)) == expected
    assert bytes_of(times_public(scalar, point)) == expected


@settings(max_examples=25)
@given(st.lists(st.integers(-3, 3), max_size=6))
def test_sums_with_infinity_are_the_textbooks(scalars: list[int]) -> None:
    total: Affine = None
    for scalar in scalars:
        total = slow_sum(total, slow_times(scalar, BASE))
    assert bytes_of(added([of_public(s) for s in scalars])) == slow_bytes(total)
    assert bytes_of(negated(added([of_public(s) for s in scalars]))) == slow_bytes(
        slow_times(-sum(scalars), BASE)
    )


@given(st.sampled_from([0, 1, -1, SHIFT - 1, 1 - SHIFT]))
def test_a_shifted_message_is_the_message_and_the_shift(message: int) -> None:
    assert bytes_of(added([of_shifted(message), of_public(-SHIFT)])) == bytes_of(of_public(message))


def test_infinity_is_nobodys_multiple() -> None:
    assert of_public(0) is of_public(ORDER) is times_public(5, None) is None
    assert times_public(0, of_public(3)) is times_public(ORDER, of_public(3)) is None
    assert negated(None) is added([]) is added([None]) is None


@pytest.mark.parametrize("scalar", [0, ORDER, -1])
def test_secret_scalars_are_in_range(scalar: int) -> None:
    one = of_public(1)
    assert one is not None
    with pytest.raises(RefusedPoint, match="outside 1 to q"):
        times_secret(scalar, one)


def test_other_forms_of_points_are_refused_by_their_length() -> None:
    one = of_public(5)
    assert one is not None
    whole = one.format(compressed=False)
    hybrid = bytes([6 + whole[-1] % 2]) + whole[1:]
    for data in (whole, hybrid, b"", encoded(one)[:-1], encoded(one) + b"\0"):
        with pytest.raises(RefusedPoint, match="a point has 33"):
            parsed(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x02" + PRIME.to_bytes(32, "big"),  # x is not below p
        b"\x02" + (5).to_bytes(32, "big"),  # 5³ + 7 is no square
        b"\x04" + BASE[0].to_bytes(32, "big"),
        bytes(33),
    ],
)
def test_bytes_off_the_curve_are_refused(data: bytes) -> None:
    with pytest.raises(RefusedPoint, match="not on the curve"):
        parsed(data)


def test_the_private_library_is_where_this_package_expects_it(library_anew: None) -> None:
    # If this fails, a new coincurve has moved it: secret scalars would be multiplied in variable
    # time. Find the new place before the version is raised.
    native = importlib.import_module("coincurve._libsecp256k1")
    assert callable(native.lib.secp256k1_ecdh)
    assert native.ffi.sizeof("secp256k1_pubkey") == 64
    multiply = group._by_ecdh()
    three, six = of_public(3), of_public(6)
    assert three is not None
    assert bytes_of(multiply((2).to_bytes(32, "big"), three)) == bytes_of(six)
    # By the private library, without a warning (which would be an error here).
    assert group._multiplier().__qualname__ == multiply.__qualname__


@pytest.mark.parametrize("broken", ["gone", "other points"])
def test_without_it_there_is_a_warning_and_the_same_points(
    broken: str, library_anew: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    group._keys()
    if broken == "gone":
        monkeypatch.setitem(sys.modules, "coincurve._libsecp256k1", None)
    else:
        native = importlib.import_module("coincurve._libsecp256k1")

        def wrong(context: Any, output: Any, *rest: Any) -> int:
            native.ffi.memmove(
                output, BASE[0].to_bytes(32, "big") + BASE[1].to_bytes(32, "big"), 64
            )
            return 1

        class Lib:
            secp256k1_ecdh = staticmethod(wrong)

        class Native:
            ffi, lib = native.ffi, Lib

        monkeypatch.setitem(sys.modules, "coincurve._libsecp256k1", Native)
    seven = of_public(7)
    assert seven is not None
    with pytest.warns(PrivacyWarning, match="variable time"):
        found = times_secret(6, seven)
    assert bytes_of(found) == bytes_of(of_public(42))
    assert bytes_of(seven) == bytes_of(of_public(7))


def test_blinding_anew_changes_no_point() -> None:
    before = bytes_of(of_public(9))
    reseed()
    assert bytes_of(of_public(9)) == before


def test_without_the_extra_it_is_named(library_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("coincurve", "phe", "gmpy2"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"coincurve; run `pip install 'eris-fl\[crypto\]'`"):
        of_public(1)
    with pytest.raises(MissingExtra, match=r"gmpy2; run `pip install 'eris-fl\[crypto\]'`"):
        PaillierPair.drawn(256, os.urandom)


def test_to_import_the_package_the_extra_is_not_needed() -> None:
    names = ("answering", "content", "encrypt", "group", "labels", "logarithms", "opening",
             "paillier", "paper_keys", "scale", "sets", "shares")  # fmt: skip
    code = (
        "import sys\n"
        "for name in ('coincurve', 'gmpy2', 'phe'): sys.modules[name] = None\n"
        + "".join(f"import eris.protocol.enccluster.{name}\n" for name in names)
        + "from eris.protocol.enccluster.sets import SetLaw\nprint(SetLaw(10).least)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "7\n"
