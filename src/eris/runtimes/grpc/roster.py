"""A roster: all members of a federation in a file, instead of a directory.

Without an authority over epochs nobody may take a shard over, so the view of a roster never
changes: a shard whose owner is away waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from eris.core.errors import InvalidSetting, did_you_mean
from eris.runtimes.grpc.addresses import dialled
from eris.runtimes.grpc.pem import checked_name
from eris.tables import UNSET, Table, document_in, located, read, setting


@dataclass(frozen=True, kw_only=True)
class RosterMember(Table):
    """One member, in a [[member]] of the roster."""

    title: ClassVar[str] = "member"
    name: str = setting("The name in its certificate.")
    address: str = setting("host:port that the others dial.")
    client: bool = setting("Whether it trains on data of its own.", default=True)
    aggregator: bool = setting("Whether it owns shards.", default=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_name(self.name, "member.name")
        dialled(self.address, f"address of {self.name}")


@dataclass(frozen=True)
class Roster:
    """All members, in the order that gives them their numbers: the same file at every member."""

    path: Path
    members: tuple[RosterMember, ...]

    def __post_init__(self) -> None:
        for what in ("name", "address"):
            values = [getattr(member, what) for member in self.members]
            for value in values:
                if values.count(value) > 1:
                    raise InvalidSetting(f"member.{what}", value, f"every {what} once")
        for role in ("client", "aggregator"):
            if not any(getattr(member, role) for member in self.members):
                raise InvalidSetting(f"member.{role}", False, "true for one member or more")

    @classmethod
    def load(cls, path: Path) -> Roster:
        """Read and check the file."""
        found = document_in(path, "roster")
        with located(path):
            for key in found:
                if key != "member":
                    expected = f"[[member]] alone{did_you_mean(key, ['member'])}"
                    raise InvalidSetting("key", key, expected)
            listed = found.get("member", UNSET)
            if not isinstance(listed, list) or not listed:
                raise InvalidSetting("member", listed, "one [[member]] or more")
            return cls(path, tuple(read(RosterMember, one, path.parent) for one in listed))

    def member(self, name: str) -> RosterMember:
        """The member of that name."""
        for member in self.members:
            if member.name == name:
                return member
        names = [member.name for member in self.members]
        hint = did_you_mean(name, names)
        raise InvalidSetting("node.name", name, f"a member that {self.path} lists{hint}")
