"""Whatever goes wrong, the replicas do not: two nodes at the same version of a segment hold the
same bits, there is one result per segment and round, and nobody is counted twice.

The campaign runs random fault plans through every mode of the protocol and checks its laws after
every round (:mod:`eris.testing.laws`). ``ERIS_FAULT_PLANS`` sets how many (500 unless it is given).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from eris.core.compress import QSGD, Natural, RandK, RandP
from eris.core.rules import CoordinateMedian, FedAdam, FedAvgM, FedYogi, TrimmedMean
from eris.core.shards import ContiguousPlan, InterleavedPlan, RandomPlan, ShardPlan
from eris.core.streams import Stream
from eris.protocol.schemes import Independent, Masked, Quantised
from eris.protocol.settings import Settings
from eris.runtimes.faults import Fault, FaultPlan
from eris.runtimes.local import LocalRuntime
from eris.testing import Laws, SyntheticTraining, federate, random_faults

PLANS = int(os.environ.get("ERIS_FAULT_PLANS", "500"))


@dataclass(frozen=True)
class Mode:
    """One way of running the protocol."""

    name: str
    plan: Callable[[int], ShardPlan]
    servers: int = 0
    settings: dict[str, Any] = field(default_factory=dict)


MODES = [
    Mode("dense", RandomPlan),
    Mode("dense, shards turn every round", lambda a: InterleavedPlan(a, rotate=1),
         settings={"rule": FedAvgM(0.1)}),
    Mode("dense, shards turn every other round", lambda a: RandomPlan(a, rotate=2),
         settings={"rule": FedAdam(0.1)}),
    Mode("median", ContiguousPlan, settings={"rule": CoordinateMedian(0.1)}),
    Mode("shared rand-p", RandomPlan,
         settings={"scheme": Masked(RandP(0.3)), "rule": FedAdam(0.1, bias_correction=True)}),
    Mode("shared rand-k, shards turn every round", lambda a: RandomPlan(a, rotate=1),
         settings={"scheme": Masked(RandK(12)), "rule": FedYogi(0.1)}),
    Mode("short memory", RandomPlan,
         settings={"scheme": Masked(RandP(0.3)), "rule": FedAvgM(0.1), "history": 1}),
    Mode("quantiser", RandomPlan, settings={"scheme": Quantised(QSGD(8))}),
    Mode("quantiser, shards turn", lambda a: RandomPlan(a, rotate=2),
         settings={"scheme": Quantised(Natural())}),
    Mode("paper", RandomPlan, settings={"scheme": Independent(RandP(0.3))}),
    Mode("paper, unbiased, shards turn", lambda a: RandomPlan(a, rotate=3),
         settings={"scheme": Independent(RandK(12), estimate="unbiased")}),
    Mode("two servers", RandomPlan, servers=2,
         settings={"scheme": Masked(RandP(0.3)), "quorum": 4}),
    Mode("two servers, shards turn", lambda a: RandomPlan(a, rotate=1), servers=2),
]  # fmt: skip


@dataclass
class Campaign:
    """What a number of runs of one mode amounted to."""

    struck: Counter[Fault] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    published: int = 0
    withheld: int = 0
    partly: int = 0

    def run(self, mode: Mode, seed: int) -> None:
        """One random federation under one random fault plan."""
        draw = Stream(seed, "test-shape").words(0, 5).tolist()
        n, shards, rounds = 40 + draw[0] % 20, 1 + draw[2] % 4, draw[3]
        clients = max(3 + draw[1] % 4, mode.settings.get("quorum", 1))
        size = (None, 7, 13)[draw[4] % 3]
        agreed = Settings(
            n=n, plan=mode.plan(shards), segment_size=size, seed=seed, **mode.settings
        )
        training = SyntheticTraining(n, seed)
        faults = random_faults(seed)
        runtime = federate(
            agreed, training, clients=clients, servers=mode.servers, faults=faults, record=True
        )
        laws = Laws(runtime)
        for _ in range(4 + rounds % 3):
            runtime.run_round(training)
            laws.after_round()
        runtime.heal()
        for _ in range(2):
            runtime.run_round(training)
            laws.after_round()
        for node in runtime.nodes:
            assert node.replica.settled(runtime.round), f"node {node.me} has not caught up"
        laws.at_end(training.given)
        self._note(runtime, laws, faults)

    def _note(self, runtime: LocalRuntime, laws: Laws, faults: FaultPlan) -> None:
        assert runtime.transcript is not None
        clients = len(runtime.agreement.view.clients)
        for result in laws.check_messages():
            self.withheld += result.payload is None
            self.published += result.payload is not None
            self.partly += 0 < len(result.included) < clients
            if result.header.round == runtime.round:
                assert len(result.included) == clients, "after two clean rounds nobody is missing"
        self.struck += faults.struck
        self.kinds.update(type(r.message).__name__ for r in runtime.transcript.records)


@pytest.mark.parametrize("number", range(len(MODES)), ids=[mode.name for mode in MODES])
def test_replicas_agree_under_random_faults(number: int) -> None:
    mode, campaign = MODES[number], Campaign()
    runs = -(-(PLANS - number) // len(MODES))
    for seed in range(number, number + runs * len(MODES), len(MODES)):
        try:
            campaign.run(mode, seed)
        except AssertionError as error:
            raise AssertionError(f"{mode.name}, fault plan {seed}: {error}") from error
    # The campaign is worth something only if everything happened in it.
    for fault in Fault:
        assert campaign.struck[fault] > 0, f"{fault} never struck"
    assert campaign.partly > runs
    assert campaign.withheld > runs
    assert campaign.published > runs
    assert campaign.kinds["CatchUp"] > runs
    assert (campaign.kinds["Snapshot"] > 0) == (mode.name == "short memory")


def test_the_law_of_values_trims_as_many_as_the_rule() -> None:
    # 100 · 0.29 is a hair below 29 in floating point.
    training = SyntheticTraining(12)
    settings = Settings(n=12, plan=RandomPlan(2), rule=TrimmedMean(trim=0.29))
    run = federate(settings, training, clients=100, record=True)
    laws = Laws(run)
    run.run_round(training)
    laws.check_values(laws.check_messages(), training.given)
