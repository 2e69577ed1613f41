"""Masks in a rotated basis: same bits however shards are cut, no bias, no more than the limit."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import eris
from eris.core.compress import RandK, RandP
from eris.core.errors import InvalidSetting, PrivacyWarning, TrainingWarning
from eris.core.rotation import Rotation
from eris.core.rules import FedAdam, FedAvg, FedAvgM, FedNova, ServerRule
from eris.core.shards import RandomPlan
from eris.core.vectors import Vector
from eris.protocol.agreement import Agreement
from eris.protocol.messages import Payload, Result
from eris.protocol.schemes import Dense, Masked, Rotated, Scheme
from eris.protocol.settings import Settings
from eris.protocol.view import View
from eris.runtimes.faults import FaultPlan
from eris.testing import SyntheticTraining, assert_same_bits, initial_model
from eris.training.trainer import LocalUpdate
from support.plans import shuffled_arrival

N, CLIENTS, ROUNDS, SEED = 700, 6, 5, 3


class Synthetic:
    """One client of a synthetic training."""

    def __init__(self, member: int) -> None:
        self.member, self.training = member, SyntheticTraining(N, SEED)

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        assert parameters.shape == (N,)
        return LocalUpdate(*self.training(self.member, parameters, round))


def trained(
    rule: ServerRule, rounds: int = ROUNDS, faults: FaultPlan | None = None,
    record: bool = False, segment_size: int | None = None, **method: Any,
) -> eris.Fit:  # fmt: skip
    clients = [Synthetic(member) for member in range(CLIENTS)]
    federation = eris.Federation(
        clients, initial_model(N, SEED), eris.ERIS(basis="rotated", **method), rule=rule,
        seed=SEED, segment_size=segment_size,
    )  # fmt: skip
    return federation.fit(rounds, progress=False, faults=faults, record=record)


RULES = [FedAvg(0.1), FedNova(0.05), FedAvgM(0.05)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_shards_plans_segments_and_engines_change_no_bit(rule: ServerRule) -> None:
    one = trained(rule, kept_fraction=0.1, aggregators=1)
    assert one.model.shape == (N,)
    assert not np.array_equal(one.model, initial_model(N, SEED))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        for method in (
            {"aggregators": 2, "segment_size": 64},
            {"aggregators": 5, "plan": "interleaved"},
            {"aggregators": 6, "plan": "contiguous", "segment_size": 10},
            {"aggregators": 3, "capacities": (1, 2, 4)},
            {"aggregators": 4, "faults": shuffled_arrival(1)},
        ):
            assert_same_bits(trained(rule, kept_fraction=0.1, **method).model, one.model)


def rotated_by_hand(rule: FedAvg | FedAvgM, kept: float, limit: float) -> Vector:
    """The same training, written down in one loop and in double precision."""
    beta = rule.momentum if isinstance(rule, FedAvgM) else 0.0
    turn, rate = Rotation(N, SEED), rule.learning_rate
    y = turn.forward(initial_model(N, SEED)).astype(np.float64)
    velocity, size = np.zeros_like(y), len(y)
    largest = limit * math.sqrt((1 - beta**2) / (kept * size)) / rate if limit else math.inf
    training = SyntheticTraining(N, SEED)
    for round in range(1, ROUNDS + 1):
        x = turn.back(y.astype(np.float32))
        made = [training(member, x, round) for member in range(CLIENTS)]
        total = sum(samples for _, samples, _ in made)
        mean = sum(turn.forward(g).astype(np.float64) * samples / total for g, samples, _ in made)
        words = eris.core.streams.Stream(SEED, "mask", round).words(0, size)
        direction = np.where(words < round_share(kept), mean / kept, 0.0)
        velocity = beta * velocity + np.clip(direction, -largest, largest)
        y = y - rate * velocity
    return turn.back(y.astype(np.float32))


def round_share(kept: float) -> int:
    return round(kept * 2**32)


@pytest.mark.parametrize("limit", [0.0, 0.05, 5.0])
def test_it_is_what_is_written_down(limit: float) -> None:
    rule = FedAvgM(0.05)
    found = trained(rule, kept_fraction=0.125, limit=limit).model
    assert np.allclose(found, rotated_by_hand(rule, 0.125, limit), atol=1e-5)
    if not limit:
        plain = trained(FedAvg(0.1), kept_fraction=0.125).model
        assert np.allclose(plain, rotated_by_hand(FedAvg(0.1), 0.125, 0.0), atol=1e-5)


def test_dense_training_is_the_same_in_either_basis() -> None:
    rotated = trained(FedAvgM(0.05), 20, kept_fraction=1.0, limit=0.0).model
    clients = [Synthetic(member) for member in range(CLIENTS)]
    plain = eris.Federation(clients, initial_model(N, SEED), rule=FedAvgM(0.05), seed=SEED)
    expected = plain.fit(20, progress=False).model
    assert np.linalg.norm(rotated - expected) <= 5e-5 * np.linalg.norm(expected)


# -- one result -----------------------------------------------------------------------------------


def agreement(scheme: Scheme, rule: ServerRule | None = None, n: int = 500) -> Agreement:
    settings = Settings(
        n=n, plan=RandomPlan(1), rule=rule or FedAvg(0.1), scheme=scheme, seed=SEED,
        segment_size=1 << 15,
    )  # fmt: skip
    return Agreement(
        settings, View.serverless(["anna", "ben", "cleo"], aggregators=1, samples=(1, 1, 1))
    )


def direction(agreed: Agreement, mean: Vector, round: int) -> Vector:
    """What the rule is given of a mean."""
    coding, (segment,) = agreed.coding, agreed.segments(round).values()
    payload: Payload = coding.publish(coding.gather(round, 0, mean), round)
    header = agreed.header(0, round, segment.key)
    result = Result(header, round - 1, frozenset({0, 1, 2}), 3, 3, payload)
    found, reference = coding.move(result, segment, None)
    assert reference is None
    whole = np.empty_like(mean)
    segment.scatter(whole, found)
    return whole


def test_over_masks_the_direction_is_the_mean() -> None:
    agreed = agreement(Rotated(RandP(0.1)))
    gradient = initial_model(500, 9)
    y, total, rounds = agreed.coding.enter(gradient), np.zeros(512), 3000
    for number in range(1, rounds + 1):
        total += direction(agreed, y, number)
    # ω/rounds is the variance of a unit entry; all 512 together are well within four deviations.
    error = np.linalg.norm(total / rounds - y) / np.linalg.norm(y)
    assert error < 1.25 * math.sqrt(9 / rounds)
    assert np.allclose(agreed.coding.leave(y), gradient, atol=1e-6)


@pytest.mark.parametrize("scheme", [Rotated(RandP(0.1), limit=0.2), Rotated(RandK(40), limit=0.2),
                                    Masked(RandP(0.1), shift=False, limit=0.2)])  # fmt: skip
def test_no_entry_is_beyond_the_limit(scheme: Masked) -> None:
    rule = FedAvgM(0.01, momentum=0.9)
    agreed = agreement(scheme, rule)
    places = agreed.settings.places
    share = 40 / places if isinstance(scheme.compressor, RandK) else 0.1
    largest = 0.2 * math.sqrt((1 - 0.81) / (share * places)) / 0.01
    free = agreement(type(scheme)(scheme.compressor, shift=False, limit=0.0), rule)
    assert scheme.largest_entry(agreed.settings) == pytest.approx(largest, rel=1e-8)
    cut = 0
    for number in range(1, 20):
        mean = initial_model(places, number)
        found, unbounded = direction(agreed, mean, number), direction(free, mean, number)
        assert np.abs(found).max() <= np.float32(largest)
        assert_same_bits(found, np.clip(unbounded, -np.float32(largest), np.float32(largest)))
        cut += int((found != unbounded).sum())
    assert cut


def test_with_all_at_the_limit_steps_have_about_its_length() -> None:
    agreed = agreement(Rotated(RandP(0.002), limit=0.3), FedAvgM(0.01), n=20_000)
    velocity, huge = np.zeros(agreed.settings.places), np.full(agreed.settings.places, 60, "f4")
    lengths = []
    for number in range(1, 80):
        velocity = 0.9 * velocity + direction(agreed, huge, number)
        lengths.append(0.01 * float(np.linalg.norm(velocity)))
    assert np.mean(lengths[40:]) == pytest.approx(0.3, rel=0.15)


def test_nothing_is_published_of_fewer_than_agreed_whatever_fails() -> None:
    faults = FaultPlan(churn=0.4, link=0.2, straggle=0.2, seed=5)
    done = trained(FedAvgM(0.05), 12, faults, record=True, kept_fraction=0.02, aggregators=3)
    assert done.transcript is not None
    results = [m for r in done.transcript.records if isinstance(m := r.message, Result)]
    published = {(*result.header.key, result.header.round) for result in results}
    assert 0 < len(published) < 12 * 3
    assert all(len(result.included) >= 3 for result in results)


# -- settings -------------------------------------------------------------------------------------


def test_the_usual_limit_comes_from_the_model_to_start_from() -> None:
    initial = np.full(10_000, 0.1, np.float32)
    scheme = Rotated(RandP(0.006))
    assert scheme.fitted(FedAvg(0.1), initial) is scheme
    assert scheme.fitted(FedAvgM(0.1), initial) == Rotated(RandP(0.006), limit=0.34)
    assert Dense().fitted(FedAvgM(0.1), initial) == Dense()
    agreed = agreement(Rotated(RandP(0.006), limit=0.34), FedAvgM(0.1)).settings
    assert Settings.from_canonical(agreed.canonical) == agreed


@pytest.mark.parametrize(
    ("scheme", "rule", "says"),
    [
        (Rotated(RandP(0.01)), FedAvgM(), "limit is None; expected a number, such as 0.034 times"),
        (Rotated(RandP(0.01), limit=0.3), FedAvg(), "limit is 0.3; expected none: .* fedavgm, "),
        (Rotated(RandP(0.01), limit=-1), FedAvgM(), "limit is -1; expected a finite number"),
        (Rotated(RandP(0.01), limit=math.inf), FedAvgM(), "limit is inf; expected a finite"),
        (Rotated(RandP(0.01), shift=True), FedAvg(), "shift is True; expected False"),
        (Masked(RandP(0.01), limit=0.3), FedAvgM(), "limit is 0.3; expected none where diff"),
        (Rotated(RandK(513)), FedAvg(), "kept_count is 513; expected at most n = 512"),
    ],
)
def test_what_does_not_go_together_is_named(scheme: Scheme, rule: ServerRule, says: str) -> None:
    with pytest.raises(InvalidSetting, match=says):
        agreement(scheme, rule)


def test_rules_that_scale_single_places_are_said_to_be_others() -> None:
    with pytest.warns(TrainingWarning, match="in a rotated basis fedadam is another algorithm"):
        trained(FedAdam(0.01), 1, kept_fraction=0.02)
