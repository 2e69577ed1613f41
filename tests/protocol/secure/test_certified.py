"""Key statements under real certificates of a federation's authority."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from eris.protocol.secure.certified import KeyStatement
from eris.protocol.secure.keys import MemberKeys, RefusedKeys
from eris.runtimes.grpc import pem
from eris.runtimes.grpc.tls import Identity, create_authority, issue

START = time.time_ns()
KEYS = MemberKeys.of(bytes(range(96))).public


class Members:
    """Certificates of anna and ben, and of an authority of somebody else."""

    def __init__(self, folder: Path) -> None:
        create_authority(folder / "ca", "clinics")
        create_authority(folder / "other", "clinics")
        self.of = {name: issue(folder / "ca", name).identity for name in ("anna", "ben")}
        self.forged = issue(folder / "other", "anna").identity
        self.authorities = pem.certificates(self.of["anna"].authority)

    def statement(
        self, identity: Identity, name: str = "anna", federation: int = 7, start: int = START
    ) -> KeyStatement:
        key = pem.private_key(identity.key)
        assert isinstance(key, EllipticCurvePrivateKey)
        certificate: x509.Certificate = pem.certificates(identity.certificate)[0]
        return KeyStatement.signed(federation, name, start, KEYS, certificate, key)

    def check(self, statement: KeyStatement, last: int = 0, days: int = 0) -> None:
        # Not the time at which this file was read: certificates may be made long after that.
        now = datetime.now(UTC) + timedelta(seconds=1, days=days)
        statement.check(7, self.authorities, now, last)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Members:
    return Members(tmp_path_factory.mktemp("members"))


def test_a_members_own_keys_are_taken(members: Members) -> None:
    members.check(members.statement(members.of["anna"]))
    members.check(members.statement(members.of["anna"]), last=START)
    assert members.statement(members.of["anna"]).party() == "anna"


REFUSED: list[tuple[Callable[[Members], KeyStatement], str]] = [
    (lambda m: m.statement(m.forged), "a certificate of another authority"),
    (lambda m: m.statement(m.of["ben"]), "the certificate of another member"),
    (lambda m: m.statement(m.of["anna"], federation=8), "not signed by its certificate"),
    (lambda m: replace(m.statement(m.of["anna"]), start=START + 1), "not signed by its"),
    (lambda m: replace(m.statement(m.of["anna"]), signature=b""), "not signed by its"),
    (lambda m: replace(m.statement(m.of["anna"]), certificate=b"x"), "without a certificate"),
    (
        lambda m: replace(
            m.statement(m.of["anna"]), keys=MemberKeys.of(bytes(96)).public
        ),
        "not signed by its certificate",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("made", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_others_are_refused(
    members: Members, made: Callable[[Members], KeyStatement], why: str
) -> None:
    with pytest.raises(RefusedKeys, match=f'the keys of member "anna" .*{why}'):
        members.check(made(members))


def test_keys_of_an_earlier_start_do_not_come_back(members: Members) -> None:
    statement = members.statement(members.of["anna"])
    with pytest.raises(RefusedKeys, match="of an earlier start"):
        members.check(statement, last=START + 1)
    with pytest.raises(RefusedKeys, match="lies ahead"):
        members.check(members.statement(members.of["anna"], start=START + 2 * 86_400 * 10**9))
    with pytest.raises(RefusedKeys, match="does not hold now"):
        members.check(statement, days=3000)
