"""Named counter-based random streams: the only source of randomness in the package.

A stream is named by (seed, purpose, round, client, shard). Its name is hashed to 128 bits; word i
of the stream is a pure function of the name and i, so any node evaluates any part of any stream
without having drawn what comes before. Two runs with the same seed draw the same numbers on one
core, on two, or over a network, on every platform.

Specification (``docs/streams.md`` has test vectors)
    name    = SHA-256("eris/stream/1" ‖ 0x00 ‖ len(purpose) as u16 ‖ purpose in UTF-8
              ‖ seed ‖ round ‖ client ‖ shard, each u64), all integers little-endian;
              its first 16 bytes are four little-endian u32: key₀, key₁, counter₂, counter₃.
    word i  = output word (i div 64) mod 4 of Philox4x32-10 under (key₀, key₁) on the counter
              (c mod 2³², c div 2³², counter₂, counter₃), where c = 64·(i div 256) + i mod 64.

The order of words inside a tile of 256 is the one in which vector units produce them.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from eris.core import kernels
from eris.core.errors import InvalidSetting
from eris.core.normal import inverse_normal

_LIMIT = 1 << 64


@dataclass(frozen=True)
class Stream:
    """One named stream of 32-bit words.

    >>> Stream(seed=7, purpose="mask", round=3).words(0, 3)
    array([3207998479,   22063864,  656503682], dtype=uint32)
    """

    seed: int
    purpose: str
    round: int = 0
    client: int = 0
    shard: int = 0

    def __post_init__(self) -> None:
        for field in ("seed", "round", "client", "shard"):
            value = getattr(self, field)
            if not 0 <= value < _LIMIT:
                raise InvalidSetting(f"stream {field}", value, "an integer from 0 to 2**64 - 1")
        if not 0 < len(self.purpose.encode()) < 1 << 16:
            raise InvalidSetting("stream purpose", self.purpose, "1 to 65535 bytes of UTF-8")

    @cached_property
    def name(self) -> NDArray[np.uint32]:
        """The four words (key₀, key₁, counter₂, counter₃) that the name hashes to."""
        purpose = self.purpose.encode()
        text = b"eris/stream/1\0" + struct.pack("<H", len(purpose)) + purpose
        numbers = struct.pack("<4Q", self.seed, self.round, self.client, self.shard)
        return np.frombuffer(hashlib.sha256(text + numbers).digest()[:16], "<u4").astype(np.uint32)

    def words(self, start: int, count: int) -> NDArray[np.uint32]:
        """Words ``start`` to ``start + count`` of the stream."""
        out = np.empty(count, np.uint32)
        kernels.stream_words(out, start, self.name)
        return out

    def uniform(self, start: int, count: int) -> NDArray[np.float64]:
        """Doubles in [0, 1) with 53 random bits; double i uses words 2i (high) and 2i + 1.

        >>> bool((Stream(1, "example").uniform(0, 1000) < 1).all())
        True
        """
        words = self.words(2 * start, 2 * count).astype(np.uint64)
        joined = (words[0::2] << np.uint64(32)) | words[1::2]
        return (joined >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def normal(self, start: int, count: int) -> NDArray[np.float64]:
        """Standard normal draws by inversion (AS 241); draw i is a function of uniform i alone."""
        out = self.uniform(start, count)
        inverse_normal(out)
        return out

    def permutations(self, count: int, size: int) -> NDArray[np.int64]:
        """``count`` permutations of range(size), each the stable order of ``size`` words.

        >>> Stream(1, "example").permutations(2, 4).shape
        (2, 4)
        """
        words = self.words(0, count * size).reshape(count, size)
        return np.argsort(words, axis=1, kind="stable")
