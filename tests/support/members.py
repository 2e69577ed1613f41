"""Three members, message by message: what each sends is carried by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from eris.core.shards import RandomPlan
from eris.protocol.authority.standing import Scheduled, Standing
from eris.protocol.messages import Contribution, Message, Outgoing
from eris.protocol.round.member import Member
from eris.protocol.settings import Settings
from eris.protocol.view import View
from eris.testing import initial_model

N = 24
NAMES = ("anna", "ben", "cleo")
VIEW = View(NAMES, clients=(0, 1, 2), owners=(0, 1), epoch=1)
AGREED: dict[str, Any] = {
    "n": N, "plan": RandomPlan(2), "min_included": 2, "quorum": 2,
    "close_after": 1.0, "catch_up_after": 2.0, "retry_every": 0.5,
}  # fmt: skip


def standing(me: int, *views: Scheduled, through: int = 10, round: int = 0) -> Standing:
    return Standing(me, views or (Scheduled(VIEW, 1),), NAMES, through, round)


def member(
    me: int,
    *views: Scheduled,
    through: int = 10,
    round: int = 0,
    rounds: int = 10,
    agreed: dict[str, Any] | None = None,
    **options: Any,
) -> Member:
    settings = Settings(**AGREED | (agreed or {}))
    told = standing(me, *views, through=through, round=round)
    return Member(settings, told, initial_model(N, 1), rounds=rounds, **options)


def update(one: Member, round: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.full(N, one.me + round / 8, np.float32)


def pulled(one: Member, now: float) -> list[Outgoing]:
    """All that a member has to send."""
    out: list[Outgoing] = []
    while (more := one.pull(now)) is not None:
        out += more
    return out


def train(one: Member, now: float = 0.1) -> list[Outgoing]:
    """Let a member finish its training; returns what it sends."""
    assert one.job is not None
    out = one.trained(update(one, one.job.round), 1 + one.me, 1, now)
    return out + pulled(one, now)


def deliver(members: list[Member], sender: int, out: list[Outgoing], now: float) -> None:
    """Carry messages to those that are here, and what is said in reply."""
    here = {one.me: one for one in members}
    for outgoing in out:
        for to in outgoing.to:
            if to in here:
                answer = here[to].receive(outgoing.message, sender, now)
                deliver(members, to, answer + pulled(here[to], now), now)


def play(members: list[Member], rounds: int) -> None:
    """Rounds in which everyone takes part."""
    for number in range(1, rounds + 1):
        for one in members:
            if one.round < number:
                one.start(0.0)
            deliver(members, one.me, train(one, now=0.1), 0.1)
        assert [one.round for one in members] == [number + 1] * len(members)


def of_kind(out: list[Outgoing], kind: type[Message]) -> list[Outgoing]:
    return [outgoing for outgoing in out if isinstance(outgoing.message, kind)]


def contribution_to(owner: int, sender: Member) -> Contribution:
    """What a member that is training sends an owner."""
    for outgoing in train(sender):
        if outgoing.to == (owner,) and isinstance(outgoing.message, Contribution):
            return outgoing.message
    raise AssertionError("nothing for this owner")


def started(me: int, *views: Scheduled, **options: Any) -> Member:
    one = member(me, *views, **options)
    assert one.start(0.0) == []
    return one
