"""A member's keys: drawn at every start, in memory only, and what two members share by them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from eris.core.errors import ErisError
from eris.protocol.secure.labels import derived, label, prf


class RefusedKeys(ErisError):
    """Keys that a member does not use, and why."""


@lru_cache(64)
def _signed(key: bytes, message: bytes, signature: bytes) -> bool:
    """Verified once, though a statement goes to several helpers of one process, or comes again."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True)
class PublicKeys:
    """What others know of a member's keys, 32 bytes each."""

    exchange: bytes
    signing: bytes

    def signed(self, message: bytes, signature: bytes) -> bool:
        """Whether the member has signed ``message``."""
        return _signed(self.signing, message, signature)


@dataclass(frozen=True)
class MemberKeys:
    """A member's own: X25519 to agree on secrets, Ed25519 to sign, and a secret of the process.

    The 96 bytes come from the operating system, by whoever starts a member; they are never written
    anywhere.
    """

    exchange: X25519PrivateKey = field(repr=False)
    signing: Ed25519PrivateKey = field(repr=False)
    process_secret: bytes = field(repr=False)
    _extracted: dict[tuple[bytes, bytes], bytes] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def of(cls, entropy: bytes) -> MemberKeys:
        """From 96 bytes that nobody else has."""
        if len(entropy) != 96:
            raise RefusedKeys(f"keys are made of 96 random bytes; there are {len(entropy)}")
        exchange = X25519PrivateKey.from_private_bytes(entropy[:32])
        signing = Ed25519PrivateKey.from_private_bytes(entropy[32:64])
        return cls(exchange, signing, entropy[64:])

    @cached_property
    def public(self) -> PublicKeys:
        """What others may know."""
        return PublicKeys(
            self.exchange.public_key().public_bytes_raw(),
            self.signing.public_key().public_bytes_raw(),
        )

    def shared(self, federation: int, me: int, other: int, theirs: PublicKeys) -> PairSecret:
        """What this member shares with another, or with itself."""
        low, high = sorted([(me, self.public.exchange), (other, theirs.exchange)])
        salt = label("pair", federation, low[0], high[0]) + low[1] + high[1]
        return PairSecret(self.extracted(salt, other, theirs.exchange))

    def extracted(self, salt: bytes, other: int, theirs: bytes) -> bytes:
        """HKDF's extraction of what X25519 gives with another's key; a salt keeps uses apart."""
        if (salt, theirs) not in self._extracted:
            # A curve's multiplication each: once for as long as keys live.
            try:
                agreed = self.exchange.exchange(X25519PublicKey.from_public_bytes(theirs))
            except ValueError:  # an output of zeros: a point of small order, which hides nothing
                raise RefusedKeys(f"the exchange key of member {other} is no key") from None
            self._extracted[salt, theirs] = prf(salt, agreed)
        return self._extracted[salt, theirs]


@dataclass(frozen=True)
class PairSecret:
    """What two members share, and nobody else can compute."""

    secret: bytes = field(repr=False)

    def escrow_key(self, epoch: int, client: int, helper: int) -> bytes:
        """Under which a client seals seeds to a helper."""
        return derived(self.secret, label("escrow", epoch, client, helper))

    def blind_key(self, epoch: int, one: int, other: int) -> bytes:
        """From which two helpers draw what cancels between their answers."""
        return derived(self.secret, label("blind", epoch, min(one, other), max(one, other)))
