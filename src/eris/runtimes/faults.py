"""What goes wrong in a run, as a pure function of a seed.

Every decision is drawn from a named stream, so a fault plan replays exactly. Each kind of fault
counts how often it struck: a test that asks for a fault can see that it happened.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream


class Fault(Enum):
    """The kinds of fault."""

    DROP = "a message is lost"
    DUPLICATE = "a message arrives twice"
    DELAY = "a message takes long, so that others overtake it"
    CRASH = "a node stops, loses what is not stored, and comes back"
    LINK = "a link between two members is down for a round"
    DROPOUT = "an aggregator is away for a round"
    CHURN = "a member is away for a round: it neither trains nor aggregates"
    STRAGGLE = "a client has trained when its round is over: nothing of its update is sent"


PER_MESSAGE = ("drop", "duplicate", "delay", "crash")
"""Faults that strike in the middle of a round: they need the runtime with a virtual clock."""
PER_ROUND = ("link", "dropout", "churn", "straggle")
"""Faults that are decided once a round."""


@dataclass
class FaultPlan:
    """Rates of faults; all zero is a run in which nothing goes wrong.

    ``drop``, ``duplicate`` and ``delay`` are chances per message, ``link`` per link and round,
    ``dropout`` per aggregator and round, ``crash``, ``churn`` and ``straggle`` per member and
    round. A member that was away is likelier to be away again by ``correlation`` (0.1: the chance
    is 1.1 times ``churn``; Shatter, appendix E). A message takes ``latency`` to twice that, a
    delayed one up to ``longest_delay`` seconds; a crashed node stays away for up to
    ``longest_outage`` seconds.

    >>> plan = FaultPlan(seed=1, dropout=0.5)
    >>> [plan.away(aggregator=0, round=r) for r in range(1, 5)]
    [True, False, False, False]
    """

    seed: int = 0
    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    link: float = 0.0
    dropout: float = 0.0
    crash: float = 0.0
    churn: float = 0.0
    straggle: float = 0.0
    correlation: float = 0.0
    latency: float = 0.1
    longest_delay: float = 25.0
    longest_outage: float = 40.0
    struck: Counter[Fault] = field(default_factory=Counter, init=False)
    _churned: dict[int, list[bool]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in (*PER_MESSAGE, *PER_ROUND):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidSetting(name, getattr(self, name), "a rate from 0 to 1")
        if not 0 <= self.correlation < math.inf:
            raise InvalidSetting("correlation", self.correlation, "0 or more")
        for name in ("latency", "longest_delay", "longest_outage"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidSetting(name, getattr(self, name), "a time, 0 or more seconds")

    def deliveries(self, number: int) -> list[float]:
        """How long after it was sent message ``number`` arrives; once for each time it does."""
        if not (self.drop or self.duplicate or self.delay):
            return [self.latency]
        lost, twice, late, how_late, second = Stream(self.seed, "fault-message").uniform(
            5 * number, 5
        )
        if lost < self.drop:
            self.struck[Fault.DROP] += 1
            return []
        delay = self.latency * (1 + how_late)
        if late < self.delay:
            self.struck[Fault.DELAY] += 1
            delay = how_late * self.longest_delay
        if twice < self.duplicate:
            self.struck[Fault.DUPLICATE] += 1
            return [delay, delay + second * self.longest_delay]
        return [delay]

    def cut(self, one: int, other: int, round: int) -> bool:
        """Whether the link between two members is down in a round."""
        if self.link == 0:
            return False
        low, high = sorted((one, other))
        down = self._chance(self.link, "fault-link", round, low, high)
        self.struck[Fault.LINK] += down
        return down

    def away(self, aggregator: int, round: int) -> bool:
        """Whether an aggregator does not aggregate in a round."""
        gone = self._chance(self.dropout, "fault-dropout", round, aggregator)
        self.struck[Fault.DROPOUT] += gone
        return gone

    def churned(self, member: int, round: int) -> bool:
        """Whether a member is away for a whole round (rounds count from 1)."""
        if self.churn == 0:
            return False
        history = self._churned.setdefault(member, [False])
        while len(history) <= round:
            rate = self.churn * (1 + self.correlation) if history[-1] else self.churn
            history.append(self._chance(min(1.0, rate), "fault-churn", len(history), member))
        self.struck[Fault.CHURN] += history[round]
        return history[round]

    def straggles(self, client: int, round: int) -> bool:
        """Whether a client's update of a round comes too late."""
        late = self._chance(self.straggle, "fault-straggle", round, client)
        self.struck[Fault.STRAGGLE] += late
        return late

    @property
    def in_mid_round(self) -> bool:
        """Whether anything can go wrong between the beginning and the end of a round."""
        return any(getattr(self, name) for name in PER_MESSAGE)

    @property
    def any(self) -> bool:
        """Whether anything can go wrong at all."""
        return self.in_mid_round or any(getattr(self, name) for name in PER_ROUND)

    def crash_of(self, member: int, round: int) -> tuple[float, float] | None:
        """(seconds into the round, seconds of outage) if a node crashes in a round.

        The moment falls into the time in which contributions and results are under way.
        """
        if not self._chance(self.crash, "fault-crash", round, member):
            return None
        self.struck[Fault.CRASH] += 1
        when, outage = Stream(self.seed, "fault-crash-when", round, member).uniform(0, 2).tolist()
        return 5 * self.latency * when, self.longest_outage * outage

    def _chance(self, rate: float, purpose: str, round: int, one: int, other: int = 0) -> bool:
        if rate == 0:
            return False
        draw = Stream(self.seed, purpose, round, one, other).uniform(0, 1)
        return bool(draw[0] < rate)
