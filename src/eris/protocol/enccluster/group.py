"""The group: points of secp256k1, by coincurve (libsecp256k1), which nothing else here touches.

The library cannot represent infinity; here it is None. Secret scalars pass only through the calls
that libsecp256k1 keeps in constant time: its ECDH, with a hash function that copies the point out,
and the making of public keys. Its tweaks, which show size and sign, see public scalars only.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from eris.core.errors import ErisError, PrivacyWarning, library

if TYPE_CHECKING:
    from coincurve import PublicKey

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
"""q, the number of points."""
POINT_BYTES, SCALAR_BYTES = 33, 32
SHIFT = 1 << 40
"""Added to a message before it is multiplied: then there is no sign and no zero among secrets."""

Element: TypeAlias = "PublicKey"
"""A point that is not infinity."""
MaybeInfinite: TypeAlias = "PublicKey | None"
"""A point; None is infinity."""


class RefusedPoint(ErisError, ValueError):
    """Bytes that are no point of the curve in the form that travels."""


@cache
def _keys() -> Any:
    return library("coincurve", "coincurve", "crypto").PublicKey


def parsed(data: bytes) -> Element:
    """A point from its 33 bytes; other forms are refused by their length.

    >>> encoded(parsed(encoded(of_public(7)))) == encoded(of_public(7))
    True
    """
    if len(data) != POINT_BYTES:
        raise RefusedPoint(f"{len(data)} bytes; a point has {POINT_BYTES}")
    try:
        return _keys()(bytes(data))  # type: ignore[no-any-return]
    except ValueError:
        raise RefusedPoint(f"{bytes(data).hex()} is not on the curve") from None


def encoded(point: Element) -> bytes:
    """A point's 33 bytes."""
    return point.format()


def added(points: Sequence[MaybeInfinite]) -> MaybeInfinite:
    """The sum of points.

    >>> added([of_public(3), of_public(-3), None]) is None
    True
    """
    finite = [point for point in points if point is not None]
    if len(finite) < 2:
        return finite[0] if finite else None
    try:
        return _keys().combine_keys(finite)  # type: ignore[no-any-return]
    except ValueError:  # of points that are valid, the library refuses one sum alone: infinity
        return None


def negated(point: MaybeInfinite) -> MaybeInfinite:
    """The point's opposite: the same x with the other y."""
    if point is None:
        return None
    data = encoded(point)
    return parsed(bytes([data[0] ^ 1]) + data[1:])


def of_public(scalar: int) -> MaybeInfinite:
    """scalar·G for a scalar that everyone may know."""
    reduced = scalar % ORDER
    return _keys().from_secret(reduced.to_bytes(SCALAR_BYTES, "big")) if reduced else None


def times_public(scalar: int, point: MaybeInfinite) -> MaybeInfinite:
    """scalar·point in variable time, for a scalar that everyone may know."""
    reduced = scalar % ORDER
    if point is None or not reduced:
        return None
    return point.multiply(reduced.to_bytes(SCALAR_BYTES, "big"))


def of_shifted(message: int) -> Element:
    """(message + 2^40)·G in constant time; the caller takes 2^40·G off again."""
    return _keys().from_secret((message + SHIFT).to_bytes(SCALAR_BYTES, "big"))  # type: ignore[no-any-return]


def times_secret(scalar: int, point: Element) -> Element:
    """scalar·point in constant time.

    >>> encoded(times_secret(5, of_public(3))) == encoded(of_public(15))
    True
    """
    if not 0 < scalar < ORDER:
        raise RefusedPoint("a secret scalar is outside 1 to q − 1")
    return _multiplier()(scalar.to_bytes(SCALAR_BYTES, "big"), point)


@cache
def _multiplier() -> Callable[[bytes, Element], Element]:
    """ECDH in constant time; without coincurve's private library its variable-time call."""
    _keys()  # without coincurve there is nothing to fall back on
    try:
        return _by_ecdh()
    except (ImportError, AttributeError, TypeError, MemoryError) as missing:
        warnings.warn(
            "coincurve does not give access to libsecp256k1's ECDH "
            f"({missing}); secret scalars are multiplied in variable time, which shows something "
            "of them to who can time this process",
            PrivacyWarning,
            stacklevel=3,
        )
        return lambda scalar, point: point.multiply(scalar)


def _by_ecdh() -> Callable[[bytes, Element], Element]:
    native = library("coincurve._libsecp256k1", "coincurve", "crypto")
    context = library("coincurve.context", "coincurve", "crypto").GLOBAL_CONTEXT
    ffi, multiply, keys = native.ffi, native.lib.secp256k1_ecdh, _keys()

    @ffi.callback("int(unsigned char *, unsigned char *, unsigned char *, void *)")  # type: ignore[untyped-decorator]
    def copied(output: Any, x: Any, y: Any, data: Any) -> int:
        ffi.memmove(output, x, SCALAR_BYTES)
        ffi.memmove(output + SCALAR_BYTES, y, SCALAR_BYTES)
        return 1

    def multiplied(scalar: bytes, point: Element) -> Element:
        output = ffi.new("unsigned char [64]")
        if not multiply(context.ctx, output, point.public_key, scalar, copied, ffi.NULL):
            raise RefusedPoint("a secret scalar is outside 1 to q − 1")
        return keys(b"\x04" + bytes(ffi.buffer(output)))  # type: ignore[no-any-return]

    # Used once: what cannot be called must be known here, not in the middle of a round.
    if multiplied(bytes(31) + b"\x02", keys.from_secret(b"\x03")) != keys.from_secret(b"\x06"):
        raise TypeError("its ECDH gives other points")
    return multiplied


def reseed() -> None:
    """Blind the library's context anew; after a fork both processes have the same."""
    library("coincurve.context", "coincurve", "crypto").GLOBAL_CONTEXT.reseed()
