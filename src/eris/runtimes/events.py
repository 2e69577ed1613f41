"""The engine for faults in the middle of a round: every member for itself, under a virtual clock.

Members are those of the network, with a roster that nobody leaves and that permits everything. The
engine says when a round begins and which round has been reached; whatever else happens in it is
the members' own doing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from eris.core.errors import InvalidSetting, RefusedContribution
from eris.core.vectors import Vector
from eris.protocol.agreement import Agreement, Key
from eris.protocol.authority.standing import Scheduled, Standing
from eris.protocol.enccluster.logarithms import built_table
from eris.protocol.messages import Contribution, Message, Refusal, Result
from eris.protocol.round.giving import Job
from eris.protocol.round.member import Member
from eris.protocol.schemes.halves import Tables
from eris.protocol.secure.simulated import Vaults
from eris.protocol.transcript import Record
from eris.runtimes.clock import Clock, Seat
from eris.runtimes.faults import FaultPlan
from eris.runtimes.station import Report
from eris.training.population import Population
from eris.training.trainer import LocalUpdate, PerSampleNoise, check_update

ENDLESS = 1 << 31
"""A round that nobody reaches."""
RETRIES = 8
"""Times of asking after which what is still missing in a round is taken not to come."""


@dataclass
class Berth(Seat[Member]):
    """Where a member of a simulation runs."""

    acted: int = 0
    """The last round it may have published in or contributed to, as it noted on its disk."""
    away: bool = False
    """Whether it is away for this round only."""

    def stop(self) -> None:
        """The process is gone; its disk is not."""
        if self.member is not None:
            self.acted = self.member.acted or 0
        super().stop()


class EventEngine(Clock[Berth, Member]):
    """Members of an aggregating federation, each with a clock, a disk and faults of its own.

    >>> import numpy as np
    >>> from eris.protocol.view import View
    >>> from eris.protocol.settings import Settings
    >>> from eris.training.population import Trainers
    >>> from eris.training.trainer import LocalUpdate
    >>> class Constant:
    ...     def update(self, parameters, round):
    ...         return LocalUpdate(np.ones(2, np.float32), samples=1)
    >>> view = View.serverless(["anna", "ben", "cleo"], aggregators=1)
    >>> agreement = Agreement(Settings(n=2), view)
    >>> engine = EventEngine(agreement, np.zeros(2, np.float32), Trainers([Constant()] * 3),
    ...                      faults=FaultPlan(duplicate=0.5))
    >>> engine.run_round(1).included
    1.0
    >>> engine.models()[0]
    array([-0.01, -0.01], dtype=float32)
    """

    def __init__(
        self,
        agreement: Agreement,
        initial: Vector,
        population: Population,
        *,
        faults: FaultPlan,
        noise: PerSampleNoise | None = None,
        record: bool = False,
        tables: Tables = built_table,
    ) -> None:
        super().__init__()
        self._tables = tables
        self.agreement, self.faults = agreement, faults
        self._initial, self._population, self._noise = initial, population, noise
        self._record, self._report = record, Report()
        self._included: dict[Key, int] = {}
        """By segment: how many clients its result of the round has."""
        self._pending: set[int] = set()
        """Members that are up and not through with the round."""
        self._away: set[int] = set()
        """Aggregators that take nothing in, in this round."""
        self._messages = self.round = 0
        self._vaults: Vaults | None = None
        if agreement.settings.scheme.own_references:
            expected = (
                "another one with faults in mid-round: a client whose reference is lost waits for "
                "an epoch to begin, and here is only one"
            )
            raise InvalidSetting("scheme", agreement.settings.scheme.name, expected)
        if agreement.settings.keyed:
            self._secure(agreement)
        for number in range(len(agreement.view.members)):
            self.seats[number] = Berth(number)
            self._start(self.seats[number])

    def _secure(self, agreement: Agreement) -> None:
        """Give members keys and seats, for as long as nobody starts again."""
        for name in ("crash", "churn"):
            if rate := getattr(self.faults, name):
                expected = (
                    "0 with sealed sums and faults in mid-round: a start has new keys, which "
                    "here nobody would tell; lost, doubled and late messages work, and so does "
                    "churn without them"
                )
                raise InvalidSetting(name, rate, expected)
        noise = agreement.settings.noise
        if noise is not None and noise.protects == "sample":
            expected = "'client' with faults in mid-round, where nobody clips single samples"
            raise InvalidSetting("protects", noise.protects, expected)
        self._vaults = Vaults(agreement.settings)
        self.agreement = agreement.in_view(self._vaults.seat(agreement.view))

    # -- a round ------------------------------------------------------------------------------

    def run_round(self, round: int) -> Report:
        """One round; messages under way at its end arrive in a later one.

        It ends when all that are up are through with it. Those that wait in vain are told by the
        roster that the next one has been reached, as a directory would tell them.
        """
        self.round, self._included = round, {}
        self._pending = {place.number for place in self.live}
        self._begin()
        self._pass()
        if self._pending:
            for place in self.live:
                assert place.member is not None
                self.move(place, place.member.stand(self._standing(place, round + 1), self.now))
            self._pass()
        report, self._report = self._report, Report()
        view = self.agreement.view
        report.included = sum(self._included.values()) / (
            len(self.agreement.keys) * len(view.clients)
        )
        return report

    @property
    def live(self) -> list[Berth]:
        """Where members are up."""
        return [place for place in self.seats.values() if place.member is not None]

    def _begin(self) -> None:
        """Decide who is away, and let everyone else train."""
        for place in self.seats.values():
            churned = self.faults.churned(place.number, self.round)
            if churned and place.member is not None:
                place.store()
                self._stop(place)
                place.away = True
            elif place.away and not churned:
                place.away = False
                self._start(place)
        owners = set(self.agreement.view.owners)
        self._away = {owner for owner in owners if self.faults.away(owner, self.round)}
        for place in self.live:
            member, number = place.member, place.number
            assert member is not None
            if (crash := self.faults.crash_of(number, self.round)) is not None:
                after, outage = crash
                self.at(self.now + after, partial(self._stop, place))
                self.at(self.now + after + outage, partial(self._return, place))
            if member.job is not None:
                self.train(place, member, member.job)

    def _pass(self) -> None:
        """Let time pass until all that are up are through, but no longer than one waits."""
        settings = self.agreement.settings
        end = self.now + settings.catch_up_after + RETRIES * settings.retry_every
        while self._pending or not self.live:
            if not self._queue or self._queue[0][0] > end:
                self.now = end
                return
            self.step()

    # -- members ------------------------------------------------------------------------------

    def _standing(self, place: Berth, reached: int) -> Standing:
        view = self.agreement.view
        return Standing(place.number, (Scheduled(view, 1),), view.members, ENDLESS, reached)

    def _start(self, place: Berth) -> None:
        """A member begins, or goes on from what it has stored."""
        place.member = Member(
            self.agreement.settings, self._standing(place, self.round), self._initial,
            rounds=ENDLESS, abstain_through=place.acted,
            vault=None if self._vaults is None else self._vaults[place.number],
        )  # fmt: skip
        place.member.agreement.coding.equip(self._tables)
        if place.disk is not None:
            place.member.restore(place.disk)
        self._pending.add(place.number)
        self.move(place, place.member.start(self.now))

    def _stop(self, place: Berth) -> None:
        place.stop()
        self._pending.discard(place.number)

    def _return(self, place: Berth) -> None:
        """A crash is over."""
        if place.member is None and not place.away:
            self._start(place)

    def moved(self, seat: Berth, member: Member) -> None:
        """Note who is through with the round, and what owners found."""
        self._report.refused += member.node.notes
        member.node.notes.clear()
        if member.round > self.round:
            self._pending.discard(seat.number)

    def ask(self, seat: Berth) -> None:
        """A roster has nothing new to say."""

    def train(self, seat: Berth, member: Member, job: Job) -> None:
        """Train at once, or late; the job of a round that has not begun waits for it."""
        if job.round > self.round:
            return
        late = 0.0
        if self.faults.straggles(seat.number, job.round):
            # A segment is opened by what arrives first, which takes up to twice the latency.
            late = self.agreement.settings.close_after + 3 * self.faults.latency
        self.at(self.now + late, partial(self._train, seat, member, job))

    def _train(self, place: Berth, member: Member, job: Job) -> None:
        if place.member is not member or member.job is not job:
            return
        if self.faults.straggles(place.number, job.round):
            # It is late for this round, however long others wait, and however often it is asked.
            if place.number not in self._report.clients:
                self._update(place, job)
            self.move(place, member.failed(self.now))
            return
        update = self._update(place, job)
        name = self.agreement.view.members[place.number]
        try:
            out = member.trained(update.vector, int(update.samples), int(update.steps), self.now)
            self._report.note_faint(name, member.node.client.sender.lost)
        except RefusedContribution as error:
            self._report.refused.append(f"round {job.round}: {error}")
            out = member.failed(self.now)
        self.move(place, out)

    def _update(self, place: Berth, job: Job) -> LocalUpdate:
        (update,) = self._population.updates([place.number], job.model, job.round, self._noise)
        check_update(update, self.agreement.view.members[place.number], len(job.model))
        self._report.clients[place.number] = update.metrics
        return update

    # -- messages -----------------------------------------------------------------------------

    def said(self, member: Member, record: Record, message: Message) -> None:
        """Count what is said, and keep it if it is to be recorded."""
        header, kind = message.header, type(message).__name__
        for receiver in record.receivers:
            if receiver == member.me:
                record.arrived.add(receiver)
            else:
                self._report.traffic.note(member.me, receiver, kind, len(record.data))
        if self._record:
            self._report.records.append(record)
        if isinstance(message, Result) and header.round == self.round:
            self._included[header.key] = len(message.included)
        if isinstance(message, Refusal) and not (message.again or message.no_result):
            why = f"round {header.round}, segment {header.key}: {message.reason}"
            if why not in self._report.refused:
                self._report.refused.append(why)

    def carry(self, sender: Berth, receiver: Berth, arrive: Callable[[], None]) -> None:
        """Carry a message, unless it is lost, the link is down or its receiver away."""
        self._messages += 1
        if not receiver.away and not self.faults.cut(sender.number, receiver.number, self.round):
            for delay in self.faults.deliveries(self._messages):
                self.at(self.now + delay, arrive)

    def hear(self, seat: Berth, message: Message, source: int) -> None:
        """A message has reached a member; what there is to aggregate may be lost on it."""
        if not (isinstance(message, Contribution) and seat.number in self._away):
            super().hear(seat, message, source)

    # -- what a session asks ------------------------------------------------------------------

    def models(self) -> dict[int, Vector]:
        """The model of the member that is furthest; all that are as far hold the same."""
        members = [place.member for place in self.live if place.member is not None]
        if not members:
            raise InvalidSetting("faults", "that stopped every member", "one that is up")
        return {0: max(members, key=lambda m: sum(m.node.replica.versions.values())).model}

    def state(self) -> dict[str, Vector]:
        """Refused: messages under way belong to the state, too."""
        raise InvalidSetting("faults", "in mid-round", "faults decided once a round, to checkpoint")

    def restore(self, round: int, state: Mapping[str, Vector]) -> None:
        """Refused, as there are no states."""
        self.state()

    def close(self) -> None:
        """Nothing to give back."""
