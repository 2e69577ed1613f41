"""What goes wrong in a simulated world: a plan of incidents as a pure function of a seed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from eris.core.streams import Stream
from eris.testing.shape import Shape


class Trouble(Enum):
    """The kinds of trouble."""

    DROP = "a message is lost"
    DUPLICATE = "a message arrives twice"
    DELAY = "a message takes long, so that others overtake it"
    CRASH = "a node stops and comes back with its disk"
    TORN = "a node stops while it publishes, and comes back; one member hears of it, or none"
    LOSS = "a node stops and comes back without its disk"
    DEATH = "a node stops for good"
    LEAVE = "a node says goodbye, stops, and joins again"
    LATE = "a node joins when training is under way"
    PARTITION = "the members are cut into two groups that do not hear each other"
    ONE_WAY = "a member is heard by nobody, but hears all"
    EXILE = "a member is cut off for good"
    STALE = "a node comes back with the folder of another run, until that is emptied"
    OUTAGE = "the directory stops and comes back with its disk"
    ECHO = "a call to the directory arrives once more, later"
    ROLLBACK = "power goes, and the directory comes back with an older copy of its ledger"
    LOST = "power goes, and the directory comes back with a new ledger"
    SKEW = "clocks differ, and run at different rates"
    SLOW = "training takes longer than the others wait"
    FAILURE = "training gives nothing"
    LIE = "a member lies about rounds, states and results"
    POISON = "an update holds values that are no numbers"
    REWIND = "a machine without shards is brought back with its memory, where sums are sealed"


STOPS = frozenset({Trouble.CRASH, Trouble.LOSS, Trouble.DEATH, Trouble.LEAVE})
CUTS = frozenset({Trouble.PARTITION, Trouble.ONE_WAY, Trouble.EXILE})
FINAL = frozenset({Trouble.DEATH, Trouble.EXILE})
FORGETTING = (Trouble.ROLLBACK, Trouble.LOST)
ALONE = frozenset({*FINAL, Trouble.LOSS, Trouble.STALE, Trouble.LATE})
"""Kinds that are not drawn where the directory forgets. What it has forgotten, a member must know
that is there; who has no disk or does not come back tells nothing, and who is new knows nothing."""
NEED_A_DIRECTORY = frozenset({*FORGETTING, Trouble.OUTAGE, Trouble.ECHO, Trouble.LEAVE,
                              Trouble.LATE, Trouble.LOSS, Trouble.STALE})  # fmt: skip
"""Kinds that are not drawn with a roster. A node that has lost its disk then has to be told by the
others what it may have published; if several have, nobody can."""
PASSING = (Trouble.CRASH, Trouble.TORN, Trouble.LOSS, Trouble.LEAVE, Trouble.PARTITION,
           Trouble.ONE_WAY, Trouble.OUTAGE, Trouble.STALE, Trouble.LIE)  # fmt: skip
USUAL = 0.04
"""Seconds that a message takes at most in fine weather."""
BLOCK = 256
"""Messages whose draws are made at once."""
FORGETFUL = 6.0
"""Seconds for which the directory has the wrong ledger, in fine weather."""


@dataclass(frozen=True)
class Incident:
    """Something that begins at a time and is over after another."""

    kind: Trouble
    start: float
    end: float
    members: frozenset[int]

    def on(self, now: float) -> bool:
        """Whether it is going on."""
        return self.start <= now < self.end


@dataclass
class Weather:
    """A storm from the beginning until ``calm_at``; ``struck`` counts what really happened.

    Only deaths and exiles outlast it, and they leave enough clients, and the directory (which is
    where host 0 is) with them. Where the directory forgets, that comes last, after the rest.

    >>> weather = Weather(seed=3, shape=Shape(members=5))
    >>> {incident.kind for incident in weather.incidents} <= set(Trouble)
    True
    """

    seed: int
    shape: Shape
    calm_at: float = 12.0
    kinds: frozenset[Trouble] = frozenset(Trouble)
    planned: Sequence[Incident] | None = None
    """Incidents instead of those that are drawn."""
    struck: Counter[Trouble] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        if self.shape.roster:
            self.kinds -= NEED_A_DIRECTORY
        draw = self._draw("weather", 6)
        # Some seeds are about messages, some about nodes, most about both.
        self.drop = self._rate(Trouble.DROP, 0.12 * draw[0])
        self.doubled = {
            kind: self._rate(kind, 0.2 * draw[1]) for kind in (Trouble.DUPLICATE, Trouble.ECHO)
        }
        self.delay = self._rate(Trouble.DELAY, 0.15 * draw[2])
        self.slow = self._rate(Trouble.SLOW, 0.1 * draw[3])
        self.failure = self._rate(Trouble.FAILURE, 0.05 * draw[4])
        self.poison = self._rate(Trouble.POISON, 0.05 * draw[5])
        self.storm_until = self.calm_at
        incidents = self._drawn() if self.planned is None else self.planned
        self.incidents = sorted(incidents, key=lambda one: one.start)
        for incident in self.incidents:
            if incident.kind in FORGETTING:
                self.storm_until, self.calm_at = incident.start, incident.end
        self._cuts = [incident for incident in self.incidents if incident.kind in CUTS]
        self._block: tuple[int, list[list[float]]] = (-1, [])

    def _draw(self, purpose: str, count: int, *place: int) -> list[float]:
        drawn: list[float] = Stream(self.seed, purpose, *place).uniform(0, count).tolist()
        return drawn

    def _rate(self, kind: Trouble, rate: float) -> float:
        return rate if kind in self.kinds else 0.0

    def _drawn(self) -> list[Incident]:
        forgetting = self._forgetting()
        return [*self._passing(), *self._final(), *forgetting, *self._rewinding()]

    def _rewinding(self) -> list[Incident]:
        """A snapshot is taken, and brought back: of one that owns nothing, for an owner that has
        forgotten what it published publishes twice, and nobody could tell."""
        shape = self.shape
        hosts = [host for host in range(shape.members) if not shape.is_aggregator(host)]
        sealed = shape.sums is not None or shape.encrypted != "none"
        if Trouble.REWIND not in self.kinds or not sealed or not hosts:
            return []
        times = (self._draw("rewind", 2, 0, number) for number in range(2))
        starts = [(0.8 * self.storm_until * when, 0.2 + 2 * how) for when, how in times]
        return [
            Incident(Trouble.REWIND, start, min(start + later, self.storm_until), frozenset(hosts))
            for start, later in starts
        ]

    def _forgetting(self) -> list[Incident]:
        """The directory forgets, in some seeds: so early that there is training left.

        The power that took its ledger may have gone for others as well.
        """
        possible = [kind for kind in FORGETTING if kind in self.kinds]
        drawn = self._draw("forgetting", 4 + self.shape.members)
        if not possible or drawn[0] > 0.25 * len(possible):
            return []
        self.kinds -= ALONE
        self.storm_until = self.calm_at * (0.3 + 0.3 * drawn[1])
        self.calm_at = self.storm_until + FORGETFUL
        kind = possible[int(drawn[2] * len(possible))]
        chosen = frozenset(m for m, d in enumerate(drawn[4:]) if d < 2 * drawn[3])
        return [Incident(kind, self.storm_until, self.calm_at, chosen)]

    def _passing(self) -> list[Incident]:
        possible = [kind for kind in PASSING if kind in self.kinds]
        count = int(self._draw("incidents", 1)[0] * 9)
        hosts, found = self.shape.members, []
        for number in range(count if possible else 0):
            drawn = self._draw("incident", 3 + hosts, number)
            kind = possible[int(drawn[0] * len(possible))]
            start = drawn[1] * self.storm_until
            end = start + 0.2 + 8 * drawn[2] ** 2
            if kind is Trouble.TORN:
                # So long that somebody else goes on where its result is not known.
                start, end = start / 3, start / 3 + 4 + 4 * drawn[2]
            end = min(self.storm_until, end)
            chosen = frozenset(m for m, d in enumerate(drawn[3:]) if d < 0.5)
            if kind is Trouble.LIE:
                chosen = self.liar
            elif kind in STOPS or kind in (Trouble.TORN, Trouble.ONE_WAY, Trouble.STALE):
                # Mostly one; now and then so many that nobody has a quorum.
                chosen = frozenset(m for m, d in enumerate(drawn[3:]) if d < 0.6)
                if drawn[0] * len(possible) % 1 < 0.8:
                    chosen = frozenset([max(range(hosts), key=lambda m: drawn[3 + m])])
            found.append(Incident(kind, start, end, chosen))
        return found

    def _final(self) -> list[Incident]:
        """Deaths and exiles, of as many as the others can do without; none in most seeds."""
        possible = [kind for kind in (Trouble.DEATH, Trouble.EXILE) if kind in self.kinds]
        drawn = self._draw("final", 3 + self.shape.members)
        spare = self.shape.clients - self.shape.enough
        if not possible or drawn[0] > 0.4 or not spare:
            return []
        kind = possible[int(drawn[1] * len(possible))]
        order = sorted(range(1, self.shape.clients), key=lambda m: drawn[3 + m])
        chosen = frozenset(order[: 1 + int(drawn[2] * spare)])
        start = self.storm_until * drawn[3]
        return [Incident(kind, start, math.inf, chosen)]

    @cached_property
    def liar(self) -> frozenset[int]:
        """The one that lies, in this world; nobody where a result needs every client: what one says
        alone is taken there, for want of another."""
        if self.shape.clients - 1 <= self.shape.enough:
            return frozenset()
        return frozenset([int(self._draw("liar", 1)[0] * self.shape.members)])

    @cached_property
    def lost(self) -> frozenset[int]:
        """Hosts that do not come back."""
        return frozenset().union(*(one.members for one in self.incidents if one.kind in FINAL))

    def dead(self, host: int, now: float) -> bool:
        """Whether a host has stopped for good."""
        deaths = (one for one in self.incidents if one.kind is Trouble.DEATH)
        return any(host in death.members and death.on(now) for death in deaths)

    def begins_at(self, host: int) -> float:
        """When a host starts for the first time."""
        if Trouble.LATE not in self.kinds or host < (self.shape.start_with or self.shape.members):
            return 0.0
        return self.storm_until * self._draw("late", 1, 0, host)[0]

    def clock(self, host: int) -> tuple[float, float]:
        """(offset, rate) of a host's clock; the directory's is that of host ``members``."""
        if Trouble.SKEW not in self.kinds:
            return 0.0, 1.0
        offset, rate = self._draw("clock", 2, 0, host)
        self.struck[Trouble.SKEW] += 1
        return 3600 * (2 * offset - 1), 0.7 + 0.7 * rate

    def deliveries(self, number: int, now: float, twice: Trouble | None = None) -> list[float]:
        """How long message ``number`` takes, once for each time it arrives.

        ``twice`` says what it is called if it arrives more than once; an answer never does.
        """
        lost, more, late, how, second = self._of_message(number)
        usual = USUAL * (0.25 + 0.75 * how)
        if now >= self.storm_until:
            return [usual]
        if lost < self.drop:
            self.struck[Trouble.DROP] += 1
            return []
        if late < self.delay:
            self.struck[Trouble.DELAY] += 1
            usual = 3.0 * how
        if twice is not None and more < self.doubled[twice]:
            self.struck[twice] += 1
            again = usual + second
            if twice is Trouble.ECHO:  # by when its caller has given up, or died, or gone on
                again = min(usual + 5 * second, max(usual, self.storm_until - now))
            return [usual, again]
        return [usual]

    def _of_message(self, number: int) -> list[float]:
        block = number // BLOCK
        if self._block[0] != block:
            drawn = Stream(self.seed, "message").uniform(5 * BLOCK * block, 5 * BLOCK)
            self._block = (block, drawn.reshape(BLOCK, 5).tolist())
        return self._block[1][number % BLOCK]

    def training(self, host: int, round: int, now: float) -> float:
        """How long a member's training takes."""
        how, slow = self._draw("training-time", 2, round, host)
        if slow < self.slow and now < self.storm_until:
            self.struck[Trouble.SLOW] += 1
            return 1.0 + 4.0 * how
        return 0.35 + 0.15 * how

    def outcome(self, host: int, round: int, now: float) -> Trouble | None:
        """What is wrong with what a member has trained, if anything."""
        (drawn,) = self._draw("training", 1, round, host)
        if now >= self.storm_until or drawn >= self.failure + self.poison:
            return None
        kind = Trouble.FAILURE if drawn < self.failure else Trouble.POISON
        self.struck[kind] += 1
        return kind

    def heard_when_torn(self, host: int, now: float) -> tuple[int, bool]:
        """How many hear of a result whose owner stops just then, and whether its disk does."""
        heard, kept = self._draw("torn", 2, int(1000 * now), host)
        self.struck[Trouble.TORN] += 1
        return int(2 * heard), kept < 0.5

    def forgotten(self) -> float:
        """The share of all revisions that an older copy of the ledger lacks; not all.

        Half of the copies are so new that only some members have seen what they lack.
        """
        share, old = self._draw("forgotten", 2)
        return (0.95 if old < 0.5 else 0.08) * share

    def cut(self, sender: int, receiver: int, now: float) -> bool:
        """Whether nothing gets from one host to another at a time."""
        for incident in self._cuts:
            if not incident.on(now):
                continue
            if incident.kind is Trouble.ONE_WAY:
                apart = sender in incident.members
            elif incident.kind is Trouble.PARTITION:
                apart = (sender in incident.members) != (receiver in incident.members)
            else:  # exiles do not hear each other either
                apart = sender in incident.members or receiver in incident.members
            if apart:
                self.struck[incident.kind] += 1
                return True
        return False

    def troubled(self, now: float) -> bool:
        """Whether an incident is going on."""
        return any(incident.on(now) for incident in self.incidents)
