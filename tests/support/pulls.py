"""Federations of every method whose clients remember, small enough for any engine."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np

from eris.core.errors import PrivacyWarning
from eris.core.vectors import Vector
from eris.federation import Federation
from eris.methods.registry import create
from eris.testing.synthetic import initial_model
from eris.training.trainer import LocalUpdate, PerSampleNoise

N, CLIENTS = 120, 10
START = initial_model(N)
SETTINGS: dict[str, dict[str, object]] = {
    "eris": {"kept_fraction": 0.3, "aggregators": 4},
    "d-psgd": {"degree": 4},
    "el": {"degree": 4},
    "muffliato": {"degree": 4, "steps": 3},
    "shatter": {"virtual_nodes": 3, "degree": 4},
    "fedavg-wc": {"clusters": 8},
    "enccluster": {"clusters": 8, "coding": "sealed", "weight_range": 64.0, "fraction_bits": 8},
    "detrust": {"weight_range": 64.0, "fraction_bits": 8},
    "sefl": {"key_bits": 256},
}


class Pull:
    """A client that pulls towards its own target and remembers where it was (a momentum)."""

    def __init__(self, client: int) -> None:
        self.client = client
        self.target = np.float32(client)
        self.memory = np.zeros(N, np.float32)

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        self.memory = np.float32(0.5) * self.memory + (parameters - self.target)
        loss = float(np.abs(parameters - self.target).mean())
        return LocalUpdate(self.memory.copy(), samples=1 + self.client, metrics={"loss": loss})

    def private_update(self, parameters: Vector, round: int, noise: PerSampleNoise) -> LocalUpdate:
        plain = self.update(parameters, round)
        return LocalUpdate(plain.vector + np.float32(noise.sigma), plain.samples)

    def state(self) -> dict[str, Vector]:
        return {"memory": self.memory}

    def restore(self, state: Mapping[str, Vector]) -> None:
        self.memory = state.get("memory", np.zeros(N, np.float32))


def federation(name: str) -> Federation:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # of methods that hide little
        return Federation(
            [Pull(client) for client in range(CLIENTS)],
            START,
            create(name, **SETTINGS.get(name, {})),
            rule="fedavg",
            samples=[1 + client for client in range(CLIENTS)],
            seed=7,
        )
