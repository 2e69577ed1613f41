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

from eris.core.rules import TrimmedMean
from eris.protocol.authority.standing import LOOKAHEAD, Scheduled, Standing
from eris.protocol.codec import decode, encode
from eris.protocol.messages import Outgoing
from eris.protocol.round.member import Member
from eris.protocol.settings import Settings
from eris.protocol.view import View

SIZE = 4096
"""Coordinates of the rehearsed model, where the real one has more: loops are compiled for types."""


def rehearse(settings: Settings) -> None:
    """Let two members of such a federation train a round, restart and catch up.

    >>> from eris.core.shards import RandomPlan
    >>> rehearse(Settings(n=100_000, plan=RandomPlan(3)))
    """
    n, rule = min(settings.n, max(SIZE, 2 * settings.plan.shards)), settings.rule
    if isinstance(rule, TrimmedMean):
        rule = replace(rule, trim=0.0)  # two are too few to cut any
    for segment in (n, max(1, n // settings.plan.shards // 7)):  # whole shards, and pieces of them
        _round(replace(settings, n=n, rule=rule, segment_size=segment, secure=None, min_included=2,
                       quorum=2, initial=""))  # fmt: skip


def _round(agreed: Settings) -> None:
    owners = tuple(shard % 2 for shard in range(agreed.plan.shards))
    scheduled = (Scheduled(View(("one", "other"), (0, 1), owners, None, 1), 1),)
    standings = [Standing(me, scheduled, ("", ""), LOOKAHEAD, 0) for me in (0, 1)]
    model = np.zeros(agreed.n, np.float32)
    # Far below what was agreed: a rotation may gather a block's values in one.
    update = model + np.float32(agreed.precision.value_range / 64)
    members = [Member(agreed, standing, model, rounds=1) for standing in standings]
    for member in members:
        member.start(0.0)
        member.trained(update, 1, 1, 0.0)
    _exchange(members, [[], []])
    back = Member(agreed, standings[1], model, rounds=1)
    back.restore(members[1].state())
    late = replace(standings[1], round=2)  # the others are through with the round
    newcomer = Member(agreed, late, model, rounds=1)
    _exchange([members[0], newcomer], [[], newcomer.start(0.0)])


def _exchange(members: Sequence[Member], said: Sequence[Iterable[Outgoing]]) -> None:
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
            post.extend((to, out) for out in members[to].receive(message, source, 0.0))
