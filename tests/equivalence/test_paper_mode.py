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
from eris.runtimes.faults import FaultPlan
from eris.runtimes.station import Stations
from eris.testing import SyntheticTraining, agree, initial_model, on_the_clock
from support.engines import clients, in_step, replicas
from support.oracle import check_messages, check_values
from support.plans import ChosenFaults

Vector = NDArray[np.float32]
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


def references(engine: Stations) -> tuple[Vector, Doubles]:
    """The common reference, and the mean of the clients' own."""
    total = np.zeros(N)
    for client, machine in clients(engine).items():
        total += SHARES[client] * machine.sender.state()["reference"]
    common = replicas(engine)[0].reference
    assert common is not None
    return common.whole(), total


# -- the invariant --------------------------------------------------------------------------------


@pytest.mark.parametrize("rotate", [0, 2])
@pytest.mark.parametrize("compressor", [RandP(0.3), RandK(20)], ids=repr)
def test_the_common_reference_is_the_mean_of_the_clients_own(
    compressor: MaskCompressor, rotate: int
) -> None:
    training = SyntheticTraining(N, 1)
    engine = in_step(agree(paper(training, compressor, rotate=rotate), clients=CLIENTS), training)
    for round in range(1, 31):
        engine.run_round(round)
        common, mean = references(engine)
        assert np.allclose(common, mean, atol=1e-5)
    assert np.abs(common).max() > 0.1


@pytest.mark.parametrize("estimate", ["renormalised", "unbiased"])
def test_faults_do_not_break_the_invariant(estimate: Estimate) -> None:
    assert sum(partly_included(seed, estimate) for seed in range(12)) > 100


def partly_included(seed: int, estimate: Estimate) -> int:
    """Runs a federation under faults; returns how many results some client was missing in."""
    training = SyntheticTraining(N, seed)
    agreement = agree(
        paper(training, RandP(0.3), rotate=seed % 3, estimate=estimate), clients=CLIENTS
    )
    faults = FaultPlan(seed=seed, link=0.2, dropout=0.2, churn=0.2, straggle=0.2)
    engine = in_step(agreement, training, faults=faults)
    records = []
    for round in range(1, 9):
        records += engine.run_round(round).records
        common, mean = references(engine)
        assert np.allclose(common, mean, atol=1e-4)
    results = check_messages(agreement, records)
    check_values(agreement, initial_model(N, seed), results, training.given)
    return sum(0 < len(result.included) < CLIENTS for result in results)


def test_a_client_advances_only_where_it_was_included() -> None:
    training = SyntheticTraining(N, 2)
    agreed = paper(training, RandP(0.3))
    # What client 5 sends to the owner of shard 0 is lost; its other shards arrive.
    faults = ChosenFaults(lost_links=lambda sender, receiver, round: (sender, receiver) == (5, 0))
    engine = in_step(agree(agreed, clients=CLIENTS), training, faults=faults)
    engine.run_round(1)
    shard_map, machine = agreed.plan.at(N, agreed.seed), clients(engine)[5]
    own = machine.sender.state()["reference"]
    assert not own[shard_map.coordinates(0)].any()
    assert own[shard_map.coordinates(1)].any()
    assert own[shard_map.coordinates(2)].any()
    assert {key[0] for _, key in machine.left_out} == {0}


def test_a_weight_other_than_the_agreed_one_is_refused() -> None:
    # s = Σ w_k s_k holds for the weights in the view and for no others.
    training = SyntheticTraining(N, 2)
    machine = clients(in_step(agree(paper(training, RandP(0.3)), clients=CLIENTS), training))[1]
    update, samples, steps = training(1, initial_model(N, 2), 1)
    machine.begin(1)
    with pytest.raises(InvalidSetting, match="samples of client-1 is 5; expected 4, as agreed"):
        machine.contribute(update, samples + 1, steps)


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
    engine = on_the_clock(agree(agreed, clients=CLIENTS), training)
    for round in range(1, 51):
        engine.run_round(round)
        if round % 10 == 0:
            x, s, _ = papers_iteration(compressor, round)
            for replica in replicas(engine):
                assert replica.reference is not None
                assert np.abs(replica.model - x).max() < 1e-5
                assert np.abs(replica.reference.whole() - s).max() < 1e-5


def test_independent_masks_differ_and_a_result_then_shows_single_clients() -> None:
    # Why shared masks are the default: with masks of their own, most kept coordinates have one
    # contributor, whose value the published mean then is.
    training = SyntheticTraining(400, 7)
    agreement = agree(paper(training, RandP(0.05)), clients=CLIENTS)
    counts = np.zeros(400, int)
    for client in range(CLIENTS):
        kept = agreement.coding.kept(1, client)
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
    agreement = agree(agreed, clients=CLIENTS, servers=2)
    engine = in_step(agreement, training, faults=faults)
    results = check_messages(agreement, engine.run_round(1).records)
    assert {result.included for result in results} == {frozenset(included)}
    moved: Doubles = initial_model(N, 9).astype(np.float64) - engine.models()[0]
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
    engine = in_step(agree(agreed, clients=CLIENTS), training, stations=2)
    for round in range(1, 6):
        engine.run_round(round)
    assert np.isfinite(engine.models()[0]).all()
    assert len({replica.digest((0, 0)) for replica in replicas(engine)}) == 1
