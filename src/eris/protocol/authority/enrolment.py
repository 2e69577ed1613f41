"""A member's entry in the directory: the terms on which it joins, and when it is refused."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

from eris.core.errors import ErisError

LONGEST_ADDRESS = 255
LONGEST_FINGERPRINT = 128
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
ADDRESS = re.compile(r"[!-~]+")

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


class NotYet(ErisError):
    """The directory cannot answer now, and will later."""


@dataclass(frozen=True)
class MemberStatus:
    """What the directory knows of a member, for people."""

    name: str
    address: str
    presence: Presence
    client: bool
    aggregator: bool
    max_share: float
    round: int
    through: int
    lease_left: float


@dataclass(frozen=True)
class Entry:
    """A member as the directory has it.

    ``incarnation`` counts its starts, ``round`` is the highest it has reported, ``through`` the
    last it was permitted to publish in, and its lease runs out when the clock shows ``expires``.
    """

    name: str
    fingerprint: str
    address: str
    client: bool
    aggregator: bool
    max_share: float
    incarnation: int = 1
    through: int = 0
    round: int = 0
    presence: Presence = "here"
    expires: float = 0.0

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
        incarnation = self.incarnation + 1
        return replace(terms, incarnation=incarnation, through=self.through, round=self.round)

    def status(self, now: float) -> MemberStatus:
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
        )
