"""The view of an epoch: who is a member, who has data, who owns which shard."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from eris.core.errors import InvalidSetting
from eris.protocol.secure.certified import KeyStatement
from eris.protocol.secure.keys import PublicKeys

NOBODY = -1
"""The owner of a shard that waits: nobody may take it over."""


def lawful(owner: int, helpers: Sequence[int], parties: Mapping[int, str]) -> bool:
    """Whether the owner of a shard and its helpers are of different parties.

    >>> lawful(0, (1, 2), {0: "a", 1: "b", 2: "a"})
    False
    """
    there = [parties.get(member, "") for member in (owner, *helpers) if member != NOBODY]
    return "" not in there and len(set(there)) == len(there)


@dataclass(frozen=True)
class Seating:
    """Who helps which shard, and the keys by which members seal and sign (secure sums).

    ``helpers[a]`` are the members in the seats of shard a, ``NOBODY`` in one that is vacant.
    ``statements[m]`` are the keys of member m as it signed them; None where they are not known, or
    were found not to be its own.
    """

    helpers: tuple[tuple[int, ...], ...]
    statements: tuple[KeyStatement | None, ...]

    @cached_property
    def known(self) -> dict[int, PublicKeys]:
        """The keys that are known, by member."""
        stated = enumerate(self.statements)
        return {member: one.keys for member, one in stated if one is not None}

    def able(self, shard: int, owner: int, need: int) -> bool:
        """Whether sums of a shard can be opened, and by members of different parties only."""
        helpers = self.helpers[shard]
        there = [member for member in helpers if member in self.known]
        return owner in self.known and len(there) >= need and lawful(owner, helpers, self.parties)

    @cached_property
    def parties(self) -> dict[int, str]:
        """Whose each member is, of those whose keys are known."""
        known = enumerate(self.statements)
        return {member: stated.party() for member, stated in known if stated is not None}


@dataclass(frozen=True)
class View:
    """Members by position; ``clients`` contribute, ``owners[a]`` aggregates shard a.

    ``samples`` gives each client's agreed weight, for schemes that go by it. There are no owners
    where everyone keeps a model of its own (gossip); a shard that waits for its owner has the owner
    ``NOBODY``.

    >>> View.serverless(["anna", "ben", "cleo"], aggregators=2, shards=4).owners
    (0, 1, 0, 1)
    """

    members: tuple[str, ...]
    clients: tuple[int, ...]
    owners: tuple[int, ...]
    samples: tuple[int, ...] | None = None
    epoch: int = 0
    seating: Seating | None = None

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for name in self.members:
            if name in seen:
                raise InvalidSetting("members", name, "every member's name once")
            seen.add(name)
        self._check_roles()

    def _check_roles(self) -> None:
        for what, numbers in (("clients", self.clients), ("owners", self.owners)):
            for number in numbers:
                if what == "owners" and number == NOBODY:
                    continue
                if not 0 <= number < len(self.members):
                    raise InvalidSetting(
                        what, number, f"a member's number, 0 to {len(self.members) - 1}"
                    )
        if len(set(self.clients)) != len(self.clients):
            raise InvalidSetting("clients", self.clients, "every client once")
        if not self.clients:
            raise InvalidSetting("view", self.members, "at least one client")
        if self.samples is not None and (
            len(self.samples) != len(self.clients) or min(self.samples) < 1
        ):
            raise InvalidSetting("samples", self.samples, "a positive weight for every client")

    @classmethod
    def serverless(
        cls,
        names: list[str],
        *,
        aggregators: int,
        shards: int | None = None,
        samples: tuple[int, ...] | None = None,
    ) -> View:
        """Everyone is a client, the first ``aggregators`` own the shards in turn (ERIS)."""
        if not 1 <= aggregators <= len(names):
            raise InvalidSetting("aggregators", aggregators, f"1 to {len(names)}, the members")
        owners = tuple(shard % aggregators for shard in range(shards or aggregators))
        return cls(tuple(names), tuple(range(len(names))), owners, samples)

    @classmethod
    def central(cls, names: list[str], *, samples: tuple[int, ...] | None = None) -> View:
        """A server without data, last in the view, owns the one shard (FedAvg)."""
        members = (*names, "server")
        return cls(members, tuple(range(len(names))), (len(names),), samples)

    def in_epoch(
        self,
        epoch: int,
        clients: tuple[int, ...],
        owners: tuple[int, ...],
        samples: tuple[int, ...] | None = None,
    ) -> View:
        """The same members in other roles; costs what the roles cost, not the members.

        >>> everyone = View.serverless(["anna", "ben", "cleo"], aggregators=1)
        >>> everyone.in_epoch(4, clients=(2, 0), owners=(2,)).roles
        (0, 2)
        """
        other = copy.copy(self)  # the members' names have been checked
        for derived in ("client_set", "roles", "digest"):
            other.__dict__.pop(derived, None)
        fields = {"clients": clients, "owners": owners, "samples": samples,
                  "epoch": epoch, "seating": None}  # fmt: skip
        for name, value in fields.items():
            object.__setattr__(other, name, value)
        other._check_roles()
        return other

    @cached_property
    def client_set(self) -> frozenset[int]:
        """The clients, for asking whether one is among them."""
        return frozenset(self.clients)

    @cached_property
    def roles(self) -> tuple[int, ...]:
        """The members that do something in this epoch: clients, owners and their helpers."""
        seats = [] if self.seating is None else [m for line in self.seating.helpers for m in line]
        return tuple(sorted({*self.clients, *self.owners, *seats} - {NOBODY}))

    @cached_property
    def digest(self) -> bytes:
        """A hash of all that the view says, keys included."""
        said = (self.members, self.clients, self.owners, self.samples, self.seating)
        return hashlib.sha256(repr(said).encode()).digest()

    def named(self, members: Iterable[int]) -> list[str]:
        """Members by their names, for people.

        >>> View.serverless(["anna", "ben"], aggregators=1).named([1, NOBODY])
        ['ben', 'nobody']
        """
        return [self.members[m] if m != NOBODY else "nobody" for m in members]

    def owned_by(self, member: int) -> tuple[int, ...]:
        """The shards a member owns."""
        return tuple(shard for shard, owner in enumerate(self.owners) if owner == member)
