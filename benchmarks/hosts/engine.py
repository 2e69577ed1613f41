"""Rounds of the simulator's in-step engine: their CPU seconds, on prepared vectors."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from time import process_time
from typing import Any

import numpy as np
from benchmarks.growth import PreparedUpdates

from eris.core.combine import FixedPoint
from eris.core.errors import ErisError
from eris.core.vectors import Vector
from eris.federation import Federation
from eris.methods.registry import create
from eris.training.trainer import LocalUpdate, PerSampleNoise

NAMES = {"secure_sums": "secure"}
"""Words of a charter that a method has other names for."""
COUNTED = ("most_samples",)
"""Words of a charter that a simulation counts for itself."""


class NotWhole(ErisError):
    """A round that somebody's update was not in: nobody is to be fast by doing less."""


class OneSample(PreparedUpdates):
    """Prepared vectors, of one sample each."""

    def updates(
        self,
        clients: Sequence[int],
        models: Vector | Sequence[Vector],
        round: int,
        noise: PerSampleNoise | None = None,
    ) -> Iterator[LocalUpdate]:
        """The vectors, one client after another."""
        for update in super().updates(clients, models, round, noise):
            yield LocalUpdate(update.vector, samples=1)


class EngineRun:
    """A simulated federation with as many aggregators as clients, moved round by round.

    So variants can be measured in turn: what else a machine does is then in all of them.
    """

    def __init__(
        self, clients: int, parameters: int, rounds: int, charter: Mapping[str, Any]
    ) -> None:
        words = {NAMES.get(word, word): value for word, value in charter.items()}
        precision = FixedPoint(words.pop("value_range"))
        chosen = {word: value for word, value in words.items() if word not in COUNTED}
        method = create("eris", aggregators=clients, **chosen)
        start, population = np.zeros(parameters, np.float32), OneSample(clients, parameters)
        federation = Federation(population, start, method, precision=precision)
        self._session, self._used = federation.start(rounds=rounds + 1), list[float]()

    def step(self) -> None:
        """One round."""
        began = process_time()
        record = self._session.step()
        self._used.append(process_time() - began)
        if record.included != 1:
            raise NotWhole(f"round {len(self._used)}: {record.included} of the clients included")

    @property
    def cpu_s(self) -> float:
        """Of the middle round after the first."""
        return statistics.median(self._used[1:])
