"""Clients of which what they send is not what they trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from eris.core.vectors import Vector
from eris.training.population import Models, Population
from eris.training.trainer import LocalUpdate, PerSampleNoise

Alteration = Callable[[Vector, Vector, int, int], Vector]
"""Of an update: what is sent instead; by the model it was trained from, the round, the client."""


class Altered:
    """Clients that put an alteration between their training and what they send."""

    def __init__(self, inner: Population, alter: Alteration) -> None:
        self._inner, self._alter = inner, alter

    def __len__(self) -> int:
        return len(self._inner)

    def updates(
        self,
        clients: Sequence[int],
        models: Models,
        round: int,
        noise: PerSampleNoise | None = None,
    ) -> Iterator[LocalUpdate]:
        """The inner ones', altered."""
        made = self._inner.updates(clients, models, round, noise)
        for place, (client, update) in enumerate(zip(clients, made, strict=True)):
            model = models if isinstance(models, np.ndarray) else models[place]
            yield replace(update, vector=self._alter(update.vector, model, round, client))

    def state(self) -> Mapping[str, Vector]:
        """What the clients keep."""
        return self._inner.state()

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()``."""
        self._inner.restore(state)
