"""How a mapping to clusters travels beside ciphertexts: in the clear, sealed, or in a filter.

What is sealed, and the key of a filter, follow from what a client and an owner share. A filter is
of pairs (coordinate, cluster); the rule for a coordinate with several hits is agreed on: the
``first`` hit, the most ``populous`` cluster, or ``exact``, by a sealed list of what the first hit
gets wrong.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from eris.core import fuse, huffman
from eris.core.books import Books, Clusters
from eris.core.codings import (
    Bytes,
    decode_sizes,
    encode_exceptions,
    encode_sizes,
    pack_index,
    unpack_index,
    with_exceptions,
)
from eris.core.errors import InvalidSetting, MalformedMessage, one_of
from eris.protocol.enccluster.labels import DOM, BookLabel
from eris.protocol.secure.keys import MemberKeys
from eris.protocol.secure.labels import derived

MappingCoding = Literal["packed", "sealed", "huffman", "filter8", "filter16", "filter32"]
Policy = Literal["exact", "first", "populous"]
NONCE = 12


@dataclass(frozen=True)
class Box:
    """What a client and the owner of a segment share, for one contribution."""

    shared: bytes = field(repr=False)
    client: int
    label: BookLabel
    """label₀"""

    @classmethod
    def between(
        cls, keys: MemberKeys, other: int, theirs: bytes, client: int, label: BookLabel
    ) -> Box:
        """By a member's own keys and another's X25519 key; one of the two is the client."""
        return cls(keys.extracted(DOM, other, theirs), client, label.first)

    def _derived(self, use: bytes, behind: bytes, size: int) -> bytes:
        client = struct.pack(">I", self.client)
        return derived(self.shared, b"".join((DOM, use, client, self.label.encoded, behind)), size)

    def filter_key(self, attempt: int) -> bytes:
        """Of a filter that is tried to build."""
        info = (DOM, b"/filter", struct.pack(">BI", attempt, self.client), self.label.encoded)
        return derived(self.shared, b"".join(info), 16)

    def seal(self, use: bytes, nonce: bytes, plain: bytes) -> bytes:
        """Sealed bytes: the nonce, then a ciphertext with its tag; 28 more than the plain ones."""
        cipher = ChaCha20Poly1305(self._derived(use, nonce, 32))
        return nonce + cipher.encrypt(nonce, plain, self.label.encoded)

    def unseal(self, use: bytes, data: Bytes) -> bytes:
        """The plain bytes; refused if they were sealed otherwise, or are damaged."""
        nonce, sealed = bytes(data[:NONCE]), bytes(data[NONCE:])
        try:
            cipher = ChaCha20Poly1305(self._derived(use, nonce, 32))
            return cipher.decrypt(nonce, sealed, self.label.encoded)
        except (InvalidTag, ValueError):
            reason = "is not sealed by the keys of the view, or is damaged"
            raise MalformedMessage(f"sealed {use[1:].decode()}", reason) from None


def mapping_nonce(extracted: bytes, label: BookLabel, contents: bytes) -> bytes:
    """Random, and bound to what is sealed under it: to the contents of all books."""
    info = b"".join((DOM, b"/nonce", label.first.encoded, contents))
    return derived(extracted, info, 32)[:NONCE]


@dataclass(frozen=True)
class MappingForm:
    """A coding, and the rule that goes with a filter."""

    coding: MappingCoding
    policy: Policy = "exact"

    def __post_init__(self) -> None:
        for name, known in (("coding", get_args(MappingCoding)), ("policy", get_args(Policy))):
            value = getattr(self, name)
            if value not in known:
                raise InvalidSetting(name, value, one_of(known, value))

    @property
    def bits(self) -> int:
        """Of a fingerprint, where there is a filter; else 0."""
        return int(self.coding.removeprefix("filter")) if self.coding.startswith("filter") else 0

    def written(self, mapping: Clusters, books: Books, first: int, box: Box, nonce: bytes) -> bytes:
        """The mapping as it travels; ``first`` is the segment's first coordinate."""
        match self.coding:
            case "packed":
                return pack_index(mapping, books)
            case "sealed":
                return box.seal(b"/index", nonce, pack_index(mapping, books))
            case "huffman":
                return huffman.encode(mapping, books)
        built = fuse.build(box.filter_key, first, mapping, self.bits)
        if self.policy == "first":
            return built.wire()
        if self.policy == "populous":
            return built.wire() + box.seal(b"/sizes", nonce, encode_sizes(mapping, books))
        found = fuse.matched(built, box.filter_key(built.attempt), first, books)
        wrong = encode_exceptions(mapping, found, books)
        return built.wire() + box.seal(b"/exceptions", nonce, wrong)

    def read(self, data: Bytes, books: Books, first: int, box: Box) -> Clusters:
        """The mapping in a peer's bytes; by a filter and another rule than exact, nearly."""
        match self.coding:
            case "packed":
                return unpack_index(data, books)
            case "sealed":
                return unpack_index(box.unseal(b"/index", data), books)
            case "huffman":
                return huffman.decode(data, books)
        size = fuse.HEAD_BYTES + fuse.Layout.of(books.size).slots * self.bits // 8
        built = fuse.FuseFilter.parsed(data[:size], books.size, self.bits)
        key, rest = box.filter_key(built.attempt), data[size:]
        if self.policy == "populous":
            sizes = decode_sizes(box.unseal(b"/sizes", rest), books)
            return fuse.matched(built, key, first, books, sizes)
        found = fuse.matched(built, key, first, books)
        if self.policy == "exact":
            return with_exceptions(found, box.unseal(b"/exceptions", rest), books)
        if len(rest):
            raise MalformedMessage("filter", f"has {len(rest)} bytes behind its end")
        return found


def as_indices(mapping: Clusters) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """A mapping as ciphertexts are chosen by it."""
    return mapping.astype(np.uint32)
