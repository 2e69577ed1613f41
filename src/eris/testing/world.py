"""A whole federation under a virtual clock: the members' and the directory's real logic, in memory.

What goes wrong is the :mod:`~eris.testing.weather`. A run is a pure function of its seed, and a
:class:`~eris.testing.witness.Witness` checks the laws at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np

from eris.core.errors import RefusedContribution
from eris.core.streams import Stream
from eris.protocol.authority.directory import Directory, Refused
from eris.protocol.authority.history import newest
from eris.protocol.authority.standing import Joined, Standing
from eris.protocol.codec import decode, encode
from eris.protocol.messages import Message, Outgoing, Result, Snapshot
from eris.protocol.round.giving import Job
from eris.protocol.round.member import AHEAD, Member
from eris.protocol.transcript import Record
from eris.runtimes.clock import Clock
from eris.testing.key_liar import KeyLiar
from eris.testing.liar import ABSURD, lies, twisted
from eris.testing.places import LEASE, Answer, Authority, Host
from eris.testing.shape import Shape
from eris.testing.sum_liar import SumLiar
from eris.testing.weather import FORGETTING, STOPS, USUAL, Incident, Trouble, Weather
from eris.testing.witness import LawBroken, Witness

PATIENCE = 120.0
"""Virtual seconds after the storm in which those that are connected must have finished."""
LINGER = 2.0
"""Virtual seconds for which a node that is through stays and asks for what it may have missed."""
SETTLED = 5.0
"""Virtual seconds after the storm from which on rounds must be as if there had been none."""


class World(Clock[Host]):
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
        super().__init__()
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
        self.witness.disk = lambda member: self.seats[member].written()
        self.entered: dict[int, float] = {}
        """By round: when the first member entered it."""
        self.faulted: set[int] = set()
        """Rounds in which trouble struck."""
        self._messages = 0
        self._through_at = self._look_at = 0.0
        self._make_liar = KeyLiar if self.settings.scheme.keyed else SumLiar
        self._liars: dict[int, SumLiar | KeyLiar] = {}
        self._latest: dict[tuple[int, int], float] = {}
        """By link: when the last message on it arrives, where none overtakes another."""
        self._prepare()

    def _prepare(self) -> None:
        for host in self.hosts:
            self.at(self.weather.begins_at(host.number), partial(self._start, host))
        for incident in self.weather.incidents:
            self.at(incident.start, partial(self._strike, incident.kind, incident.members))
            self.at(incident.end, partial(self._mend, incident.kind, incident.members))

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
                rested = self.entered.get(round - 3, 0.0) > settled
                self.witness.check_calm(round, here, rested)

    # -- trouble ------------------------------------------------------------------------------

    def _strike(self, kind: Trouble, numbers: frozenset[int]) -> None:
        if kind is Trouble.OUTAGE and self.authority.directory is not None:
            self._struck(kind)
            self.authority.fail()
        elif kind in FORGETTING and all(host.begun for host in self.hosts):
            self._struck(kind)
            self.authority.forget(1.0 if kind is Trouble.LOST else self.weather.forgotten())
            for number in numbers:
                self._end(self.hosts[number])
        else:
            for number in numbers:
                self._strike_host(kind, self.hosts[number])

    def _strike_host(self, kind: Trouble, host: Host) -> None:
        if kind is Trouble.TORN:
            host.doomed = host.up
        elif kind is Trouble.LIE:
            host.lying = True
            self._lie(host)
        elif kind is Trouble.REWIND:
            host.take_image()
        elif kind is Trouble.STALE and host.starts:
            self._struck(kind)
            host.store()
            host.stop()
            host.find_folder_of_another_run()
            self._start(host)
        elif kind in STOPS and host.up:
            self._struck(kind)
            if kind is Trouble.LEAVE and host.joined is not None:
                published = host.member.acted if host.member else None
                leave = self.authority.leave
                self._call(host, partial(leave, host.number, host.joined, published, host.mark))
                host.store()
            host.stop()
            if kind is Trouble.LOSS:
                host.lose_disk()

    def _mend(self, kind: Trouble, numbers: frozenset[int]) -> None:
        if kind is Trouble.OUTAGE:
            self.authority.recover()
        elif kind in FORGETTING:
            self.authority.remember()
        for host in (self.hosts[number] for number in numbers):
            if kind is Trouble.STALE and host.starts:
                host.stop()
                host.lose_disk()
                self._start(host)
            elif kind is Trouble.LIE:
                host.lying = False
            elif kind is Trouble.REWIND:
                self._rewind(host)
            elif kind in STOPS or kind is Trouble.TORN:
                host.doomed = False
                if host.starts:
                    self._revive(host)

    def _rewind(self, host: Host) -> None:
        """A machine goes on from a snapshot, until its next renewal is refused."""
        before = host.member
        if before is not None and host.rewind():
            assert host.member is not None
            self._struck(Trouble.REWIND)
            self.witness.rewound(before, host.member)
            self.move(host, host.member.tick(host.clock(self.now)))

    def _lie(self, host: Host) -> None:
        """Tell all others, and the directory, what is not true; and soon again."""
        if not host.lying:
            return
        self.at(self.now + 0.4, partial(self._lie, host))
        if host.member is None:
            return
        self._struck(Trouble.LIE)
        draw = Stream(self.seed, "lie", int(1000 * self.now), host.number)
        for lie in lies(host.member, draw):
            self.witness.made_up(host.member, lie.message)
            heard = partial(self._deceive, decode(encode(lie.message)), None, host.member.me)
            self.spread(host, lie, heard)
        if host.joined is not None and not self.authority.roster:
            # The directory is told of a round that cannot be; nobody waits for its answer.
            self._call(host, self._renewal(host, host.joined, ABSURD))

    def _lie_about_sums(self, host: Host, member: Member, said: Message) -> None:
        """Say more about a sum than was to be said."""
        assert self.witness.sums is not None
        self.witness.sums.lying.add(member.me)
        draw = Stream(self.seed, "lie about sums", int(1000 * self.now), host.number)
        liar = self._liars.setdefault(host.number, self._make_liar())
        for lie, values in liar.besides(member, said, draw):
            self.witness.made_up(member, lie.message, values)
            heard = partial(self._deceive, decode(encode(lie.message)), None, member.me)
            self.spread(host, lie, heard)

    def _struck(self, kind: Trouble) -> None:
        self.weather.struck[kind] += 1
        self._note_fault()

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
            self.at(self.now + LEASE / 3, partial(self._request, host, start))
            self.ask(host)

    def ask(self, seat: Host) -> None:
        """Ask the roster, or the directory."""
        seat.asking = True
        seat.calls += 1  # what was asked before is given up
        round = seat.member.round if seat.member else 0
        if self.authority.roster:
            standing = self.authority.consult(seat, round)
            self._welcome(seat, seat.calls, Joined(seat.number, standing.through, standing))
        elif seat.joined is None:
            keys = None
            if self.settings.keyed:
                keys = seat.draw_keys(self.seed, self.shape.name(seat.number))
            join = partial(self.authority.join, seat.number, seat.mark, keys)
            self._call(seat, join, self._welcome)
        else:
            seat.renewals += 1
            number = seat.renewals if self.witness.sums is not None else None
            self._call(seat, self._renewal(seat, seat.joined, round, number), self._stand)

    def _renewal(
        self, host: Host, joined: Joined, round: int, number: int | None = None
    ) -> Callable[[], Standing | None]:
        return partial(self.authority.renew, host.number, joined, round, host.mark, number)

    def _call(
        self,
        host: Host,
        request: Callable[[], Answer | None],
        take: Callable[[Host, int, Answer], None] | None = None,
    ) -> None:
        """Ask the directory, next to host 0, and ``take`` its answer; a host that is refused is
        told.

        A call is on a connection, which does not outlive the directory's process.
        """
        call, process, arrived = host.calls, self.authority.starts, False

        def arrive() -> None:
            nonlocal arrived
            if self.authority.starts != process:
                return
            echo, arrived = arrived, True
            try:
                answer = request()
            except Refused as refused:
                if echo:
                    return  # nobody waits for what is said to it
                # Its ledger was forgotten; or a call that was given up has arrived after the one
                # that was made instead.
                self.witness.refused(refused)
                self._carry(0, host.number, partial(self._restart, host, call))
                return
            if take is not None and answer is not None:
                self._carry(0, host.number, partial(take, host, call, answer))

        self._carry(host.number, 0, arrive, twice=Trouble.ECHO)

    def _restart(self, host: Host, call: int) -> None:
        """A process that was refused ends."""
        if host.up and host.calls == call:
            self._end(host)

    def _end(self, host: Host) -> None:
        """A process ends, and whoever looks after it starts it again."""
        host.stop()
        self.at(self.now + 0.5, partial(self._revive, host))

    def _revive(self, host: Host) -> None:
        if not host.up:
            self._start(host)

    def _welcome(self, host: Host, call: int, joined: Joined) -> None:
        """A member's first answer; a call that was made again has only the last one's."""
        if not host.up or host.calls != call:
            return
        if host.joined is None or joined.incarnation > host.joined.incarnation:
            if host.joined is None and host.starts == 1 and max(self.entered, default=0) > 1:
                self.weather.struck[Trouble.LATE] += 1
            host.joined = joined
            self.seats[joined.number] = host
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
            self.move(host, host.member.stand(standing, clock))
        elif standing.views:
            host.begun = True
            host.take_up(self._make_member(
                self.settings, standing, self.initial, rounds=self.shape.rounds,
                abstain_through=host.joined.abstain_through,
                unsure=host.unsure and bool(self.authority.roster), vault=host.vault,
            ))  # fmt: skip
            assert host.member is not None
            self.move(host, host.member.start(clock))

    # -- members ------------------------------------------------------------------------------

    def moved(self, seat: Host, member: Member) -> None:
        """Look at where the member is now."""
        self.witness.look(member)
        if seat.member is member and member.round not in self.entered:
            self.entered[member.round] = self.now
            if self.weather.troubled(self.now):
                self._note_fault()

    def train(self, seat: Host, member: Member, job: Job) -> None:
        """Training takes its time."""
        if self.witness.sums is not None:
            self.witness.sums.begun(member, job)
        takes = self.weather.training(seat.number, job.round, self.now)
        self.at(self.now + takes, partial(self._trained, seat, member, job))

    def _trained(self, host: Host, member: Member, job: Job) -> None:
        if host.member is not member or member.job is not job:
            return
        clock = host.clock(self.now)
        wrong = self.weather.outcome(host.number, job.round, self.now)
        if wrong is not None:
            self._note_fault()
        if wrong is Trouble.FAILURE:
            self.move(host, member.failed(clock))
            return
        start = host.starts + 1000 * host.rewinds
        draw = Stream(self.seed, "gradient", job.round, host.number, start)  # never twice
        noise = draw.uniform(0, len(job.model))
        update = (job.model - host.number + noise.astype(np.float32)).astype(np.float32)
        if self.witness.sums is not None and (job.round + host.number) % 4 == 0:
            update[:] = noise[0]  # a constant shows what it is hidden by
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
        self.witness.trained(member, job.round, update, samples)
        self.move(host, out)

    def said(self, member: Member, record: Record, message: Message) -> None:
        """It is said, whoever hears it."""
        self.witness.sent(Outgoing(record.receivers, message), member, record.data)

    def utter(self, seat: Host, record: Record, message: Message) -> None:
        """Carry what was said; a liar says something else, and the doomed do not get to the end."""
        torn = seat.doomed and isinstance(message, Result)
        heard, kept = self.weather.heard_when_torn(seat.number, self.now) if torn else (None, False)
        record.receivers = record.receivers[:heard]
        if seat.lying and seat.member is not None:
            twist = twisted(message)
            if self.witness.sums is not None:
                twist = self._make_liar.spoilt(twist, seat.member)
                self._lie_about_sums(seat, seat.member, message)
            lied = partial(self._deceive, twist, message, record.sender)
            self.spread(seat, Outgoing(record.receivers, message), lied)
        else:
            super().utter(seat, record, message)
        if torn:  # the process ends in the middle of a sentence
            self._note_fault()
            if kept:
                seat.store()
            seat.stop()

    def hear(self, seat: Host, message: Message, source: int) -> None:
        """A message has reached a member."""
        assert seat.member is not None
        self.witness.received(message, source, seat.member)
        super().hear(seat, message, source)

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
                self.hear(host, told, sender)

    # -- the network --------------------------------------------------------------------------

    def carry(self, sender: Host, receiver: Host, arrive: Callable[[], None]) -> None:
        """Carry a message."""
        self._carry(sender.number, receiver.number, arrive, twice=Trouble.DUPLICATE)

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
            self.at(time, arrive)


if __name__ == "__main__":
    from eris.testing.trace import main

    raise SystemExit(main())
