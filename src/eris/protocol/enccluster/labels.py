"""What everything is bound to: labels, and the scalars and points that follow from them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from eris.core.errors import ErisError, require
from eris.protocol.enccluster.group import ORDER, Element, RefusedPoint, parsed
from eris.protocol.secure.labels import derived, digest, prf

DOM = b"eris-enccluster-v1"
ONE_POINT = 0xFFFFFFFF
"""In place of a coordinate, where a label has one point for all of them."""
_TRIES = 256
_U32, _U64 = 1 << 32, 1 << 64


class UnusableFresh(ErisError):
    """Randomness of which no ciphertext can be made, with probability 2^−250: draw it again."""


def federation_name(settings: bytes, model: bytes, nonce: bytes) -> bytes:
    """32 bytes that no other federation has.

    ``settings`` is the canonical text of what is agreed, ``model`` the starting model's SHA-256,
    ``nonce`` 32 random bytes of the founding.
    """
    require(len(model) == 32, "model digest", model.hex(), "32 bytes")
    require(len(nonce) == 32, "founding nonce", nonce.hex(), "32 bytes")
    return digest(settings, model, nonce)


@dataclass(frozen=True)
class BookLabel:
    """Where a codebook belongs: what is encrypted under one label opens with another's key never.

    >>> len(BookLabel(bytes(32), epoch=0, round=1, shard=0, segment=0).encoded)
    84
    """

    federation: bytes
    epoch: int
    round: int
    shard: int
    segment: int
    book: int = 0

    def __post_init__(self) -> None:
        require(len(self.federation) == 32, "federation", self.federation.hex(), "32 bytes")
        for name, most in (("epoch", _U64), ("round", _U64), ("shard", _U32),
                           ("segment", _U32), ("book", _U32)):  # fmt: skip
            value = getattr(self, name)
            require(0 <= value < most, f"label {name}", value, f"an integer from 0 to {most - 1}")

    @cached_property
    def encoded(self) -> bytes:
        """84 bytes."""
        numbers = struct.pack(">QQIII", self.epoch, self.round, self.shard, self.segment, self.book)
        return DOM + b"/label" + self.federation + numbers

    @cached_property
    def first(self) -> BookLabel:
        """label₀, of what there is once a segment."""
        return replace(self, book=0)

    def of_book(self, book: int) -> BookLabel:
        """The label of another codebook of the segment."""
        return replace(self, book=book)


def scalar(extracted: bytes, info: bytes) -> int:
    """48 bytes of HKDF modulo q; 0 is refused."""
    value = int.from_bytes(derived(extracted, info, 48), "big") % ORDER
    if not value:
        raise UnusableFresh("a scalar is 0")
    return value


def extracted(secret: bytes) -> bytes:
    """HKDF's extraction under this protocol's salt."""
    return prf(DOM, secret)


def point(label: bytes, slot: int = 0, coordinate: int = ONE_POINT) -> Element:
    """U_slot(label, coordinate), of which nobody knows a logarithm."""
    return tried_point(label, slot, coordinate)[0]


@lru_cache(64)
def tried_point(label: bytes, slot: int, coordinate: int) -> tuple[Element, int]:
    """The point, and how many tries it took; labels are public, so the time may vary."""
    name = struct.pack(">IBI", len(label), slot, coordinate)
    for counter in range(_TRIES):
        x = digest(DOM, b"/point", name, label, bytes([counter]))
        try:
            return parsed(b"\x02" + x), counter + 1
        except RefusedPoint:
            continue
    raise UnusableFresh(f"label {label.hex()} has no point")  # with probability 2^−256
