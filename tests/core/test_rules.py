"""Laws of server rules: each is its paper's pseudocode and rounds alike wherever it is cut."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from eris.core.combine import ExactMean, FixedPoint, OrderStatistic
from eris.core.errors import InvalidSetting
from eris.core.rules import (
    NOT_DECOMPOSABLE,
    RULES,
    CoordinateMedian,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedNova,
    FedYogi,
    ServerRule,
    Slots,
    TrimmedMean,
    server_rule,
)
from eris.testing import assert_same_bits

Vector = NDArray[np.float32]
SIZE, STEPS = 60, 12

law = settings(max_examples=120, deadline=None, derandomize=True)
RULES_TO_TEST: list[ServerRule] = [
    FedAvg(0.1),
    FedAvgM(0.1, momentum=0.8),
    FedAdam(0.1),
    FedAdam(0.1, beta1=0.8, beta2=0.95, tau=1e-2, bias_correction=True),
    FedYogi(0.1),
    FedYogi(0.1, bias_correction=True),
    FedAdagrad(0.1),
    FedAdagrad(0.1, beta1=0.5),
    FedNova(0.1),
    CoordinateMedian(0.1),
    TrimmedMean(0.1, trim=0.25),
]
labels = [repr(rule) for rule in RULES_TO_TEST]


def draws(size: int = SIZE, seed: int = 0) -> Iterator[Vector]:
    generator = np.random.default_rng(seed)
    while True:
        yield generator.standard_normal(size).astype(np.float32)


def start(rule: ServerRule, size: int) -> Slots:
    return tuple(np.full(size, value, np.float32) for value in rule.initial)


# -- pseudocode, one coordinate at a time, in double precision ------------------------------------


@dataclass
class Coordinate:
    """One coordinate of a model and of its server's memory."""

    x: float
    m: float = 0.0
    u: float = 0.0


def descend(rule: FedAvg | FedNova | FedAvgM, c: Coordinate, v: float, steps: float) -> None:
    match rule:
        case FedNova():
            c.x -= rule.learning_rate * steps * v
        case FedAvgM():
            c.m = rule.momentum * c.m + v
            c.x -= rule.learning_rate * c.m
        case _:
            c.x -= rule.learning_rate * v


def adapt(rule: FedAdam | FedYogi | FedAdagrad, c: Coordinate, v: float, t: int) -> None:
    """Reddi et al., algorithm 2, and Kingma and Ba's correction if it is asked for."""
    c.m = rule.beta1 * c.m + (1 - rule.beta1) * v
    if t == 1:
        c.u = 0.0 if rule.bias_correction else rule.tau**2
    match rule:
        case FedAdam():
            c.u = rule.beta2 * c.u + (1 - rule.beta2) * v * v
        case FedYogi():
            c.u -= (1 - rule.beta2) * v * v * math.copysign(1, c.u - v * v)
        case FedAdagrad():
            c.u += v * v
    m, u = c.m, c.u
    if rule.bias_correction:
        m, u = m / (1 - rule.beta1**t), u / (1 - rule.beta2**t)
    c.x -= rule.learning_rate * m / (math.sqrt(u) + rule.tau)


@pytest.mark.parametrize("rule", RULES_TO_TEST, ids=labels)
def test_a_rule_is_its_pseudocode(rule: ServerRule) -> None:
    stream = draws()
    x = next(stream)
    slots = start(rule, SIZE)
    slow = [Coordinate(float(value)) for value in x]
    for t in range(1, STEPS + 1):
        v, steps = next(stream), 1 + t % 4 + 0.25
        x, slots = rule.step(x, v, slots, t, steps)
        for c, value in zip(slow, v.tolist(), strict=True):
            if isinstance(rule, FedAdam | FedYogi | FedAdagrad):
                adapt(rule, c, value, t)
            elif isinstance(rule, FedNova | FedAvgM):
                descend(rule, c, value, steps)
            else:
                descend(FedAvg(0.1), c, value, steps)
        assert np.allclose(x, [c.x for c in slow], rtol=1e-4, atol=1e-4)
        for slot, expected in zip(slots, ([c.m for c in slow], [c.u for c in slow]), strict=False):
            assert np.allclose(slot, expected, rtol=1e-4, atol=1e-5)


# -- where a piece begins -------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES_TO_TEST, ids=labels)
@law
@given(cuts=st.lists(st.integers(0, SIZE), max_size=6), seed=st.integers(0, 99))
def test_a_rule_rounds_alike_wherever_it_is_cut(
    rule: ServerRule, cuts: list[int], seed: int
) -> None:
    edges = [0, *sorted(cuts), SIZE]
    stream = draws(seed=seed)
    whole = next(stream)
    slots = start(rule, SIZE)
    pieces = [(whole[a:b], tuple(s[a:b] for s in slots)) for a, b in pairwise(edges)]
    for t in range(1, 4):
        v = next(stream)
        whole, slots = rule.step(whole, v, slots, t, 2.5)
        pieces = [
            rule.step(x, v[a:b], part, t, 2.5)
            for (x, part), (a, b) in zip(pieces, pairwise(edges), strict=True)
        ]
    assert_same_bits(np.concatenate([x for x, _ in pieces]), whole, "model")
    for i, slot in enumerate(slots):
        assert_same_bits(np.concatenate([part[i] for _, part in pieces]), slot, f"slot {i}")


@pytest.mark.parametrize("rule", RULES_TO_TEST, ids=labels)
def test_a_rule_is_pure_and_stays_float32(rule: ServerRule) -> None:
    stream = draws()
    x, v = next(stream), next(stream)
    slots = start(rule, SIZE)
    before = [x.copy(), v.copy(), *(s.copy() for s in slots)]
    first = rule.step(x, v, slots, 1, 2.0)
    again = rule.step(x, v, slots, 1, 2.0)
    for one, other in zip((x, v, *slots), before, strict=True):
        assert_same_bits(one, other, "an argument")
    for one, other in zip((first[0], *first[1]), (again[0], *again[1]), strict=True):
        assert_same_bits(one, other)
    assert len(first[1]) == len(rule.initial)


# -- single facts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [FedAdam, FedYogi])
def test_bias_correction_makes_the_first_step_a_sign_step(
    kind: type[FedAdam] | type[FedYogi],
) -> None:
    rule = kind(0.1, tau=1e-8, bias_correction=True)
    x, v = np.zeros(3, np.float32), np.array([5, -0.01, 300], np.float32)
    moved, _ = rule.step(x, v, start(rule, 3), 1, 1.0)
    assert np.allclose(moved, [-0.1, 0.1, -0.1], rtol=1e-4)
    # t counts the results a segment has had: the same slots in a later step are corrected less.
    later, _ = rule.step(x, v, start(rule, 3), 50, 1.0)
    assert np.abs(later).max() < np.abs(moved).min()
    assert rule.counts_updates
    assert not kind(0.1).counts_updates


def test_the_power_in_the_correction_is_the_power() -> None:
    rule = FedAdam(1.0, beta1=0.9, beta2=0.999, tau=1e-8, bias_correction=True)
    for t in (1, 2, 3, 10, 1000):
        v = np.ones(1, np.float32)
        moved, (m, u) = rule.step(np.zeros(1, np.float32), v, start(rule, 1), t, 1.0)
        expected = -(float(m[0]) / (1 - 0.9**t)) / math.sqrt(float(u[0]) / (1 - 0.999**t))
        assert float(moved[0]) == pytest.approx(expected, rel=1e-5)


def test_fednova_takes_the_same_step_whoever_works_more() -> None:
    # Wang et al., equation 10: x ← x − λ (Σ p_k τ_k) Σ p_k g_k/τ_k.
    updates = np.random.default_rng(3).standard_normal((3, 20))
    samples, steps = np.array([5, 1, 2]), np.array([1, 7, 3])
    share = samples / samples.sum()
    tau = float(share @ steps)
    expected = -0.1 * tau * (share / steps) @ updates
    rule = FedNova(0.1)
    collector = rule.collector(20, FixedPoint(), "refuse")
    for k in range(3):
        sent = updates[k].astype(np.float32) / np.float32(steps[k])
        collector.add(sent, int(samples[k]), k)
    x, _ = rule.step(np.zeros(20, np.float32), collector.result(), (), 1, tau)
    assert np.allclose(x, expected, atol=1e-6)
    assert rule.normalises_steps
    # With equal steps it is FedAvg.
    plain, _ = FedAvg(0.1).step(np.zeros(20, np.float32), collector.result(), (), 1, 1.0)
    one_step, _ = rule.step(np.zeros(20, np.float32), collector.result(), (), 1, 1.0)
    assert_same_bits(one_step, plain)


def test_who_collects_what() -> None:
    for name, kind in RULES.items():
        rule = kind()
        collector = rule.collector(4, FixedPoint(), "zero")
        robust = name in ("coordinate-median", "trimmed-mean")
        assert isinstance(collector, OrderStatistic if robust else ExactMean)
        assert rule.works_compressed is not robust
        assert collector.non_finite == "zero"
    assert TrimmedMean(trim=0.3).collector(1, FixedPoint(), "refuse") == OrderStatistic(
        1, FixedPoint(), 0.3
    )


# -- by name --------------------------------------------------------------------------------------


def test_every_rule_has_a_name() -> None:
    names = {
        "fedavg", "fedavgm", "fedadam", "fedyogi", "fedadagrad", "fednova", "coordinate-median",
        "trimmed-mean",
    }  # fmt: skip
    assert set(RULES) == names
    for name in names:
        expected: object = RULES[name](0.25)
        assert server_rule(name, learning_rate=0.25) == expected
    assert server_rule("fedadam", beta1=0.5, bias_correction=True) == FedAdam(
        beta1=0.5, bias_correction=True
    )


@pytest.mark.parametrize(
    ("name", "near"),
    [("fedadm", "fedadam"), ("FedAvg", "fedavg"), ("trimed-mean", "trimmed-mean")],
)
def test_an_unknown_name_suggests_the_nearest(name: str, near: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        server_rule(name)
    assert f"rule is {name!r}; expected one of fedavg, " in str(refused.value)
    assert f"did you mean {near!r}?" in str(refused.value)


def test_a_name_like_no_other_suggests_nothing() -> None:
    with pytest.raises(InvalidSetting, match="expected one of fedavg") as refused:
        server_rule("xyz")
    assert "did you mean" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("krum", "it compares whole updates by their distance"),
        ("multi-krum", "it compares whole updates by their distance"),
        ("geometric-median", "it weighs whole updates by their distance"),
        ("norm-clipping", "the norm of an update is not known to any aggregator"),
    ],
)
def test_rules_that_need_whole_updates_are_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        server_rule(name)
    assert f"rule is {name!r}; expected a coordinate-wise rule: {reason}" in str(refused.value)
    assert "under sharding no aggregator holds a whole update" in str(refused.value)
    assert name in NOT_DECOMPOSABLE
    assert name not in RULES


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(InvalidSetting, match="fedavgm setting is 'beta'; expected one of learning"):
        server_rule("fedavgm", beta=0.9)


@pytest.mark.parametrize(
    ("make", "name", "bad"),
    [
        (lambda x: FedAvg(x), "learning_rate", (0.0, -1.0, math.inf, math.nan)),
        (lambda x: FedNova(x), "learning_rate", (0.0, -0.1)),
        (lambda x: CoordinateMedian(x), "learning_rate", (0.0,)),
        (lambda x: FedAvgM(momentum=x), "momentum", (-0.1, 1.0, math.nan)),
        (lambda x: FedAdam(beta1=x), "beta1", (-0.1, 1.0, math.nan)),
        (lambda x: FedYogi(beta2=x), "beta2", (-0.1, 1.0, math.nan)),
        (lambda x: FedAdagrad(tau=x), "tau", (0.0, -1.0, math.inf, math.nan)),
        (lambda x: TrimmedMean(trim=x), "trim", (-0.01, 0.5, math.nan)),
        (lambda x: FedAdagrad(bias_correction=bool(x)), "bias_correction", (1.0,)),
    ],
)
def test_settings_out_of_range_are_named(
    make: Callable[[float], object], name: str, bad: tuple[float, ...]
) -> None:
    for value in bad:
        with pytest.raises(InvalidSetting, match=rf"^{name} is .*; expected ") as refused:
            make(value)
        assert refused.value.name == name
