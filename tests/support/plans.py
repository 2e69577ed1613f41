"""Fault plans to test with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from eris.core.streams import Stream
from eris.runtimes.faults import FaultPlan


def shuffled_arrival(seed: int) -> FaultPlan:
    """Messages overtake each other, but each arrives before its segment closes (by default)."""
    return FaultPlan(seed=seed, delay=0.6, longest_delay=1.0)


def random_faults(seed: int) -> FaultPlan:
    """A plan of any mixture: each kind of fault absent, rare or common."""
    draws: Iterator[float] = iter(Stream(seed, "test-faults").uniform(0, 32).tolist())

    def rate(common: float) -> float:
        return max(0.0, 1.5 * next(draws) - 0.5) * common

    def one_of(*choices: float) -> float:
        return choices[int(next(draws) * len(choices))]

    return FaultPlan(
        seed=seed,
        drop=rate(0.4),
        duplicate=rate(0.6),
        delay=rate(0.6),
        link=rate(0.4),
        dropout=rate(0.6),
        crash=rate(0.5),
        longest_delay=one_of(1.0, 25.0, 60.0),
        longest_outage=one_of(0.5, 20.0, 80.0),
        churn=rate(0.3),
        straggle=rate(0.3),
        correlation=one_of(0.0, 0.1),
    )


@dataclass
class ChosenFaults(FaultPlan):
    """Faults where a test wants them instead of by chance.

    ``lost_links(sender, receiver, round)`` cuts one direction of a link, ``absent(owner, round)``
    keeps an aggregator away, ``crashes`` maps (member, round) to (seconds into it, outage).
    """

    lost_links: Callable[[int, int, int], bool] = lambda sender, receiver, round: False
    absent: Collection[tuple[int, int]] = ()
    crashes: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        """Something may go wrong, though there are no rates."""
        return True

    def cut(self, one: int, other: int, round: int) -> bool:
        """Whether nothing gets from one member to another in a round."""
        return self.lost_links(one, other, round)

    def away(self, aggregator: int, round: int) -> bool:
        """Whether an aggregator does not aggregate in a round."""
        return (aggregator, round) in self.absent

    def crash_of(self, member: int, round: int) -> tuple[float, float] | None:
        """When a node crashes in a round, and for how long."""
        return self.crashes.get((member, round))
