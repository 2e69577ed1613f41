"""A certificate authority for one measurement, and one certificate for all its addresses.

Contestants that cannot be told whom they dial (Flower) need the address itself in the certificate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = timedelta(days=1)


@dataclass(frozen=True)
class Certificates:
    """Files in PEM: the authority's certificate, and the members' certificate and key."""

    folder: Path

    @property
    def authority(self) -> Path:
        """Whom everybody trusts."""
        return self.folder / "authority.pem"

    @property
    def certificate(self) -> Path:
        """What everybody shows."""
        return self.folder / "certificate.pem"

    @property
    def key(self) -> Path:
        """The certificate's key."""
        return self.folder / "key.pem"

    def contents(self) -> tuple[bytes, bytes, bytes]:
        """The three files, in this order."""
        return self.authority.read_bytes(), self.certificate.read_bytes(), self.key.read_bytes()


def issue(folder: Path, addresses: Sequence[str]) -> Certificates:
    """Make an authority and a certificate that holds for the addresses."""
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority, member = _name("benchmark authority"), _name("benchmark")
    root = (
        _draft(authority, authority, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    names = [x509.IPAddress(ip_address(address)) for address in sorted(set(addresses))]
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    leaf = (
        _draft(member, authority, key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    made = Certificates(folder)
    made.authority.write_bytes(root.public_bytes(Encoding.PEM))
    made.certificate.write_bytes(leaf.public_bytes(Encoding.PEM))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    made.key.write_bytes(secret)
    return made


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _draft(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + VALID)
    )
