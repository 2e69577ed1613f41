"""Certificates and keys as PEM files: read, checked and written; each refusal names its file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from eris.core.errors import ErisError, InvalidSetting
from eris.files import PRIVATE, synced
from eris.files import replace as replace_file
from eris.protocol.authority.enrolment import NAME

# ca.pem is the authority's file, and any member's certificate may also stand for localhost.
_TAKEN = ("ca", "localhost")


class BadIdentity(ErisError):
    """A certificate, a key or an authority that cannot be used: which, why, and what to do."""


def checked_name(name: str, where: str = "member's name") -> str:
    """A member's name, found at a key, if it may be one.

    >>> checked_name("clinic-1")
    'clinic-1'
    >>> checked_name("Clinic 1")
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: member's name is 'Clinic 1'; expected 1 to 63 characters of \
a-z, 0-9 and "-", with no "-" at the ends, and neither ca nor localhost
    """
    if not NAME.fullmatch(name) or name in _TAKEN:
        expected = '1 to 63 characters of a-z, 0-9 and "-", with no "-" at the ends'
        raise InvalidSetting(where, name, f"{expected}, and neither ca nor localhost")
    return name


def fingerprint(key: PublicKeyTypes) -> str:
    """SHA-256 of a public key in DER, in hexadecimal."""
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def read(path: Path) -> bytes:
    """A file's bytes."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadIdentity(f"{path} cannot be read: {error.strerror}") from error


def certificates(path: Path) -> list[x509.Certificate]:
    """The certificates in a file, at least one."""
    data = read(path)
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise BadIdentity(f"{path} holds no certificate in PEM: {error}") from error


def secret(path: Path) -> bytes:
    """The bytes of a file that nobody but its owner may read."""
    data = read(path)
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise BadIdentity(f"{path} is open to other users (mode {mode:03o}); run: chmod 600 {path}")
    return data


def private_key(path: Path) -> PrivateKeyTypes:
    """The key in a file that nobody but its owner may read."""
    data = secret(path)
    try:
        return load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadIdentity(f"{path} holds no key in PEM without a password: {error}") from error


def member_name(certificate: x509.Certificate, where: str) -> str:
    """The name of the member that a certificate is for: its common name, and a DNS name of it."""
    try:
        common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        also = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = also.value.get_values_for_type(x509.DNSName)
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension) as error:
        raise BadIdentity(f"{where} names no member: {error}") from error
    name = str(common[0].value) if len(common) == 1 else ""
    # Peers check the DNS name when they dial and the common name when they are dialled.
    if name not in names:
        raise BadIdentity(
            f"{where} names no member: common name {name!r}, DNS names {names}; "
            "expected one common name that is a DNS name, too"
        )
    try:
        return checked_name(name)
    except InvalidSetting as error:
        raise BadIdentity(f"{where} names no member: {error}") from error


def signer(
    certificate: x509.Certificate, authorities: Iterable[x509.Certificate]
) -> x509.Certificate | None:
    """Whichever of the authorities signed a certificate."""
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
            limits = authority.extensions.get_extension_for_class(x509.BasicConstraints)
        except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            continue
        if limits.value.ca:
            return authority
    return None


def check_dates(certificate: x509.Certificate, path: Path, now: datetime, remedy: str) -> None:
    """Refuse a certificate before its first moment or after its last."""
    clock = f"this machine's clock says {stamp(now)}; if that is wrong, set it"
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < begin:
        raise BadIdentity(
            f"{path} is valid only in {span(begin - now)}, from {stamp(begin)}; {clock}"
        )
    if now > end:
        raise BadIdentity(
            f"{path} expired {span(now - end)} ago, at {stamp(end)}; {clock}, otherwise {remedy}"
        )


def span(time: timedelta) -> str:
    """A length of time in its largest whole unit.

    >>> span(timedelta(days=3, hours=5)), span(timedelta(minutes=61)), span(timedelta(seconds=9))
    ('3 days', '1 hour', '9 seconds')
    """
    seconds = int(time.total_seconds())
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            number = seconds // size
            return f"{number} {unit}{'s' * (number > 1)}"
    return f"{seconds} second{'s' * (seconds != 1)}"


def stamp(time: datetime) -> str:
    """A time as administrators compare it with a clock.

    >>> from datetime import UTC
    >>> stamp(datetime(2026, 5, 1, 12, 30, tzinfo=UTC))
    '2026-05-01 12:30 UTC'
    """
    return f"{time:%Y-%m-%d %H:%M %Z}"


def write_key(path: Path, key: PrivateKeyTypes) -> None:
    """Write a key into a new file that from its first byte only its owner may read."""
    data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    synced(path.parent)


def replace(path: Path, data: bytes) -> None:
    """Write a public file as a whole or not at all."""
    replace_file(path, [data], 0o644)
