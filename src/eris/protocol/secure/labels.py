"""What secrets and digests are for: no two uses share a name, and none can be read in two ways."""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from functools import lru_cache

PREFIX = b"eris/ss/1/"
_WORD = (1 << 64) - 1


@lru_cache(1 << 12)
def label(name: str, *numbers: int) -> bytes:
    """A use by its name and numbers, of 8 bytes each; nobody, −1, is all ones.

    >>> label("tag"), label("part", 1, 2)[-17:].hex()
    (b'eris/ss/1/tag\\x00', '0001000000000000000200000000000000')
    """
    packed = struct.pack(f"<{len(numbers)}Q", *[n & _WORD for n in numbers])
    return b"".join((PREFIX, name.encode(), b"\0", packed))


@dataclass(frozen=True)
class ShardRound:
    """Where a contribution belongs: W = (federation, epoch, round, shard)."""

    federation: int
    epoch: int
    round: int
    shard: int

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """In the order in which labels have them."""
        return self.federation, self.epoch, self.round, self.shard


def prf(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA-256, which is also HKDF's extraction (``key`` is its salt)."""
    return hmac.digest(key, message, "sha256")


def derived(key: bytes, info: bytes, length: int = 32) -> bytes:
    """HKDF's expansion (RFC 5869)."""
    blocks = block = b""
    for counter in range(1, -(-length // 32) + 1):
        block = hmac.digest(key, block + info + bytes([counter]), "sha256")
        blocks += block
    return blocks[:length]


def digest(*pieces: bytes) -> bytes:
    """SHA-256 of pieces in a row."""
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.digest()
