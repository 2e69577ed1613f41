"""All nodes in one process, under a virtual clock, with injected faults.

The same machines as on a network, moved by an event queue: messages are encoded, counted, queued
for a virtual time and decoded. Nothing here waits; a run is a pure function of its nodes, its
updates and its fault plan.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import partial

from eris.core.vectors import Vector
from eris.protocol.agreement import Agreement, Key
from eris.protocol.codec import decode, encode
from eris.protocol.messages import CatchUp, Message, Outgoing
from eris.protocol.node import Node
from eris.protocol.transcript import Record, Transcript
from eris.runtimes.faults import FaultPlan
from eris.runtimes.station import Traffic

Train = Callable[[int, Vector, int], tuple[Vector, int, int]]
"""(member, model, round) → (update, samples, steps)."""


class LocalRuntime:
    """Carries the messages of a federation inside one process.

    >>> import numpy as np
    >>> from eris.protocol.membership import View
    >>> from eris.protocol.settings import Settings
    >>> view = View.serverless(["anna", "ben", "cleo"], aggregators=1)
    >>> runtime = LocalRuntime(Agreement(Settings(n=2), view), np.zeros(2, np.float32))
    >>> _ = runtime.run_round(lambda member, model, round: (np.ones(2, np.float32), 1, 1))
    >>> runtime.nodes[2].model
    array([-0.01, -0.01], dtype=float32)
    """

    def __init__(
        self,
        agreement: Agreement,
        initial: Vector,
        *,
        faults: FaultPlan | None = None,
        transcript: Transcript | None = None,
    ) -> None:
        self.agreement = agreement
        self.nodes = [Node(agreement, me, initial) for me in range(len(agreement.view.members))]
        self.faults = faults or FaultPlan()
        self.transcript = transcript
        self.now, self.round = 0.0, 0
        self.down: set[int] = set()
        """Members that have crashed and are not back yet."""
        self._away: set[int] = set()
        """Of those, the ones that are away for this round only: they lose nothing."""
        self._wanted: dict[int, dict[Key, int]] = {}
        """By member that was away: the versions it must have before it trains."""
        self.traffic = Traffic()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        """What will happen: when, a number that keeps the order of equal times, and what."""
        self._events = self._messages = 0
        self._unsettled = 0
        """A member that was not settled when last asked: asking it first is usually enough."""

    @property
    def live(self) -> list[int]:
        """Members that are up."""
        return [member for member in range(len(self.nodes)) if member not in self.down]

    def run_round(self, train: Train) -> Traffic:
        """One round: every live client trains and contributes, then messages flow.

        The round ends when every live node is settled, or at its time limit; what is under way
        then arrives in a later round.
        """
        self.round += 1
        self.traffic = Traffic()
        settings = self.agreement.settings
        end = self.now + settings.catch_up_after + 8 * settings.retry_every
        self._begin(end)
        waiting = [member for member in self.agreement.view.clients if member in self.live]
        while True:
            waiting = [member for member in waiting if not self._contribute(member, train)]
            if not waiting and len(self.down) < len(self.nodes) and self._settled():
                break
            if not self._queue or self._queue[0][0] > end:
                self.now = end
                break
            time, _, happen = heapq.heappop(self._queue)
            self.now = max(self.now, time)
            happen()
        return self.traffic

    def heal(self) -> None:
        """End all faults and bring everyone back; the next rounds let all catch up."""
        self.faults = FaultPlan(latency=self.faults.latency)
        for member in sorted(self.down):
            self._return(member)

    # -- the course of a round ----------------------------------------------------------------

    def _begin(self, end: float) -> None:
        """Bring live nodes into the round and schedule what time brings."""
        back = self._churn()
        self._wanted = dict.fromkeys(back, self._newest()) if back else {}
        for member in back:
            self._catch_up(member)
        owners = set(self.agreement.view.owners)
        for member in self.live:
            away = member in owners and self.faults.away(member, self.round)
            begin = self.nodes[member].begin(self.round, self.now, aggregating=not away)
            self._send(member, begin)
            if (crash := self.faults.crash_of(member, self.round)) is not None:
                after, outage = crash
                self._at(self.now + after, partial(self._crash, member, self.faults))
                self._at(self.now + after + outage, partial(self._return, member))
        self._wake(end)

    def _churn(self) -> set[int]:
        """Members that are away in this round stop; returns those that are back."""
        before = self._away
        self.down -= before
        self._away = {m for m in self.live if self.faults.churned(m, self.round)}
        self.down |= self._away
        return before - self._away

    def _newest(self) -> dict[Key, int]:
        """The highest version of every segment that anyone has."""
        versions = [node.replica.versions for node in self.nodes]
        return {key: max(each[key] for each in versions) for key in self.agreement.keys}

    def _catch_up(self, member: int) -> None:
        """Ask for what a member missed: the owner or, if it cannot help, the next one that can."""
        for key, version in self._wanted[member].items():
            have = self.nodes[member].replica.versions[key]
            if have < version and (peer := self._holder(member, key, version)) is not None:
                ask = CatchUp(self.agreement.header(member, self.round, key), have)
                self._send(member, [Outgoing((peer,), ask)])

    def _holder(self, member: int, key: Key, version: int) -> int | None:
        """Who has that version of a segment and can be reached: the owner first."""
        following = ((member + step) % len(self.nodes) for step in range(1, len(self.nodes)))
        for peer in (self.agreement.view.owners[key[0]], *following):
            if peer == member or peer in self.down or self.faults.cut(peer, member, self.round):
                continue
            if self.nodes[peer].replica.versions[key] >= version:
                return peer
        return None

    def _lacks(self, member: int) -> bool:
        """Whether a member that was away has yet to catch up."""
        versions = self.nodes[member].replica.versions
        wanted = self._wanted.get(member, {})
        return any(versions[key] < version for key, version in wanted.items())

    def _wake(self, end: float) -> None:
        """Let every node's clock tick at the deadlines of the round."""
        settings, round = self.agreement.settings, self.round
        times = [self.now + settings.close_after]
        retry = self.now + settings.catch_up_after
        while retry < end:
            times.append(retry)
            retry += settings.retry_every
        for time in times:
            self._at(time, lambda: self._tick(round))

    def _tick(self, round: int) -> None:
        if round == self.round:
            for member in self.live:
                self._send(member, self.nodes[member].tick(self.now))

    def _contribute(self, member: int, train: Train) -> bool:
        """Let a client train and send once it may; returns whether it is done with that."""
        node = self.nodes[member]
        if member in self.down:
            return True
        if not node.replica.ready(self.round) or self._lacks(member):
            return False
        model = node.client.sender.training_model(node.model)
        out = node.contribute(*train(member, model, self.round))
        if self.transcript is not None:
            for message in node.stayed:
                own = self.transcript.record(self.now, member, (member,), encode(message))
                own.arrived.add(member)
        if self.faults.straggles(member, self.round):
            late = self.now + self.agreement.settings.close_after + self.faults.latency
            self._at(late, partial(self._send, member, out))
        else:
            self._send(member, out)
        return True

    def _settled(self) -> bool:
        for member in (self._unsettled, *range(len(self.nodes))):
            if member not in self.down and not self.nodes[member].replica.settled(self.round):
                self._unsettled = member
                return False
        return True

    def _crash(self, member: int, plan: FaultPlan) -> None:
        """A node stops, unless its fault plan has ended in the meantime."""
        if plan is self.faults:
            self.down.add(member)
            self._away.discard(member)

    def _return(self, member: int) -> None:
        """A crashed node is back: its replica was stored, what it was collecting is lost."""
        if member in self.down:
            self.down.discard(member)
            self._send(member, self.nodes[member].restart(self.round, self.now))

    # -- moving messages ----------------------------------------------------------------------

    def _send(self, sender: int, outgoing: Sequence[Outgoing]) -> None:
        for out in outgoing:
            data = encode(out.message)
            record = Record(self.now, sender, out.to, data)
            if self.transcript is not None:
                self.transcript.records.append(record)
            message = decode(data)
            for receiver in out.to:
                self.traffic.note(sender, receiver, type(message).__name__, len(data))
                self._carry(record, receiver, message)

    def _carry(self, record: Record, receiver: int, message: Message) -> None:
        self._messages += 1
        if self.faults.cut(record.sender, receiver, self.round):
            return
        for delay in self.faults.deliveries(self._messages):
            self._at(self.now + delay, partial(self._deliver, record, receiver, message))

    def _deliver(self, record: Record, receiver: int, message: Message) -> None:
        if receiver not in self.down:
            record.arrived.add(receiver)
            self._send(receiver, self.nodes[receiver].receive(message, record.sender))

    def _at(self, time: float, happen: Callable[[], None]) -> None:
        self._events += 1
        heapq.heappush(self._queue, (time, self._events, happen))
