"""The set: what an owner closes a segment on and signs, and how large it must be."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from eris.core.errors import require
from eris.protocol.enccluster.group import POINT_BYTES
from eris.protocol.enccluster.labels import DOM, BookLabel
from eris.protocol.secure.keys import MemberKeys, PublicKeys
from eris.protocol.secure.labels import digest


def contribution_digest(
    label: BookLabel, client: int, books: Sequence[bytes], mapping: bytes
) -> bytes:
    """h_i: names a contribution by its ciphertexts, a string a book, and its mapping as sent."""
    pieces = [DOM, b"/contribution", label.first.encoded, struct.pack(">I", client)]
    for book in books:
        pieces += [struct.pack(">I", len(book) // POINT_BYTES), book]
    return digest(*pieces, mapping)


@dataclass(frozen=True)
class SetMember:
    """One client of a closed set."""

    client: int
    weight: int
    """y"""
    contribution: bytes
    """Its digest."""
    exchange: bytes
    """Its X25519 key."""


@dataclass(frozen=True)
class SetStatement:
    """What an owner closes a segment on; a member reveals under one of them, once."""

    label: BookLabel
    """label₀ of the segment."""
    members: tuple[SetMember, ...]
    """In ascending order of their numbers."""

    @cached_property
    def encoded(self) -> bytes:
        """The bytes that are signed."""
        rows = (
            struct.pack(">II", one.client, one.weight) + one.contribution + one.exchange
            for one in self.members
        )
        head = (DOM, b"/set", self.label.first.encoded, struct.pack(">I", len(self.members)))
        return b"".join((*head, *rows))

    @cached_property
    def name(self) -> bytes:
        """σ: names the statement in shares, and is in every mask of it."""
        return digest(self.encoded)

    @cached_property
    def by_client(self) -> dict[int, SetMember]:
        """The members by their numbers."""
        return {one.client: one for one in self.members}

    def ascends(self) -> bool:
        """Whether the members' numbers strictly ascend: then nobody is in it twice."""
        numbers = [one.client for one in self.members]
        return all(low < high for low, high in pairwise(numbers))

    def signed_by(self, keys: MemberKeys) -> bytes:
        """The owner's signature."""
        return keys.signing.sign(self.encoded)

    def is_signed(self, owner: PublicKeys, signature: bytes) -> bool:
        """Whether the owner signed it."""
        return owner.signed(self.encoded, signature)


@dataclass(frozen=True)
class SetLaw:
    """How many clients a set must have, so that no owner isolates one or opens two sets.

    |I| ≥ n_adv + 2 leaves two honest members in every set that opens; |I| > (K + n_adv)/2 makes any
    two sets share an honest member, who answers once.

    >>> SetLaw(eligible=10, colluders=1, owner_trains=True).least
    7
    """

    eligible: int
    """K: the clients that may contribute in the round."""
    colluders: int = 1
    owner_trains: bool = True
    min_included: int = 1

    def __post_init__(self) -> None:
        require(self.colluders >= 0, "colluders", self.colluders, "at least 0")
        require(
            self.eligible >= self.adversaries + 2,
            "eligible clients",
            self.eligible,
            f"at least {self.adversaries + 2}: {self.colluders} colluders"
            + (" and an owner that trains" if self.owner_trains else "")
            + " must leave two honest clients in every set that opens",
        )
        require(
            self.min_included <= self.eligible,
            "min_included",
            self.min_included,
            f"at most the {self.eligible} eligible clients",
        )

    @property
    def adversaries(self) -> int:
        """n_adv: clients that may be on the owner's side, and the owner if it is a client."""
        return self.colluders + self.owner_trains

    @property
    def least(self) -> int:
        """The fewest clients of a set that members reveal under."""
        majority = (self.eligible + self.adversaries) // 2 + 1
        return max(self.min_included, self.adversaries + 2, majority)
