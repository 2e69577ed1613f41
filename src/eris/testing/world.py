"""A whole federation under a virtual clock: the members' and the directory's real logic, in memory.

What goes wrong is the :mod:`~eris.testing.weather`. A run is a pure function of its seed, and a
:class:`~eris.testing.witness.Witness` checks the laws at every step.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache, partial

import numpy as np

from eris.core.errors import RefusedContribution
from eris.core.streams import Stream
from eris.protocol.codec import decode, encode
from eris.protocol.directory import Directory, Refused
from eris.protocol.giving import Job
from eris.protocol.history import Mark, newest
from eris.protocol.member import AHEAD, Member
from eris.protocol.messages import Message, Outgoing, Result, Snapshot
from eris.protocol.standing import Joined, Standing
from eris.testing.laws import LawBroken
from eris.testing.liar import ABSURD, lies, twisted
from eris.testing.places import LEASE, Authority, Host
from eris.testing.shape import Shape
from eris.testing.weather import FORGETTING, STOPS, USUAL, Incident, Trouble, Weather
from eris.testing.witness import Witness

PATIENCE = 120.0
"""Virtual seconds after the storm in which those that are connected must have finished."""
LINGER = 2.0
"""Virtual seconds for which a node that is through stays and asks for what it may have missed."""
SETTLED = 5.0
"""Virtual seconds after the storm from which on rounds must be as if there had been none."""


class World:
    """Hosts, a network between them and a directory (or a roster).

    >>> world = World(seed=1, shape=Shape(members=3, rounds=4), kinds=frozenset())
    >>> world.run()
    >>> {host.member.round for host in world.hosts}  # all are through with the last round
    {5}
    """

    store_every = 2

    def __init__(
        self,
        seed: int,
        *,
        shape: Shape | None = None,
        kinds: frozenset[Trouble] = frozenset(Trouble),
        incidents: Sequence[Incident] | None = None,
        directory: type[Directory] = Directory,
        member: type[Member] = Member,
    ) -> None:
        self.seed, self.shape = seed, shape or Shape.drawn(seed)
        self.weather = Weather(seed, self.shape, kinds=kinds, planned=incidents)
        self.settings, self.initial = self.shape.settings(seed), self.shape.initial(seed)
        self.witness = Witness(self.settings)
        self._make_member = member
        hosts = self.shape.members
        self.hosts = [Host(number, *self.weather.clock(number)) for number in range(hosts)]
        clock = Host(hosts, *self.weather.clock(hosts)).clock
        begun = [host for host in self.hosts if self.weather.begins_at(host.number) == 0]
        sure = [host for host in begun if host.number not in self.weather.lost]
        start_with = min(len(begun), max(len(sure), self.shape.enough))
        self.authority = Authority(
            self.shape, self.settings, start_with, lambda: clock(self.now), directory
        )
        self.witness.announced(self.authority.roster)
        self._by_number: dict[int, Host] = {}
        """Hosts by the number the directory gave their members."""
        self.now = 0.0
        self.entered: dict[int, float] = {}
        """By round: when the first member entered it."""
        self.faulted: set[int] = set()
        """Rounds in which trouble struck."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._events = self._messages = 0
        self._through_at = self._look_at = 0.0
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
        """Whether all have been through for a while, in fine weather; with a complete model, or
        having asked everybody for what is missing."""
        if self.now < self._look_at:
            return False
        self._look_at = self.now + LINGER / 20
        if self.now < self.weather.calm_at or not all(
            host.member is not None and (host.member.exhausted or host.member.finished)
            for host in self.survivors
        ):
            self._through_at = self.now
        return self.now >= self._through_at + LINGER

    @cached_property
    def survivors(self) -> list[Host]:
        """The hosts that are there at the end."""
        return [host for host in self.hosts if host.number not in self.weather.lost]

    def _conclude(self) -> None:
        members = [host.member for host in self.survivors if host.member is not None]
        self.witness.conclude(members, all_here=not self.weather.lost)
        here = frozenset(member.me for member in members)
        settled = self.weather.calm_at + SETTLED
        for round, time in self.entered.items():
            if round <= self.shape.rounds and self.entered.get(round - 1, 0.0) > settled < time:
                self.witness.check_calm(round, here)

    # -- trouble ------------------------------------------------------------------------------

    def _strike(self, kind: Trouble, hosts: frozenset[int]) -> None:
        if kind is Trouble.OUTAGE and self.authority.directory is not None:
            self.weather.struck[kind] += 1
            self.authority.fail()
            self._note_fault()
        elif kind in FORGETTING and all(host.begun for host in self.hosts):
            self.weather.struck[kind] += 1
            self.authority.forget(1.0 if kind is Trouble.LOST else self.weather.forgotten())
            self._note_fault()
            for host in (self.hosts[number] for number in hosts):
                host.stop()
                self._at(self.now + 0.5, partial(self._revive, host))
        elif kind is Trouble.STALE:
            for host in (self.hosts[number] for number in hosts if self.hosts[number].starts):
                self.weather.struck[kind] += 1
                self._note_fault()
                host.store()
                host.stop()
                host.find_folder_of_another_run()
                self._start(host)
        elif kind is Trouble.TORN:
            for number in hosts:
                self.hosts[number].doomed = self.hosts[number].up
        elif kind is Trouble.LIE:
            for number in hosts:
                self.hosts[number].lying = True
                self._lie(self.hosts[number])
        elif kind in STOPS:
            for host in (self.hosts[number] for number in hosts if self.hosts[number].up):
                self.weather.struck[kind] += 1
                self._note_fault()
                if kind is Trouble.LEAVE and host.joined is not None:
                    published = host.member.acted if host.member else None
                    request = partial(self._leave, host, host.joined, published, host.mark)
                    self._call(host, request)
                    host.store()
                host.stop()
                if kind is Trouble.LOSS:
                    host.lose_disk()

    def _mend(self, kind: Trouble, hosts: frozenset[int]) -> None:
        if kind is Trouble.OUTAGE:
            self.authority.recover()
        elif kind in FORGETTING:
            self.authority.remember()
        elif kind is Trouble.STALE:
            for host in (self.hosts[number] for number in hosts if self.hosts[number].starts):
                host.stop()
                host.lose_disk()
                self._start(host)
        elif kind is Trouble.LIE:
            for number in hosts:
                self.hosts[number].lying = False
        elif kind in STOPS or kind is Trouble.TORN:
            for host in (self.hosts[number] for number in hosts):
                host.doomed = False
                if host.starts:
                    self._revive(host)

    def _lie(self, host: Host) -> None:
        """Tell all others, and the directory, what is not true; and soon again."""
        if not host.lying:
            return
        self._at(self.now + 0.4, partial(self._lie, host))
        if host.member is None:
            return
        self.weather.struck[Trouble.LIE] += 1
        self._note_fault()
        draw = Stream(self.seed, "lie", int(1000 * self.now), host.number)
        for lie in lies(host.member, draw):
            self.witness.made_up(host.member, lie.message)
            self._spread(host, lie, partial(self._deceive, decode(encode(lie.message)), None))
        if host.joined is not None and not self.authority.roster:
            self._call(host, partial(self._boast, host, host.joined, host.mark))

    def _boast(self, host: Host, joined: Joined, mark: Mark | None) -> None:
        """The directory is told of a round that cannot be; nobody waits for its answer."""
        self.authority.renew(host.number, joined, ABSURD, mark)

    def _note_fault(self) -> None:
        if self.entered:
            self.faulted.add(max(self.entered))

    # -- the authority ------------------------------------------------------------------------

    def _start(self, host: Host) -> None:
        if not self.weather.dead(host.number, self.now):
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
        host.calls += 1  # what was asked before is given up
        round = host.member.round if host.member else 0
        if self.authority.roster:
            standing = self.authority.consult(host, round)
            if host.joined is None:
                abstain = standing.through
                self._welcome(host, host.calls, Joined(host.number, abstain, standing))
            else:
                self._stand(host, host.calls, standing)
        elif host.joined is None:
            self._call(host, partial(self._join, host, host.calls, host.mark))
        else:
            request = partial(self._renew, host, host.calls, host.joined, round, host.mark)
            self._call(host, request)

    def _call(self, host: Host, request: Callable[[], None]) -> None:
        """Ask the directory, next to host 0; a host that is refused is told.

        A call is on a connection, which does not outlive the directory's process.
        """
        call, process = host.calls, self.authority.starts

        def arrive() -> None:
            try:
                if self.authority.starts == process:
                    request()
            except Refused as refused:
                # Its ledger was forgotten; or a call that was given up has arrived after the one
                # that was made instead.
                self.witness.refused(refused)
                self._carry(0, host.number, partial(self._restart, host, call))

        self._carry(host.number, 0, arrive, twice=Trouble.ECHO)

    def _join(self, host: Host, call: int, mark: Mark | None) -> None:
        joined = self.authority.join(host.number, mark)
        if joined is not None:
            self._carry(0, host.number, partial(self._welcome, host, call, joined))

    def _renew(self, host: Host, call: int, joined: Joined, round: int, mark: Mark | None) -> None:
        standing = self.authority.renew(host.number, joined, round, mark)
        if standing is not None:
            self._carry(0, host.number, partial(self._stand, host, call, standing))

    def _restart(self, host: Host, call: int) -> None:
        """A process that was refused ends, and whoever looks after it starts it again."""
        if host.up and host.calls == call:
            host.stop()
            self._at(self.now + 0.5, partial(self._revive, host))

    def _revive(self, host: Host) -> None:
        if not host.up:
            self._start(host)

    def _leave(self, host: Host, joined: Joined, published: int | None, mark: Mark | None) -> None:
        with suppress(Refused):  # it may have started again
            self.authority.leave(host.number, joined, published, mark)

    def _welcome(self, host: Host, call: int, joined: Joined) -> None:
        """A member's first answer; a call that was made again has only the last one's."""
        if not host.up or host.calls != call:
            return
        if host.joined is None or joined.incarnation > host.joined.incarnation:
            if host.joined is None and host.starts == 1 and max(self.entered, default=0) > 1:
                self.weather.struck[Trouble.LATE] += 1
            host.joined = joined
            self._by_number[joined.number] = host
            if host.member is None:
                unsure = host.unsure and bool(self.authority.roster)
                self.witness.started(joined.number, joined.abstain_through, unsure=unsure)
        self._stand(host, call, joined.standing)

    def _stand(self, host: Host, call: int, standing: Standing) -> None:
        if not host.up or host.calls != call:
            return
        assert host.joined is not None
        host.asking = False
        clock = host.clock(self.now)
        if standing.views:
            host.mark = newest(host.mark, standing.mark)
        self.witness.announced(standing.views)
        self.witness.permitted(standing.me, standing.through)
        if host.member is not None:
            self._after(host, host.member.stand(standing, clock))
        elif standing.views:
            host.begun = True
            host.member = self._make_member(
                self.settings, standing, self.initial, rounds=self.shape.rounds,
                abstain_through=host.joined.abstain_through,
                unsure=host.unsure and bool(self.authority.roster),
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
        while host.member is member and (more := member.pull(clock)) is not None:
            self._send(host, more)
        self.witness.look(member)
        if host.member is not member:
            return
        if member.round not in self.entered:
            self._enter(member.round)
        if member.job is not None and member.job is not host.training:
            host.training = member.job
            takes = self.weather.training(host.number, member.job.round, self.now)
            self._at(self.now + takes, partial(self._trained, host, member, member.job))
        if member.round != host.stored and member.round % self.store_every == 0:
            host.store()
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
        draw = Stream(self.seed, "gradient", job.round, host.number, host.starts)  # never twice
        noise = draw.uniform(0, len(job.model))
        update = (job.model - host.number + noise.astype(np.float32)).astype(np.float32)
        poison, honest = wrong is Trouble.POISON, host.number == 0
        samples = 3**host.number  # no two sets of clients weigh the same
        if poison and honest:
            update[-1] = np.nan
        try:
            out = member.trained(update, samples, 1, clock)
        except RefusedContribution:
            out = member.failed(clock)
        if poison and not honest:
            dispatch = member.giving.dispatch
            for piece in dispatch.prepared.pieces.values() if dispatch is not None else ():
                piece[:] = np.nan  # after the client has looked: it is for the owners to refuse
            update[:] = np.nan
        self.witness.trained(member, job.round, update)
        self._after(host, out)

    def _send(self, host: Host, out: Sequence[Outgoing]) -> None:
        assert host.member is not None
        me = host.member.me
        for message in host.member.node.stayed:
            self.witness.sent(Outgoing((me,), message), host.member)
        host.member.node.stayed.clear()
        told = [(outgoing, encode(outgoing.message)) for outgoing in out]
        for outgoing, data in told:
            self.witness.sent(outgoing, host.member, data)  # it is said, whoever hears it
        for outgoing, data in told:
            # Results are for all; what was decoded once need not be again.
            carried = partial(self._deliver, lru_cache(1)(partial(decode, data)))
            if host.lying:
                carried = partial(self._deceive, twisted(outgoing.message), outgoing.message)
            torn = host.doomed and isinstance(outgoing.message, Result)
            heard, kept = (
                self.weather.heard_when_torn(host.number, self.now) if torn else (None, False)
            )
            self._spread(host, replace(outgoing, to=outgoing.to[:heard]), carried)
            if torn:
                self._tear(host, kept)
                return

    def _spread(self, host: Host, said: Outgoing, arrive: Callable[[int, Host], None]) -> None:
        """Carry a message to all that it is for."""
        assert host.member is not None
        for to in said.to:
            if (receiver := self._by_number.get(to)) is not None:
                told = partial(arrive, host.member.me, receiver)
                self._carry(host.number, receiver.number, told, twice=Trouble.DUPLICATE)

    def _tear(self, host: Host, kept: bool) -> None:
        """The process ends in the middle of a sentence."""
        self._note_fault()
        if kept:
            host.store()
        host.stop()

    def _deliver(self, carried: Callable[[], Message], sender: int, host: Host) -> None:
        if host.up and host.member is not None:
            message = carried()
            self.witness.received(message, sender, host.member)
            clock = host.clock(self.now)
            self._after(host, host.member.receive(message, sender, clock))

    def _deceive(self, lie: Message, truth: Message | None, sender: int, host: Host) -> None:
        """A lie arrives, or the truth where nobody could tell: an owner's word about its own shard
        is the federation's, and where every client is needed one word is taken."""
        if host.member is not None:
            evidence, key = host.member.evidence, lie.header.key
            final = isinstance(lie, Snapshot) and evidence.owns(key, sender, lie.at)
            if isinstance(lie, Result) and lie.header.sender == sender:
                final = lie.header.round <= host.member.node.replica.horizon + AHEAD
            told = truth if final or not evidence.spares({sender}) else lie
            if told is not None:
                self._deliver(lambda: told, sender, host)

    # -- the network --------------------------------------------------------------------------

    def _carry(
        self,
        sender: int,
        receiver: int,
        arrive: Callable[[], None],
        *,
        twice: Trouble | None = None,
    ) -> None:
        """Carry something over the network; ``twice`` is what may double it."""
        self._messages += 1
        if sender != receiver and self.weather.cut(sender, receiver, self.now):
            self._note_fault()
            return
        delays = self.weather.deliveries(self._messages, self.now, twice)
        if len(delays) != 1 or delays[0] > USUAL:
            self._note_fault()
        for delay in delays:
            time = self.now + delay
            if twice is Trouble.DUPLICATE and self.shape.ordered:
                link = (sender, receiver)
                time = self._latest[link] = max(time, self._latest.get(link, 0.0) + 1e-6)
            self._at(time, arrive)

    def _at(self, time: float, happen: Callable[[], None]) -> None:
        self._events += 1
        heapq.heappush(self._queue, (time, self._events, happen))


if __name__ == "__main__":
    from eris.testing.trace import main

    raise SystemExit(main())
