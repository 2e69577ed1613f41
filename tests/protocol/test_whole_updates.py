"""An update before it is sent: what a client refuses, whole and by name, and what an owner refuses
of one that did not look."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eris.core.combine import MOST_SAMPLES, FixedPoint
from eris.core.compress import (
    QSGD,
    Compressor,
    Natural,
    Quantiser,
    RandK,
    RandP,
    UniformQuantiser,
)
from eris.core.errors import InvalidSetting
from eris.core.prune import Prune
from eris.core.rules import FedAvg, FedNova
from eris.protocol.codec import MOST_SAMPLE_STEPS
from eris.protocol.messages import Refusal
from eris.protocol.round.roles import Node
from eris.protocol.schemes import Masked, Pruned, scheme_for
from eris.testing import assert_same_bits
from support.machines import (
    TRAINING,
    N,
    begin,
    contribute,
    contributions,
    deliver,
    federation,
    only_answer,
    result_at,
    to_owner,
)

COMPRESSORS: list[Compressor | None] = [
    None, RandP(0.9), RandK(20), QSGD(8), UniformQuantiser(6), Natural(),
]  # fmt: skip


def with_a_bad_update(compressor: Compressor | None, bad: float, *, liar: bool) -> list[Node]:
    """The nodes after a round in which client 3 has a bad value, at the place where all are kept.

    A ``liar`` sends it without having looked. The others' model must be what it is without it.
    """
    scheme = scheme_for(compressor)
    nodes, without = federation(scheme=scheme), federation(scheme=scheme)
    for group in (nodes, without):
        begin(group, 1)
    for member in range(3):
        deliver(nodes, member, contributions(nodes[member], 1))
        deliver(without, member, contributions(without[member], 1))
    update, samples, steps = TRAINING(3, nodes[3].model, 1)
    update[:] = np.float32(bad)
    if liar:
        nodes[3].client.sender.examine = lambda *_: None  # type: ignore[method-assign]
    deliver(nodes, 3, contribute(nodes[3], update, samples, steps))
    for group in (nodes, without):
        for node in group:
            deliver(group, node.me, node.close(11.0))
    for node, other in zip(nodes, without, strict=True):
        assert_same_bits(node.model, other.model)
    assert result_at(nodes[0]) == result_at(without[0])
    assert not any(node.refused for node in nodes[:3])
    for note in nodes[3].refused:
        assert "contribution of client client-3" in note
        assert "are not finite or beyond ±64" in note
    return nodes


BAD = [math.nan, math.inf, -math.inf, 65.0]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)
def test_a_bad_update_is_named_and_leaves_the_others_mean_alone(
    compressor: Compressor | None, bad: float
) -> None:
    nodes = with_a_bad_update(compressor, bad, liar=False)
    assert len(nodes[3].refused) == 1, "whole, before anything of it left"
    assert nodes[3].refused[0].startswith("round 1: ")
    assert nodes[3].client.unanswered == []


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("compressor", COMPRESSORS[:3], ids=repr)
def test_a_bad_update_of_a_liar_is_refused_by_the_owners(
    compressor: Compressor | None, bad: float
) -> None:
    nodes = with_a_bad_update(compressor, bad, liar=True)
    assert len(nodes[3].refused) == 2, "one for each segment"


QUANTISERS: list[tuple[Quantiser, str]] = [
    # What 40 may become: a neighbouring power of two, the norm of a segment of twelve.
    (Natural(), "64"),
    (QSGD(1), "138.564"),
]


@pytest.mark.parametrize(("quantiser", "reach"), QUANTISERS, ids=repr)
def test_a_value_that_quantising_may_carry_out_of_range_refuses_the_update(
    quantiser: Quantiser, reach: str
) -> None:
    nodes = federation(scheme=scheme_for(quantiser), precision=FixedPoint(50.0))
    begin(nodes, 1)
    assert contribute(nodes[3], np.full(N, 40, np.float32), 6) == []
    assert f"quantised, its values are up to {reach}, beyond ±50" in nodes[3].refused[0]


def test_what_is_not_kept_may_be_anything() -> None:
    nodes = federation(scheme=Masked(RandP(0.5)))
    begin(nodes, 1)
    kept = nodes[0].agreement.coding.kept(1, 0)
    assert kept is not None
    places = kept.among(np.arange(N))
    update = np.full(N, np.inf, np.float32)
    update[places] = 1
    assert contribute(nodes[2], update, 5)
    update[places[-1]] = np.nan
    assert contribute(nodes[3], update, 6) == []
    where = f"1 of {kept.count} values .*the first is nan at coordinate {places[-1]}"
    assert re.search(where, nodes[3].refused[0])


def test_the_difference_to_the_reference_is_what_must_be_in_range() -> None:
    nodes = federation(scheme=Masked(RandP(1.0)))
    begin(nodes, 1)
    assert nodes[2].replica.reference is not None
    nodes[2].replica.reference.restore(np.full(N, 40, np.float32))
    assert contribute(nodes[2], np.full(N, 100, np.float32), 5)
    assert contribute(nodes[2], np.full(N, -30, np.float32), 5) == []
    assert "the first is -70.0 at coordinate 0" in nodes[2].refused[0]


def test_a_refused_update_leaves_nothing_in_a_pruning_clients_model() -> None:
    nodes = federation(scheme=Pruned(Prune(rate=0.5, pseudo=True)))
    begin(nodes, 1)
    assert contribute(nodes[2], np.linspace(66, 99, N, dtype=np.float32), 5) == []
    assert_same_bits(nodes[2].client.sender.training_model(nodes[2].model), nodes[2].model)


@pytest.mark.parametrize("policy", ["clip", "zero"])
@pytest.mark.parametrize("compressor", [None, RandP(1.0), QSGD(2000)], ids=repr)
def test_other_policies_keep_the_rest_of_the_update(
    compressor: Compressor | None, policy: str
) -> None:
    nodes = federation(scheme=scheme_for(compressor), non_finite=policy, rule=FedAvg(1.0))
    start = nodes[0].model.copy()
    begin(nodes, 1)
    for node in nodes:
        update = np.full(N, 2.0, np.float32)
        if node.me == 3:
            update[5], update[6] = np.nan, np.inf
        deliver(nodes, node.me, contribute(node, update, node.agreement.view.samples[node.me]))  # type: ignore[index]
    moved = start - nodes[0].model
    assert result_at(nodes[0]).included == {0, 1, 2, 3}
    others = np.delete(np.arange(N), [5, 6])
    tolerance = 0.1 if isinstance(compressor, QSGD) else 1e-5
    assert np.allclose(moved[others], 2.0, atol=tolerance)
    assert moved[5] == pytest.approx(2 * 12 / 18, abs=tolerance)
    stands_for = 64 if policy == "clip" else 0
    assert moved[6] == pytest.approx((2 * 12 + stands_for * 6) / 18, abs=tolerance)


TOO_HEAVY = [
    (
        {"samples": MOST_SAMPLES // 4 + 1},
        f"samples of client-3 is .*; expected at most {MOST_SAMPLES // 4} of",
    ),
    (
        {"samples": 2**40, "steps": 2**22},
        "steps of client-3 is 4194304; expected at most 4194303 where each",
    ),
]


@pytest.mark.parametrize(("weight", "message"), TOO_HEAVY)
def test_a_weight_that_a_sum_may_not_hold_is_refused_whoever_came_before(
    weight: dict[str, int], message: str
) -> None:
    nodes = federation()
    begin(nodes, 1)
    heavy = replace(to_owner(nodes[3]), **weight)  # type: ignore[arg-type]
    refusal = only_answer(nodes[0].receive(heavy, 3), Refusal, 3)
    assert re.search(message, refusal.reason)
    with pytest.raises(InvalidSetting, match=message):
        contribute(nodes[3], np.ones(N, np.float32), **{"samples": 1, **weight})


def test_as_many_samples_and_steps_as_may_be_are_summed_exactly() -> None:
    nodes = federation(rule=FedNova(1.0))
    begin(nodes, 1)
    samples, steps = MOST_SAMPLES // 4, MOST_SAMPLE_STEPS // 4 // (MOST_SAMPLES // 4)
    for node in nodes:
        deliver(nodes, node.me, contribute(node, np.ones(N, np.float32), samples, steps))
    for node in nodes:
        result = result_at(node)
        assert (result.samples, result.sample_steps) == (4 * samples, 4 * samples * steps)


@pytest.mark.parametrize(
    ("update", "samples", "steps", "message"),
    [
        (np.ones(N - 1, np.float32), 1, 1, "update is 'float32 array of shape .*; expected 24"),
        (np.ones(N), 1, 1, "update is 'float64 array of shape .*; expected 24 float32"),
        (np.ones((1, N), np.float32), 1, 1, "update is 'float32 array of shape"),
        (np.ones(N, np.float32), 0, 1, "samples of client-2 is 0; expected at least 1"),
        (np.ones(N, np.float32), -2, 1, "samples of client-2 is -2; expected at least 1"),
        (np.ones(N, np.float32), 1, 0, "steps of client-2 is 0; expected at least 1 local step"),
    ],
)
def test_a_client_refuses_what_is_no_update(
    update: Any, samples: int, steps: int, message: str
) -> None:
    nodes = federation()
    begin(nodes, 1)
    with pytest.raises(InvalidSetting, match=message):
        contribute(nodes[2], update, samples, steps)
