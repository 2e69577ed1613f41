"""Hosts in trouble: what simulated federations have in common, whatever their members do.

Hosts start, fail and come back, ask the authority over epochs and hear each other, or not, as the
:mod:`~eris.testing.weather` has it. What members are and which laws they keep is for a subclass
to say: :mod:`~eris.testing.world`, :mod:`~eris.testing.gossip_world`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Protocol

from eris.protocol.authority.directory import Directory, Refused
from eris.protocol.authority.history import newest
from eris.protocol.authority.standing import Joined, Scheduled, Standing
from eris.runtimes.clock import Clock, M
from eris.testing.places import LEASE, Answer, Authority, Host
from eris.testing.shape import Shape
from eris.testing.weather import FORGETTING, STOPS, USUAL, Incident, Trouble, Weather
from eris.testing.witness import LawBroken

PATIENCE = 120.0
"""Virtual seconds after the storm in which those that are connected must have finished."""
LINGER = 2.0
"""Virtual seconds for which a node that is through stays and asks for what it may have missed."""


class Onlooker(Protocol):
    """Whoever checks the laws, as far as the authority is concerned."""

    saw: Counter[str]

    def announced(self, views: Sequence[Scheduled]) -> None:
        """A view is told."""

    def permitted(self, member: int, through: int) -> None:
        """A member is permitted to act up to a round."""

    def started(self, member: int, abstain_through: int, *, unsure: bool) -> None:
        """A member starts, for the first time or again."""

    def refused(self, refused: Refused) -> None:
        """The directory refuses somebody."""


class Realm(Clock[Host[M], M]):
    """Hosts, a network between them and a directory (or a roster)."""

    store_every = 2
    witness: Onlooker

    def __init__(
        self,
        seed: int,
        shape: Shape,
        sizes: Sequence[int],
        *,
        kinds: frozenset[Trouble],
        incidents: Sequence[Incident] | None = None,
        directory: type[Directory] = Directory,
    ) -> None:
        super().__init__()
        self.seed, self.shape = seed, shape
        self.weather = Weather(seed, self.shape, kinds=kinds, planned=incidents)
        hosts = self.shape.members
        self.hosts: list[Host[M]] = [
            Host(number, *self.weather.clock(number)) for number in range(hosts)
        ]
        clock = Host[M](hosts, *self.weather.clock(hosts)).clock
        begun = [host for host in self.hosts if self.weather.begins_at(host.number) == 0]
        sure = [host for host in begun if host.number not in self.weather.lost]
        start_with = min(len(begun), max(len(sure), self.shape.enough))
        self.authority = Authority(
            self.shape, sizes, start_with, lambda: clock(self.now), directory
        )
        self.witness.announced(self.authority.roster)
        self.entered: dict[int, float] = {}
        """By round: when the first member entered it."""
        self.faulted: set[int] = set()
        """Rounds in which trouble struck."""
        self._messages = 0
        self._through_at = self._look_at = 0.0
        self._latest: dict[tuple[int, int], float] = {}
        """By link: when the last message on it arrives, where none overtakes another."""
        self._prepare()

    # -- what its members are -----------------------------------------------------------------

    @abstractmethod
    def make(self, host: Host[M], standing: Standing) -> M:
        """A member's machine, for a host that has joined."""

    @abstractmethod
    def conclude(self) -> None:
        """Training is over: look at what has come of it."""

    def lie(self, host: Host[M]) -> None:
        """A member begins to lie."""

    def rewind(self, host: Host[M]) -> None:
        """A machine is brought back as it was."""

    # -- the course of it ---------------------------------------------------------------------

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
        self.conclude()

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
    def survivors(self) -> list[Host[M]]:
        """The hosts that are there at the end."""
        return [host for host in self.hosts if host.number not in self.weather.lost]

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

    def _strike_host(self, kind: Trouble, host: Host[M]) -> None:
        if kind is Trouble.TORN:
            host.doomed = host.up
        elif kind is Trouble.LIE:
            host.lying = True
            self.lie(host)
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
                self.rewind(host)
            elif kind in STOPS or kind is Trouble.TORN:
                host.doomed = False
                if host.starts:
                    self._revive(host)

    def _struck(self, kind: Trouble) -> None:
        self.weather.struck[kind] += 1
        self._note_fault()

    def _note_fault(self) -> None:
        if self.entered:
            self.faulted.add(max(self.entered))

    # -- the authority ------------------------------------------------------------------------

    def _start(self, host: Host[M]) -> None:
        if not self.weather.dead(host.number, self.now):
            host.up = True
            host.starts += 1
            self._request(host, host.starts)

    def _request(self, host: Host[M], start: int) -> None:
        """Join or renew, now and again; answers may not come."""
        if host.up and host.starts == start:
            self.at(self.now + LEASE / 3, partial(self._request, host, start))
            self.ask(host)

    def ask(self, seat: Host[M]) -> None:
        """Ask the roster, or the directory."""
        seat.asking = True
        seat.calls += 1  # what was asked before is given up
        round = seat.member.round if seat.member else 0
        if self.authority.roster:
            standing = self.authority.consult(seat, round)
            self._welcome(seat, seat.calls, Joined(seat.number, standing.through, standing))
        elif seat.joined is None:
            keys = None
            if self.shape.keyed:
                keys = seat.draw_keys(self.seed, self.shape.name(seat.number))
            join = partial(self.authority.join, seat.number, seat.mark, keys)
            self._call(seat, join, self._welcome)
        else:
            seat.renewals += 1
            number = seat.renewals if self.shape.keyed else None
            self._call(seat, self._renewal(seat, seat.joined, round, number), self._stand)

    def _renewal(
        self, host: Host[M], joined: Joined, round: int, number: int | None = None
    ) -> Callable[[], Standing | None]:
        return partial(self.authority.renew, host.number, joined, round, host.mark, number)

    def _call(
        self,
        host: Host[M],
        request: Callable[[], Answer | None],
        take: Callable[[Host[M], int, Answer], None] | None = None,
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

    def _restart(self, host: Host[M], call: int) -> None:
        """A process that was refused ends."""
        if host.up and host.calls == call:
            self._end(host)

    def _end(self, host: Host[M]) -> None:
        """A process ends, and whoever looks after it starts it again."""
        host.stop()
        self.at(self.now + 0.5, partial(self._revive, host))

    def _revive(self, host: Host[M]) -> None:
        if not host.up:
            self._start(host)

    def _welcome(self, host: Host[M], call: int, joined: Joined) -> None:
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

    def _stand(self, host: Host[M], call: int, standing: Standing) -> None:
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
            member = self.make(host, standing)
            host.take_up(member)
            self.move(host, member.start(clock))

    def moved(self, seat: Host[M], member: M) -> None:
        """Look at where the member is now."""
        if seat.member is member and member.round not in self.entered:
            self.entered[member.round] = self.now
            if self.weather.troubled(self.now):
                self._note_fault()

    # -- the network --------------------------------------------------------------------------

    def carry(self, sender: Host[M], receiver: Host[M], arrive: Callable[[], None]) -> None:
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
