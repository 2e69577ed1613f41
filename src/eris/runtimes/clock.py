"""Members under a virtual clock: the real machines, moved by a queue of what happens when.

Nothing here waits. What a member says is encoded and carried to the others, its jobs are trained,
its clock ticks when it asked for it. What a world is like (how messages travel, how long training
takes, what the authority over epochs says) is for a subclass to say: the engine for faults in
mid-round (:mod:`eris.runtimes.events`), and the world in which the protocol is proved
(:mod:`eris.testing.world`).
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

from eris.protocol.codec import decode, encode
from eris.protocol.machine import Machine
from eris.protocol.messages import Message, Outgoing
from eris.protocol.round.giving import Job
from eris.protocol.transcript import Record

M = TypeVar("M", bound=Machine)


@dataclass
class Seat(Generic[M]):
    """Where a member runs: a clock, a disk, and the member itself while it is up."""

    number: int
    offset: float = 0.0
    rate: float = 1.0
    member: M | None = None
    disk: dict[str, NDArray[Any]] | None = None
    stored: int = 0
    """The round that the member was in when it was last stored."""
    asking: bool = False
    training: Job | None = None
    ticks_at: float = float("inf")

    def clock(self, time: float) -> float:
        """What its clock shows."""
        return self.offset + self.rate * time

    def time(self, clock: float) -> float:
        """When its clock shows that."""
        return (clock - self.offset) / self.rate

    def store(self) -> None:
        """Write a checkpoint."""
        if self.member is not None:
            self.stored = self.member.round
            self.disk = {name: value.copy() for name, value in self.member.state().items()}

    def stop(self) -> None:
        """The process is gone; its disk is not."""
        self.member, self.asking = None, False
        self.training, self.ticks_at = None, float("inf")


S = TypeVar("S", bound=Seat[Any])


class Clock(ABC, Generic[S, M]):
    """The time of a world, and what moves the members in it."""

    store_every = 1
    """Rounds between checkpoints."""

    def __init__(self) -> None:
        self.now = 0.0
        self.seats: dict[int, S] = {}
        """Where the members are, by number."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        """What will happen: when, a number that keeps the order of equal times, and what."""
        self._events = 0

    def at(self, time: float, happen: Callable[[], None]) -> None:
        """Let something happen at a time."""
        self._events += 1
        heapq.heappush(self._queue, (time, self._events, happen))

    def step(self) -> None:
        """The next thing happens."""
        time, _, happen = heapq.heappop(self._queue)
        self.now = max(self.now, time)
        happen()

    # -- what a world is like -----------------------------------------------------------------

    @abstractmethod
    def train(self, seat: S, member: M, job: Job) -> None:
        """A member has a new job."""

    @abstractmethod
    def carry(self, sender: S, receiver: S, arrive: Callable[[], None]) -> None:
        """A message is on its way from one member to another."""

    @abstractmethod
    def ask(self, seat: S) -> None:
        """A member wants to hear from the authority over epochs."""

    def said(self, member: M, record: Record, message: Message) -> None:
        """A member says something, whoever hears it; what stays with it counts, too."""

    def moved(self, seat: S, member: M) -> None:
        """Something has happened to a member; it may have stopped by now."""

    # -- moving members -----------------------------------------------------------------------

    def move(self, seat: S, out: Sequence[Outgoing]) -> None:
        """Do what a member wants done after something has happened to it."""
        assert seat.member is not None
        member: M = seat.member
        clock = seat.clock(self.now)
        self.send(seat, out)
        while seat.member is member and (more := member.pull(clock)) is not None:
            self.send(seat, more)
        self.moved(seat, member)
        if seat.member is not member:
            return
        if member.job is not None and member.job is not seat.training:
            seat.training = member.job
            self.train(seat, member, member.job)
        if member.round != seat.stored and member.round % self.store_every == 0:
            seat.store()
        wakes_at = seat.time(member.wakes_at)
        if wakes_at < seat.ticks_at:
            seat.ticks_at = wakes_at
            self.at(max(self.now, wakes_at), partial(self._tick, seat, member))
        if member.renewal_due and not seat.asking:
            member.renewal_due = False
            self.ask(seat)

    def _tick(self, seat: S, member: M) -> None:
        if seat.member is member:
            seat.ticks_at = float("inf")
            self.move(seat, member.tick(seat.clock(self.now) + 1e-9))

    # -- moving messages ----------------------------------------------------------------------

    def send(self, seat: S, out: Sequence[Outgoing]) -> None:
        """Say what a member wants said, unless it stops in the middle of a sentence."""
        assert seat.member is not None
        member: M = seat.member
        kept = [Outgoing((member.me,), message) for message in member.take_stayed()]
        told = [
            (Record(self.now, member.me, outgoing.to, encode(outgoing.message)), outgoing.message)
            for outgoing in (*kept, *out)
        ]
        for record, message in told:
            self.said(member, record, message)
        for record, message in told[len(kept) :]:
            self.utter(seat, record, message)
            if seat.member is not member:
                return

    def utter(self, seat: S, record: Record, message: Message) -> None:
        """Carry what was said to all that it is for."""
        # Results are for all; what was decoded once need not be again.
        read = lru_cache(1)(partial(decode, record.data))
        said = Outgoing(record.receivers, message)
        self.spread(seat, said, partial(self._deliver, record, read))

    def spread(self, seat: S, said: Outgoing, arrive: Callable[[S], None]) -> None:
        """Carry a message to the members that it is for."""
        for number in said.to:
            if (receiver := self.seats.get(number)) is not None:
                self.carry(seat, receiver, partial(arrive, receiver))

    def _deliver(self, record: Record, read: Callable[[], Message], seat: S) -> None:
        if seat.member is not None:
            record.arrived.add(seat.member.me)
            self.hear(seat, read(), record.sender)

    def hear(self, seat: S, message: Message, source: int) -> None:
        """A message has reached a member."""
        assert seat.member is not None
        self.move(seat, seat.member.receive(message, source, seat.clock(self.now)))
