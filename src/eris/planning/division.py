"""Who owns how much of the model, such that the slowest link is done first.

An owner of the share s sends and fetches more than others, linearly in s. So for any round time T
there is a largest share that a member's link carries; the least T is the one for which these shares
add up to 1: water-filling, with a lid on every share where the largest one governs what leaks.

A directory spreads the seats of secure sums as evenly as it can, in the order in which members
join, which no plan knows: 18 seats among eight members are two or three each. Where shards are
equal, every member is counted with the most that one holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from eris.protocol.secure.seats import Threshold
from eris.theory.distribution_time import Links, eris_link_loads, slowest_link
from eris.theory.secure_sums import RESULT_BYTES, link_loads

VALUE_BYTES = 4
AS_FAST = 1.02
"""Of plans within 2 % of the least time the one with most owners is taken: each sees less."""
ENOUGH = 1 - 1e-9
"""What shares must add up to, rounding aside."""
LEAST_SHARE = 0.1
"""Of an even share: who would own less owns nothing."""
ALL_TRIED = 64
"""Numbers of owners that are all tried; above, a few hundred are."""

Rates = NDArray[np.float64]


@dataclass(frozen=True)
class Loads:
    """What a round puts on links: ``kept`` coordinates of an update, masked or in the clear."""

    clients: int
    kept: int
    threshold: Threshold | None = None
    ring_bytes: int = 8

    @property
    def words(self) -> float:
        """Bytes of an update."""
        return float(self.kept * (VALUE_BYTES if self.threshold is None else self.ring_bytes))

    @property
    def results(self) -> float:
        """Bytes of all results."""
        return float(self.kept * RESULT_BYTES)

    def of(self, shares: tuple[float, ...]) -> list[tuple[float, float]]:
        """Bytes on every member's (uplink, downlink), the owners of ``shares`` first.

        >>> Loads(3, 2).of((0.5, 0.5))
        [(12.0, 12.0), (12.0, 12.0), (8.0, 8.0)]
        """
        if self.threshold is None:
            return eris_link_loads(
                self.words, self.results, self.clients, len(shares), shares=shares
            )
        seats = [self.most_seats(len(shares))] * self.clients if alike(shares) else None
        return link_loads(self.kept, self.clients, len(shares), self.threshold, self.ring_bytes,
                          shares=shares, seats=seats)  # fmt: skip

    def most_seats(self, owners: int) -> int:
        """The most seats that one member holds of the shards of so many owners.

        >>> Loads(8, 100, Threshold(2, 3)).most_seats(6)
        3
        """
        return 0 if self.threshold is None else -(-owners * self.threshold.seats // self.clients)

    def lines(self, owners: int | None = None) -> tuple[tuple[float, float], tuple[float, float]]:
        """(at share 0, more for the whole model) of uplink and downlink; without escrows.

        Seats are those of so many owners of equal shards, or evenly spread.
        """
        others, need, answers = self.clients - 1, 0, 0.0
        if self.threshold is not None:
            need = self.threshold.need
            answers = need / self.clients
            if owners is not None:
                answers = need * self.most_seats(owners) / (owners * self.threshold.seats)
        up = self.words * (1 + answers), others * self.results - self.words
        down = self.results, (others + need) * self.words - self.results
        return up, down

    def seconds(self, links: Links, share: float, owners: int | None = None) -> Rates:
        """How long each member's link takes if it owns ``share``; ``owners`` as in ``lines``."""
        (up, more_up), (down, more_down) = self.lines(owners)
        rates_up, rates_down = rates(links, self.clients)
        found: Rates = np.maximum(
            (up + more_up * share) / rates_up, (down + more_down * share) / rates_down
        )
        return found

    def carried(self, links: Links, seconds: float) -> Rates:
        """The largest share that each member's link carries in a time; below 0: not even its own
        update."""
        room = np.full(self.clients, math.inf)
        for rate, (fixed, more) in zip(rates(links, self.clients), self.lines(), strict=True):
            spare = rate * seconds - fixed
            if more > 0:
                room = np.minimum(room, spare / more)
            else:  # owning costs this link nothing
                room[spare < 0] = -1.0
        return room


@dataclass(frozen=True)
class Division:
    """Which members own shards, and which share of the model each."""

    owners: tuple[int, ...]
    shares: tuple[float, ...]

    def loads(self, loads: Loads) -> list[tuple[float, float]]:
        """Bytes on every member's (uplink, downlink), by member."""
        order = [*self.owners, *sorted(set(range(loads.clients)) - set(self.owners))]
        found = dict(zip(order, loads.of(self.shares), strict=True))
        return [found[member] for member in range(loads.clients)]

    def limit(self, loads: Loads, links: Links) -> float:
        """The least seconds of a round: the most loaded direction of any link."""
        return slowest_link(self.loads(loads), links)

    def seen(self, colluders: int) -> float:
        """The share of the coordinates that the largest owners among ``colluders`` have."""
        return min(1.0, math.fsum(sorted(self.shares, reverse=True)[:colluders]))


def alike(shares: tuple[float, ...]) -> bool:
    """Whether all shards are of one size, rounding aside.

    >>> alike((0.5, 0.5)), alike((0.6, 0.4))
    (True, False)
    """
    return max(shares) <= min(shares) * (1 + 1e-9)


def rates(links: Links, clients: int) -> tuple[Rates, Rates]:
    """Up and down, a number a member."""
    return np.array(links.client_up(clients)), np.array(links.client_down(clients))


def equal(
    loads: Loads, links: Links, *, largest: float = 1.0, aggregators: int | None = None
) -> Division | None:
    """Equal shards on the links that carry them best: the fewest seconds, then the most owners.

    None if no number of owners keeps shares at ``largest`` or below.

    >>> equal(Loads(4, 100), Links(up=[9.0, 9.0, 9.0, 1.0], down=9.0)).owners
    (0, 1, 2)
    """
    counts = _counts(loads.clients) if aggregators is None else [aggregators]
    found = []
    for count in (one for one in counts if 1 / one <= largest * (1 + 1e-12)):
        owning = loads.seconds(links, 1 / count, count)
        order = np.argsort(owning, kind="stable")
        taken = owning[order[:count]].max()
        rest = (
            loads.seconds(links, 0.0, count)[order[count:]].max() if count < loads.clients else 0.0
        )
        found.append((max(taken, rest), count, order[:count]))
    if not found:
        return None
    least = min(seconds for seconds, _, _ in found)
    _, count, members = max(
        (one for one in found if one[0] <= AS_FAST * least), key=lambda one: one[1]
    )
    return Division(tuple(sorted(int(m) for m in members)), (1 / count,) * count)


def _counts(clients: int) -> list[int]:
    counts = {*range(1, min(clients, ALL_TRIED) + 1), clients}
    if clients > ALL_TRIED:
        counts |= {round(one) for one in np.geomspace(ALL_TRIED, clients, 200)}
    return sorted(counts)


def weighted(loads: Loads, links: Links, *, largest: float = 1.0) -> Division | None:
    """The least time by shares that links carry, none above ``largest``; and within 2 % of that
    time the largest share as small as can be. None if shares cannot add up to 1.

    A member whose link would carry less than a tenth of an even share owns nothing.

    >>> rates = [30.0, 10.0, 10.0, 10.0]
    >>> [round(one, 3) for one in weighted(Loads(4, 100), Links(rates, rates), largest=0.4).shares]
    [0.358, 0.214, 0.214, 0.214]
    """
    may_own = np.ones(loads.clients, bool)
    floor = float(loads.seconds(links, 0.0).max())

    def filled(seconds: float, lid: float) -> Rates:
        return np.where(may_own, np.clip(loads.carried(links, seconds), 0.0, lid), 0.0)

    def enough(seconds: float, lid: float) -> bool:
        return bool(filled(seconds, lid).sum() >= ENOUGH)

    while largest * may_own.sum() >= ENOUGH:
        seconds = AS_FAST * _least(lambda one: enough(one, largest), floor)
        lid = _least(partial(enough, seconds), 1 / loads.clients, most=largest)
        shares = filled(seconds, lid)
        shares /= shares.sum()
        tiny = may_own & (shares < LEAST_SHARE / loads.clients)
        if not tiny.any():
            owners = np.flatnonzero(shares)
            return Division(tuple(map(int, owners)), tuple(float(shares[one]) for one in owners))
        may_own &= ~tiny
    return None


def _least(enough: Callable[[float], bool], low: float, most: float = math.inf) -> float:
    """The least number from ``low`` to ``most`` that is enough, to within rounding."""
    if enough(low):
        return low
    high = low
    while high < most and not enough(high):
        high = min(2 * high, most)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
