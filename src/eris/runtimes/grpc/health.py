"""How a node's own training goes: what its administrator is shown, and when it is enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eris.core.errors import ErisError


class TrainingFails(ErisError):
    """The user's training code fails or hangs for so long that the node stops."""


@dataclass
class Health:
    """What the training code makes of its rounds; times are of one clock, in seconds.

    After ``most_failures`` in a row the node is to stop, and when an update has taken
    ``time_limit`` seconds; one that takes more than ``slow_after`` is a problem to be shown.

    >>> health = Health(most_failures=2)
    >>> health.failed(1, "no data")
    >>> health.problem(now=0.0)
    'training failed in round 1: no data'
    >>> health.failed(1, "no data")
    Traceback (most recent call last):
    ...
    eris.runtimes.grpc.health.TrainingFails: training failed 2 times in a row, the last time in \
round 1: no data; mend the training code and start the node again
    """

    most_failures: int = 10
    slow_after: float = 120.0
    time_limit: float | None = None
    failures: int = 0
    """Since the node's start."""
    updates: int = 0
    """Likewise, those that were handed to the federation."""
    since: float | None = None
    """When the update that is under way began."""
    included: bool = False
    """Whether any result has this node's update in it."""
    refusal: str = ""
    """Why an update was refused by a member that combines."""
    evaluated: Mapping[str, float] = field(default_factory=dict)
    """What the trainer last said of the model."""
    _in_a_row: int = 0
    _last: str = ""

    def began(self, now: float) -> None:
        """Training begins."""
        self.since = now

    def gave(self) -> None:
        """Training gave an update."""
        self.since, self._in_a_row = None, 0
        self.updates += 1

    def failed(self, round: int, error: str) -> None:
        """Training gave none; raises if that is enough."""
        self.since, self._last = None, f"in round {round}: {error}"
        self.failures += 1
        self._in_a_row += 1
        if self._in_a_row >= self.most_failures:
            remedy = "mend the training code and start the node again"
            raise TrainingFails(f"{self._failing}; {remedy}")

    def wait(self, round: int, now: float) -> float:
        """For how long to wait for an update until something is to be said; raises if the wait has
        been long enough."""
        taken = self.training_for(now)
        if self.time_limit is not None and taken >= self.time_limit:
            raise TrainingFails(
                f"an update was not made within training.time_limit ({self.time_limit:g} s) in "
                f"round {round}; mend the training code or raise the limit"
            )
        pause = self.slow_after
        while pause <= taken:  # a word now and then is enough
            pause *= 2
        return min(pause, self.time_limit or pause) - taken

    def training_for(self, now: float) -> float:
        """Seconds that the update under way has taken."""
        return 0.0 if self.since is None else now - self.since

    def problem(self, now: float) -> str:
        """What is wrong at the moment; nothing: empty."""
        if self._in_a_row:
            return self._failing
        taken = self.training_for(now)
        return f"training for {taken:.0f} s" if taken >= self.slow_after else ""

    def verdict(self) -> str:
        """What was wrong with the training as a whole; nothing: empty."""
        if self.failures and not self.updates:
            return f"none of {self.failures} trainings gave an update, the last failed {self._last}"
        if self.refusal and not self.included:
            return f"none of {self.updates} updates was taken: {self.refusal}"
        return ""

    @property
    def _failing(self) -> str:
        if self._in_a_row == 1:
            return f"training failed {self._last}"
        return f"training failed {self._in_a_row} times in a row, the last time {self._last}"
