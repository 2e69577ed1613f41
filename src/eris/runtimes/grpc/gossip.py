"""A member that gossips on a real network: how it is made, and what is noted of it.

Journal, log and status tell of shares: those that were mixed in a round, those that were missing at
their deadline, and those that came after it.
"""

from __future__ import annotations

import logging
import time
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
from eris.protocol.round.ending import Phase
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
    """Let two nodes train and mix a round in memory, so that what is compiled on first use is."""
    pieces = dict(agreed.parameters).get("partitions", 0)
    n = min(agreed.n, max(SIZE, int(pieces)))
    made = _machines(settings, replace(agreed, n=n, initial="").in_view(2, epoch=1))
    model = np.zeros(n, np.float32)
    peers = [made.build(me, model) for me in range(2)]
    said = [peer.begin(1, model + 1) for peer in peers]
    for phase in range(made.phases):
        for me, out in enumerate(said):
            for message in (decode(encode(outgoing.message)) for outgoing in out):
                assert isinstance(message, Share)
                peers[1 - me].receive(message, me)
        said = [peer.turn(phase) for peer in peers]


def _machines(settings: NodeSettings, agreed: GossipSettings) -> Nodes:
    """The method's machines, for as many as are there."""
    assert settings.gossip is not None
    return settings.gossip.among(agreed.nodes).nodes(agreed)


class GossipDriver(Driver):
    """One gossiping member at work."""

    member: GossipMember  # type: ignore[assignment]  # the calls are those of every machine
    shares_mixed, shares_missed = 0, 0

    async def receive(self, peer: str, data: bytes) -> None:
        """Take in a message of a peer; bytes that are none end its stream with a reason."""
        message = decode(data, self._limits)
        members = self.member.agreement.view.members
        if peer not in members:
            self.renew.set()
            return
        source = members.index(peer)
        async with self.moving:
            if self._stopped:
                return
            if self.recorder is not None:
                self.recorder.received(time.time(), source, data)
            self._after(self.member.receive(message, source, self._now()))

    def figures(self) -> dict[str, Any]:
        """Shares, in place of results."""
        return {
            "shares_mixed": self.shares_mixed,
            "shares_missed": self.shares_missed,
            "shares_late": self.member.late,
        }

    def _note_faint(self) -> None:
        """Nothing: models are not summed in fixed point."""

    def _note_findings(self) -> None:
        """Nothing: nobody owns a sum."""

    def _note_round(self) -> None:
        """A round has begun: say how the last one went."""
        member, now = self.member, time.monotonic()
        if self._round:
            totals = self._totals()
            sent, received = (new - old for new, old in zip(totals, self._bytes, strict=True))
            self._bytes = totals
            # A round that was left out, for the others were further on, has none of either.
            mixed, missed = (member.mixed, member.missed) if member.begun == self._round else (0, 0)
            self.shares_mixed += mixed
            self.shares_missed += missed
            self.health.included |= bool(mixed)
            summary = {
                "round": self._round,
                "seconds": round(now - self._began, 4),
                "mixed": mixed,
                "missed": missed,
                "sent": sent,
                "received": received,
            }
            event(_log, logging.INFO, "round over", **summary)
            self.journal.write("round", **summary)
        self._round, self._began = member.round, now
        self._based_on = [member.begun]
        done = member.phase is Phase.DONE
        self.journal.write("done" if done else "began", round=member.round)
        self.round_begun.set()
