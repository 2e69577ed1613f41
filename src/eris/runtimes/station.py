"""What carries a simulated federation: stations, each hosting some members, moved in step.

A round is a fixed number of phases. In each, a station takes in the messages that reached its
members, lets them act, and hands out what they send to members elsewhere. One station with everyone
is the local engine; several, each in a process of its own, are the Ray engine. Results do not
depend on how many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from eris.core.vectors import Vector
from eris.protocol.codec import encode
from eris.protocol.messages import Message
from eris.protocol.transcript import Record
from eris.training.population import Population, Together


@dataclass
class Traffic:
    """Encoded bytes of one round, by member and kind of message; lost messages count as sent."""

    sent: Counter[tuple[int, str]] = field(default_factory=Counter)
    received: Counter[tuple[int, str]] = field(default_factory=Counter)

    def note(self, sender: int, receiver: int, kind: str, size: int) -> None:
        """Count one message to one receiver."""
        self.sent[sender, kind] += size
        self.received[receiver, kind] += size

    def add(self, other: Traffic) -> None:
        """Count what another counted."""
        self.sent.update(other.sent)
        self.received.update(other.received)


class Parcel(NamedTuple):
    """An encoded message on its way to members of another station."""

    sender: int
    receivers: tuple[int, ...]
    data: bytes


@dataclass
class Report:
    """What happened at a station in a round."""

    traffic: Traffic = field(default_factory=Traffic)
    included: float | None = None
    """Mean share of the clients in the round's results; None where nothing is published."""
    refused: list[str] = field(default_factory=list)
    clients: dict[int, Mapping[str, float]] = field(default_factory=dict)
    """What clients said of their own training."""
    records: list[Record] = field(default_factory=list)
    """The messages that members of this station sent, if they are kept."""
    apart: int | None = None
    """The round after which clients train one after another because a pass was wrong."""
    noise: str = ""
    """What is wrong with the noise of the round's sums, if anything."""
    faint: str = ""
    """Of the first client whose update is too small for the agreed precision: what it loses."""

    def note_faint(self, client: str, lost: float) -> None:
        """Note that a client's update lost a share of its norm, if it did and is the first."""
        if lost and not self.faint:
            self.faint = f"an update of {client} lost {lost:.0%} of its norm"

    def add(self, other: Report) -> None:
        """Put another station's report to this one."""
        self.traffic.add(other.traffic)
        self.included = other.included if self.included is None else self.included
        self.refused += other.refused
        self.noise, self.faint = self.noise or other.noise, self.faint or other.faint
        self.clients.update(other.clients)
        self.records += other.records
        found = [round for round in (self.apart, other.apart) if round is not None]
        self.apart = min(found, default=None)


Outbox = dict[int, list[Parcel]]
"""What goes to other stations, by their number."""


@dataclass(frozen=True)
class Place:
    """Which of how many stations this is; a member lives where its lane does.

    >>> [Place(0, stations=2, lanes=3).home(member) for member in range(6)]
    [0, 1, 0, 0, 1, 0]
    """

    number: int = 0
    stations: int = 1
    lanes: int | None = None
    """Members whose numbers have the same remainder live together; None: each by itself."""

    def with_lanes_of(self, population: Population) -> Place:
        """The same place among clients that may be trained in one pass."""
        lanes = population.lanes if isinstance(population, Together) else None
        return replace(self, lanes=lanes)

    def lane(self, member: int) -> int:
        """The lane that a member is in."""
        return member if self.lanes is None else member % self.lanes

    def home(self, member: int) -> int:
        """The number of the station where a member lives."""
        return self.lane(member) % self.stations

    def hosts(self, member: int) -> bool:
        """Whether a member lives here."""
        return self.home(member) == self.number


class Station(Protocol):
    """Some members of a federation."""

    population: Population

    @property
    def phases(self) -> int:
        """How many times a round calls ``act``."""

    def act(self, round: int, phase: int, inbox: Sequence[Parcel]) -> Outbox:
        """Take in what came, let the members act, and return what is for members elsewhere."""

    def report(self) -> Report:
        """What happened since this was last asked; called once after the last phase."""

    def models(self) -> dict[int, Vector]:
        """The models of hosted members by number; a single one where all hold the same."""

    def state(self) -> dict[str, Vector]:
        """Everything that is needed to continue from the end of a round."""

    def restore(self, round: int, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()`` after a round."""


class Post:
    """Encodes, counts and records what a station's members send."""

    def __init__(self, *, record: bool = False) -> None:
        self._keep = record
        self._traffic = Traffic()
        self._records: list[Record] = []

    def stamp(
        self, time: float, sender: int, receivers: tuple[int, ...], message: Message
    ) -> Record:
        """The message as it leaves; whom it reaches is for the caller to note.

        What a member keeps for itself is recorded as sent to itself, and costs nothing.
        """
        record = Record(time, sender, receivers, encode(message))
        kind, size = type(message).__name__, len(record.data)
        for receiver in receivers:
            if receiver != sender:
                self._traffic.note(sender, receiver, kind, size)
        if self._keep:
            self._records.append(record)
        return record

    def empty(self) -> tuple[Traffic, list[Record]]:
        """What was counted and recorded since this was last asked."""
        out = self._traffic, self._records
        self._traffic, self._records = Traffic(), []
        return out


class Stations:
    """Stations in this process, in step: the local engine, with one station unless for a test."""

    def __init__(self, stations: Sequence[Station]) -> None:
        self._stations = list(stations)

    def run_round(self, round: int) -> Report:
        """All phases of a round."""
        inboxes: list[list[Parcel]] = [[] for _ in self._stations]
        for phase in range(self._stations[0].phases):
            pairs = zip(self._stations, inboxes, strict=True)
            outboxes = [station.act(round, phase, inbox) for station, inbox in pairs]
            inboxes = [
                [parcel for outbox in outboxes for parcel in outbox.get(number, ())]
                for number in range(len(self._stations))
            ]
        report = joined([station.report() for station in self._stations])
        if report.apart is not None:
            for station in self._stations:
                train_apart(station, report.apart)
        return report

    def models(self) -> dict[int, Vector]:
        """The models of all members by number; a single one where all hold the same."""
        return {
            member: model
            for station in self._stations
            for member, model in station.models().items()
        }

    def state(self) -> dict[str, Vector]:
        """Everything that is needed to continue, whatever the number of stations."""
        return {name: value for s in self._stations for name, value in s.state().items()}

    def restore(self, round: int, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()`` after a round."""
        for station in self._stations:
            station.restore(round, state)

    def close(self) -> None:
        """Nothing to give back."""


def train_apart(station: Station, after: int) -> None:
    """Tell a station's clients to train one after another from now on, if they train together."""
    if isinstance(station.population, Together):
        station.population.train_apart(after)


def apart(population: Population) -> int | None:
    """The round after which clients train one after another because a pass was wrong."""
    return population.apart if isinstance(population, Together) else None


def joined(reports: Sequence[Report]) -> Report:
    """One report of all stations."""
    whole = reports[0]
    for report in reports[1:]:
        whole.add(report)
    return whole


def trainers_state(population: Population, place: Place) -> dict[str, Vector]:
    """What the trainers of hosted members keep.

    A station in a process of its own has a copy of the others' trainers, too, as they once were.
    """
    return {
        f"trainer/{name}": value
        for name, value in population.state().items()
        if (who := name.partition("/")[0]) == "all" or place.hosts(int(who))
    }


def under(prefix: str, state: Mapping[str, Vector]) -> dict[str, Vector]:
    """The part of a state whose names start with ``prefix``, without it.

    >>> sorted(under("peer/1/", {"peer/1/model": None, "peer/12/model": None}))
    ['model']
    """
    return {
        name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
    }
