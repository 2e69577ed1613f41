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


@dataclass
class FaultPlan:
    """Rates of faults; all zero is a run in which nothing goes wrong.

    ``drop``, ``duplicate`` and ``delay`` are chances per message, ``link`` per link and round,
    ``dropout`` per aggregator and round, ``crash`` per node and round. A message takes
    ``latency`` to twice that, a delayed one up to ``longest_delay`` seconds; a crashed node stays
    away for up to ``longest_outage`` seconds.

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
    latency: float = 0.1
    longest_delay: float = 25.0
    longest_outage: float = 40.0
    struck: Counter[Fault] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        for name in ("drop", "duplicate", "delay", "link", "dropout", "crash"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidSetting(name, getattr(self, name), "a rate from 0 to 1")
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
        low, high = sorted((one, other))
        down = self._chance(self.link, "fault-link", round, low, high)
        self.struck[Fault.LINK] += down
        return down

    def away(self, aggregator: int, round: int) -> bool:
        """Whether an aggregator does not aggregate in a round."""
        gone = self._chance(self.dropout, "fault-dropout", round, aggregator)
        self.struck[Fault.DROPOUT] += gone
        return gone

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
