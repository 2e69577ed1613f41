"""A client's own noise: drawn from a cipher whose key dies with the round.

Noise follows (chain key, round, content): other content has other, independent noise, also in
a machine that was brought back with its memory. Never from a stream of a seed, but in a simulation,
whose chain key may follow from one.
"""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR, ECB
from numpy.typing import NDArray

from eris.core.rounded_normal import rounded_normal
from eris.protocol.secure.labels import derived, prf

PIECE = 1 << 15
"""Draws at once: what they need stays in the cache."""
_ZEROS = bytes(8 * PIECE)
DRAW_PLACES = 40
"""Binary places of a standard normal draw."""


def content_digest(content: NDArray[np.int64], std: float, places: int, fine_bits: int) -> bytes:
    """Of what noise is added to, on the fine grid, with the noise's own figures."""
    head = struct.pack("<QdBB", len(content), std, places, fine_bits)
    found = hashlib.sha256(b"eris/noise-content/1\0" + head)
    found.update(content.astype("<i8", copy=False).view(np.uint8).data)
    return found.digest()


@dataclass(frozen=True)
class NoiseKeys:
    """The two keys of one round's noise."""

    words: bytes = field(repr=False)
    further: bytes = field(repr=False)

    @classmethod
    def of(cls, chain_key: bytes, federation: str, round: int, content: bytes) -> NoiseKeys:
        """By the chain key of the round, and the digest of the content."""
        extracted = prf(hashlib.sha256(federation.encode()).digest(), chain_key)
        info = b"eris/noise/1\0" + round.to_bytes(8, "little") + content
        first = derived(extracted, info)
        return cls(first, prf(extracted, first + info + b"\x02"))

    def blocks(self, number: int, draws: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Block ``number`` of further bits of some draws."""
        asked = np.empty((len(draws), 2), ">u8")
        asked[:, 0], asked[:, 1] = number, draws
        # Each block is asked for once and stands for itself: the cipher as a random function.
        cipher = Cipher(AES(self.further), ECB()).encryptor()
        return np.frombuffer(cipher.update(asked.tobytes()), np.uint8).reshape(-1, 16)

    def add(self, content: NDArray[np.int64], std: float, fine_bits: int) -> NDArray[np.int64]:
        """⌊a + s·Z + ½⌋ for a = content/2^``fine_bits``, s = ``std`` units of the ring's grid."""
        stream = Cipher(AES(self.words), CTR(bytes(16))).encryptor()
        out = np.empty(len(content), np.int64)
        room = bytearray(8 * PIECE + 16)
        words = np.frombuffer(room, "<u8", PIECE)
        for first in range(0, len(content), PIECE):
            held = content[first : first + PIECE]
            stream.update_into(memoryview(_ZEROS)[: 8 * len(held)], room)
            drawn = words[: len(held)].astype(np.uint64, copy=False)
            out[first : first + PIECE] = rounded_normal(
                drawn, std, self.blocks, held, fine_bits, first
            )
        return out


@dataclass(frozen=True)
class CipherDraws:
    """Normal numbers from a key that nobody else has.

    >>> key = bytes(32)
    >>> CipherDraws(key).normal(0, 2).tolist() == CipherDraws(key).normal(0, 3).tolist()[:2]
    True
    """

    key: bytes = field(repr=False)

    def normal(self, start: int, count: int) -> NDArray[np.float64]:
        """Standard normal draws; those from another ``start`` have a key of their own."""
        keys = NoiseKeys.of(self.key, "local noise", start, b"")
        drawn = keys.add(np.zeros(count, np.int64), math.ldexp(1.0, DRAW_PLACES), 0)
        return np.ldexp(drawn.astype(np.float64), -DRAW_PLACES)


def batch_coins(
    chain_key: bytes, federation: str, round: int, slots: int, rate: float
) -> NDArray[np.bool_]:
    """Which of so many slots are in a round's batch: each with probability ``rate``.

    By the chain key of the round, before it is replaced: whoever trains again before the round's
    noise is drawn has the same batch.
    """
    extracted = prf(hashlib.sha256(federation.encode()).digest(), chain_key)
    key = derived(extracted, b"eris/noise-coins/1\0" + round.to_bytes(8, "little"))
    stream = Cipher(AES(key), CTR(bytes(16))).encryptor()
    words = np.frombuffer(stream.update(bytes(8 * slots)), "<u8")
    below = math.floor(Fraction(rate) * 2**64)
    return words < np.uint64(below) if below < 2**64 else np.ones(slots, np.bool_)


def next_chain_key(chain_key: bytes) -> bytes:
    """What replaces a chain key once its round's words are made."""
    return derived(chain_key, b"eris/noise-next/1")
