"""The paper's mode (a mask and a reference per client) against the shared default, and the two
estimates it offers under partial participation."""

from __future__ import annotations

from itertools import combinations
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from eris.core.compress import MaskCompressor, RandK, RandP
from eris.core.errors import InvalidSetting
from eris.core.rules import FedAdam, FedAvg
from eris.core.shards import RandomPlan
from eris.core.shift import shift_step
from eris.core.streams import Stream
from eris.protocol.schemes import Independent, scheme_for
from eris.protocol.settings import Settings
from eris.runtimes.local import LocalRuntime
from eris.testing import (
    ChosenFaults,
    Laws,
    SyntheticTraining,
    federate,
    initial_model,
    random_faults,
)

Doubles = NDArray[np.float64]
Estimate = Literal["renormalised", "unbiased"]
N, CLIENTS = 80, 6
WEIGHTS = np.array([3.0 + k for k in range(CLIENTS)])
SHARES = WEIGHTS / WEIGHTS.sum()


def paper(
    training: SyntheticTraining,
    compressor: MaskCompressor,
    *,
    rotate: int = 0,
    estimate: Estimate = "renormalised",
    shards: int = 3,
) -> Settings:
    return Settings(
        n=training.n,
        plan=RandomPlan(shards, rotate),
        rule=FedAvg(0.05),
        scheme=Independent(compressor, estimate=estimate),
        segment_size=20,
        seed=training.seed,
    )


def mean_of_references(runtime: LocalRuntime) -> Doubles:
    total = np.zeros(N)
    for share, node in zip(SHARES, runtime.nodes, strict=False):
        total += share * node.client.sender.state()["reference"]
    return total


# -- the invariant --------------------------------------------------------------------------------


@pytest.mark.parametrize("rotate", [0, 2])
@pytest.mark.parametrize("compressor", [RandP(0.3), RandK(20)], ids=repr)
def test_the_common_reference_is_the_mean_of_the_clients_own(
    compressor: MaskCompressor, rotate: int
) -> None:
    training = SyntheticTraining(N, 1)
    runtime = federate(paper(training, compressor, rotate=rotate), training, clients=CLIENTS)
    for _ in range(30):
        runtime.run_round(training)
        for node in runtime.nodes:
            assert node.replica.reference is not None
            assert np.allclose(node.replica.reference, mean_of_references(runtime), atol=1e-5)
    assert np.abs(runtime.nodes[0].replica.reference).max() > 0.1  # type: ignore[arg-type]


@pytest.mark.parametrize("estimate", ["renormalised", "unbiased"])
def test_faults_do_not_break_the_invariant(estimate: Estimate) -> None:
    assert sum(partly_included(seed, estimate) for seed in range(12)) > 100


def partly_included(seed: int, estimate: Estimate) -> int:
    """Runs a federation under faults; returns how many results some client was missing in."""
    training = SyntheticTraining(N, seed)
    agreed = paper(training, RandP(0.3), rotate=seed % 3, estimate=estimate)
    runtime = federate(agreed, training, clients=CLIENTS, faults=random_faults(seed), record=True)
    laws = Laws(runtime)
    for _ in range(6):
        runtime.run_round(training)
        laws.after_round()  # among them the invariant, on all segments where nodes are level
    runtime.heal()
    for _ in range(2):
        runtime.run_round(training)
        laws.after_round()
    for node in runtime.nodes:
        assert node.replica.settled(runtime.round)
        assert node.replica.reference is not None
        assert np.allclose(node.replica.reference, mean_of_references(runtime), atol=1e-4)
    return sum(0 < len(result.included) < CLIENTS for result in laws.check_messages())


def test_a_client_advances_only_where_it_was_included() -> None:
    training = SyntheticTraining(N, 2)
    agreed = paper(training, RandP(0.3))
    # What client 5 sends to the owner of shard 0 is lost; its other shards arrive.
    faults = ChosenFaults(lost_links=lambda sender, receiver, round: (sender, receiver) == (5, 0))
    runtime = federate(agreed, training, clients=CLIENTS, faults=faults)
    runtime.run_round(training)
    shard_map = agreed.plan.at(N, agreed.seed)
    own = runtime.nodes[5].client.sender.state()["reference"]
    assert not own[shard_map.coordinates(0)].any()
    assert own[shard_map.coordinates(1)].any()
    assert own[shard_map.coordinates(2)].any()
    assert {key[0] for _, key in runtime.nodes[5].client.left_out} == {0}


def test_a_weight_other_than_the_agreed_one_is_refused() -> None:
    # s = Σ w_k s_k holds for the weights in the view and for no others.
    training = SyntheticTraining(N, 2)
    runtime = federate(paper(training, RandP(0.3)), training, clients=CLIENTS)
    update, samples, steps = training(1, runtime.nodes[1].model, 1)
    runtime.nodes[1].begin(1, 0.0)
    with pytest.raises(InvalidSetting, match="samples of client-1 is 5; expected 4, as agreed"):
        runtime.nodes[1].contribute(update, samples + 1, steps)


# -- shared masks are the paper's iteration -------------------------------------------------------


def noise(member: int, round: int) -> Doubles:
    drawn = Stream(7, "test-update", round, member).normal(0, N)
    return drawn.astype(np.float32).astype(np.float64)


def mask(compressor: MaskCompressor, round: int) -> NDArray[np.bool_]:
    kept = compressor.kept(N, Stream(7, "mask", round))
    chosen = np.zeros(N, bool)
    chosen[kept.among(np.arange(N))] = True
    return chosen


def papers_iteration(compressor: MaskCompressor, rounds: int) -> tuple[Doubles, Doubles, Doubles]:
    """(x, s, all s_k) with a reference per client; in a round all keep the same coordinates."""
    gamma, scale = shift_step(compressor.omega(N)), 1 + compressor.omega(N)
    x, s = initial_model(N, 7).astype(np.float64), np.zeros(N)
    own = np.zeros((CLIENTS, N))
    for round in range(1, rounds + 1):
        updates = np.stack([noise(k, round) + 0.5 * x for k in range(CLIENTS)])
        sent = np.where(mask(compressor, round), (updates - own) * scale, 0)
        x = x - 0.05 * (s + SHARES @ sent)
        s = s + gamma * (SHARES @ sent)
        own = own + gamma * sent
    return x, s, own


def shared_iteration(compressor: MaskCompressor, rounds: int) -> tuple[Doubles, Doubles]:
    """(x, s) with one reference for all: the project's default."""
    gamma, scale = shift_step(compressor.omega(N)), 1 + compressor.omega(N)
    x, s = initial_model(N, 7).astype(np.float64), np.zeros(N)
    for round in range(1, rounds + 1):
        updates = np.stack([noise(k, round) + 0.5 * x for k in range(CLIENTS)])
        sent = SHARES @ np.where(mask(compressor, round), (updates - s) * scale, 0)
        x, s = x - 0.05 * (s + sent), s + gamma * sent
    return x, s


@pytest.mark.parametrize("compressor", [RandP(0.25), RandK(10)], ids=repr)
def test_one_reference_gives_the_papers_iterates(compressor: MaskCompressor) -> None:
    x, s, own = papers_iteration(compressor, 500)
    shared_x, shared_s = shared_iteration(compressor, 500)
    assert np.abs(x - shared_x).max() < 1e-12
    assert np.abs(s - shared_s).max() < 1e-12
    assert np.abs(SHARES @ own - s).max() < 1e-12
    assert np.abs(own - s).max() > 0.1, "the clients' own references do differ"


@pytest.mark.parametrize("compressor", [RandP(0.25), RandK(10)], ids=repr)
def test_the_default_is_the_papers_iteration_with_a_shared_mask(compressor: MaskCompressor) -> None:
    training = SyntheticTraining(N, 7)
    agreed = Settings(
        n=N,
        plan=RandomPlan(3),
        rule=FedAvg(0.05),
        scheme=scheme_for(compressor),
        segment_size=20,
        seed=7,
    )
    runtime = federate(agreed, training, clients=CLIENTS)
    for round in range(1, 51):
        runtime.run_round(training)
        if round % 10 == 0:
            x, s, _ = papers_iteration(compressor, round)
            for node in runtime.nodes:
                assert node.replica.reference is not None
                assert np.abs(node.model - x).max() < 1e-5
                assert np.abs(node.replica.reference - s).max() < 1e-5


def test_independent_masks_differ_and_a_result_then_shows_single_clients() -> None:
    # Why shared masks are the default: with masks of their own, most kept coordinates have one
    # contributor, whose value the published mean then is.
    training = SyntheticTraining(400, 7)
    agreed = paper(training, RandP(0.05))
    runtime = federate(agreed, training, clients=CLIENTS)
    counts = np.zeros(400, int)
    for client in range(CLIENTS):
        kept = runtime.agreement.coding.kept(1, client)
        assert kept is not None
        counts[kept.among(np.arange(400))] += 1
    assert np.mean(counts[counts > 0] == 1) > 0.7


# -- who is missing -------------------------------------------------------------------------------


def step_with(included: tuple[int, ...], estimate: Estimate) -> Doubles:
    """x₀ − x₁ when only these clients' contributions arrive, in the paper's mode, all kept."""
    training = SyntheticTraining(N, 9)
    agreed = Settings(
        n=N, plan=RandomPlan(2), rule=FedAvg(1.0), min_included=len(included),
        scheme=Independent(RandP(1.0), estimate=estimate),
    )  # fmt: skip
    faults = ChosenFaults(
        lost_links=lambda sender, receiver, round: sender < CLIENTS and sender not in included
    )
    runtime = federate(agreed, training, clients=CLIENTS, servers=2, faults=faults)
    runtime.run_round(training)
    for node in runtime.nodes:
        for result in (node.replica.result_of(key, 1) for key in node.replica.versions):
            assert result is None or result.included == frozenset(included)
    moved: Doubles = initial_model(N, 9).astype(np.float64) - runtime.nodes[0].model
    return moved


@pytest.mark.parametrize("size", [3, 4])
def test_which_estimate_is_biased_under_sampling(size: int) -> None:
    start = initial_model(N, 9).astype(np.float64)
    updates = np.stack([SyntheticTraining(N, 9)(k, start.astype(np.float32), 1)[0]
                        for k in range(CLIENTS)]).astype(np.float64)  # fmt: skip
    wanted = SHARES @ updates
    sets = list(combinations(range(CLIENTS), size))
    mean: dict[str, Doubles] = {}
    for estimate in ("renormalised", "unbiased"):
        steps = np.stack([step_with(chosen, estimate) for chosen in sets])
        mean[estimate] = steps.mean(axis=0)
    # Averaged over all equally likely sets, one is the full mean and the other is not.
    assert np.abs(mean["unbiased"] - wanted).max() < 1e-5
    assert np.abs(mean["renormalised"] - wanted).max() > 1e-2
    # The renormalised one is what it should be in each single set: FedAvg's over those present.
    chosen = np.array(sets[0])
    over_those = (WEIGHTS[chosen] / WEIGHTS[chosen].sum()) @ updates[chosen]
    assert np.abs(step_with(sets[0], "renormalised") - over_those).max() < 1e-5


def test_both_estimates_are_the_full_mean_when_all_are_there() -> None:
    everyone = tuple(range(CLIENTS))
    assert np.allclose(step_with(everyone, "unbiased"), step_with(everyone, "renormalised"),
                       atol=1e-6)  # fmt: skip


def test_equal_weights_make_both_unbiased() -> None:
    # Σ over sets of (1/|I|) Σ_I g_k is the mean of all g_k: only unequal weights tell them apart.
    updates = np.random.default_rng(0).standard_normal((CLIENTS, N))
    sets = [np.array(chosen) for chosen in combinations(range(CLIENTS), 3)]
    renormalised = np.mean([updates[chosen].mean(axis=0) for chosen in sets], axis=0)
    assert np.allclose(renormalised, updates.mean(axis=0))


def test_any_rule_takes_the_estimate() -> None:
    training = SyntheticTraining(N, 3)
    agreed = Settings(n=N, plan=RandomPlan(3), rule=FedAdam(0.05), scheme=Independent(RandP(0.3)))
    runtime = federate(agreed, training, clients=CLIENTS)
    for _ in range(5):
        runtime.run_round(training)
    assert np.isfinite(runtime.nodes[0].model).all()
    assert {node.replica.digest((0, 0)) for node in runtime.nodes} == {
        runtime.nodes[0].replica.digest((0, 0))
    }
