"""A round before the first one, in memory: what is compiled on first use is compiled by then.

Compiling takes seconds on a machine that has just been set up, and would stop a node's event loop
in the middle of its first round: it would neither renew its lease nor answer as a directory, and
members that live would be taken for lost. So a node rehearses before it joins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from eris.protocol.codec import decode, encode
from eris.protocol.member import Member
from eris.protocol.membership import View
from eris.protocol.messages import CatchUp, Contribution, Outgoing
from eris.protocol.settings import Settings
from eris.protocol.standing import LOOKAHEAD, Scheduled, Standing

SIZE = 4096
"""Coordinates of the rehearsed model, where the real one has more: loops are compiled for types."""


def rehearse(settings: Settings, clients: int = 2) -> None:
    """Let two members of such a federation train a round, restart and catch up.

    ``clients`` is how many there are in all; the others contribute what these two do.

    >>> from eris.core.shards import RandomPlan
    >>> rehearse(Settings(n=100_000, plan=RandomPlan(3)))
    """
    n = min(settings.n, max(SIZE, 2 * settings.plan.shards))
    for segment in (n, max(1, n // settings.plan.shards // 7)):  # whole shards, and pieces of them
        _round(replace(settings, n=n, segment_size=segment, min_included=2, quorum=2, initial=""),
               range(max(2, clients)))  # fmt: skip


def _round(agreed: Settings, everyone: range) -> None:
    shards = agreed.plan.shards
    owners = tuple(shard % 2 for shard in range(shards))
    view = View(tuple(map(str, everyone)), tuple(everyone), owners, None, 1)
    scheduled, addresses = (Scheduled(view, 1),), ("",) * len(everyone)
    standings = [Standing(me, scheduled, addresses, LOOKAHEAD, 0) for me in (0, 1)]
    model = np.zeros(agreed.n, np.float32)
    members = [Member(agreed, standing, model, rounds=1) for standing in standings]
    for member in members:
        member.start(0.0)
        member.trained(model + 1, 1, 1, 0.0)
    _exchange(members, [[], []], others=everyone[2:])
    back, newcomer = (Member(agreed, standings[0], model, rounds=1) for _ in range(2))
    back.restore(members[0].state())
    headers = [newcomer.agreement.header(0, 1, key) for key in newcomer.node.replica.versions]
    asked = [Outgoing((1,), CatchUp(header, 0, whole=True)) for header in headers]
    newcomer.evidence.asks(asked)
    _exchange([newcomer, members[1]], [asked, []])


def _exchange(
    members: Sequence[Member], said: Sequence[Iterable[Outgoing]], others: Sequence[int] = ()
) -> None:
    """Carry what they say, as bytes, until nobody has anything to say."""
    post = deque((me, outgoing) for me, out in enumerate(said) for outgoing in out)
    while True:
        for me, member in enumerate(members):
            post.extend((me, outgoing) for outgoing in member.pull(0.0) or ())
        if not post:
            return
        source, outgoing = post.popleft()
        message = decode(encode(outgoing.message))
        for to in outgoing.to:
            if to < len(members):
                post.extend((to, out) for out in members[to].receive(message, source, 0.0))
                for other in others if isinstance(message, Contribution) else ():
                    same = replace(message, header=replace(message.header, sender=other))
                    post.extend((to, out) for out in members[to].receive(same, other, 0.0))
