"""A replicated vector, held as its segments lie one behind the other.

A result moves one segment. Where that is one piece of memory, nothing is gathered and nothing
scattered; the vector in its own order is made when somebody asks for it, once a round and in one
sweep. Shards that are drawn anew cut across the old ones, so with rotation a vector is held in its
own order and its segments are gathered.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from eris.core.vectors import Vector
from eris.protocol.agreement import Agreement, Segment


class Laid:
    """One vector of a replica.

    >>> from eris.core.shards import RandomPlan
    >>> from eris.protocol.settings import Settings
    >>> from eris.protocol.view import View
    >>> settings = Settings(n=6, plan=RandomPlan(2), min_included=1)
    >>> agreement = Agreement(settings, View(("anna", "ben"), (0, 1), (0, 1)))
    >>> laid = Laid(agreement, np.ones(6, np.float32))
    >>> laid.put(agreement.segments(1)[1, 0], np.zeros(3, np.float32))
    >>> int(np.count_nonzero(laid.whole())), laid.piece(agreement.segments(1)[1, 0])
    (3, array([0., 0., 0.], dtype=float32))
    """

    def __init__(self, agreement: Agreement, vector: Vector) -> None:
        self._route = None if agreement.settings.plan.rotate else agreement.route(1)
        edges = pairwise(agreement.edges(1).tolist())
        self._places = dict(zip(agreement.keys, (slice(*edge) for edge in edges), strict=True))
        self._values = vector if self._route is None else self._route.gather(vector)
        self._whole: Vector | None = None

    def piece(self, segment: Segment) -> Vector:
        """A segment's values; to be read until they move."""
        if self._route is None:
            return segment.gather(self._values)
        return self._values[self._places[segment.key]]

    def put(self, segment: Segment, values: Vector) -> None:
        """Let a segment have other values."""
        self._whole = None
        if self._route is None:
            segment.scatter(self._values, values)
        else:
            self._values[self._places[segment.key]] = values

    def arranged(self) -> Vector | None:
        """All segments one behind the other, to be read; None with rotation."""
        return None if self._route is None else self._values

    def whole(self) -> Vector:
        """The vector in its own order, to be read until it moves."""
        if self._route is None:
            return self._values
        if self._whole is None:
            self._whole = self.copy()
        return self._whole

    def copy(self) -> Vector:
        """The vector in its own order, for the caller to keep."""
        if self._route is None:
            return self._values.copy()
        if self._whole is not None:
            return self._whole.copy()
        out = np.empty_like(self._values)
        self._route.scatter(out, self._values)
        return out

    def restore(self, vector: Vector) -> None:
        """Let all of it have other values, given in its own order."""
        self._whole = None
        if self._route is None:
            self._values[:] = vector
        else:
            self._route.gather(vector, out=self._values)
