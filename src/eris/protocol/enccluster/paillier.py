"""Paillier's encryption of integers, which add up under it; by ``phe`` and ``gmpy2``.

g = n + 1, so that a ciphertext is (1 + m·n)·r^n mod n². Several integers may share a plaintext
(:class:`Packing`), which SEFL's paper does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from eris.core.errors import InvalidSetting, MalformedMessage, library, require

SECURITY = {3072: 128, 2048: 112, 256: 0}
"""Bits of security by the bits of n (NIST SP 800-57). 256 is the "key size" of the EncCluster
paper's comparison: such an n is factored on a laptop."""
WORD = 64
"""Bits of an integer with its sign, where several share a plaintext."""

Entropy = Callable[[int], bytes]
"""Gives so many random bytes."""


@dataclass(frozen=True)
class Packing:
    """So many signed integers in one plaintext, 64 bits each.

    >>> pair = Packing(2)
    >>> pair.split(pair.join([-1, 5, 7]), 3)
    [-1, 5, 7]
    """

    places: int

    @classmethod
    def of(cls, key_bits: int) -> Packing:
        """As many as fit; a bit is left for the sign of the whole."""
        return cls((key_bits - 1) // WORD)

    def count(self, values: int) -> int:
        """Plaintexts of so many integers."""
        return -(-values // self.places)

    def join(self, values: Sequence[int]) -> list[int]:
        """Signed plaintexts; sums of them are those of the integers while these fit 64 bits."""
        for at, value in enumerate(values):
            fits = abs(value) < 1 << WORD - 1
            require(fits, f"packed value {at}", value, f"below 2^{WORD - 1} in magnitude")
        return [
            sum(value << WORD * place for place, value in enumerate(values[at : at + self.places]))
            for at in range(0, len(values), self.places)
        ]

    def split(self, plaintexts: Sequence[int], count: int) -> list[int]:
        """The integers in plaintexts; refused where something is left of one."""
        half, out = 1 << WORD - 1, list[int]()
        for at, plaintext in enumerate(plaintexts):
            rest = plaintext
            for _ in range(min(self.places, count - len(out))):
                value = (rest + half) % (2 * half) - half
                out.append(value)
                rest = (rest - value) >> WORD
            if rest:
                raise MalformedMessage("plaintext", f"{at} has more than its integers")
        return out


@dataclass(frozen=True)
class PaillierKey:
    """The public key: enough to encrypt, and to add up what is encrypted."""

    n: int

    @property
    def key_bits(self) -> int:
        """Bits of n."""
        return self.n.bit_length()

    @property
    def ciphertext_bytes(self) -> int:
        """Of one ciphertext, a number below n²."""
        return 2 * self.key_bits // 8

    @cached_property
    def _library(self) -> Any:
        return _phe().PaillierPublicKey(self.n)

    @cached_property
    def _square(self) -> Any:
        return _gmp().mpz(self.n) ** 2

    def encrypt(self, values: Sequence[int], entropy: Entropy) -> list[Any]:
        """A ciphertext for each integer of magnitude below n/2; ``entropy`` must never repeat."""
        # 128 bits more than n has: r modulo n is then as good as uniform.
        size = self.key_bits // 8 + 16
        found = []
        for at, value in enumerate(values):
            require(2 * abs(value) < self.n, f"plaintext {at}", value, "below n/2 in magnitude")
            # The library would take a negative number a longer way, which a clock can see: it is
            # given none, and what is encrypted is multiplied in here.
            hidden = self._library.raw_encrypt(0, int.from_bytes(entropy(size), "big") % self.n)
            found.append((1 + value % self.n * self.n) * hidden % self._square)
        return found

    def added(self, one: Any, other: Any) -> Any:
        """The ciphertext of the sum of two."""
        return one * other % self._square

    def write(self, ciphertexts: Sequence[Any]) -> bytes:
        """Big-endian, one behind the other."""
        return b"".join(int(one).to_bytes(self.ciphertext_bytes, "big") for one in ciphertexts)

    def read(self, field: str, data: bytes | memoryview, most: int) -> list[Any]:
        """The ciphertexts in a peer's bytes, at most so many; what is none is refused.

        A number that shares a factor with n would make every sum that it is in unreadable.
        """
        gmp, size = _gmp(), self.ciphertext_bytes
        if len(data) % size or len(data) > size * most:
            reason = f"has {len(data)} bytes; expected at most {most} ciphertexts of {size}"
            raise MalformedMessage(field, reason)
        found = []
        for at in range(0, len(data), size):
            one = gmp.mpz(int.from_bytes(data[at : at + size], "big"))
            if not 0 < one < self._square or gmp.gcd(one, self.n) != 1:
                raise MalformedMessage(field, f"ciphertext {at // size} is no unit modulo n²")
            found.append(one)
        return found


@dataclass(frozen=True)
class PaillierPair:
    """A private key with its public one."""

    public: PaillierKey
    primes: tuple[int, int] = field(repr=False)

    @classmethod
    def drawn(cls, key_bits: int, entropy: Entropy) -> PaillierPair:
        """A new pair."""
        require(
            key_bits >= 128 and key_bits % 16 == 0,
            "Paillier key bits",
            key_bits,
            "a multiple of 16 from 128 on",
        )
        _phe()
        while True:
            p, q = (_prime(key_bits // 2, entropy) for _ in range(2))
            if p != q and (p * q).bit_length() == key_bits:
                return cls(PaillierKey(p * q), (p, q))

    @classmethod
    def of_primes(cls, p: int, q: int) -> PaillierPair:
        """The pair of two primes, of half the bits of n each; refused if they are none."""
        n, gmp = p * q, _gmp()
        bits = n.bit_length()
        fit = p != q and p.bit_length() == q.bit_length() == bits // 2 and bits in SECURITY
        if not (fit and gmp.is_prime(p) and gmp.is_prime(q)):
            expected = f"two primes of half of {', '.join(map(str, SECURITY))} bits"
            raise InvalidSetting("Paillier key", "others", expected)
        return cls(PaillierKey(n), (p, q))

    @cached_property
    def _library(self) -> Any:
        return _phe().PaillierPrivateKey(self.public._library, *self.primes)

    def decrypt(self, ciphertexts: Sequence[Any]) -> list[int]:
        """The integers, those above n/2 being negative."""
        n = self.public.n
        plain = (int(self._library.raw_decrypt(int(one))) for one in ciphertexts)
        return [value - n if 2 * value > n else value for value in plain]


def checked_modulus(digits: str, key_bits: int) -> int:
    """n of hexadecimal digits; nobody can tell whether it has two large factors.

    >>> checked_modulus("f" * 64, 256).bit_length()
    256
    """
    plain = set(digits) <= set("0123456789abcdef") and len(digits) == key_bits // 4
    n = int(digits, 16) if plain else 0
    if n.bit_length() != key_bits or n % 2 == 0:
        expected = f"an odd n of {key_bits} bits in hexadecimal digits, as `eris ca` writes it"
        shown = f"{digits[:16]}…" if len(digits) > 16 else digits
        raise InvalidSetting("public_key", shown, expected)
    return n


def _prime(bits: int, entropy: Entropy) -> int:
    """The first prime from a random number on, whose two highest bits are set."""
    start = int.from_bytes(entropy(bits // 8), "big") | 3 << bits - 2
    return int(_gmp().next_prime(start))


def _gmp() -> Any:
    return library("gmpy2", "gmpy2", "crypto")


def _phe() -> Any:
    _gmp()  # without it phe would be slower by far, in silence
    return library("phe", "phe", "crypto")
