"""Client sampling: every round a view of its own over a few members of a large population.

The sampled take the roles a method gives its clients; a server stays what it is. Whom a round
samples is a function of (seed, round) that costs what the sampled cost, not the population.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.protocol.view import View


@dataclass(frozen=True)
class Sampling:
    """``template`` is a view of as many clients as a round has; ``names`` are the population's.

    >>> template = View.serverless(["a", "b", "c"], aggregators=2)
    >>> sampling = Sampling(template, tuple(f"client-{i}" for i in range(1000)), seed=1)
    >>> view = sampling.view(round=5)
    >>> len(view.clients), view.owners == view.clients[:2]
    (3, True)
    """

    template: View
    names: tuple[str, ...]
    seed: int
    forced: tuple[int, frozenset[int]] | None = None
    """A client, and the rounds that have it whoever is drawn: it takes the last one's place."""

    def __post_init__(self) -> None:
        if len(self.template.clients) > len(self.names):
            found, most = len(self.template.clients), len(self.names)
            raise InvalidSetting("sampled", found, f"at most {most}, the population")

    @cached_property
    def population(self) -> View:
        """The view of everyone, of which a round's is a part."""
        template, count = self.template, len(self.names)
        servers = template.members[len(template.clients) :]
        owners = tuple(self._number(owner, tuple(range(count))) for owner in template.owners)
        return View((*self.names, *servers), tuple(range(count)), owners)

    def view(self, round: int) -> View:
        """Who takes part in a round, in which role. In the order drawn, so roles fall to all."""
        chosen = self._chosen(round)
        owners = tuple(self._number(owner, chosen) for owner in self.template.owners)
        return self.population.in_epoch(round, chosen, owners)

    def _number(self, position: int, chosen: tuple[int, ...]) -> int:
        """The number in the population of a member of the template."""
        clients = len(self.template.clients)
        if position < clients:
            return chosen[position]
        return len(self.names) + position - clients

    def _chosen(self, round: int) -> tuple[int, ...]:
        """The first distinct numbers of the round's stream, and who must be there."""
        drawn = self._drawn(round)
        if self.forced is None or round not in self.forced[1] or self.forced[0] in drawn:
            return drawn
        return (*drawn[:-1], self.forced[0])

    def _drawn(self, round: int) -> tuple[int, ...]:
        wanted, count = len(self.template.clients), len(self.names)
        stream = Stream(self.seed, "sampled", round)
        if wanted == count:
            return tuple(np.argsort(stream.words(0, count), kind="stable").tolist())
        chosen: dict[int, None] = {}
        start = 0
        while len(chosen) < wanted:
            draws = stream.uniform(start, 2 * wanted)
            start += 2 * wanted
            for number in (draws * count).astype(np.int64).tolist():
                if len(chosen) < wanted:
                    chosen.setdefault(number)
        return tuple(chosen)
