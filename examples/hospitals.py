"""Four hospitals agree on one model; nobody sees another's whole update, and one machine fails.

Needs no torch: a client is any object with ``update(parameters, round)``. Run it with
``python examples/hospitals.py``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import eris


class Hospital:
    """Ridge regression on a hospital's own patients; only the gradient leaves it."""

    def __init__(self, patients: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.features = draw.standard_normal((patients, 40))
        truth = np.sin(np.arange(40))
        self.outcome = self.features @ truth + 0.1 * draw.standard_normal(patients)

    def update(self, parameters: NDArray[np.float32], round: int) -> eris.LocalUpdate:
        """The gradient of the mean squared error, and how many patients it stands for."""
        residual = self.features @ parameters - self.outcome
        gradient = self.features.T @ residual / len(residual) + 1e-3 * parameters
        return eris.LocalUpdate(gradient.astype(np.float32), samples=len(residual))


def main() -> None:
    """Train with a central server, then without one, then while things go wrong."""
    names = ["north", "east", "south", "west"]
    clients = [Hospital(patients, seed) for seed, patients in enumerate((300, 120, 500, 80))]
    start = np.zeros(40, np.float32)
    rule = eris.server_rule("fedavgm", learning_rate=0.1, momentum=0.5)

    def error(model: NDArray[np.float32]) -> float:
        return float(np.abs(model - np.sin(np.arange(40))).max())

    central = eris.Federation(clients, start, eris.FedAvg(), rule=rule, names=names)
    expected = central.fit(60, progress=False).model
    print(f"central server:   largest error {error(expected):.4f}")

    federation = eris.Federation(clients, start, eris.ERIS(), rule=rule, names=names)
    fit = federation.fit(60, record=True, progress=False)
    same = fit.model.tobytes() == expected.tobytes()
    print(f"nobody in the middle: {error(fit.model):.4f}, the same bits: {same}")
    assert fit.transcript is not None
    seen = {c.header.shard for c in fit.transcript.as_aggregator(0).contributions()}
    print(f"of the others' updates, {names[0]} received the pieces of shard {seen} of 4 only")

    faults = eris.FaultPlan(seed=2, drop=0.05, dropout=0.1, crash=0.05)
    shaken = federation.fit(60, faults=faults, progress=False)
    struck = {kind.name.lower(): count for kind, count in faults.struck.items() if count}
    print(f"with failures {struck}: {error(shaken.model):.4f}")


if __name__ == "__main__":
    main()
