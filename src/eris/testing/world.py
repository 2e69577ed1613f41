"""A whole federation under a virtual clock: the members' and the directory's real logic, in memory.

The same machines as on a network. Messages are encoded, delayed, lost and doubled; nodes crash and
come back with their disk or without, join late, leave and die; the network is cut; the directory
goes away; every host has a clock of its own. A run is a pure function of its seed, and a
:class:`~eris.testing.witness.Witness` checks the laws at every step.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.core.streams import Stream
from eris.protocol.codec import decode, encode
from eris.protocol.directory import LOOKAHEAD, Directory, Joined, Refused
from eris.protocol.member import Job, Member
from eris.protocol.messages import Message, Outgoing
from eris.protocol.standing import Scheduled, Standing
from eris.testing.laws import LawBroken
from eris.testing.shape import Shape
from eris.testing.weather import STOPS, Trouble, Weather
from eris.testing.witness import Witness

LEASE = 2.0
PATIENCE = 60.0
"""Virtual seconds after the storm in which those that are connected must have finished."""
SETTLED = 6.0
"""Virtual seconds after the storm from which on rounds must be as if there had been none."""


@dataclass
class Host:
    """A machine: its clock, its disk, and the member that runs on it while it is up."""

    number: int
    offset: float
    rate: float
    up: bool = False
    member: Member | None = None
    joined: Joined | None = None
    disk: dict[str, NDArray[Any]] | None = None
    ledger: int = 0
    """With a roster: the last round it may have published in, as it noted on its disk."""
    starts: int = 0
    asking: bool = False
    training: Job | None = None
    ticks_at: float = float("inf")
    stored: int = 0

    def clock(self, time: float) -> float:
        """What its clock shows."""
        return self.offset + self.rate * time

    def time(self, clock: float) -> float:
        """When its clock shows that."""
        return (clock - self.offset) / self.rate

    def stop(self) -> None:
        """The process is gone; its disk is not."""
        self.up, self.member, self.joined, self.asking = False, None, None, False
        self.training, self.ticks_at = None, float("inf")


class World:
    """Hosts, a network between them and a directory (or a roster).

    >>> world = World(seed=1, shape=Shape(members=3, rounds=4), kinds=frozenset())
    >>> world.run()
    >>> {host.member.round for host in world.hosts}  # all are through with the last round
    {5}
    """

    def __init__(
        self,
        seed: int,
        *,
        shape: Shape | None = None,
        kinds: frozenset[Trouble] = frozenset(Trouble),
        directory: type[Directory] = Directory,
        member: type[Member] = Member,
    ) -> None:
        self.seed, self.shape = seed, shape or Shape.drawn(seed)
        self.weather = Weather(seed, self.shape, kinds=kinds)
        self.settings, self.initial = self.shape.settings(seed), self.shape.initial(seed)
        self.witness = Witness(self.settings)
        self._make_member, self._make_directory = member, directory
        hosts = self.shape.members
        self.hosts = [Host(number, *self.weather.clock(number)) for number in range(hosts)]
        self._directory_clock = Host(hosts, *self.weather.clock(hosts))
        shard_map = self.settings.plan.at(self.settings.n, self.settings.seed)
        sizes = [shard_map.size(shard) for shard in range(shard_map.shards)]
        first = [host for host in self.hosts if self.weather.begins_at(host.number) == 0]
        self._terms: dict[str, Any] = {
            "charter": "{}", "sizes": sizes, "start_with": len(first), "lease": LEASE,
        }  # fmt: skip
        self.roster: tuple[Scheduled, ...] = ()
        self.directory: Directory | None = None
        if self.shape.roster:
            self.roster = (Scheduled(self.shape.roster_view(sizes), 1),)
            self.witness.announced(self.roster)
        else:
            self.directory = directory(**self._terms)
            self._stored = (self.directory.revision, self.directory.state())
        self._by_number: dict[int, Host] = {}
        """Hosts by the number the directory gave their members."""
        self.now = 0.0
        self.entered: dict[int, float] = {}
        """By round: when the first member entered it."""
        self.faulted: set[int] = set()
        """Rounds in which trouble struck."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._events = self._messages = 0
        self._latest: dict[tuple[int, int], float] = {}
        """By link: when the last message on it arrives, where none overtakes another."""
        self._prepare()

    def _prepare(self) -> None:
        for host in self.hosts:
            self._at(self.weather.begins_at(host.number), partial(self._start, host))
        for incident in self.weather.incidents:
            self._at(incident.start, partial(self._strike, incident.kind, incident.members))
            self._at(incident.end, partial(self._mend, incident.kind, incident.members))

    def run(self) -> None:
        """From the start, through the storm, to the end of training; raises if a law is broken."""
        while not self._over():
            self.step()
            if self.now > self.weather.calm_at + PATIENCE:
                states = [(h.member.round, h.member.phase.value) if h.member else None
                          for h in self.survivors]  # fmt: skip
                raise LawBroken(f"no progress although enough are connected: {states}")
        self._conclude()

    def run_until(self, time: float) -> None:
        """Let time pass, without judging how far the federation gets."""
        while self._queue[0][0] <= time:
            self.step()
        self.now = time

    def step(self) -> None:
        """The next thing happens."""
        self.now, _, happen = heapq.heappop(self._queue)
        happen()

    def _over(self) -> bool:
        if self.now < self.weather.calm_at:
            return False
        return all(host.member is not None and host.member.finished for host in self.survivors)

    @property
    def survivors(self) -> list[Host]:
        """The hosts that are there at the end."""
        lost = self.weather.lost
        return [host for host in self.hosts if host.number not in lost]

    def _conclude(self) -> None:
        members = [host.member for host in self.survivors if host.member is not None]
        self.witness.conclude(members)
        here = frozenset(member.me for member in members)
        for round, time in self.entered.items():
            if round <= self.shape.rounds and time > self.weather.calm_at + SETTLED:
                self.witness.check_calm(round, here)

    # -- trouble ------------------------------------------------------------------------------

    def _strike(self, kind: Trouble, hosts: frozenset[int]) -> None:
        if kind is Trouble.OUTAGE and self.directory is not None:
            self.weather.struck[kind] += 1
            self.directory = None
            self._note_fault()
        elif kind in STOPS:
            for host in (self.hosts[number] for number in hosts if self.hosts[number].up):
                self.weather.struck[kind] += 1
                self._note_fault()
                if kind is Trouble.LEAVE and host.joined is not None:
                    self._carry(host.number, 0, partial(self._leave, host, host.joined))
                    self._store(host)
                host.stop()
                if kind is Trouble.LOSS:
                    host.disk = None

    def _mend(self, kind: Trouble, hosts: frozenset[int]) -> None:
        if kind is Trouble.OUTAGE and self.directory is None and not self.roster:
            now, stored = self._directory_clock.clock(self.now), json.dumps(self._stored[1])
            self.directory = self._make_directory.restore(json.loads(stored), now, **self._terms)
            self._stored = (self.directory.revision, self._stored[1])
        elif kind in STOPS:
            for host in (self.hosts[number] for number in hosts):
                if host.starts:
                    self._revive(host)

    def _dead(self, host: Host) -> bool:
        return any(
            incident.kind is Trouble.DEATH and host.number in incident.members
            for incident in self.weather.incidents
            if incident.on(self.now)
        )

    def _note_fault(self) -> None:
        if self.entered:
            self.faulted.add(max(self.entered))

    # -- the authority ------------------------------------------------------------------------

    def _start(self, host: Host) -> None:
        if not self._dead(host):
            host.up = True
            host.starts += 1
            self._request(host, host.starts)

    def _request(self, host: Host, start: int) -> None:
        """Join or renew, now and again; answers may not come."""
        if host.up and host.starts == start:
            self._at(self.now + LEASE / 3, partial(self._request, host, start))
            self._ask(host)

    def _ask(self, host: Host) -> None:
        host.asking = True
        round = host.member.round if host.member else 0
        if self.roster:
            self._consult(host, round)
        elif host.joined is None:
            self._carry(host.number, 0, partial(self._join, host, host.starts))
        else:
            request = partial(self._renew, host, host.starts, host.joined, round)
            self._carry(host.number, 0, request)

    def _consult(self, host: Host, round: int) -> None:
        """A roster: what may be published is noted on the own disk before it is."""
        abstain = host.ledger
        if host.joined is not None:
            host.ledger = max(host.ledger, round + LOOKAHEAD)
        addresses = tuple(self.roster[0].view.members)
        standing = Standing(host.number, self.roster, addresses, host.ledger, 0)
        if host.joined is None:
            self._welcome(host, host.starts, Joined(host.number, abstain, standing))
        else:
            self._stand(host, host.starts, standing)

    def _join(self, host: Host, start: int) -> None:
        """The directory, next to host 0, takes a host in, or back in."""
        if self.directory is None:
            return
        number, name = host.number, f"member-{host.number}"
        joined = self.directory.join(
            self._directory_clock.clock(self.now), name=name, fingerprint=name, address=name,
            charter="{}", client=self.shape.is_client(number),
            aggregator=self.shape.is_aggregator(number), max_share=self.shape.max_share,
        )  # fmt: skip
        self._keep()
        self.witness.announced(joined.standing.views)
        self._carry(0, host.number, partial(self._welcome, host, start, joined))

    def _renew(self, host: Host, start: int, joined: Joined, round: int) -> None:
        if self.directory is None:
            return
        now, name = self._directory_clock.clock(self.now), f"member-{host.number}"
        try:
            standing = self.directory.renew(
                now, name, name, round=round, incarnation=joined.incarnation
            )
        except Refused:
            # A call that was given up has arrived after the one that was made instead.
            self._carry(0, host.number, partial(self._restart, host, start))
            return
        self._keep()
        self.witness.announced(standing.views)
        self._carry(0, host.number, partial(self._stand, host, start, standing))

    def _restart(self, host: Host, start: int) -> None:
        """A process that was refused ends, and whoever looks after it starts it again."""
        if host.up and host.starts == start:
            host.stop()
            self._at(self.now + 0.5, partial(self._revive, host))

    def _revive(self, host: Host) -> None:
        if not host.up:
            self._start(host)

    def _leave(self, host: Host, joined: Joined) -> None:
        if self.directory is not None:
            now, name = self._directory_clock.clock(self.now), f"member-{host.number}"
            try:
                self.directory.leave(now, name, name, incarnation=joined.incarnation)
            except Refused:
                return
            self._keep()

    def _keep(self) -> None:
        """The directory's state is on disk before an answer tells of it."""
        assert self.directory is not None
        if self.directory.revision != self._stored[0]:
            self._stored = (self.directory.revision, self.directory.state())

    def _welcome(self, host: Host, start: int, joined: Joined) -> None:
        """A member's first answer; a call that was made again has only the last one's."""
        if not host.up or host.starts != start:
            return
        if host.joined is None or joined.incarnation > host.joined.incarnation:
            late = host.starts == 1 and max(self.entered, default=0) > 1
            self.weather.struck[Trouble.LATE] += host.joined is None and late
            host.joined = joined
            self._by_number[joined.number] = host
            if host.member is None:
                self.witness.started(joined.number, joined.abstain_through)
        self._stand(host, start, joined.standing)

    def _stand(self, host: Host, start: int, standing: Standing) -> None:
        if not host.up or host.starts != start:
            return
        assert host.joined is not None
        host.asking = False
        clock = host.clock(self.now)
        self.witness.permitted(standing.me, standing.through)
        if host.member is not None:
            self._after(host, host.member.stand(standing, clock))
        elif standing.views:
            host.member = self._make_member(
                self.settings, standing, self.initial, rounds=self.shape.rounds,
                abstain_through=host.joined.abstain_through,
            )  # fmt: skip
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
        if member.round not in self.entered:
            self._enter(member.round)
        if member.job is not None and member.job is not host.training:
            host.training = member.job
            takes = self.weather.training(host.number, member.job.round, self.now)
            self._at(self.now + takes, partial(self._trained, host, member, member.job))
        if member.round != host.stored and member.round % 2 == 0:
            self._store(host)
        wakes_at = host.time(member.wakes_at)
        if wakes_at < host.ticks_at:
            host.ticks_at = wakes_at
            self._at(max(self.now, wakes_at), partial(self._tick, host, member))
        if member.renewal_due and not host.asking:
            member.renewal_due = False
            self._ask(host)

    def _enter(self, round: int) -> None:
        self.entered[round] = self.now
        if self.weather.troubled(self.now):
            self._note_fault()

    def _store(self, host: Host) -> None:
        """Write a checkpoint."""
        if host.member is not None:
            host.stored = host.member.round
            host.disk = {name: value.copy() for name, value in host.member.state().items()}

    def _tick(self, host: Host, member: Member) -> None:
        if host.member is member:
            host.ticks_at = float("inf")
            self._after(host, member.tick(host.clock(self.now) + 1e-9))

    def _trained(self, host: Host, member: Member, job: Job) -> None:
        if host.member is not member or member.job is not job:
            return
        clock = host.clock(self.now)
        wrong = self.weather.outcome(host.number, job.round, self.now)
        if wrong is not None:
            self._note_fault()
        if wrong is Trouble.FAILURE:
            self._after(host, member.failed(clock))
            return
        noise = Stream(self.seed, "gradient", job.round, host.number).uniform(0, len(job.model))
        update = (job.model - host.number + noise.astype(np.float32)).astype(np.float32)
        if wrong is Trouble.POISON:
            update[:] = np.nan
        samples = 3**host.number  # no two sets of clients weigh the same
        self._after(host, member.trained(update, samples, 1, clock))

    def _send(self, host: Host, out: Sequence[Outgoing]) -> None:
        assert host.member is not None
        me = host.member.me
        for message in host.member.node.stayed:
            self.witness.sent(message, host.member)
        host.member.node.stayed.clear()
        for outgoing in out:
            self.witness.sent(outgoing.message, host.member)
            carried = decode(encode(outgoing.message))
            for to in outgoing.to:
                if (receiver := self._by_number.get(to)) is not None:
                    arrive = partial(self._deliver, me, receiver, carried)
                    self._carry(host.number, receiver.number, arrive, message=True)

    def _deliver(self, sender: int, host: Host, message: Message) -> None:
        if host.up and host.member is not None:
            self.witness.received(message, host.member.me)
            clock = host.clock(self.now)
            self._after(host, host.member.receive(message, sender, clock))

    # -- the network --------------------------------------------------------------------------

    def _carry(
        self, sender: int, receiver: int, arrive: Callable[[], None], *, message: bool = False
    ) -> None:
        """Carry something over the network; a call, unlike a message, is not doubled."""
        self._messages += 1
        if sender != receiver and self.weather.cut(sender, receiver, self.now):
            self._note_fault()
            return
        before = self.weather.struck.total()
        delays = self.weather.deliveries(self._messages, self.now)
        if self.weather.struck.total() != before:
            self._note_fault()
        for delay in delays if message else delays[:1]:
            time = self.now + delay
            if message and self.shape.ordered:
                link = (sender, receiver)
                time = self._latest[link] = max(time, self._latest.get(link, 0.0) + 1e-6)
            self._at(time, arrive)

    def _at(self, time: float, happen: Callable[[], None]) -> None:
        self._events += 1
        heapq.heappush(self._queue, (time, self._events, happen))
