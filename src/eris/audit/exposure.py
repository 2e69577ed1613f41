"""The theory next to the measurement: what an observer saw, and what the bounds make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field

import numpy as np

from eris.audit.gaussian import (
    Capacity,
    WeightHistogram,
    capacity,
    capacity_paper,
    guessed_information,
    information_bound,
)
from eris.audit.statistics import Pooled
from eris.audit.watch import Sight
from eris.core.vectors import Indices, Vector

ENOUGH = 2048
"""Coordinates from which the variances are estimated."""


@dataclass(frozen=True)
class Exposed:
    """The mutual-information bound of ERIS (theorem 3.3) for what one observer saw.

    ``paper`` takes C_max as ERIS F.1 estimates it, ``honest`` from what is left of an update's
    variance once the client's data are known; without noise nothing is left, and no bound holds.
    ``measured`` is what right guesses prove (Fano). All are nats about one client, on average.
    """

    observer: str
    rounds: int
    coordinates: float
    """Seen of a client's update a round, on average."""
    share: float
    """Of all that an update is cut into."""
    paper: float
    honest: float
    measured: float
    ceiling: float
    """All there is to know about a client's canaries: ln 2 each."""


@dataclass(eq=False)
class Exposure:
    """Collects, from an observer's sights, how much it saw and how that is distributed.

    ``places`` are the coordinates of an update as it is cut (``Settings.places``).
    """

    observer: int
    clients: Sequence[int]
    places: int
    noise: float = 0.0
    seed: InitVar[int] = 0
    seen: list[int] = field(default_factory=list, init=False)

    def __post_init__(self, seed: int) -> None:
        self.updates = WeightHistogram(seed)
        """One client's updates, as far as they were seen."""
        self.weights = WeightHistogram(seed)
        """The weights that they lead to, which are what ERIS F.1 plots."""
        self._counted: list[int] = []
        self._paper: list[Capacity] = []
        self._honest: list[Capacity] = []

    def __call__(self, sight: Sight) -> None:
        """Look at a round."""
        if self.observer not in sight.observers:
            return
        row = sight.observers.index(self.observer)
        seen = [(client, *found) for client in self.clients
                if (found := self._update(sight, client, row)) is not None]  # fmt: skip
        updates = [update for _, _, update in seen]
        sizes = [len(update) for update in updates]
        self.seen.append(round(float(np.mean(sizes))) if sizes else 0)
        # In the paper's mode clients send different coordinates: each stands for itself.
        fewest = min(sizes, default=0)
        if len(updates) < 2 or fewest < 2:
            return
        across = np.stack([update[: min(fewest, ENOUGH)] for update in updates])
        self._counted.append(self.seen[-1])
        self._paper.append(capacity_paper(across))
        self._honest.append(capacity(across, noise=self.noise))
        client, coordinates, update = seen[0]
        if len(update) >= 20:
            self.updates.add(sight.round, update)
            completed = sight.placed(sight.completed(self.observer, client))
            self.weights.add(sight.round, completed[coordinates])

    def _update(self, sight: Sight, client: int, row: int) -> tuple[Indices, Vector] | None:
        """The coordinates that were seen of a client's update, and their values."""
        pieces = sight.pieces(client)
        if pieces is None:
            return None
        chosen = np.repeat(sight.seen(client)[row], pieces.sizes)
        return pieces.coordinates[chosen], pieces.update[chosen]

    def exposed(self, observer: str, guesses: Pooled, clients: int) -> Exposed | None:
        """Bound and measurement on one axis, about one of so many clients; None: nothing seen."""
        if not self._counted:
            return None
        mean = float(np.mean(self.seen))
        return Exposed(
            observer,
            len(self.seen),
            mean,
            mean / self.places,
            information_bound(self._counted, self._paper),
            information_bound(self._counted, self._honest),
            guessed_information(guesses.right, guesses.guesses) / clients,
            guesses.canaries * float(np.log(2)) / clients,
        )
