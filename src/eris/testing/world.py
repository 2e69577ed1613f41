"""A whole federation under a virtual clock: the members' and the directory's real logic, in memory.

What goes wrong is the :mod:`~eris.testing.weather`. A run is a pure function of its seed, and a
:class:`~eris.testing.witness.Witness` checks the laws at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from eris.core.errors import RefusedContribution
from eris.core.streams import Stream
from eris.protocol.authority.directory import Directory
from eris.protocol.authority.standing import Standing
from eris.protocol.codec import decode, encode
from eris.protocol.messages import Message, Outgoing, Result, Snapshot
from eris.protocol.round.giving import Job
from eris.protocol.round.member import AHEAD, Member
from eris.protocol.transcript import Record
from eris.testing.key_liar import KeyLiar
from eris.testing.liar import ABSURD, lies, twisted
from eris.testing.places import Host
from eris.testing.realm import Realm
from eris.testing.shape import Shape
from eris.testing.sum_liar import SumLiar
from eris.testing.weather import Incident, Trouble
from eris.testing.witness import Witness

SETTLED = 5.0
"""Virtual seconds after the storm from which on rounds must be as if there had been none."""


class World(Realm[Member]):
    """A federation whose members aggregate.

    >>> world = World(seed=1, shape=Shape(members=3, rounds=4), kinds=frozenset())
    >>> world.run()
    >>> {host.member.round for host in world.hosts}  # all are through with the last round
    {5}
    """

    witness: Witness

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
        shape = shape or Shape.drawn(seed)
        self.settings, self.initial = shape.settings(seed), shape.initial(seed)
        self.witness = Witness(self.settings)
        self._make_member = member
        self.witness.disk = lambda member: self.seats[member].written()
        self._make_liar = KeyLiar if self.settings.scheme.keyed else SumLiar
        self._liars: dict[int, SumLiar | KeyLiar] = {}
        shard_map = self.settings.shard_map()
        sizes = [shard_map.size(shard) for shard in range(shard_map.shards)]
        super().__init__(seed, shape, sizes, kinds=kinds, incidents=incidents, directory=directory)

    def make(self, host: Host[Member], standing: Standing) -> Member:
        """A member that aggregates."""
        assert host.joined is not None
        return self._make_member(
            self.settings, standing, self.initial, rounds=self.shape.rounds,
            abstain_through=host.joined.abstain_through,
            unsure=host.unsure and bool(self.authority.roster), vault=host.vault,
        )  # fmt: skip

    def conclude(self) -> None:
        """All that are there hold the same, and rounds after the storm were calm."""
        members = [host.member for host in self.survivors if host.member is not None]
        self.witness.conclude(members, all_here=not self.weather.lost)
        here = frozenset(member.me for member in members)
        settled = self.weather.calm_at + SETTLED
        for round, time in self.entered.items():
            if round <= self.shape.rounds and self.entered.get(round - 1, 0.0) > settled < time:
                rested = self.entered.get(round - 3, 0.0) > settled
                self.witness.check_calm(round, here, rested)

    def rewind(self, host: Host[Member]) -> None:
        """A machine goes on from a snapshot, until its next renewal is refused."""
        before = host.member
        if before is not None and host.rewind():
            assert host.member is not None
            self._struck(Trouble.REWIND)
            self.witness.rewound(before, host.member)
            self.move(host, host.member.tick(host.clock(self.now)))

    def lie(self, host: Host[Member]) -> None:
        """Tell all others, and the directory, what is not true; and soon again."""
        if not host.lying:
            return
        self.at(self.now + 0.4, partial(self.lie, host))
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

    def _lie_about_sums(self, host: Host[Member], member: Member, said: Message) -> None:
        """Say more about a sum than was to be said."""
        assert self.witness.sums is not None
        self.witness.sums.lying.add(member.me)
        draw = Stream(self.seed, "lie about sums", int(1000 * self.now), host.number)
        liar = self._liars.setdefault(host.number, self._make_liar())
        for lie, values in liar.besides(member, said, draw):
            self.witness.made_up(member, lie.message, values)
            heard = partial(self._deceive, decode(encode(lie.message)), None, member.me)
            self.spread(host, lie, heard)

    # -- members ------------------------------------------------------------------------------

    def ask(self, seat: Host[Member]) -> None:
        """Ask the authority; who cannot give before an epoch begins joins once more."""
        if seat.member is not None and seat.member.node.client.wants_epoch:
            seat.asking = True
            seat.calls += 1
            self.witness.saw["a member joins for an epoch to begin"] += 1
            join = partial(self.authority.join, seat.number, seat.mark)
            self._call(seat, join, self._welcome)
            return
        super().ask(seat)

    def moved(self, seat: Host[Member], member: Member) -> None:
        """Look at where the member is now."""
        self.witness.look(member)
        super().moved(seat, member)

    def train(self, seat: Host[Member], member: Member, job: Job) -> None:
        """Training takes its time."""
        if self.witness.sums is not None:
            self.witness.sums.begun(member, job)
        takes = self.weather.training(seat.number, job.round, self.now)
        self.at(self.now + takes, partial(self._trained, seat, member, job))

    def _trained(self, host: Host[Member], member: Member, job: Job) -> None:
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
        samples = self.shape.samples(host.number)
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

    def utter(self, seat: Host[Member], record: Record, message: Message) -> None:
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

    def hear(self, seat: Host[Member], message: Message, source: int) -> None:
        """A message has reached a member."""
        assert seat.member is not None
        self.witness.received(message, source, seat.member)
        super().hear(seat, message, source)

    def _deceive(
        self, lie: Message, truth: Message | None, sender: int, host: Host[Member]
    ) -> None:
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


if __name__ == "__main__":
    from eris.testing.trace import main

    raise SystemExit(main())
