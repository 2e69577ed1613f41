"""The law of sharded aggregation: for any plan, any number of shards, any segment size and any
order of arrival, every member holds the bits that one aggregator of everything would have computed.

The single aggregator in turn is compared with loops in plain NumPy, so that the code is not only
compared with itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from eris.core.compress import MaskCompressor, RandK, RandP
from eris.core.rules import (
    CoordinateMedian,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedNova,
    FedYogi,
    ServerRule,
    TrimmedMean,
)
from eris.core.shards import ContiguousPlan, InterleavedPlan, RandomPlan, ShardPlan, WeightedPlan
from eris.core.shift import shift_step
from eris.core.streams import Stream
from eris.protocol.agreement import Agreement
from eris.protocol.round.replica import Replica
from eris.protocol.schemes import scheme_for
from eris.protocol.settings import Settings
from eris.runtimes.events import EventEngine
from eris.runtimes.faults import Fault
from eris.runtimes.station import Stations
from eris.testing import SyntheticTraining, agree, assert_same_bits, initial_model, on_the_clock
from support.engines import in_step, replicas
from support.plans import shuffled_arrival

Vector = NDArray[np.float32]
Doubles = NDArray[np.float64]
N, CLIENTS, ROUNDS = 150, 5, 10

RULES: list[ServerRule] = [
    FedAvg(0.1),
    FedAvgM(0.05),
    FedAdam(0.1),
    FedAdam(0.1, bias_correction=True),
    FedYogi(0.1),
    FedAdagrad(0.1, beta1=0.5),
    FedNova(0.05),
    CoordinateMedian(0.1),
    TrimmedMean(0.1, trim=0.2),
]
COMPRESSORS: list[MaskCompressor | None] = [None, RandP(0.2), RandK(25)]
SHARDS = [1, 2, 7, 50]
EQUAL_PLANS: list[Callable[[int, int], ShardPlan]] = [RandomPlan, InterleavedPlan, ContiguousPlan]
KINDS = ["random", "interleaved", "contiguous", "weighted", "rotating"]


@dataclass(frozen=True)
class Case:
    """What the law quantifies over."""

    rule: ServerRule
    compressor: MaskCompressor | None
    plan: ShardPlan
    segment_size: int | None = None
    n: int = N
    clients: int = CLIENTS
    rounds: int = ROUNDS
    seed: int = 3

    def run(self, *, servers: int = 0) -> list[Replica]:
        """What members hold after all rounds, in which messages overtook each other.

        Shards that are drawn anew are for members in step, and there are three processes of them.
        """
        agreed, training = self.agreement(servers), SyntheticTraining(self.n, self.seed)
        engine: Stations | EventEngine
        if self.plan.rotate:
            engine = in_step(agreed, training, stations=3)
        else:
            engine = on_the_clock(agreed, training, faults=shuffled_arrival(self.seed))
        for round in range(1, self.rounds + 1):
            assert engine.run_round(round).included == 1, "the law is about complete rounds"
        return replicas(engine)

    def agreement(self, servers: int = 0) -> Agreement:
        """What the members agree on."""
        settings = Settings(
            n=self.n,
            plan=self.plan,
            rule=self.rule,
            scheme=scheme_for(self.compressor),
            segment_size=self.segment_size,
            seed=self.seed,
        )
        return agree(settings, clients=self.clients, servers=servers)

    def check(self, *, servers: int = 0) -> None:
        """Every member holds the bits of the single aggregator."""
        expected = central(replace(self, plan=RandomPlan(1), segment_size=None))
        for number, replica in enumerate(self.run(servers=servers)):
            assert_same_state(replica, expected, f"{self}, replica {number}")
            assert set(replica.versions.values()) == {self.rounds}


@cache
def central(case: Case) -> Replica:
    """One aggregator of everything, to which all comes in the order of the view."""
    engine = in_step(case.agreement(), SyntheticTraining(case.n, case.seed))
    for round in range(1, case.rounds + 1):
        engine.run_round(round)
    return replicas(engine)[0]


def assert_same_state(found: Replica, expected: Replica, what: str) -> None:
    assert_same_bits(found.model, expected.model, f"{what}: model")
    if expected.reference is not None:
        assert found.reference is not None
        assert_same_bits(found.reference.whole(), expected.reference.whole(), f"{what}: reference")
    for number, (one, other) in enumerate(zip(found.slots, expected.slots, strict=True)):
        assert_same_bits(one.whole(), other.whole(), f"{what}: slot {number}")


def plans(shards: int) -> list[ShardPlan]:
    """Every kind of plan with so many shards, in the order of KINDS."""
    return [
        RandomPlan(shards),
        InterleavedPlan(shards),
        ContiguousPlan(shards),
        WeightedPlan(tuple(1.0 + a % 3 for a in range(shards))),
        RandomPlan(shards, rotate=3),
    ]


# -- ERIS ≡ one aggregator ------------------------------------------------------------------------


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=["dense", "rand-p", "rand-k"])
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_every_rule(rule: ServerRule, compressor: MaskCompressor | None) -> None:
    if compressor is not None and not rule.works_compressed:
        with pytest.raises(ValueError, match="order statistics of compressed values"):
            Settings(n=N, rule=rule, scheme=scheme_for(compressor))
        return
    Case(rule, compressor, RandomPlan(7)).check()
    Case(rule, compressor, WeightedPlan((1, 2, 3)), segment_size=11).check()
    if not rule.counts_updates:
        Case(rule, compressor, InterleavedPlan(5, rotate=2)).check()


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
@pytest.mark.parametrize(
    ("rule", "compressor"),
    [(FedAvg(0.1), None), (FedAdam(0.1), RandP(0.2))],
    ids=["dense", "compressed"],
)
def test_every_plan_number_of_shards_and_segment_size(
    rule: ServerRule, compressor: MaskCompressor | None, kind: int, shards: int
) -> None:
    sizes: tuple[int | None, ...] = (None, 13, 40)
    if shards == 50:
        sizes = (2,) if kind == 0 else (None,)
    for size in sizes:
        Case(rule, compressor, plans(shards)[kind], segment_size=size).check()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_anything_goes_together(data: st.DataObject) -> None:
    n = data.draw(st.integers(8, 90), "n")
    shards = data.draw(st.integers(1, min(n, 12)), "shards")
    rule = data.draw(st.sampled_from(RULES), "rule")
    compressor = data.draw(
        st.sampled_from([None, RandP(0.3), RandK(5)] if rule.works_compressed else [None])
    )
    rotate = 0 if rule.counts_updates else data.draw(st.sampled_from([0, 0, 1, 2, 5]), "rotate")
    plan = data.draw(st.sampled_from(EQUAL_PLANS), "plan")(shards, rotate)
    size = data.draw(st.none() | st.integers(max(1, n // 20), n), "segment size")
    clients = data.draw(st.integers(3, 6), "clients")
    seed = data.draw(st.integers(0, 2**32), "seed")
    Case(rule, compressor, plan, size, n, clients, 6, seed).check()


@pytest.mark.parametrize("compressor", [None, RandP(0.2)], ids=["dense", "compressed"])
def test_whoever_owns_the_shards(compressor: MaskCompressor | None) -> None:
    # A server without data, or two of them, or clients: the same bits.
    for servers, shards in ((1, 1), (2, 4), (0, 4)):
        Case(FedAdam(0.1), compressor, RandomPlan(shards)).check(servers=servers)


def test_the_order_of_arrival_really_varied() -> None:
    case, faults = Case(FedAvg(0.1), None, RandomPlan(2)), shuffled_arrival(3)
    engine = on_the_clock(case.agreement(), SyntheticTraining(N, 3), faults=faults)
    records = [record for round in range(1, 6) for record in engine.run_round(round).records]
    assert faults.struck[Fault.DELAY] > 40
    assert sum(faults.struck.values()) == faults.struck[Fault.DELAY]
    assert all(record.arrived == set(record.receivers) for record in records)


def test_the_comparison_can_fail() -> None:
    with pytest.raises(AssertionError, match=r"model: .* values differ"):
        assert_same_state(
            Case(FedAvg(0.1), None, RandomPlan(1), seed=4).run()[0],
            central(Case(FedAvg(0.1), None, RandomPlan(1))),
            "another seed",
        )


# -- one aggregator ≡ NumPy -----------------------------------------------------------------------


def noise(member: int, round: int, seed: int = 3) -> Doubles:
    drawn = Stream(seed, "test-update", round, member).normal(0, N)
    return drawn.astype(np.float32).astype(np.float64)


def test_fedavg_is_a_loop_in_numpy() -> None:
    weights = np.array([3.0 + k for k in range(CLIENTS)])
    x = initial_model(N, 3).astype(np.float64)
    for round in range(1, ROUNDS + 1):
        updates = np.stack([noise(k, round) + 0.5 * x for k in range(CLIENTS)])
        x -= 0.1 * (weights @ updates) / weights.sum()
    found = Case(FedAvg(0.1), None, RandomPlan(7)).run()[2].model
    assert np.allclose(found, x, rtol=0, atol=1e-5)


def test_fedadam_is_a_loop_in_numpy() -> None:
    weights = np.array([3.0 + k for k in range(CLIENTS)])
    x = initial_model(N, 3).astype(np.float64)
    m, u = np.zeros(N), np.full(N, 1e-6)
    for round in range(1, ROUNDS + 1):
        updates = np.stack([noise(k, round) + 0.5 * x for k in range(CLIENTS)])
        v = (weights @ updates) / weights.sum()
        m, u = 0.9 * m + 0.1 * v, 0.99 * u + 0.01 * v * v
        x -= 0.1 * m / (np.sqrt(u) + 1e-3)
    found = Case(FedAdam(0.1), None, RandomPlan(7)).run()[2].model
    assert np.allclose(found, x, rtol=0, atol=2e-4)


def test_fednova_is_a_loop_in_numpy() -> None:
    # Clients send g_k/τ_k; the step is as long as the mean of the τ_k.
    weights = np.array([3.0 + k for k in range(CLIENTS)])
    share, steps = weights / weights.sum(), np.array([1.0 + k % 3 for k in range(CLIENTS)])
    x = initial_model(N, 3).astype(np.float64)
    for round in range(1, ROUNDS + 1):
        updates = np.stack([noise(k, round) + 0.5 * x for k in range(CLIENTS)])
        x -= 0.05 * (share @ steps) * ((share / steps) @ updates)
    found = Case(FedNova(0.05), None, RandomPlan(7)).run()[2].model
    assert np.allclose(found, x, rtol=0, atol=1e-5)


@pytest.mark.parametrize("plan", plans(7), ids=repr)
def test_whole_numbers_give_numpys_very_bits(plan: ShardPlan) -> None:
    # The mean of whole numbers is one correctly rounded quotient; the step is two float32
    # operations. Nothing is left to differ.
    training = SyntheticTraining(N, 5, whole=True)
    agreed = agree(Settings(n=N, plan=plan, rule=FedAvg(0.1)), clients=CLIENTS)
    engine: Stations | EventEngine = in_step(agreed, training)
    if not plan.rotate:
        engine = on_the_clock(agreed, training, faults=shuffled_arrival(1))
    x = initial_model(N, 5)
    for round in range(1, ROUNDS + 1):
        engine.run_round(round)
        total = np.zeros(N, np.int64)
        for k in range(CLIENTS):
            words = Stream(5, "test-update", round, k).words(0, N)
            total += (3 + k) * (words.astype(np.int64) % 17 - 8)
        x = x - np.float32(0.1) * (total / sum(3 + k for k in range(CLIENTS))).astype(np.float32)
    for replica in replicas(engine):
        assert_same_bits(replica.model, x)


def kept_as_booleans(compressor: MaskCompressor, round: int, seed: int) -> NDArray[np.bool_]:
    bits = compressor.kept(N, Stream(seed, "mask", round)).bits
    return np.array([bool(int(bits[i // 64]) >> i % 64 & 1) for i in range(N)])


@pytest.mark.parametrize("compressor", [RandP(0.2), RandK(25)], ids=repr)
def test_shifted_compression_is_a_loop_in_numpy(compressor: MaskCompressor) -> None:
    # v_k = C(g_k − s), v̂ = s + Σ w_k v_k, x ← x − λ v̂, s ← s + γ Σ w_k v_k, one mask for all.
    weights = np.array([3.0 + k for k in range(CLIENTS)])
    gamma = shift_step(compressor.omega(N))
    scale = N / 25 if isinstance(compressor, RandK) else 1 / compressor.kept_fraction
    x, s = initial_model(N, 3).astype(np.float64), np.zeros(N)
    for round in range(1, ROUNDS + 1):
        kept = kept_as_booleans(compressor, round, 3)
        updates = np.stack([noise(k, round) + 0.5 * x for k in range(CLIENTS)])
        sent = np.where(kept, (updates - s) * scale, 0)
        v = (weights @ sent) / weights.sum()
        x -= 0.1 * (s + v)
        s += gamma * v
    replica = Case(FedAvg(0.1), compressor, RandomPlan(7)).run()[4]
    assert replica.reference is not None
    assert np.allclose(replica.reference.whole(), s, rtol=0, atol=1e-5)
    assert np.allclose(replica.model, x, rtol=0, atol=1e-5)
