"""A member's entry in the directory: the terms on which it joins, and when it is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from eris.core.combine import MOST_SAMPLES
from eris.core.errors import ErisError
from eris.protocol.secure.certified import KeyStatement

LONGEST_ADDRESS = 255
LONGEST_FINGERPRINT = 128
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
ADDRESS = re.compile(r"[!-~]+")
KEY_BYTES = 32
LARGEST_CERTIFICATE = 4096
LARGEST_SIGNATURE = 160
LAST_START = 2**63 - 1
"""Limits of a key statement."""

Presence = Literal["here", "away", "left"]
"""Its lease runs; it ran out; or the member ended it."""


class Refused(ErisError):
    """The directory turns a request down; says why, and what would be accepted."""


class Impostor(Refused):
    """The name belongs to another key."""


class NotAMember(Refused):
    """Whoever asks has to join first."""

    def __init__(self, message: str = "not a member: join first") -> None:
        super().__init__(message)


class OldKeys(Refused):
    """Keys of an earlier start than the ``newest`` that is known of the member."""

    def __init__(self, message: str, newest: int) -> None:
        super().__init__(message)
        self.newest = newest


class NotYet(ErisError):
    """The directory cannot answer now, and will later."""


@dataclass(frozen=True)
class MemberStatus:
    """What the directory knows of a member, for people.

    With secure sums ``party`` is whose it is, and its newest keys hold from the round ``keys_from``
    on; None if no view has them.
    """

    name: str
    address: str
    presence: Presence
    client: bool
    aggregator: bool
    max_share: float
    round: int
    through: int
    lease_left: float
    party: str = ""
    keys_from: int | None = None


@dataclass(frozen=True)
class Entry:
    """A member as the directory has it.

    ``incarnation`` counts its starts, ``round`` is the highest it has reported, ``through`` the
    last it was permitted to publish in, and its lease runs out when the clock shows ``expires``.
    ``samples`` are what it has declared, 0 if nothing. ``keys`` are the newest it has stated,
    where there are secure sums. ``renewals`` is the number
    of its last renewal in this start, which only this start of the directory remembers.
    """

    name: str
    fingerprint: str
    address: str
    client: bool
    aggregator: bool
    max_share: float
    samples: int = 0
    incarnation: int = 1
    through: int = 0
    round: int = 0
    presence: Presence = "here"
    expires: float = 0.0
    keys: KeyStatement | None = None
    renewals: int = 0

    @property
    def here(self) -> bool:
        """Whether its lease runs."""
        return self.presence == "here"

    def check(self) -> None:
        """Refuse terms that nobody may join on."""
        if not NAME.fullmatch(self.name):
            expected = "1 to 63 of a-z, 0-9 and '-', the last not at the ends"
            raise Refused(f"name is {self.name[:64]!r}; expected {expected}")
        if not 0 < len(self.fingerprint) <= LONGEST_FINGERPRINT:
            length = f"fingerprint of {self.name} has {len(self.fingerprint)} characters"
            raise Refused(f"{length}; expected 1 to {LONGEST_FINGERPRINT}")
        if len(self.address) > LONGEST_ADDRESS or not ADDRESS.fullmatch(self.address):
            expected = f"host:port of at most {LONGEST_ADDRESS} characters"
            raise Refused(f"address of {self.name} is {self.address[:64]!r}; expected {expected}")
        if not 0 < self.max_share <= 1:
            share = f"max_share of {self.name} is {self.max_share}"
            raise Refused(f"{share}; expected a share in (0, 1]")
        if not 0 <= self.samples <= MOST_SAMPLES:
            samples = f"samples of {self.name} are {self.samples}"
            raise Refused(f"{samples}; expected at most {MOST_SAMPLES}")

    def check_key(self, fingerprint: str) -> None:
        """Refuse whoever has the name but not the key."""
        if self.fingerprint != fingerprint:
            raise Impostor(
                f"the name {self.name} belongs to another certificate "
                f"({self.fingerprint[:16]}…, not {fingerprint[:16]}…); choose another name, or let "
                f"the member that holds it leave first"
            )

    def again(self, terms: Entry, now: float) -> Entry:
        """The entry after the member joined once more: what it was permitted stays its own."""
        if self.presence != "left":  # one that left may come back with a new key
            self.check_key(terms.fingerprint)
        if self.here and self.address != terms.address:
            wait = math.ceil(max(self.expires - now, 0))
            raise Refused(
                f"{self.name} is already a member at {self.address}, not {terms.address}; "
                f"if it has moved, it can join in {wait} s"
            )
        return replace(
            terms,
            incarnation=self.incarnation + 1,
            through=self.through,
            round=self.round,
            keys=self.keys,
        )

    def renewing(self, number: int | None) -> Entry:
        """The entry after a renewal; a start counts its own, and none comes twice.

        One that does is of a machine that was brought back with its memory: what it has answered
        since, it does not know.
        """
        if number is None:
            return self
        if number <= self.renewals:
            raise Refused(
                f"renewal {number} of {self.name} has been there, the last was {self.renewals}: "
                f"its machine was brought back with its memory (a snapshot); start the node anew"
            )
        return replace(self, renewals=number)

    def stating(self, keys: KeyStatement | None) -> Entry:
        """The entry with keys that the member states now, or states again.

        Whose they are is for every member to check; here they are only its newest. An earlier
        statement would bring keys back that are dead, and perhaps stolen.
        """
        if keys is None:
            raise Refused(
                f"{self.name} states no keys; in this federation sums are sealed, and nobody takes "
                f"part in them without"
            )
        check_statement(self.name, keys)
        newest = self.keys
        if newest is not None and keys != newest and keys.start <= newest.start:
            raise OldKeys(
                f"the keys of {self.name} are of start {keys.start}; expected one after "
                f"{newest.start}, the newest that is known",
                newest.start,
            )
        return replace(self, keys=keys)

    def status(self, now: float, keys_from: int | None = None) -> MemberStatus:
        """The entry for people."""
        return MemberStatus(
            self.name,
            self.address,
            self.presence,
            self.client,
            self.aggregator,
            self.max_share,
            self.round,
            self.through,
            max(self.expires - now, 0.0) if self.here else 0.0,
            "" if self.keys is None else self.keys.party(),
            keys_from,
        )


def check_server(entry: Entry, members: Sequence[Entry]) -> None:
    """Refuse a second aggregator where there is one server, for nobody takes over from it; and one
    with data: it would be given what all others send, and by the key of all clients read it."""
    for other in members if entry.aggregator else ():
        if other.aggregator and other.presence != "left" and other.name != entry.name:
            raise Refused(
                f"{entry.name} may not aggregate: {other.name} is the one aggregation server of "
                f"this federation; set node.aggregator = false"
            )
    if entry.aggregator and entry.client:
        raise Refused(
            f"{entry.name} may not aggregate: the one aggregation server of this federation has no "
            f"data; set node.aggregator or node.client = false"
        )


def check_statement(name: str, keys: KeyStatement) -> None:
    """Refuse what cannot be a member's statement, whoever has signed it."""
    whose = f'the keys of member "{name}"'
    if keys.name != name:
        raise Refused(f"{whose} are stated under another name, {keys.name[:64]!r}")
    if not 0 < keys.start <= LAST_START:
        raise Refused(f"{whose} are of start {keys.start}; expected 1 to {LAST_START}")
    lengths = len(keys.keys.exchange), len(keys.keys.signing)
    if lengths != (KEY_BYTES, KEY_BYTES):
        raise Refused(f"{whose} have {lengths} bytes; expected {KEY_BYTES} each")
    for what, data, most in (
        ("certificate", keys.certificate, LARGEST_CERTIFICATE),
        ("signature", keys.signature, LARGEST_SIGNATURE),
    ):
        if len(data) > most:
            raise Refused(f"{whose} have a {what} of {len(data)} bytes; at most {most}")
    try:
        keys.party()
    except ValueError:
        raise Refused(f"{whose} come without a certificate that can be read") from None
