"""A member's keys, as others may believe them: signed by the key of its certificate.

Keys are new at every start, so they cannot be in the certificate; a *statement* carries them, with
the certificate beside it. Whoever holds a view checks every statement itself: the directory passes
them on and is not trusted for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from eris.protocol.secure.keys import PublicKeys, RefusedKeys
from eris.protocol.secure.labels import label

AHEAD = timedelta(days=1)
"""By which a member's clock may be ahead of another's."""


@dataclass(frozen=True)
class KeyStatement:
    """Keys of a member from one of its starts on.

    In a simulation, where nobody has a certificate, it is empty and nothing is signed.
    """

    name: str
    start: int
    """Nanoseconds of the member's clock, more with every start."""
    keys: PublicKeys
    certificate: bytes = b""
    signature: bytes = b""

    @classmethod
    def signed(
        cls, federation: int, name: str, start: int, keys: PublicKeys,
        certificate: x509.Certificate, key: EllipticCurvePrivateKey,
    ) -> KeyStatement:  # fmt: skip
        """By the private key of the member's certificate."""
        signature = key.sign(_said(federation, name, start, keys), ECDSA(SHA256()))
        return cls(name, start, keys, certificate.public_bytes(Encoding.DER), signature)

    def party(self) -> str:
        """Whose it is: the certificate's organisational unit, or the member by itself."""
        return (_unit(self.certificate) if self.certificate else "") or self.name

    def check(
        self, federation: int, authorities: Sequence[x509.Certificate], now: datetime, last: int
    ) -> None:
        """Refuse keys that are not the member's, or older than ``last``, its newest start here."""
        who = f'the keys of member "{self.name}"'
        try:
            certificate = x509.load_der_x509_certificate(self.certificate)
        except ValueError:
            raise RefusedKeys(f"{who} come without a certificate") from None
        if not any(_issued(certificate, authority) for authority in authorities):
            raise RefusedKeys(f"{who} are under a certificate of another authority")
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            raise RefusedKeys(f"{who} are under a certificate that does not hold now")
        common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        public = certificate.public_key()
        if [str(each.value) for each in common] != [self.name] or not isinstance(
            public, EllipticCurvePublicKey
        ):
            raise RefusedKeys(f"{who} are under the certificate of another member")
        try:
            said = _said(federation, self.name, self.start, self.keys)
            public.verify(self.signature, said, ECDSA(SHA256()))
        except InvalidSignature:
            raise RefusedKeys(f"{who} are not signed by its certificate") from None
        if self.start < last:
            raise RefusedKeys(f"{who} are of an earlier start than the last that was seen")
        if self.start > (now + AHEAD).timestamp() * 1e9:
            raise RefusedKeys(f"{who} are of a start that lies ahead; its clock is wrong")


@lru_cache(maxsize=1024)
def _unit(certificate: bytes) -> str:
    """A certificate's organisational unit, empty if it has none; asked for every new view."""
    subject = x509.load_der_x509_certificate(certificate).subject
    units = subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    return str(units[0].value) if units else ""


def _said(federation: int, name: str, start: int, keys: PublicKeys) -> bytes:
    return label("keys", federation, start) + name.encode() + keys.exchange + keys.signing


def _issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
