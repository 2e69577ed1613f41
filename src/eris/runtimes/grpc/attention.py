"""The clock by which a hosted directory measures leases: time in which it could have listened."""

from __future__ import annotations

import time
from collections.abc import Callable


class Attention:
    """Seconds, of which each stretch between two looks counts ``most`` at most.

    The directory looks at its clock with every request, and the node that hosts it is one that
    asks, ``most`` seconds after its last answer at the latest. A longer stretch was none of
    silence: the host itself was stopped, suspended or starved, and what its members said in the
    meantime waits to be read. That counts against nobody.

    >>> times = iter([0.0, 1.0, 100.0, 100.5])
    >>> clock = Attention(2.0, lambda: next(times))
    >>> clock(), clock(), clock()
    (1.0, 3.0, 3.5)
    """

    def __init__(self, most: float, clock: Callable[[], float] | None = None) -> None:
        self._most, self._clock = most, clock or time.monotonic
        self._seconds, self._looked = 0.0, self._clock()

    def __call__(self) -> float:
        """The seconds so far."""
        now = self._clock()
        self._seconds += min(now - self._looked, self._most)
        self._looked = now
        return self._seconds
