"""What a directory knows, for people."""

from __future__ import annotations

from dataclasses import dataclass

from eris.protocol.authority.enrolment import MemberStatus


@dataclass(frozen=True)
class ShardStatus:
    """A shard's size and owner, who would own it if the owner died now, and who holds its seats."""

    size: int
    owner: int
    heir: int
    helpers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Description:
    """What the directory knows, for people; ``epoch`` is 0 before the federation has begun."""

    charter: str
    epoch: int
    from_round: int
    round: int
    start_with: int
    lease: float
    members: tuple[MemberStatus, ...]
    shards: tuple[ShardStatus, ...]
