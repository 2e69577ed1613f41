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
from eris.protocol.authority.seating import seated
from eris.protocol.authority.standing import LOOKAHEAD, Scheduled, Standing
from eris.protocol.codec import decode, encode
from eris.protocol.messages import Outgoing
from eris.protocol.round.member import Member
from eris.protocol.secure.certified import KeyStatement
from eris.protocol.secure.noise_terms import SharedNoise
from eris.protocol.secure.vault import Vault
from eris.protocol.settings import Settings
from eris.protocol.view import Seating, View

SIZE = 4096
"""Coordinates of the rehearsed model, where the real one has more: loops are compiled for types."""


def rehearse(settings: Settings) -> None:
    """Let few members of such a federation train a round, restart and catch up.

    >>> from eris.core.shards import RandomPlan
    >>> rehearse(Settings(n=100_000, plan=RandomPlan(3)))
    """
    n, rule = min(settings.n, max(SIZE, 2 * settings.plan.shards)), settings.rule
    if isinstance(rule, TrimmedMean):
        rule = replace(rule, trim=0.0)  # two are too few to cut any
    count, secure = 2, settings.secure
    if secure is not None:
        count = max(secure.threshold.seats + 1, secure.least_included)
    noise = settings.noise
    if noise is not None and secure is not None:
        noise = SharedNoise.planned(
            noise.protects, noise.epsilon, clip=noise.clip, rounds=noise.rounds, clients=count,
            samples=1, min_included=count, colluders=secure.known, delta=noise.delta,
        )  # fmt: skip
    scheme, lengths = settings.scheme.rehearsed(), [n]
    if not scheme.whole_shards:
        lengths.append(max(1, n // settings.plan.shards // 7))  # and pieces of shards
    for segment in lengths:
        _round(replace(settings, n=n, rule=rule, scheme=scheme, segment_size=segment,
                       min_included=count, quorum=count, noise=noise, initial=""),
               count)  # fmt: skip


def _round(agreed: Settings, count: int) -> None:
    names = tuple(f"member-{number}" for number in range(count))
    owners = tuple(shard % count for shard in range(agreed.plan.shards))
    vaults, seating = _secured(agreed, names, owners)
    samples = (1,) * count if agreed.scheme.weighed else None
    view = View(names, tuple(range(count)), owners, samples, 1, seating)
    standings = [
        Standing(me, (Scheduled(view, 1),), names, LOOKAHEAD, 0, held=LOOKAHEAD)
        for me in range(count)
    ]
    model = np.zeros(agreed.n, np.float32)
    # Far below what was agreed: a rotation may gather a block's values in one.
    update = model + np.float32(agreed.precision.value_range / 64)
    members = [
        Member(agreed, standing, model, rounds=1, vault=vault)
        for standing, vault in zip(standings, vaults, strict=True)
    ]
    for member in members:
        member.start(0.0)
        sent = int(member.agreement.coding.edges(1, member.me)[-1])
        # Noise of a rehearsal is charged to nobody: it hides nothing.
        member.trained(update, 1, 1, 0.0, np.zeros(sent, np.int64))
    _exchange(members, [[] for _ in members])
    back = Member(agreed, standings[1], model, rounds=1, vault=vaults[1])
    back.restore(members[1].state())
    late = replace(standings[1], round=2)  # the others are through with the round
    newcomer = Member(agreed, late, model, rounds=1, vault=vaults[1])
    said = [newcomer.start(0.0) if me == 1 else [] for me in range(count)]
    _exchange([newcomer if me == 1 else member for me, member in enumerate(members)], said)


def _secured(
    agreed: Settings, names: Sequence[str], owners: Sequence[int]
) -> tuple[list[Vault | None], Seating | None]:
    """Keys and seats for a rehearsal: they protect nothing, for nothing is there to protect."""
    if agreed.secure is None:
        return [None for _ in names], None
    vaults = [Vault.simulated(0, number) for number in range(len(names))]
    stated = [KeyStatement(n, 1, v.newest.public) for n, v in zip(names, vaults, strict=True)]
    parties = dict(enumerate(names))
    seats = seated(owners, parties, agreed.secure.threshold.seats)
    return list(vaults), Seating(seats, tuple(stated))


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
