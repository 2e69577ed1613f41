"""Rotated masks in groups: what is published of which crowd, and the same bits on every way."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eris.core.compress import RandK, RandP
from eris.core.errors import InvalidSetting, MalformedMessage
from eris.core.masks import fraction_kept
from eris.core.rotation import Rotation
from eris.core.rules import FedAvg, FedAvgM, ServerRule
from eris.core.shards import RandomPlan
from eris.core.streams import Stream
from eris.methods.eris import ERIS
from eris.methods.privacy import LocalPrivacy
from eris.protocol.agreement import Agreement
from eris.protocol.messages import Contribution, Result
from eris.protocol.schemes import Grouped, Rotated
from eris.protocol.schemes.grouped import GroupedCoding
from eris.protocol.settings import Settings
from eris.runtimes.events import EventEngine
from eris.runtimes.faults import FaultPlan
from eris.runtimes.station import Stations
from eris.testing import SyntheticTraining, agree, assert_same_bits, initial_model, on_the_clock
from support.engines import in_step

N, CLIENTS, GROUPS, KEPT, ROUNDS = 700, 11, 2, 0.125, 4
PLACES = 768


def agreement(
    shards: int = 3, rule: ServerRule | None = None, limit: float | None = None, **more: Any
) -> Agreement:
    scheme = Grouped(RandP(KEPT), limit=limit, groups=GROUPS)
    plan = RandomPlan(shards)
    settings = Settings(n=N, plan=plan, scheme=scheme, rule=rule or FedAvg(0.1), seed=5, **more)
    return agree(settings, clients=CLIENTS)


def coding(agreed: Agreement) -> GroupedCoding:
    assert isinstance(agreed.coding, GroupedCoding)
    return agreed.coding


def test_kept_sets_are_disjoint_and_together_those_of_the_whole_share() -> None:
    stream = Stream(1, "mask", 4)
    bits = [fraction_kept(5000, 0.06, stream, group).bits for group in range(4)]
    whole = fraction_kept(5000, 0.24, stream).bits
    assert (bits[0] | bits[1] | bits[2] | bits[3]).tolist() == whole.tolist()
    for one in range(4):
        assert bits[one].any()
        assert not any((bits[one] & bits[other]).any() for other in range(one))


def test_groups_are_dealt_in_turn_in_the_order_of_their_words_and_last_for_an_epoch() -> None:
    agreed = agreement()
    groups = coding(agreed).groups(1)
    words = Stream(5, "mask-groups", agreed.view.epoch).words(0, CLIENTS)
    order = sorted(range(CLIENTS), key=lambda client: (words[client], client))
    assert groups == {client: turn % GROUPS for turn, client in enumerate(order)}
    assert coding(agreed).groups(7) == groups
    other = agreed.in_view(agreed.view.in_epoch(3, agreed.view.clients, agreed.view.owners))
    assert coding(other).groups(1) != groups


def by_hand(rule: FedAvg | FedAvgM, limit: float) -> NDArray[np.float32]:
    """The training, written down in one loop and in double precision."""
    beta = rule.momentum if isinstance(rule, FedAvgM) else 0.0
    turn, groups, share = Rotation(N, 5), coding(agreement()).groups(1), round(KEPT * 2**32)
    y = turn.forward(initial_model(N)).astype(np.float64)
    velocity, training = np.zeros_like(y), SyntheticTraining(N)
    room = math.sqrt((1 - beta**2) / (GROUPS * KEPT * PLACES))
    largest = limit * room / rule.learning_rate if limit else math.inf
    for at in range(1, ROUNDS + 1):
        x = turn.back(y.astype(np.float32))
        made = [training(member, x, at) for member in range(CLIENTS)]
        total = sum(samples for _, samples, _ in made)
        words, direction = Stream(5, "mask", at).words(0, PLACES).astype(np.int64), np.zeros(PLACES)
        for member, (update, samples, _) in enumerate(made):
            low = groups[member] * share
            kept = (low <= words) & (words < low + share)
            direction += np.where(kept, turn.forward(update) * (samples / total / KEPT), 0.0)
        velocity = beta * velocity + np.clip(direction, -largest, largest)
        y = y - rule.learning_rate * velocity
    return turn.back(y.astype(np.float32))


@pytest.mark.parametrize(("rule", "limit"), [(FedAvg(0.1), None), (FedAvgM(0.05), 0.2)])
def test_it_is_what_is_written_down(rule: FedAvg | FedAvgM, limit: float | None) -> None:
    engine = in_step(agreement(rule=rule, limit=limit), SyntheticTraining(N))
    for at in range(1, ROUNDS + 1):
        engine.run_round(at)
    assert np.allclose(engine.models()[0], by_hand(rule, limit or 0.0), atol=1e-5)


def test_shards_segments_and_engines_change_no_bit() -> None:
    runs: list[Stations | EventEngine] = [
        in_step(agreement(1), SyntheticTraining(N)),
        in_step(agreement(5, segment_size=40), SyntheticTraining(N), stations=3),
        on_the_clock(agreement(4), SyntheticTraining(N)),
    ]
    for at in range(1, ROUNDS + 1):
        reports = [engine.run_round(at) for engine in runs]
        assert [report.included for report in reports] == [1, 1, 1]
        first, *others = (engine.models()[0] for engine in runs)
        for other in others:
            assert_same_bits(other, first)
    sent = [r.data for report in reports[:1] for r in report.records]
    assert min(map(len, sent)) * GROUPS < max(map(len, sent)), "a result has all groups' places"


def test_no_group_of_too_few_is_published_whatever_fails() -> None:
    agreed = agreement(min_included=4, quorum=4)
    faults = FaultPlan(seed=2, churn=0.25, link=0.1, straggle=0.1)
    engine = in_step(agreed, SyntheticTraining(N), faults=faults)
    groups, seen = coding(agreed).groups(1), dict[int, int]()
    for at in range(1, 25):
        for record in engine.run_round(at).records:
            if isinstance(result := record.message, Result) and len(record.receivers) > 1:
                crowds = [{k for k in result.included if groups[k] == g} for g in range(GROUPS)]
                assert all(len(crowd) == 0 or len(crowd) >= 4 for crowd in crowds)
                assert (result.payload is None) == (not any(crowds))
                many = sum(map(bool, crowds))
                seen[many] = seen.get(many, 0) + 1
    assert seen[1] > 3, "a group was left out"
    assert seen[2] > 3


def test_an_estimate_has_no_bias_and_the_variance_that_is_written_down() -> None:
    agreed, draws = agreement(1), 3000
    groups = coding(agreed).groups(1)
    values = np.stack([Stream(1, "v", 0, k).normal(0, PLACES) for k in range(CLIENTS)])
    crowds = [values[[k for k in groups if groups[k] == g]].mean(0) for g in range(GROUPS)]
    weights = np.array([sum(groups[k] == g for k in groups) for g in range(GROUPS)]) / CLIENTS
    mean = sum(w * crowd for w, crowd in zip(weights, crowds, strict=True))
    total, square = np.zeros(PLACES), 0.0
    for at in range(1, draws + 1):
        found = np.zeros(PLACES)
        for g in range(GROUPS):
            client = next(k for k in groups if groups[k] == g)
            places = coding(agreed).kept(at, client).among(np.arange(PLACES))
            found[places] = weights[g] * crowds[g][places] / KEPT
        total += found
        square += float(np.square(found - mean).sum())
    parts = zip(weights, crowds, strict=True)
    expected = sum(float((w * w * crowd**2).sum()) for w, crowd in parts) / KEPT
    expected -= float(np.square(mean).sum())
    assert square / draws == pytest.approx(expected, rel=0.03)
    assert np.linalg.norm(total / draws - mean) < 5 * math.sqrt(expected / draws)


def test_a_reader_of_results_knows_each_groups_mean() -> None:
    agreed, training = agreement(), SyntheticTraining(N)
    records = in_step(agreed, training).run_round(1).records
    results = [r.message for r in records if isinstance(r.message, Result)]
    sums, weights = agreed.coding.reader().sums(1, results)
    groups, known = coding(agreed).groups(1), 0
    for group in range(GROUPS):
        crowd = [client for client in groups if groups[client] == group]
        places = coding(agreed).kept(1, crowd[0]).among(np.arange(PLACES))
        known += len(places)
        assert set(weights[places]) == {sum(training.samples(client) for client in crowd)}
        told = sum(
            training.samples(k) * agreed.coding.enter(training.given[k, 1])[places] for k in crowd
        )
        assert np.allclose(sums[places], told, atol=1e-3)
    assert np.count_nonzero(weights) == known > 150


def test_a_result_that_names_who_is_no_client_is_refused() -> None:
    agreed = agreement()
    records = in_step(agreed, SyntheticTraining(N)).run_round(1).records
    result = next(r.message for r in records if isinstance(r.message, Result))
    forged = replace(result, included=frozenset({*result.included, CLIENTS + 3}))
    segment = agreed.segments(1)[result.header.key]
    with pytest.raises(MalformedMessage, match="14 is no client of round 1"):
        agreed.coding.published(forged, segment)
    foreign = next(r.message for r in records if isinstance(r.message, Contribution))
    groups = coding(agreed).groups(1)
    me = foreign.header.sender
    other = next(client for client in groups if groups[client] != groups[me])
    moved = replace(foreign, header=replace(foreign.header, sender=other))
    with pytest.raises(MalformedMessage, match="values"):
        agreed.coding.read(moved, agreed.segments(1)[foreign.header.key])


def composed(method: ERIS) -> Agreement:
    parts = method.compose([str(client) for client in range(CLIENTS)], [1] * CLIENTS)
    return Agreement(Settings(n=N, plan=parts.plan, scheme=parts.scheme), parts.view)


@pytest.mark.parametrize(
    ("method", "says"),
    [
        (ERIS(kept_fraction=0.01, mask_groups=3), "mask_groups is 3; expected at most 2 with 11"),
        (ERIS(kept_fraction=0.01, mask_groups=0), "mask_groups is 0; expected 1 or more"),
        (ERIS(kept_fraction=0.6, basis="rotated", mask_groups=2), "mask_groups is 2; .* at most 1"),
        (ERIS(kept_fraction=0.1, mask_groups=2), "mask_groups is 2; expected 1, or masks in a rot"),
        (ERIS(mask_groups=2), "mask_groups is 2; expected none: it is of masks"),
        (
            ERIS(kept_fraction=0.1, masks="independent", mask_groups=2),
            "mask_groups is 2; expected none: it is of masks that clients share",
        ),
        (
            ERIS(compressor=RandK(9), basis="rotated", mask_groups=2),
            "compressor is 'rand-k'; expected rand-p with mask_groups = 2",
        ),
        (
            ERIS(kept_fraction=0.01, mask_groups=2, privacy=LocalPrivacy(epsilon=5)),
            "mask_groups is 2; expected 1 beside epsilon",
        ),
    ],
)
def test_what_groups_do_not_go_with_is_named(method: ERIS, says: str) -> None:
    with pytest.raises(InvalidSetting, match=says):
        composed(method)


def test_groups_are_agreed_on() -> None:
    sparse = composed(ERIS(kept_fraction=0.006, mask_groups=2)).settings
    assert sparse.scheme == Grouped(RandP(0.006), groups=2)
    settings = agreement().settings
    assert Settings.from_canonical(settings.canonical) == settings
    assert settings.fingerprint != replace(settings, scheme=Rotated(RandP(KEPT))).fingerprint
