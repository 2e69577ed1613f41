"""A small federation run for some rounds under a fault plan, its laws watched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from eris.core.rules import FedAvg
from eris.core.shards import RandomPlan
from eris.protocol.agreement import Key
from eris.protocol.settings import Settings
from eris.runtimes.faults import FaultPlan
from eris.runtimes.local import LocalRuntime
from eris.testing import Laws, SyntheticTraining, federate

N, ROUNDS = 60, 5


def dense(**changes: Any) -> Settings:
    return replace(Settings(n=N, plan=RandomPlan(2), rule=FedAvg(0.1)), **changes)


def run(
    settings: Settings | None = None,
    faults: FaultPlan | None = None,
    *,
    clients: int = 4,
    rounds: int = ROUNDS,
    heal: bool = False,
) -> tuple[LocalRuntime, Laws, SyntheticTraining]:
    """A federation after some rounds, its states watched."""
    training = SyntheticTraining(N, 1)
    runtime = federate(settings or dense(), training, clients=clients, faults=faults, record=True)
    laws = Laws(runtime)
    for round in range(1, rounds + 1 + 2 * heal):
        if round == rounds + 1:
            runtime.heal()
        runtime.run_round(training)
        laws.after_round()
    return runtime, laws, training


def versions(runtime: LocalRuntime) -> list[dict[Key, int]]:
    return [node.replica.versions for node in runtime.nodes]


def included(laws: Laws) -> dict[tuple[int, Key], set[int]]:
    return {(r.header.round, r.header.key): set(r.included) for r in laws.check_messages()}
