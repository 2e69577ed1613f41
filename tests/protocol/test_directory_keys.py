"""Keys and seats in the directory: whose keys a view has, who sits where, and what is refused."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from eris.core.errors import ErisError, InvalidSetting
from eris.protocol.authority.directory import Directory, OldKeys, Refused
from eris.protocol.authority.enrolment import LARGEST_CERTIFICATE
from eris.protocol.authority.seating import lawful
from eris.protocol.authority.standing import Standing
from eris.protocol.directory_codec import standing_from_wire, standing_to_wire
from eris.protocol.secure.certified import KeyStatement
from eris.protocol.secure.keys import PublicKeys
from eris.protocol.view import NOBODY, Seating
from support.registry import founded, join, restored, stated

NAMES = ("anna", "ben", "cleo", "dora", "emil")


def seating(directory: Directory, member: int = 0) -> Seating:
    found = directory.standing(member).views[-1].view.seating
    assert found is not None
    return found


def epoch(directory: Directory) -> int:
    return directory.standing(0).views[-1].view.epoch


def begun(count: int = 5, seats: int | None = 3) -> Directory:
    directory = founded(seats=seats, start_with=count)
    for name in NAMES[:count]:
        join(directory, 0.0, name, keys=stated(name, 1))
    return directory


def renew(directory: Directory, name: str, round: int, keys: KeyStatement | None) -> Standing:
    return directory.renew(1.0, name, f"key of {name}", round=round, keys=keys)


def of_party(name: str, party: str) -> bytes:
    """A certificate that names a party; nobody checks here who has signed it."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([
        x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, party),
        x509.NameAttribute(NameOID.COMMON_NAME, name),
    ])  # fmt: skip
    made = x509.CertificateBuilder(subject, subject, key.public_key(), 7)
    dated = made.not_valid_before(now).not_valid_after(now + timedelta(days=1))
    signed = dated.sign(key, SHA256())
    return signed.public_bytes(Encoding.DER)


# -- views ------------------------------------------------------------------------------------


def test_a_view_has_seats_and_the_keys_of_who_is_here() -> None:
    directory = begun()
    found = seating(directory)
    assert found.statements == tuple(stated(name, 1) for name in NAMES)
    owners = directory.standing(0).views[-1].view.owners
    assert [len(line) for line in found.helpers] == [3, 3, 3]
    assert all(
        lawful(o, line, found.parties) for o, line in zip(owners, found.helpers, strict=True)
    )
    directory.leave(1.0, "emil", "key of emil")
    assert seating(directory).statements[4] is None
    assert all(4 not in line for line in seating(directory).helpers)
    # Without seats keys are nobody's business.
    plain = founded(start_with=1)
    join(plain, 0.0, "anna", keys=stated("anna", 1))
    assert plain.standing(0).views[-1].view.seating is None
    assert plain.state()["statements"] == []


def test_keys_without_seats_are_in_views_in_the_ledger_and_on_the_wire() -> None:
    """As encrypted sums have them: nobody helps, and all know each other's keys."""
    directory = begun(3, 0)
    found = seating(directory)
    assert found.helpers == ((), (), ())
    assert found.statements == tuple(stated(name, 1) for name in NAMES[:3])
    back = restored(directory, 4.0, seats=0, start_with=3)
    assert back.standing(0).views == directory.standing(0).views
    told = directory.standing(1)
    assert standing_from_wire(standing_to_wire(told, 0.0)) == told
    epoch = told.views[-1].view.epoch
    brief = standing_to_wire(told, 0.0, knows=epoch)
    assert not brief.stated
    assert standing_from_wire(brief, {epoch: found}) == told


def test_new_keys_make_a_view_and_those_of_one_round_share_it() -> None:
    directory = begun()
    for round in (1, 2, 3):
        for name in NAMES:
            renew(directory, name, round, None)
    first, views = epoch(directory), len(directory.standing(0).views)
    held = directory.standing(0).held
    assert held == 5
    for name in NAMES:
        told = renew(directory, name, 3, stated(name, 2))
        assert told.views[-1].from_round == held + 1
    assert epoch(directory) == first + 5
    assert len(told.views) == views + 1, "those that begin in the same round replace each other"
    assert seating(directory).statements == tuple(stated(name, 2) for name in NAMES)
    assert told.views[0].view.seating != seating(directory), "keys are of their view"
    # The same statement again (an answer was lost) changes nothing.
    again = renew(directory, "anna", 3, stated("anna", 2))
    assert again.views[-1].view.epoch == first + 5
    # One that starts again has other keys, in its old seats.
    before = seating(directory).helpers
    join(directory, 2.0, "ben", keys=stated("ben", 3))
    assert seating(directory).statements[1] == stated("ben", 3)
    assert seating(directory).helpers == before


def test_a_statement_from_before_is_refused_and_the_newest_named() -> None:
    directory = begun()
    renew(directory, "anna", 1, stated("anna", 7))
    for start in (6, 1):
        with pytest.raises(OldKeys, match=f"of start {start}; expected one after 7") as refused:
            renew(directory, "anna", 1, stated("anna", start))
        assert refused.value.newest == 7
        with pytest.raises(OldKeys):
            join(directory, 2.0, "anna", keys=stated("anna", start))
    other = replace(stated("anna", 7), keys=PublicKeys(b"o" * 32, b"p" * 32))
    with pytest.raises(OldKeys):
        renew(directory, "anna", 1, other)
    # Nor after it has left, nor by a directory that has started again.
    directory.leave(3.0, "anna", "key of anna")
    directory = restored(directory, 4.0, seats=3, start_with=5)
    with pytest.raises(OldKeys, match="expected one after 7"):
        join(directory, 5.0, "anna", keys=stated("anna", 2))
    join(directory, 5.0, "anna", keys=stated("anna", 8))
    assert seating(directory).statements[0] == stated("anna", 8)


REFUSED: list[tuple[KeyStatement | None, str]] = [
    (None, "anna states no keys; in this federation sums are sealed"),
    (stated("ben", 1), "stated under another name, 'ben'"),
    (stated("anna", 0), "of start 0; expected 1 to"),
    (stated("anna", 2**63), "of start 9223372036854775808; expected"),
    (replace(stated("anna", 1), keys=PublicKeys(b"", b"x" * 32)), r"have \(0, 32\) bytes"),
    (replace(stated("anna", 1), certificate=b"x"), "without a certificate that can be read"),
    (replace(stated("anna", 1), certificate=b"x" * (LARGEST_CERTIFICATE + 1)), "at most 4096"),
    (replace(stated("anna", 1), signature=b"x" * 161), "signature of 161 bytes; at most 160"),
]


@pytest.mark.parametrize(("keys", "why"), REFUSED, ids=[why[:40] for _, why in REFUSED])
def test_what_is_no_statement_is_refused(keys: KeyStatement | None, why: str) -> None:
    directory = founded(seats=3)
    with pytest.raises(Refused, match=why):
        join(directory, 0.0, "anna", keys=keys)
    assert directory.state()["members"] == []


def test_a_renewal_that_comes_twice_is_of_a_machine_that_was_brought_back() -> None:
    directory = begun()
    for number in (1, 2, 5):  # some were lost
        directory.renew(1.0, "anna", "key of anna", round=1, incarnation=1, number=number)
    for number in (5, 3):
        with pytest.raises(Refused, match=f"renewal {number} of anna .* start the node anew"):
            directory.renew(1.0, "anna", "key of anna", round=1, incarnation=1, number=number)
    directory.renew(1.0, "anna", "key of anna", round=1, incarnation=1, number=6)
    join(directory, 2.0, "anna", keys=stated("anna", 2))
    directory.renew(2.0, "anna", "key of anna", round=1, incarnation=2, number=1)


def test_seats_are_a_few() -> None:
    with pytest.raises(InvalidSetting, match="seats is 6; expected 0 to 5"):
        founded(seats=6)


def test_what_people_are_told_of_seats_and_keys() -> None:
    directory = begun()
    renew(directory, "anna", 1, None)
    renew(directory, "ben", 1, stated("ben", 2))
    told = directory.describe(1.0)
    assert [shard.helpers for shard in told.shards] == list(seating(directory).helpers)
    assert [(member.party, member.keys_from) for member in told.members[:3]] == [
        ("anna", 1), ("ben", 4), ("cleo", 1),
    ]  # fmt: skip
    assert [member.keys_from for member in begun(2, None).describe(0.0).members] == [None, None]


# -- over time --------------------------------------------------------------------------------


class Churn:
    """Members of few parties that come, go, start again, state new keys; two are one's."""

    def __init__(self, seed: int) -> None:
        self.chance, self.now = random.Random(seed), 0.0
        self.certificates = {f"m-{n}": CERTIFICATES[n] for n in range(len(CERTIFICATES))}
        self.starts = dict.fromkeys(self.certificates, 0)
        self.directory = founded(seats=3, start_with=2, sizes=[4] * 4)
        self.happened: set[str] = set()

    def keys(self, name: str) -> KeyStatement:
        self.starts[name] += 1
        return replace(stated(name, self.starts[name]), certificate=self.certificates[name])

    def step(self) -> None:
        self.now += self.chance.choice((0.0, 1.0, 4.0))
        name = self.chance.choice(list(self.certificates))
        act = self.chance.choices(("join", "renew", "rekey", "leave", "crash"), (4, 6, 3, 1, 1))[0]
        try:
            if act == "join":
                join(self.directory, self.now, name, keys=self.keys(name))
            elif act == "leave":
                self.directory.leave(self.now, name, f"key of {name}")
            elif act == "crash":
                before = self.views()
                self.directory = restored(self.directory, self.now, seats=3, start_with=2,
                                          sizes=[4] * 4)  # fmt: skip
                assert self.views() == before, "a restart keeps seats and keys"
            else:
                keys = self.keys(name) if act == "rekey" else None
                self.directory.renew(self.now, name, f"key of {name}", round=1, keys=keys)
            self.happened.add(act)
        except Refused:  # it is no member at the moment
            assert act != "join"

    def views(self) -> Any:
        known = self.directory.state()["members"]
        return self.directory.standing(0).views if known else ()


CERTIFICATES = [b"", b"", b"", b"", of_party("m-4", "they"), of_party("m-5", "they"), b"", b""]


@pytest.mark.parametrize("seed", range(12))
def test_over_any_churn_parties_stay_apart_and_seats_stay(seed: int) -> None:
    churn, before = Churn(seed), None
    for _ in range(120):
        churn.step()
        for scheduled in churn.views()[-1:]:
            view = scheduled.view
            assert view.seating is not None
            here = {m for m, keys in enumerate(view.seating.statements) if keys is not None}
            for shard, (owner, line) in enumerate(
                zip(view.owners, view.seating.helpers, strict=True)
            ):
                assert owner == NOBODY or lawful(owner, line, view.seating.parties)
                assert {m for m in line if m != NOBODY} <= here
                if before is not None and owner == before.owners[shard]:
                    for seat, held in enumerate(before.seating.helpers[shard]):
                        assert held == NOBODY or held not in here or line[seat] == held
            assert set(view.clients) <= here
            before = view
    assert churn.happened == {"join", "renew", "rekey", "leave", "crash"}


# -- the wire ---------------------------------------------------------------------------------


def test_seats_and_keys_arrive_as_they_were_said_and_once() -> None:
    directory = begun()
    for name in NAMES:
        renew(directory, name, 1, None)
    told = renew(directory, "ben", 1, stated("ben", 2))
    assert len(told.views) == 2
    message = standing_to_wire(told, 7.0)
    assert len(message.stated) == 6, "one member of five has two"
    assert standing_from_wire(message) == told
    # Who has heard of the first view is told the keys of the second alone.
    first = told.views[0].view
    assert first.seating is not None
    known = {first.epoch: first.seating}
    shorter = standing_to_wire(told, 7.0, knows=told.views[0].view.epoch)
    assert not shorter.views[0].keys
    assert standing_from_wire(shorter, known) == told
    with pytest.raises(ErisError, match=r"view\.keys"):
        standing_from_wire(shorter)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"helpers": [0, 1]}, "view.helpers"),
        ({"helpers": [9] * 9}, "names no member"),
        ({"helpers": [-2] * 9}, "names no member"),
        ({"helpers": [1] * 18}, "view.helpers"),
        ({"keys": [1, 2, 3]}, "view.keys"),
        ({"keys": [2, 1, 3, 4, 5]}, "of another"),
        ({"keys": [1, 2, 3, 4, 99]}, "of no member"),
    ],
)
def test_seats_that_make_no_sense_are_refused(change: dict[str, list[int]], why: str) -> None:
    message = standing_to_wire(begun().standing(0), 0.0)
    for name, value in change.items():
        message.views[-1].ClearField(name)
        getattr(message.views[-1], name).extend(value)
    with pytest.raises(ErisError, match=why):
        standing_from_wire(message)
