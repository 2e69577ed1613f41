"""A whole federation under a virtual clock: the members' and the directory's real logic, in memory.

The same machines as on a network. Messages are encoded, delayed, lost and doubled; nodes crash and
come back with their disk or without; the network is cut; the directory goes away; every host has a
clock of its own. A run is a pure function of its seed, and a :class:`~eris.testing.witness.Witness`
checks the laws at every step.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.core.compress import RandP
from eris.core.shards import RandomPlan
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.protocol.codec import decode, encode
from eris.protocol.directory import Directory, Refused
from eris.protocol.member import Job, Member
from eris.protocol.messages import Outgoing
from eris.protocol.settings import Settings, model_digest
from eris.protocol.standing import Standing
from eris.testing.laws import LawBroken
from eris.testing.weather import Trouble, Weather
from eris.testing.witness import Witness

LEASE = 2.0
PATIENCE = 400.0
"""Virtual seconds after the storm in which the federation must finish."""


@dataclass
class Host:
    """A machine: its clock, its disk, and the member that runs on it while it is up."""

    number: int
    offset: float
    rate: float
    up: bool = True
    member: Member | None = None
    disk: dict[str, NDArray[Any]] | None = None
    starts: int = 0
    asking: bool = False
    training: Job | None = None
    ticks_at: float = float("inf")
    stored: int = field(default=0)

    def clock(self, time: float) -> float:
        """What its clock shows."""
        return self.offset + self.rate * time

    def time(self, clock: float) -> float:
        """When its clock shows that."""
        return (clock - self.offset) / self.rate


class World:
    """Hosts, a network between them and a directory.

    >>> world = World(seed=1, members=3, kinds=frozenset())
    >>> world.run()
    >>> {host.member.round for host in world.hosts}  # all are through with the last round
    {7}
    """

    def __init__(
        self,
        seed: int,
        members: int = 5,
        *,
        rounds: int = 6,
        kinds: frozenset[Trouble] = frozenset(Trouble),
        directory: type[Directory] = Directory,
        member: type[Member] = Member,
    ) -> None:
        self.seed, self.rounds = seed, rounds
        self.weather = Weather(seed, members, kinds=kinds)
        self.settings, self.initial = _agreed(seed, members)
        self.witness = Witness(self.settings)
        self._make_member, self._make_directory = member, directory
        self.hosts = [Host(number, *self.weather.clock(number)) for number in range(members)]
        self._directory_clock = Host(members, *self.weather.clock(members))
        shard_map = self.settings.plan.at(self.settings.n, self.settings.seed)
        self._terms = {
            "charter": "{}",
            "sizes": [shard_map.size(shard) for shard in range(shard_map.shards)],
            "start_with": members,
            "lease": LEASE,
        }
        self.directory: Directory | None = directory(**self._terms)  # type: ignore[arg-type]
        self._stored = self.directory.state()
        self._by_number: dict[int, Host] = {}
        """Hosts by the number the directory gave their members."""
        self.now = 0.0
        self.troubled: set[int] = set()
        """Rounds in which something was wrong."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._events = self._messages = 0

    def run(self) -> None:
        """From the start, through the storm, to the end of training; raises if a law is broken."""
        for host in self.hosts:
            self._at(0.0, partial(self._start, host))
        for incident in self.weather.incidents:
            self._at(incident.start, partial(self._strike, incident.kind, incident.members))
            self._at(incident.end, partial(self._mend, incident.kind, incident.members))
        limit = self.weather.calm_at + PATIENCE
        while not self._over():
            time, _, happen = heapq.heappop(self._queue)
            if time > limit:
                states = [(h.member.round, h.member.phase.value) if h.member else None
                          for h in self.hosts]  # fmt: skip
                raise LawBroken(f"no progress although all are connected: {states}")
            self.now = time
            happen()
        self.witness.conclude([host.member for host in self.hosts if host.member is not None])

    def _over(self) -> bool:
        if self.now < self.weather.calm_at:
            return False
        return all(host.member is not None and host.member.finished for host in self.hosts)

    # -- trouble ------------------------------------------------------------------------------

    def _strike(self, kind: Trouble, members: frozenset[int]) -> None:
        if kind is Trouble.OUTAGE:
            self.weather.struck[kind] += self.directory is not None
            self.directory = None
        elif kind in (Trouble.CRASH, Trouble.LOSS):
            for host in (self.hosts[m] for m in members if self.hosts[m].up):
                self.weather.struck[kind] += 1
                host.up, host.member, host.asking = False, None, False
                host.training, host.ticks_at = None, float("inf")
                if kind is Trouble.LOSS:
                    host.disk = None

    def _mend(self, kind: Trouble, members: frozenset[int]) -> None:
        if kind is Trouble.OUTAGE and self.directory is None:
            now = self._directory_clock.clock(self.now)
            self.directory = self._make_directory.restore(self._stored, now, **self._terms)  # type: ignore[arg-type]
        elif kind in (Trouble.CRASH, Trouble.LOSS):
            for host in (self.hosts[m] for m in members if not self.hosts[m].up):
                host.up = True
                self._start(host)

    # -- the directory ------------------------------------------------------------------------

    def _start(self, host: Host) -> None:
        host.starts += 1
        self._request(host, host.starts)

    def _request(self, host: Host, start: int) -> None:
        """Join or renew, now and again; answers may not come."""
        if not host.up or host.starts != start:
            return
        self._at(self.now + LEASE / 3, partial(self._request, host, start))
        host.asking = True
        round = host.member.round if host.member else None
        self._carry(host.number, 0, partial(self._answer, host, start, round))

    def _answer(self, host: Host, start: int, round: int | None) -> None:
        """The directory, next to host 0, answers a request of a host."""
        if self.directory is None:
            return
        now, name = self._directory_clock.clock(self.now), f"member-{host.number}"
        abstain = 0
        try:
            if round is None:
                joined = self.directory.join(
                    now, name=name, fingerprint=name, address=name, charter="{}", client=True,
                    aggregator=True, max_share=0.5,
                )  # fmt: skip
                abstain, standing = joined.abstain_through, joined.standing
            else:
                standing = self.directory.renew(now, name, name, round=round)
        except Refused:
            return
        self._stored = self.directory.state()
        self.witness.announced(standing.views)
        self._carry(0, host.number, partial(self._stand, host, start, abstain, standing))

    def _stand(self, host: Host, start: int, abstain: int, standing: Standing) -> None:
        if not host.up or host.starts != start:
            return
        host.asking = False
        self._by_number[standing.me] = host
        clock = host.clock(self.now)
        if host.member is not None:
            self._after(host, host.member.stand(standing, clock))
        elif standing.views:
            host.member = self._make_member(
                self.settings, standing, self.initial, rounds=self.rounds, abstain_through=abstain
            )
            if host.disk is not None:
                host.member.restore(host.disk)
            self._after(host, host.member.start(clock))

    # -- members ------------------------------------------------------------------------------

    def _after(self, host: Host, out: Sequence[Outgoing]) -> None:
        """Do what a member wants done after something has happened to it."""
        member = host.member
        assert member is not None
        clock = host.clock(self.now)
        self._send(host, out)
        while (more := member.pull(clock)) is not None:
            self._send(host, more)
        self.witness.look(member)
        if member.job is not None and member.job is not host.training:
            host.training = member.job
            takes = self.weather.training(host.number, member.job.round, self.now)
            self._at(self.now + takes, partial(self._trained, host, member, member.job))
        if member.renewal_due and not host.asking:
            member.renewal_due = False
            host.asking = True
            self._carry(host.number, 0, partial(self._answer, host, host.starts, member.round))
        if member.round != host.stored and member.round % 2 == 0:
            host.stored = member.round
            host.disk = {name: value.copy() for name, value in member.state().items()}
        wakes_at = host.time(member.wakes_at)
        if wakes_at < host.ticks_at:
            host.ticks_at = wakes_at
            self._at(max(self.now, wakes_at), partial(self._tick, host, member))

    def _tick(self, host: Host, member: Member) -> None:
        if host.member is member:
            host.ticks_at = float("inf")
            self._after(host, member.tick(host.clock(self.now) + 1e-9))

    def _trained(self, host: Host, member: Member, job: Job) -> None:
        if host.member is member and member.job is job:
            noise = Stream(self.seed, "gradient", job.round, host.number).uniform(0, len(job.model))
            update = (job.model - host.number + noise.astype(np.float32)).astype(np.float32)
            samples = 3**host.number  # no two sets of clients weigh the same
            self._after(host, member.trained(update, samples, 1, host.clock(self.now)))

    def _send(self, host: Host, out: Sequence[Outgoing]) -> None:
        assert host.member is not None
        me = host.member.me
        for message in host.member.node.stayed:
            self.witness.sent(message, me)
        host.member.node.stayed.clear()
        for outgoing in out:
            data = encode(outgoing.message)
            self.witness.sent(outgoing.message, me)
            for to in outgoing.to:
                if (receiver := self._by_number.get(to)) is not None:
                    arrive = partial(self._deliver, me, receiver, data)
                    self._carry(host.number, receiver.number, arrive)

    def _deliver(self, sender: int, host: Host, data: bytes) -> None:
        if host.up and host.member is not None:
            message = decode(data)
            self.witness.received(message, host.member.me)
            clock = host.clock(self.now)
            self._after(host, host.member.receive(message, sender, clock))

    # -- the network --------------------------------------------------------------------------

    def _carry(self, sender: int, receiver: int, arrive: Callable[[], None]) -> None:
        self._messages += 1
        if sender != receiver and self.weather.cut(sender, receiver, self.now):
            return
        before = self.weather.struck.total()
        for delay in self.weather.deliveries(self._messages, self.now):
            self._at(self.now + delay, arrive)
        if self.weather.struck.total() != before or self.now < self.weather.calm_at:
            self._note_round()

    def _note_round(self) -> None:
        rounds = [host.member.round for host in self.hosts if host.member is not None]
        if rounds and self.weather.struck:
            self.troubled.add(max(rounds))

    def _at(self, time: float, happen: Callable[[], None]) -> None:
        self._events += 1
        heapq.heappush(self._queue, (time, self._events, happen))


def _agreed(seed: int, members: int) -> tuple[Settings, Vector]:
    """Settings that differ from seed to seed, and the model all start from."""
    shards, kept, long = Stream(seed, "settings").uniform(0, 3).tolist()
    n = 12 + 8 * members
    initial = Stream(seed, "initial").uniform(0, n).astype(np.float32)
    settings = Settings(
        n=n,
        plan=RandomPlan(2 + int(shards * (members - 1))),
        compressor=RandP(0.5) if kept < 0.6 else None,
        segment_size=4 if long < 0.5 else None,
        min_included=min(3, members),
        quorum=members // 2 + 1,
        close_after=0.6,
        catch_up_after=1.0,
        retry_every=0.3,
        history=1 + seed % 3,
        seed=seed,
        initial=model_digest(initial),
    )
    return settings, initial
