"""An observer's half of a scheme: what published results tell over rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eris.core.vectors import Indices, Vector
from eris.protocol.messages import Result

if TYPE_CHECKING:
    from eris.protocol.round.replica import Replica
    from eris.protocol.schemes.scheme import Coding

Flags = NDArray[np.bool_]


class Reader:
    """An observer's half, beside a replica of its own: what published results tell over rounds."""

    def __init__(self, coding: Coding) -> None:
        self.coding, self.agreement = coding, coding.agreement

    def reference(
        self, replica: Replica, client: int, coordinates: Indices, *, exact: bool
    ) -> Vector:
        """What a client's contributions are the difference to, on some coordinates.

        ``exact`` where the client's own contributions were seen.
        """
        assert replica.reference is not None
        return replica.reference.whole()[coordinates]

    def update(
        self, replica: Replica, client: int, coordinates: Indices, sent: Vector, heard: Flags
    ) -> Vector:
        """A client's update on some coordinates, of what it sent; 0 was not ``heard``."""
        if replica.reference is None:
            return sent
        return sent + self.reference(replica, client, coordinates, exact=True)

    def sums(self, round: int, results: Iterable[Result]) -> tuple[Vector, Vector]:
        """Σ w_k v_k over the included clients, and Σ w_k, by coordinate."""
        n = self.agreement.settings.places
        sums, weights = np.zeros(n, np.float32), np.zeros(n, np.float32)
        for result, values in self._means(round, results):
            total = np.float32(result.samples)
            at = self.coding.coordinates(round, result.header.key, 0)
            sums[at], weights[at] = total * values, total
        return sums, weights

    def follow(
        self,
        round: int,
        results: Iterable[Result],
        mean: Callable[[Indices], Vector],
        sent: Callable[[int], Vector],
    ) -> None:
        """A round is over; ``mean`` gives the mean on coordinates, ``sent`` what a client sent."""

    def _means(self, round: int, results: Iterable[Result]) -> Iterator[tuple[Result, Vector]]:
        """The published means that tell of sums: an order statistic does not."""
        segments = self.agreement.segments(round)
        for result in results:
            if result.payload is None or self.agreement.settings.rule.values_mixed(3) != 3:
                continue
            if result.header.key == self.agreement.gauge:
                continue
            yield result, self.coding.published(result, segments[result.header.key])
