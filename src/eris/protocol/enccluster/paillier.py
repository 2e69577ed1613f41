"""SEFL: the largest entries of an update under Paillier, by ``phe`` and ``gmpy2``.

All clients have *one* private key: whoever of them meets what another sent to the server can open
it. That is SEFL's trust model, not this project's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import RefusedContribution, library, require
from eris.core.vectors import Vector
from eris.protocol.enccluster.logarithms import Integers

SECURITY = {3072: 128, 2048: 112}
"""Bits of security by the bits of n (NIST SP 800-57); sizes that are not here have none to speak
of: 256, a "key size" in print, is factored on a laptop."""
_LEAST_BITS = 128


def kept_places(update: Vector, share: float) -> NDArray[np.int64]:
    """The places of the largest magnitudes, ascending; of equal ones the first.

    >>> kept_places(np.array([1, -3, 2, 3], np.float32), 0.5).tolist()
    [1, 3]
    """
    require(0 < share <= 1, "kept share", share, "a number in (0, 1]")
    count = math.ceil(share * len(update))
    order = np.argsort(-np.abs(update), kind="stable")
    return np.sort(order[:count]).astype(np.int64)


@dataclass(frozen=True)
class PackedWords:
    """Several integers in one plaintext, which SEFL's paper does not have.

    ``bits`` are those of an integer with its sign, ``clients`` the most that are added.
    """

    bits: int
    clients: int

    def __post_init__(self) -> None:
        require(2 <= self.bits <= 62, "packed bits", self.bits, "from 2 to 62")
        require(self.clients >= 1, "packed clients", self.clients, "at least 1")

    @property
    def width(self) -> int:
        """Bits of a place: b + ⌈log₂ N⌉."""
        return self.bits + (self.clients - 1).bit_length()

    def places(self, key_bits: int) -> int:
        """Integers in a plaintext; a bit is left for the sign of the whole."""
        found = (key_bits - 1) // self.width
        require(found >= 1, "packed bits", self.bits, f"places that fit {key_bits} bits")
        return found

    def join(self, values: Sequence[int], key_bits: int) -> list[int]:
        """Signed plaintexts of so many places each."""
        size, most = self.places(key_bits), (1 << self.bits - 1) - 1
        for at, value in enumerate(values):
            require(abs(value) <= most, f"packed value {at}", value, f"at most ±{most}")
        return [
            sum(value << self.width * place for place, value in enumerate(values[at : at + size]))
            for at in range(0, len(values), size)
        ]

    def split(self, plaintexts: Sequence[int], count: int, key_bits: int) -> list[int]:
        """The sums in plaintexts."""
        size, half = self.places(key_bits), 1 << self.width - 1
        out: list[int] = []
        for plaintext in plaintexts:
            rest = plaintext
            for _ in range(min(size, count - len(out))):
                value = (rest + half) % (2 * half) - half
                out.append(value)
                rest = (rest - value) >> self.width
        return out


@dataclass(frozen=True, eq=False)
class SeflUpdate:
    """What a client sends: where its kept entries lie, and their ciphertexts."""

    client: int
    places: NDArray[np.int64]
    ciphertexts: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SeflKey:
    """The clients' common key; the server uses what of it is public.

    ``fraction_bits``: an entry is rint(x·2^f), a negative one n − |m|.
    """

    public: Any
    private: Any
    fraction_bits: int = 20
    packing: PackedWords | None = None

    @classmethod
    def drawn(
        cls, key_bits: int = 3072, fraction_bits: int = 20, packing: PackedWords | None = None
    ) -> SeflKey:
        """A new pair from the operating system's randomness."""
        require(
            key_bits >= _LEAST_BITS and key_bits % 2 == 0,
            "Paillier key bits",
            key_bits,
            f"an even number from {_LEAST_BITS} on",
        )
        library("gmpy2", "gmpy2", "crypto")  # without it phe would be slower by far, in silence
        phe = library("phe", "phe", "crypto")
        public, private = phe.generate_paillier_keypair(n_length=key_bits)
        return cls(public, private, fraction_bits, packing)

    @property
    def key_bits(self) -> int:
        """Bits of n."""
        return int(self.public.n.bit_length())

    @property
    def ciphertext_bytes(self) -> int:
        """Of one ciphertext, a number below n²."""
        return 2 * self.key_bits // 8

    def encrypt(self, client: int, update: Vector, share: float) -> SeflUpdate:
        """Keep the largest entries and encrypt each, or several at a time."""
        return self.encrypt_at(client, update, kept_places(update, share))

    def encrypt_at(self, client: int, update: Vector, places: NDArray[np.int64]) -> SeflUpdate:
        """Encrypt the entries at given places."""
        kept = np.asarray(update, np.float32)[places].astype(np.float64)
        scaled = np.rint(kept * 2.0**self.fraction_bits)
        # Python's integers go on for ever; a mean that is read back must fit 64 bits.
        bad = np.flatnonzero(~(np.abs(scaled) < 2.0**53))
        if len(bad):
            at = int(bad[0])
            raise RefusedContribution(client, f"coordinate {places[at]} is {kept[at]:g}")
        plain = [int(value) for value in scaled]
        if self.packing is not None:
            plain = self.packing.join(plain, self.key_bits)
        n = self.public.n
        return SeflUpdate(client, places, tuple(self.public.raw_encrypt(m % n) for m in plain))

    def add(self, updates: Sequence[SeflUpdate]) -> tuple[NDArray[np.int64], tuple[int, ...]]:
        """The server's part: ciphertexts of one place are multiplied, without any key.

        Packed ones can be added only if all clients keep the same places.
        """
        square = self.public.nsquare
        for update in updates:
            if not all(0 < one < square for one in update.ciphertexts):
                raise RefusedContribution(update.client, "a ciphertext is not from 1 to n² − 1")
            if len(update.ciphertexts) != self._expected(len(update.places)):
                expected = self._expected(len(update.places))
                reason = f"{len(update.ciphertexts)} ciphertexts; expected {expected}"
                raise RefusedContribution(update.client, reason)
        if self.packing is not None:
            places = updates[0].places
            for update in updates:
                if not np.array_equal(update.places, places):
                    raise RefusedContribution(update.client, "packed, and keeps other places")
            slots: Sequence[Sequence[int]] = [range(len(one.ciphertexts)) for one in updates]
        else:
            places = np.unique(np.concatenate([one.places for one in updates]))
            slots = [np.searchsorted(places, one.places).tolist() for one in updates]
        total = [1] * self._expected(len(places))
        for update, lands in zip(updates, slots, strict=True):
            for slot, ciphertext in zip(lands, update.ciphertexts, strict=True):
                total[slot] = total[slot] * ciphertext % square
        return places, tuple(total)

    def decrypt(self, count: int, ciphertexts: Sequence[int]) -> Integers:
        """A client's part: the sums at ``count`` places."""
        n = self.public.n
        raw = [int(self.private.raw_decrypt(one)) for one in ciphertexts]
        signed = [value - n if value > n // 2 else value for value in raw]
        if self.packing is not None:
            signed = self.packing.split(signed, count, self.key_bits)
        return np.array(signed, np.int64)

    def _expected(self, count: int) -> int:
        places = 1 if self.packing is None else self.packing.places(self.key_bits)
        return -(-count // places)
