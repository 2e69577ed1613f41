"""A population that remembers what it was asked, and a mean of its updates the slow way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from eris.core.combine import FixedPoint
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.training.trainer import LocalUpdate, PerSampleNoise


class Crowd:
    """Clients that pull the model towards targets of their own, and never tire of it.

    With ``momentum`` they keep something between rounds. What they were asked is in ``given``:
    (client, round) → the model it trained from, and its update.
    """

    def __init__(self, clients: int, n: int, momentum: float = 0.0) -> None:
        self._clients, self._n, self._momentum = clients, n, np.float32(momentum)
        zero = np.zeros(n, np.float32)
        self._kept: dict[int, Vector] = dict.fromkeys(range(clients), zero) if momentum else {}
        self.given: dict[tuple[int, int], tuple[Vector, Vector]] = {}
        self.noise: list[PerSampleNoise | None] = []

    def __len__(self) -> int:
        return self._clients

    def samples(self, client: int) -> int:
        """A client's weight."""
        return 1 + client % 7

    def target(self, client: int) -> Vector:
        """Where a client pulls to."""
        return Stream(11, "test-target", client=client).normal(0, self._n).astype(np.float32)

    def updates(
        self,
        clients: Sequence[int],
        models: Vector | Sequence[Vector],
        round: int,
        noise: PerSampleNoise | None = None,
    ) -> Iterator[LocalUpdate]:
        self.noise.append(noise)
        for position, client in enumerate(clients):
            model = models if isinstance(models, np.ndarray) else models[position]
            update = model - self.target(client)
            if self._momentum:
                update = update + self._momentum * self._kept[client]
                self._kept[client] = update
            self.given[client, round] = (model.copy(), update.copy())
            yield LocalUpdate(update, self.samples(client), metrics={"first": float(update[0])})

    def state(self) -> dict[str, Vector]:
        return {f"{client}/kept": kept for client, kept in self._kept.items()}

    def restore(self, state: Mapping[str, Vector]) -> None:
        self._kept = {int(name.partition("/")[0]): np.array(v) for name, v in state.items()}


def slow_mean(updates: Sequence[Vector], weights: Sequence[int]) -> Vector:
    """The weighted mean in the agreed fixed point, with whole numbers of any size."""
    scale = 1 << FixedPoint().fraction_bits
    divisor = sum(weights) * scale
    mean = [
        sum(
            round(float(value) * scale) * weight for value, weight in zip(row, weights, strict=True)
        )
        for row in zip(*updates, strict=True)
    ]
    return np.array([total / divisor for total in mean], np.float32)
