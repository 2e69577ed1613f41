"""Whatever goes wrong, what is published is right: one result per segment and round, nobody counted
twice, every value the mean of what the included clients had, and all that are there follow.

The campaigns run random fault plans through every mode of the protocol, in step and under the
virtual clock, and read what was said (:mod:`support.oracle`). ``ERIS_FAULT_PLANS`` sets how
many (130 each unless it is given). Crashes are for :mod:`eris.testing.world`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from eris.core.compress import QSGD, Natural, RandK, RandP
from eris.core.rules import CoordinateMedian, FedAdam, FedAvgM, FedYogi, TrimmedMean
from eris.core.shards import ContiguousPlan, InterleavedPlan, RandomPlan, ShardPlan
from eris.core.streams import Stream
from eris.protocol.messages import Result
from eris.protocol.schemes import Independent, Masked, Quantised
from eris.protocol.settings import Settings
from eris.protocol.transcript import Record
from eris.runtimes.events import EventEngine
from eris.runtimes.faults import Fault, FaultPlan
from eris.runtimes.station import Stations
from eris.testing import SyntheticTraining, agree, assert_same_bits, initial_model, on_the_clock
from support.engines import cohorts, in_step, replicas
from support.oracle import check_messages, check_values
from support.plans import random_faults

PLANS = int(os.environ.get("ERIS_FAULT_PLANS", "130"))


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


CLOCKED = [
    mode for mode in MODES
    if not mode.plan(1).rotate and not isinstance(mode.settings.get("scheme"), Independent)
]  # fmt: skip


@dataclass
class Campaign:
    """What a number of runs of one mode amounted to."""

    struck: Counter[Fault] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    published: int = 0
    without: int = 0
    """Segments of a round without a result."""
    partly: int = 0

    def run(self, mode: Mode, seed: int, *, clock: bool) -> None:
        """One random federation under one random fault plan, and three rounds without."""
        draw = Stream(seed, "test-shape").words(0, 5).tolist()
        n, shards, rounds = 40 + draw[0] % 20, 1 + draw[2] % 4, 4 + draw[3] % 3
        clients = max(3 + draw[1] % 4, mode.settings.get("quorum", 1))
        size = (None, 7, 13)[draw[4] % 3]
        settings = Settings(
            n=n, plan=mode.plan(shards), segment_size=size, seed=seed, **mode.settings
        )
        agreement = agree(settings, clients=clients, servers=mode.servers)
        training, faults = SyntheticTraining(n, seed), replace(random_faults(seed), crash=0)
        engine: Stations | EventEngine
        if clock:
            engine = on_the_clock(agreement, training, faults=faults)
        else:
            faults = replace(faults, drop=0, duplicate=0, delay=0)
            engine = in_step(agreement, training, faults=faults)
        records: list[Record] = []
        for round in range(1, rounds + 4):
            if round == rounds + 1:
                heal(engine)
            report = engine.run_round(round)
            records += report.records
        assert report.included == 1, "after three clean rounds nobody is missing"
        results = check_messages(agreement, records)
        self._note(results, clients, (rounds + 3) * len(agreement.keys))
        replayed = check_values(agreement, initial_model(n, seed), results, training.given)
        for replica in replicas(engine):
            assert replica.versions == replayed.versions
            for one, other in zip(replica._vectors(), replayed._vectors(), strict=True):
                assert_same_bits(one.whole(), other.whole())
        self.struck += faults.struck
        self.kinds.update(type(record.message).__name__ for record in records)

    def _note(self, results: list[Result], clients: int, segments: int) -> None:
        published = [result for result in results if result.payload is not None]
        self.published += len(published)
        self.without += segments - len(published)
        self.partly += sum(0 < len(result.included) < clients for result in published)


def heal(engine: Stations | EventEngine) -> None:
    """Nothing goes wrong from now on."""
    if isinstance(engine, EventEngine):
        engine.faults = FaultPlan(latency=engine.faults.latency)
    else:
        for cohort in cohorts(engine):
            cohort._faults = FaultPlan()


def campaign(modes: list[Mode], number: int, *, clock: bool) -> tuple[Campaign, int]:
    """The runs that fall to one of these modes."""
    mode, found = modes[number], Campaign()
    runs = -(-(PLANS - number) // len(modes))
    for seed in range(number, number + runs * len(modes), len(modes)):
        try:
            found.run(mode, seed, clock=clock)
        except AssertionError as error:
            raise AssertionError(f"{mode.name}, fault plan {seed}: {error}") from error
    return found, runs


@pytest.mark.parametrize("number", range(len(MODES)), ids=[mode.name for mode in MODES])
def test_what_is_published_in_step_is_right(number: int) -> None:
    found, runs = campaign(MODES, number, clock=False)
    # The campaign is worth something only if everything happened in it.
    for fault in (Fault.LINK, Fault.DROPOUT, Fault.CHURN, Fault.STRAGGLE):
        assert found.struck[fault] > 0, f"{fault} never struck"
    assert min(found.partly, found.without, found.published, found.kinds["CatchUp"]) > runs


@pytest.mark.parametrize("number", range(len(CLOCKED)), ids=[mode.name for mode in CLOCKED])
def test_what_is_published_on_the_clock_is_right(number: int) -> None:
    found, runs = campaign(CLOCKED, number, clock=True)
    for fault in set(Fault) - {Fault.CRASH}:
        assert found.struck[fault] > 0, f"{fault} never struck"
    assert min(found.partly, found.published, found.kinds["CatchUp"]) > runs
    assert found.kinds["Snapshot"] > 0


def test_the_law_of_values_trims_as_many_as_the_rule() -> None:
    # 100 · 0.29 is a hair below 29 in floating point.
    training = SyntheticTraining(12)
    settings = Settings(n=12, plan=RandomPlan(2), rule=TrimmedMean(trim=0.29))
    agreement = agree(settings, clients=100)
    records = in_step(agreement, training).run_round(1).records
    check_values(agreement, initial_model(12), check_messages(agreement, records), training.given)
