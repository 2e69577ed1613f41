"""Certificates: who is let in over real TLS, what is refused before, and what is issued."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eris.core.errors import ErisError, InvalidSetting
from eris.runtimes.grpc import pem
from eris.runtimes.grpc.pem import BadIdentity
from eris.runtimes.grpc.tls import Identity, create_authority, issue, issued, peer_identity

NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=300)
WHO = "/eris.v1.Peer/Who"


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    create_authority(tmp_path / "ca", "hospitals", now=LONG_AGO)
    return tmp_path / "ca"


def ends(identity: Identity) -> datetime:
    return pem.certificates(identity.certificate)[0].not_valid_after_utc


class Door:
    """A server that answers whom it takes the caller for."""

    def __init__(self) -> None:
        self.entered: list[tuple[str, str]] = []

    async def who(self, request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        try:
            self.entered.append(peer_identity(context))
        except ErisError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        return json.dumps(self.entered[-1]).encode()

    @asynccontextmanager
    async def opened(self, identity: Identity) -> AsyncIterator[int]:
        server = grpc.aio.server()
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Who": grpc.unary_unary_rpc_method_handler(self.who)
        }
        generic = grpc.method_handlers_generic_handler("eris.v1.Peer", handlers)
        server.add_generic_rpc_handlers((generic,))
        port = server.add_secure_port("127.0.0.1:0", identity.server_credentials())
        await server.start()
        try:
            yield port
        finally:
            await server.stop(None)


async def called(port: int, credentials: grpc.ChannelCredentials, dialled: str) -> list[str]:
    options = [("grpc.ssl_target_name_override", dialled)]
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(WHO)
        answer: list[str] = json.loads(await ask(b""))
        return answer


def knocks(
    server: Identity, visitor: Identity | grpc.ChannelCredentials, dialled: str = "alice"
) -> list[str]:
    """What a visitor is told."""

    async def scene() -> list[str]:
        door = Door()
        async with door.opened(server) as port:
            shown = visitor
            if isinstance(shown, Identity):
                shown = shown.channel_credentials()
            try:
                return await called(port, shown, dialled)
            except grpc.aio.AioRpcError:
                assert door.entered == []  # not even a call of it came through
                raise

    return asyncio.run(scene())


def refused(
    server: Identity,
    visitor: Identity | grpc.ChannelCredentials,
    dialled: str = "alice",
    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE,
) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        knocks(server, visitor, dialled)
    assert caught.value.code() is code, caught.value
    return caught.value.details() or ""


def foreign(
    folder: Path, common: str, dns: str, authority: Path, ca: Path | None = None
) -> Identity:
    """A certificate of another tool, signed by the authority in ``ca`` or else by itself."""
    folder.mkdir()
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
    issuer, signing = subject, key
    if ca is not None:
        loaded = pem.private_key(ca / "ca.key")
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        issuer, signing = pem.certificates(ca / "ca.pem")[0].subject, loaded
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(LONG_AGO)
        .not_valid_after(NOW + timedelta(days=9))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(dns)]), critical=False)
        .sign(signing, SHA256())
    )
    pem.write_key(folder / "key", key)
    pem.replace(folder / "pem", certificate.public_bytes(Encoding.PEM))
    return Identity(folder / "pem", folder / "key", authority)


def test_a_member_is_let_in_and_known(ca: Path) -> None:
    alice, bob = issue(ca, "alice").identity, issue(ca, "bob").identity
    assert bob.check("bob") == []
    assert knocks(alice, bob) == ["bob", bob.fingerprint]
    assert (alice.name, alice.fingerprint != bob.fingerprint) == ("alice", True)


def test_who_shows_no_certificate_is_refused(ca: Path) -> None:
    alice = issue(ca, "alice").identity
    refused(alice, grpc.ssl_channel_credentials(alice.authority.read_bytes()))


def test_who_signed_for_itself_is_refused(ca: Path, tmp_path: Path) -> None:
    alice = issue(ca, "alice").identity
    mallory = foreign(tmp_path / "mallory", "bob", "bob", alice.authority)
    refused(alice, mallory)
    assert "CERTIFICATE_VERIFY_FAILED" in refused(mallory, alice, "bob")


def test_a_member_of_another_authority_is_refused(ca: Path, tmp_path: Path) -> None:
    alice = issue(ca, "alice").identity
    create_authority(tmp_path / "other", "hospitals")
    stranger = replace(issue(tmp_path / "other", "bob").identity, authority=alice.authority)
    refused(alice, stranger)
    assert "CERTIFICATE_VERIFY_FAILED" in refused(stranger, alice, "bob")


def test_who_is_expired_or_not_yet_valid_is_refused(ca: Path) -> None:
    alice = issue(ca, "alice").identity
    old = issue(ca, "bob", days=1, now=NOW - timedelta(days=3)).identity
    early = issue(ca, "carol", now=NOW + timedelta(days=3)).identity
    for visitor, name in ((old, "bob"), (early, "carol")):
        refused(alice, visitor)
        assert "CERTIFICATE_VERIFY_FAILED" in refused(visitor, alice, name)


def test_a_member_that_answers_for_another_is_refused(ca: Path) -> None:
    alice, bob = issue(ca, "alice", hosts=["127.0.0.1"]).identity, issue(ca, "bob").identity
    assert "Hostname Verification Check failed" in refused(alice, bob, "carol")
    assert knocks(alice, bob, "alice") == ["bob", bob.fingerprint]


def test_a_member_cannot_sign_for_others(ca: Path, tmp_path: Path) -> None:
    alice, bob = issue(ca, "alice").identity, issue(ca, "bob").identity
    # bob plays an authority with what it has.
    (tmp_path / "fake").mkdir()
    os.link(bob.key, tmp_path / "fake" / "ca.key")
    os.link(bob.certificate, tmp_path / "fake" / "ca.pem")
    (tmp_path / "fake" / "issued.json").write_text("[]")
    forged = issue(tmp_path / "fake", "carol").identity
    chain = forged.certificate.read_bytes() + bob.certificate.read_bytes()
    forged.certificate.write_bytes(chain)
    refused(alice, replace(forged, authority=alice.authority))
    with pytest.raises(BadIdentity, match="is not signed by the authority"):
        forged.check("carol")


@pytest.mark.parametrize(("common", "dns"), [("alice", "bob"), ("Bob", "Bob"), ("x y", "bob")])
def test_a_certificate_that_names_no_member_is_turned_away(
    ca: Path, tmp_path: Path, common: str, dns: str
) -> None:
    # TLS lets it in, for the authority signed it; with two names it could be two members.
    alice = issue(ca, "alice").identity
    visitor = foreign(tmp_path / "visitor", common, dns, alice.authority, ca)
    said = refused(alice, visitor, code=grpc.StatusCode.UNAUTHENTICATED)
    assert said.startswith("the certificate of ipv4:127.0.0.1:")
    assert "names no member" in said
    with pytest.raises(BadIdentity, match="visitor/pem names no member"):
        visitor.check("bob")
    usual = foreign(tmp_path / "usual", "bob", "bob", alice.authority, ca)
    assert knocks(alice, usual) == ["bob", usual.fingerprint]


def test_a_renewed_certificate_keeps_the_key(ca: Path) -> None:
    alice, first = issue(ca, "alice").identity, issue(ca, "bob", days=20)
    bob, key, before = first.identity, first.identity.key.read_bytes(), first.identity.fingerprint
    with pytest.raises(BadIdentity, match=r"bob has a certificate .* --renew"):
        issue(ca, "bob")
    again = issue(ca, "bob", renew=True)
    assert (again.identity, again.new_key, bob.key.read_bytes()) == (bob, False, key)
    assert ends(bob) == again.record.not_after > first.record.not_after
    assert again.record.serial != first.record.serial
    assert knocks(alice, bob) == ["bob", before]
    assert issued(ca)[1:] == [first.record, again.record]


def test_a_renewal_needs_the_old_certificate_only(ca: Path, tmp_path: Path) -> None:
    alice, bob = issue(ca, "alice").identity, issue(ca, "bob").identity
    before = bob.fingerprint
    bob.key.rename(tmp_path / "kept.key")  # it has gone to the node
    assert not issue(ca, "bob", renew=True).new_key
    assert knocks(alice, replace(bob, key=tmp_path / "kept.key")) == ["bob", before]
    bob.certificate.unlink()
    lost = issue(ca, "bob", renew=True)
    assert lost.new_key
    assert lost.record.fingerprint == bob.fingerprint != before


def test_what_a_certificate_says(ca: Path) -> None:
    made = issue(ca, "alice", hosts=["10.0.0.7", "::1", "node.example.org", "localhost"], now=NOW)
    root, leaf = pem.certificates(ca / "ca.pem")[0], pem.certificates(made.identity.certificate)[0]
    find = leaf.extensions.get_extension_for_class
    names = find(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["alice", "node.example.org", "localhost"]
    assert [str(x) for x in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7", "::1"]
    both = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert set(find(x509.ExtendedKeyUsage).value) == both
    assert find(x509.BasicConstraints).value == x509.BasicConstraints(ca=False, path_length=None)
    known = root.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert find(x509.AuthorityKeyIdentifier).value.key_identifier == known.digest
    limits = root.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (limits.critical, limits.value) == (True, x509.BasicConstraints(True, 0))
    usage = root.extensions.get_extension_for_class(x509.KeyUsage).value
    assert (usage.key_cert_sign, usage.crl_sign, usage.digital_signature) == (True, True, False)
    second = NOW.replace(microsecond=0)
    assert leaf.not_valid_before_utc == second - timedelta(hours=1)
    assert leaf.not_valid_after_utc == second + timedelta(days=825)


def test_a_certificate_says_whose_its_member_is_and_a_renewal_too(ca: Path) -> None:
    def unit(identity: Identity) -> list[str]:
        subject = pem.certificates(identity.certificate)[0].subject
        found = subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
        return [str(each.value) for each in found]

    assert unit(issue(ca, "alone").identity) == []
    assert unit(issue(ca, "ward-1", party="City Hospital").identity) == ["City Hospital"]
    assert unit(issue(ca, "ward-1", renew=True).identity) == ["City Hospital"]
    assert unit(issue(ca, "ward-1", renew=True, party="Trust").identity) == ["Trust"]
    assert [each.party for each in issued(ca)] == ["", "City Hospital", "City Hospital", "Trust"]
    # An authority from before there were parties.
    lines = json.loads((ca / "issued.json").read_text())
    for line in lines:
        del line["party"]
    (ca / "issued.json").write_text(json.dumps(lines))
    assert {each.party for each in issued(ca)} == {""}
    for party in ("", " ", "x" * 65, "a\nb"):
        with pytest.raises(InvalidSetting, match=r"party is .* 1 to 64 printable characters"):
            issue(ca, "other", party=party)


def test_no_certificate_outlives_its_authority(ca: Path) -> None:
    end = pem.certificates(ca / "ca.pem")[0].not_valid_after_utc
    assert ends(issue(ca, "alice", days=36_000).identity) == end
    with pytest.raises(BadIdentity, match=r"ca\.pem expired .* needs a new authority"):
        issue(ca, "bob", now=end + timedelta(days=1))


def test_keys_are_secret_from_the_first_byte_and_nothing_is_overwritten(ca: Path) -> None:
    mask = os.umask(0)
    try:
        create_authority(ca.parent / "second", "hospitals")
        bob = issue(ca.parent / "second", "bob").identity
    finally:
        os.umask(mask)
    for key in (ca.parent / "second" / "ca.key", bob.key):
        modes = key.parent.stat().st_mode, key.stat().st_mode
        assert [mode & 0o777 for mode in modes] == [0o700, 0o600]
    before = (ca / "ca.key").read_bytes()
    with pytest.raises(BadIdentity, match=r"ca\.key exists and is not overwritten"):
        create_authority(ca, "hospitals")
    assert (ca / "ca.key").read_bytes() == before
    with pytest.raises(BadIdentity, match=r"bob\.key exists and is not overwritten"):
        issue(ca, "bob", out=bob.key.parent)
    with pytest.raises(BadIdentity, match=r"ca\.pem is of another authority"):
        issue(ca, "carol", out=bob.key.parent)
    assert issued(ca) == []
    with pytest.raises(FileExistsError):
        pem.write_key(bob.key, pem.private_key(bob.key))


@pytest.mark.parametrize("name", [*"-Aä", "", "-a", "a-", "a.b", "a" * 64, "ca", "localhost"])
def test_names_that_nobody_may_have(ca: Path, name: str) -> None:
    with pytest.raises(InvalidSetting, match=r"member's name is .* expected 1 to 63 characters"):
        issue(ca, name)


@pytest.mark.parametrize("host", ["bob", "BOB", "*.example.org", "10.0.0.300", "a.org:80", "", "*"])
def test_a_host_cannot_be_another_members_name(ca: Path, host: str) -> None:
    with pytest.raises(InvalidSetting, match="expected an IP address, localhost or a host name"):
        issue(ca, "alice", hosts=[host])


def test_settings_that_make_no_certificate(ca: Path, tmp_path: Path) -> None:
    for days in (0, -1, 10**9):
        with pytest.raises(InvalidSetting, match="days"):
            issue(ca, "alice", days=days)
    for federation in ("", " ", "a\nb", "x" * 65):
        with pytest.raises(InvalidSetting, match="federation"):
            create_authority(tmp_path / "new", federation)
    with pytest.raises(BadIdentity, match="eris ca init"):
        issue(tmp_path / "new", "alice")
    with pytest.raises(BadIdentity, match="without --renew"):
        issue(ca, "alice", renew=True)
    assert issue(ca, "a" * 63).identity.name == "a" * 63


def test_a_damaged_record_or_a_swapped_key_stops_issuing(ca: Path) -> None:
    alice, bob = issue(ca, "alice").identity, issue(ca, "bob").identity
    alice.key.write_bytes(bob.key.read_bytes())
    with pytest.raises(BadIdentity, match=r"alice\.key has another key"):
        issue(ca, "alice", renew=True)
    (ca / "ca.key").write_bytes(bob.key.read_bytes())
    with pytest.raises(BadIdentity, match=r"ca\.key is not the key of"):
        issue(ca, "carol")
    for text in ("[{", "[{}]", "[1]", '[{"name": "a"}]', "7"):
        (ca / "issued.json").write_text(text, encoding="utf-8")
        with pytest.raises(BadIdentity, match=r"issued\.json is damaged"):
            issued(ca)


def test_check_says_what_is_wrong_with_the_files(ca: Path, tmp_path: Path) -> None:
    alice, bob = issue(ca, "alice").identity, issue(ca, "bob").identity
    create_authority(tmp_path / "other", "hospitals")
    nothing, noise = tmp_path / "nothing", tmp_path / "noise"
    noise.write_bytes(b"\xff\x00 noise")
    noise.chmod(0o600)
    for identity, says in (
        (replace(alice, certificate=nothing), "nothing cannot be read: No such file"),
        (replace(alice, key=nothing), "nothing cannot be read: No such file"),
        (replace(alice, authority=tmp_path), "cannot be read: Is a directory"),
        (replace(alice, certificate=noise), "noise holds no certificate in PEM"),
        (replace(alice, key=noise), "noise holds no key in PEM"),
        (replace(alice, key=bob.key), r"bob\.key is not the key of .*alice\.pem"),
        (replace(alice, authority=tmp_path / "other" / "ca.pem"), "not signed by the authority"),
        (replace(alice, authority=bob.certificate), "not signed by the authority"),
        (bob, "the certificate of 'bob'; expected that of 'alice'"),
    ):
        with pytest.raises(BadIdentity, match=says):
            identity.check("alice")
    assert alice.check("alice") == []


def test_check_does_not_take_a_plain_certificate_for_an_authority(tmp_path: Path) -> None:
    alice = foreign(tmp_path / "alice", "alice", "alice", tmp_path / "alice" / "pem")
    with pytest.raises(BadIdentity, match="not signed by the authority"):
        alice.check("alice")


def test_authorities_may_succeed_each_other(ca: Path, tmp_path: Path) -> None:
    alice = issue(ca, "alice").identity
    create_authority(tmp_path / "next", "hospitals")
    bob = issue(tmp_path / "next", "bob").identity
    both = (tmp_path / "next" / "ca.pem").read_bytes() + alice.authority.read_bytes()
    for identity in (alice, bob):
        identity.authority.write_bytes(both)
    issue(ca, "alice", renew=True)
    assert alice.authority.read_bytes() == both
    assert alice.check("alice") == []
    assert knocks(alice, bob) == ["bob", bob.fingerprint]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_key_that_others_may_read_is_refused_with_the_command_that_helps(
    ca: Path, mode: int
) -> None:
    alice = issue(ca, "alice").identity
    for key in (alice.key, ca / "ca.key"):
        key.chmod(mode)
    with pytest.raises(BadIdentity, match=f"mode {mode:o}.*; run: chmod 600 {alice.key}"):
        alice.check("alice")
    with pytest.raises(BadIdentity, match=r"run: chmod 600 .*ca\.key"):
        issue(ca, "bob")
    alice.key.chmod(0o400)
    assert alice.check("alice") == []


def test_check_knows_the_time(tmp_path: Path) -> None:
    create_authority(tmp_path, "hospitals", days=1000, now=NOW)
    alice = issue(tmp_path, "alice", days=100, now=NOW).identity
    day = timedelta(days=1)
    assert alice.check("alice", NOW + 69 * day) == []
    (warning,) = alice.check("alice", NOW + 71 * day)
    assert "alice.pem expires in 28 days, at " in warning
    assert "eris ca issue alice --renew" in warning
    says = r"alice\.pem expired 2 days ago, at .* clock says .* `eris ca issue alice --renew"
    with pytest.raises(BadIdentity, match=says):
        alice.check("alice", NOW + 102 * day + timedelta(hours=1))
    with pytest.raises(BadIdentity, match=r"alice\.pem is valid only in 5 hours, .* clock says"):
        alice.check("alice", NOW - timedelta(hours=6, minutes=1))
    assert alice.check("alice", NOW - timedelta(minutes=59)) == []  # a clock that runs slow
    lasting = issue(tmp_path, "bob", days=2000, now=NOW).identity
    assert len(lasting.check("bob", NOW + 990 * day)) == 2  # the authority ends, too
    create_authority(tmp_path / "old", "hospitals", days=1, now=LONG_AGO)
    late = foreign(tmp_path / "late", "bob", "bob", tmp_path / "old" / "ca.pem", tmp_path / "old")
    with pytest.raises(BadIdentity, match=r"ca\.pem expired 299 days ago"):
        late.check("bob")
