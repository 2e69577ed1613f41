"""Who is who on the wire: the federation's authority, its members' certificates, their checks.

A member's identity is the name in its certificate, signed by the federation's authority, together
with the fingerprint of its public key, which outlives a renewal. TLS is mutual, always: a server
lets in members only, and a client reaches only the member whose name it dials.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eris.core.errors import InvalidSetting
from eris.runtimes.grpc import pem
from eris.runtimes.grpc.addresses import ip
from eris.runtimes.grpc.pem import BadIdentity, checked_name, fingerprint

RENEW_WITHIN = timedelta(days=30)
"""A certificate that ends sooner than this is worth a warning."""
BACKDATED = timedelta(hours=1)
"""Certificates begin this long before they are made, for peers whose clocks run slow."""
LONGEST = 36_500
"""Days: a century."""

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}$)({_LABEL}\.)+(?!\d+$){_LABEL}", re.IGNORECASE)
_NEW_AUTHORITY = "the federation needs a new authority"


@dataclass(frozen=True)
class Identity:
    """The three files by which a node proves who it is and knows others, in PEM.

    ``authority`` may hold several certificates, for the time in which one authority succeeds
    another. The files are read when they are asked for; a server and its channels keep what they
    began with, so a renewed certificate counts from the node's next start.
    """

    certificate: Path
    key: Path
    authority: Path

    @property
    def name(self) -> str:
        """The member's name, as its certificate has it."""
        return pem.member_name(self._own, str(self.certificate))

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the member's public key; a renewed certificate keeps it."""
        return fingerprint(self._own.public_key())

    @property
    def _own(self) -> x509.Certificate:
        return pem.certificates(self.certificate)[0]

    def statement_signer(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """What key statements are signed with, and the certificate that shows it."""
        key = pem.private_key(self.key)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise BadIdentity(
                f"{self.key} is no key on an elliptic curve, which secure sums need; "
                "take one that `eris ca issue` made"
            )
        return self._own, key

    def server_credentials(self) -> grpc.ServerCredentials:
        """For a server that lets in only who has a certificate of the authority."""
        pair = (pem.read(self.key), pem.read(self.certificate))
        authority = pem.read(self.authority)
        return grpc.ssl_server_credentials([pair], authority, require_client_auth=True)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For a channel; its option ``grpc.ssl_target_name_override`` names the member dialled."""
        files = (self.authority, self.key, self.certificate)
        return grpc.ssl_channel_credentials(*map(pem.read, files))

    def check(self, expected_name: str, now: datetime | None = None) -> list[str]:
        """Refuse what peers would refuse, but say why; what is returned are warnings."""
        now = now or datetime.now(UTC)
        if fingerprint(pem.private_key(self.key).public_key()) != self.fingerprint:
            raise BadIdentity(
                f"{self.key} is not the key of {self.certificate}; "
                "copy both from the folder that `eris ca issue` made"
            )
        signer = pem.signer(self._own, pem.certificates(self.authority))
        if signer is None:
            raise BadIdentity(
                f"{self.certificate} is not signed by the authority in {self.authority}; "
                "all members need certificates of their federation's one authority"
            )
        place = shlex.quote(str(self.certificate.parent))
        renewal = (
            f"renew it with `eris ca issue {expected_name} --renew --ca CA-FOLDER --out {place}`; "
            f"if the authority is on another machine, take {self.certificate.name} there"
        )
        pem.check_dates(self._own, self.certificate, now, renewal)
        pem.check_dates(signer, self.authority, now, _NEW_AUTHORITY)
        if self.name != expected_name:
            raise BadIdentity(
                f"{self.certificate} is the certificate of {self.name!r}; expected that of "
                f"{expected_name!r}: use its files, or correct the node's name"
            )
        return [
            f"{path} expires in {pem.span(end - now)}, at {pem.stamp(end)}; {remedy}"
            for path, end, remedy in (
                (self.certificate, self._own.not_valid_after_utc, renewal),
                (self.authority, signer.not_valid_after_utc, _NEW_AUTHORITY),
            )
            if end - now < RENEW_WITHIN
        ]


def peer_identity(context: grpc.aio.ServicerContext[Any, Any]) -> tuple[str, str]:
    """Name and public key's fingerprint of whoever made a call, as proved in its handshake."""
    where = f"the certificate of {context.peer()}"
    shown = list(context.auth_context().get("x509_pem_cert", ()))
    if not shown:
        raise BadIdentity(f"{where} is missing; only members with one may call")
    try:
        certificate = x509.load_pem_x509_certificate(shown[0])
        return pem.member_name(certificate, where), fingerprint(certificate.public_key())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadIdentity(f"{where} cannot be read: {error}") from error


@dataclass(frozen=True)
class IssuedCertificate:
    """A certificate that an authority signed, as its ``issued.json`` has it.

    ``party`` is whose the member is; empty: its own.
    """

    name: str
    serial: str
    fingerprint: str
    not_after: datetime
    party: str = ""


@dataclass(frozen=True)
class Issued:
    """What `issue` made; with a ``new_key`` in a renewal, peers take the member for another."""

    record: IssuedCertificate
    identity: Identity
    new_key: bool


def create_authority(
    folder: Path, federation: str, *, days: int = 3650, now: datetime | None = None
) -> None:
    """Make a federation's authority: ``ca.pem`` goes to all members, ``ca.key`` to nobody."""
    _check_words("federation", federation)
    period = _period(days, now)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(folder):
        for path in (folder / "ca.key", folder / "ca.pem"):
            if path.exists():
                raise BadIdentity(
                    f"{path} exists and is not overwritten: without it no certificate could be "
                    "renewed; choose another folder"
                )
        key = ec.generate_private_key(ec.SECP256R1())
        # A member's name has no space, so that no member has the authority's name.
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, federation),
                x509.NameAttribute(NameOID.COMMON_NAME, "certificate authority"),
            ]
        )
        certificate = (
            _builder(subject, subject, key.public_key(), period)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(authority=True), critical=True)
            .sign(key, SHA256())
        )
        pem.write_key(folder / "ca.key", key)
        _record(folder, [])
        pem.replace(folder / "ca.pem", certificate.public_bytes(Encoding.PEM))


def issue(
    folder: Path,
    name: str,
    *,
    hosts: Sequence[str] = (),
    days: int = 825,
    out: Path | None = None,
    renew: bool = False,
    party: str | None = None,
    now: datetime | None = None,
) -> Issued:
    """Sign a member's certificate: ``NAME.pem``, ``NAME.key`` and ``ca.pem`` in ``out``.

    A name is issued once. To ``renew`` signs the same public key again, known from the key or the
    old certificate in ``out``: the key itself need not be with the authority any more. ``party`` is
    whose the member is, where one organisation has several; a renewal keeps it.
    """
    if party is not None:
        _check_words("party", party)
    names = [x509.DNSName(checked_name(name)), *(_host(host) for host in hosts)]
    begin, end = _period(days, now)
    authority, signing_key = _authority(folder, now or datetime.now(UTC))
    out = out or folder / name
    made = Identity(out / f"{name}.pem", out / f"{name}.key", out / "ca.pem")
    with _locked(folder):
        records = issued(folder)
        last = next((each for each in reversed(records) if each.name == name), None)
        _check_issuing(folder, name, made, authority, last, renew)
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        public, key = _kept_key(made, last), None
        if public is None:
            key = ec.generate_private_key(ec.SECP256R1())
            public = key.public_key()
        period = begin, min(end, authority.not_valid_after_utc)
        whose = party or (last.party if last is not None else "")
        certificate = _leaf(authority, names, public, period, whose).sign(signing_key, SHA256())
        serial, until = f"{certificate.serial_number:x}", certificate.not_valid_after_utc
        record = IssuedCertificate(name, serial, fingerprint(public), until, whose)
        # Recorded first: a certificate that nobody remembers is worse than a line without one.
        _record(folder, [*records, record])
        if key is not None:
            pem.write_key(made.key, key)
        if not made.authority.exists():
            pem.replace(made.authority, authority.public_bytes(Encoding.PEM))
        pem.replace(made.certificate, certificate.public_bytes(Encoding.PEM))
    return Issued(record, made, new_key=key is not None)


def issued(folder: Path) -> list[IssuedCertificate]:
    """All that an authority signed, in order; a renewed name is there once for each renewal."""
    _check_authority(folder)
    path = folder / "issued.json"
    if not path.exists():
        raise BadIdentity(
            f"{path} is missing; restore it from a copy: it says which names are taken (if none "
            "was ever issued, write [] into it)"
        )
    try:
        return [
            IssuedCertificate(
                name=str(line["name"]),
                serial=str(line["serial"]),
                fingerprint=str(line["fingerprint"]),
                not_after=datetime.fromisoformat(line["not_after"]),
                party=str(line.get("party", "")),
            )
            for line in json.loads(pem.read(path))
        ]
    except (ValueError, TypeError, KeyError) as error:
        raise BadIdentity(
            f"{path} is damaged ({error!r}); restore it from a copy: it says which names are taken"
        ) from error


def _record(folder: Path, records: Sequence[IssuedCertificate]) -> None:
    lines = [{**asdict(each), "not_after": each.not_after.isoformat()} for each in records]
    pem.replace(folder / "issued.json", json.dumps(lines, indent=1).encode())


def _check_issuing(
    folder: Path,
    name: str,
    made: Identity,
    authority: x509.Certificate,
    last: IssuedCertificate | None,
    renew: bool,
) -> None:
    if renew and last is None:
        raise BadIdentity(f"{name} has no certificate yet; issue its first without --renew")
    if not renew:
        if last is not None:
            there = made.certificate.exists()
            place = shlex.quote(str(made.certificate.parent)) if there else "FOLDER"
            where = "" if there else f" (FOLDER: where {made.certificate.name} is)"
            renewal = f"eris ca issue {name} --renew --ca {shlex.quote(str(folder))} --out {place}"
            raise BadIdentity(
                f"{name} has a certificate (until {pem.stamp(last.not_after)}): choose another "
                f"name, or renew it with `{renewal}`{where}"
            )
        for path in (made.key, made.certificate):
            if path.exists():
                raise BadIdentity(f"{path} exists and is not overwritten; choose another folder")
    if made.authority.exists() and authority not in pem.certificates(made.authority):
        raise BadIdentity(f"{made.authority} is of another authority; choose another folder")


def _kept_key(made: Identity, last: IssuedCertificate | None) -> ec.EllipticCurvePublicKey | None:
    """The public key by which the federation knows a member, if anything in its folder has it."""
    if made.key.exists():
        path, public = made.key, pem.private_key(made.key).public_key()
    elif made.certificate.exists():
        path, public = made.certificate, pem.certificates(made.certificate)[0].public_key()
    else:
        return None
    known = last is not None and fingerprint(public) == last.fingerprint
    if not known or not isinstance(public, ec.EllipticCurvePublicKey):
        raise BadIdentity(f"{path} has another key than the member's last certificate")
    return public


def _authority(folder: Path, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    path = _check_authority(folder)
    certificate, key = pem.certificates(path)[0], pem.private_key(folder / "ca.key")
    ours = fingerprint(key.public_key()) == fingerprint(certificate.public_key())
    if not ours or not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadIdentity(f"{folder / 'ca.key'} is not the key of {path}; restore it from a copy")
    pem.check_dates(certificate, path, now, _NEW_AUTHORITY)
    return certificate, key


def _check_authority(folder: Path) -> Path:
    """The authority's certificate, which has to be there."""
    path = folder / "ca.pem"
    if not path.exists():
        make = f"eris ca init {shlex.quote(str(folder))} --federation NAME"
        raise BadIdentity(f"{folder} has no ca.pem; make an authority with `{make}`")
    return path


def _check_words(what: str, words: str) -> None:
    """Refuse what a certificate's subject cannot hold."""
    if not words.strip() or not words.isprintable() or len(words) > 64:
        raise InvalidSetting(what, words, "a name of 1 to 64 printable characters")


def _host(host: str) -> x509.GeneralName:
    if (address := ip(host)) is not None:
        return x509.IPAddress(address)
    # A name without a dot could be another member's, and this certificate pass for it.
    if host == "localhost" or _HOST.fullmatch(host):
        return x509.DNSName(host)
    raise InvalidSetting("host", host, "an IP address, localhost or a host name with a dot")


def _period(days: int, now: datetime | None) -> tuple[datetime, datetime]:
    if not 1 <= days <= LONGEST:
        raise InvalidSetting("days", days, f"1 to {LONGEST}")
    now = now or datetime.now(UTC)
    return now - BACKDATED, now + timedelta(days=days)


def _leaf(
    authority: x509.Certificate,
    names: Sequence[x509.GeneralName],
    public: ec.EllipticCurvePublicKey,
    period: tuple[datetime, datetime],
    party: str,
) -> x509.CertificateBuilder:
    organisation = authority.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    unit = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, party)] if party else []
    common = x509.NameAttribute(NameOID.COMMON_NAME, names[0].value)
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    known = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)
    return (
        _builder(x509.Name([*organisation, *unit, common]), authority.subject, public, period)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(issuer, critical=False)
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    period: tuple[datetime, datetime],
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(period[0])
        .not_valid_after(period[1])
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep two commands from issuing at once; the lock ends with its process."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
