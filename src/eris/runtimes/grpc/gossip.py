"""A member that gossips on a real network: how it is made, and what is noted of it.

Journal, log and status tell of shares: those that were mixed in a round, those that were missing at
their deadline, and those that came after it.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from eris.core.vectors import Vector
from eris.protocol.authority.standing import Joined
from eris.protocol.codec import Limits, decode, encode
from eris.protocol.gossip.member import GossipMember
from eris.protocol.gossip.peer import GossipSettings, Nodes
from eris.protocol.messages import Share
from eris.runtimes.grpc.driver import Driver
from eris.runtimes.grpc.health import Health
from eris.runtimes.grpc.journal import Journal
from eris.runtimes.grpc.logs import event
from eris.runtimes.grpc.recorder import Recorder
from eris.runtimes.grpc.settings import NodeSettings
from eris.runtimes.grpc.transport import Transport
from eris.training.trainer import Learner

_log = logging.getLogger("eris.node")
Around: TypeAlias = tuple[Learner, Transport, Journal, Health, Recorder | None, Limits]
"""What a driver moves a member with."""
SIZE = 4096
"""Coordinates of the rehearsed model, where the real one has more."""


def gossip_member(
    settings: NodeSettings, agreed: GossipSettings, joined: Joined, initial: Vector
) -> GossipMember:
    """The member of a node that has joined."""
    return GossipMember(
        agreed, joined.standing, initial, rounds=settings.federation.rounds,
        nodes=partial(_machines, settings), abstain_through=joined.abstain_through,
    )  # fmt: skip


def rehearse_gossip(settings: NodeSettings, agreed: GossipSettings) -> None:
    """Let a few nodes train and mix a round in memory, so that what is compiled on first use is."""
    parameters = dict(agreed.parameters)
    pieces = max(int(parameters.get(name, 0)) for name in ("partitions", "virtual_nodes"))
    n, few = min(agreed.n, max(SIZE, pieces)), agreed.least_clients
    made = _machines(settings, replace(agreed, n=n, initial="").in_view(few, epoch=1))
    model = np.zeros(n, np.float32)
    peers = [made.build(me, model) for me in range(few)]
    said = [peer.begin(1, model + 1) for peer in peers]
    for phase in range(made.phases):
        for me, out in enumerate(said):
            for one in out:
                message = decode(encode(one.message))
                assert isinstance(message, Share)
                for other in one.to:
                    peers[other].receive(message, me)
        said = [peer.turn(phase) for peer in peers]


def _machines(settings: NodeSettings, agreed: GossipSettings) -> Nodes:
    """The method's machines, for as many as are there."""
    assert settings.gossip is not None
    return settings.gossip.among(agreed.nodes).members(agreed, os.urandom)


class GossipDriver(Driver):
    """One gossiping member at work."""

    member: GossipMember
    shares_mixed, shares_missed = 0, 0

    @property
    def noisy(self) -> bool:
        """Whether the method adds noise to models or updates."""
        return bool(dict(self.member.settings.parameters).get("sigma", 0))

    def figures(self) -> dict[str, Any]:
        """Shares, in place of results."""
        return {
            "shares_mixed": self.shares_mixed,
            "shares_missed": self.shares_missed,
            "shares_late": self.member.late,
        }

    def _summed_up(self, traffic: dict[str, int]) -> dict[str, Any]:
        member = self.member
        # A round that was left out, for the others were further on, has none of either.
        mixed, missed = (member.mixed, member.missed) if member.begun == self._round else (0, 0)
        self.shares_mixed += mixed
        self.shares_missed += missed
        self.health.included |= bool(mixed)
        return {"mixed": mixed, "missed": missed, **traffic}

    def _entered(self, past: int) -> list[int]:
        member = self.member
        if member.finished and member.begun < member.rounds and self._first("behind"):
            # Nobody has its model: what it missed cannot be fetched.
            why = "the others were through without this node"
            told = {"last_round": member.begun, "rounds": member.rounds, "why": why}
            event(_log, logging.WARNING, "model is behind", **told)
            self.journal.write("model is behind", **told)
        return [member.begun]
