"""Passes of several clients are held against the plain loop, and given up where they are wrong."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from eris.core.streams import Stream
from eris.federation import Federation
from eris.methods.dpsgd import DPSGD
from eris.methods.eris import ERIS
from eris.training.fast.check import difference, is_checked, is_wrong
from support.together import Task, draws, labels, perceptron, seeded

CLIENTS = 12
PARTS = [np.arange(8 * k, 8 * k + 8) for k in range(CLIENTS)]
UNCHECKED = 2
ROUNDS = 5


class Branching(nn.Module):
    """Two layers; what is between them depends on the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(12, 9), nn.Linear(9, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.between(torch.tanh(self.a(x)), x))  # type: ignore[no-any-return]

    def between(self, h: Tensor, x: Tensor) -> Tensor:
        raise NotImplementedError


class BySize(Branching):
    def between(self, h: Tensor, x: Tensor) -> Tensor:
        return h if len(x) <= 10 else 0.5 * h


class ByValue(Branching):
    def between(self, h: Tensor, x: Tensor) -> Tensor:
        return h / 3 if float(x.abs().max()) > 6 else h


def task(kind: type[Branching] | None, **settings: Any) -> Task:
    inputs = draws("rows", 8 * CLIENTS, 12).clamp(-3, 3)
    inputs[8 * CLIENTS - 3, 3] = 50.0  # of the last client, which no probe sees
    if kind is None:
        return Task(perceptron().model, inputs, labels(8 * CLIENTS, 4), **settings)
    return Task(seeded(kind), inputs, labels(8 * CLIENTS, 4), **settings)


def worst(found: Any, expected: Any) -> float:
    pairs = zip(found, expected, strict=True)
    return max(difference(one.vector, other.vector) for one, other in pairs)


@pytest.mark.parametrize("settings", [{}, {"steps": 3, "momentum": 0.9}], ids=str)
@pytest.mark.parametrize("kind", [BySize, ByValue])
def test_a_forward_pass_that_branches_is_noticed_and_every_update_is_the_loops(
    kind: type[Branching], settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    made = task(kind, **settings)
    fast, loop = made.fast(PARTS), made.loop(PARTS)
    assert fast.obstacle is None
    for round in (1, 2, 3):
        with caplog.at_level(logging.WARNING, "eris.training"):
            found = list(fast.updates(range(CLIENTS), made.start, round))
        assert worst(found, loop.updates(range(CLIENTS), made.start, round)) <= 1e-5
    assert fast.apart == 1
    assert "in round 1 a pass of several clients differed" in str(fast.obstacle)
    assert "from now on clients are trained one after another" in caplog.text
    again = made.fast(PARTS)
    again.restore(fast.state())
    assert again.apart == 1
    made.loop(PARTS).restore(fast.state())  # to whom passes are nothing
    again.restore({})
    assert again.apart is None


def test_a_pass_that_goes_wrong_later_is_noticed_in_a_round_that_is_drawn() -> None:
    made = task(BySize)
    fast, loop = made.fast(PARTS), made.loop(PARTS)
    checked = (r for r in range(2, 10_000) if is_checked(0, r, 0, fast.lanes))
    late = next(checked)
    assert not is_checked(0, UNCHECKED, 0, fast.lanes)
    assert not is_checked(0, UNCHECKED, 1, fast.lanes)
    list(fast.updates(range(CLIENTS), made.start, UNCHECKED))
    assert fast.apart is None
    found = list(fast.updates(range(CLIENTS), made.start, late))
    assert fast.apart == late
    expected = list(loop.updates(range(CLIENTS), made.start, late))
    assert worst(found[:: fast.lanes], expected[:: fast.lanes]) <= 1e-5  # lane 0, which was checked
    found = list(fast.updates(range(CLIENTS), made.start, late + 1))
    assert worst(found, loop.updates(range(CLIENTS), made.start, late + 1)) <= 1e-5


def test_one_round_in_twenty_is_checked_and_of_it_one_lane() -> None:
    rounds = range(2, 4002)
    found = [[is_checked(7, round, lane, 4) for lane in range(4)] for round in rounds]
    assert all(sum(lanes) <= 1 for lanes in found)
    times = np.sum(found, axis=0)
    assert 120 < times.sum() < 280  # 200 expected, 14 is the deviation
    assert times.min() > 20
    assert all(is_checked(7, 1, lane, 4) for lane in range(4))


def test_what_rounding_explains_is_no_finding() -> None:
    start, name = np.ones(3, np.float32), Stream(0, "last bit")
    right, off = np.ones(3, np.float32), np.array([1, 1, 1.01], np.float32)
    assert is_wrong(off, right, start, name, lambda _: right) == pytest.approx(0.00577, rel=1e-2)
    assert is_wrong(right + np.float32(1e-5), right, start, name, lambda _: right) is None

    def touchy(model: np.ndarray) -> np.ndarray:
        return off if model[0] > 1 else right

    assert is_wrong(off, right, start, name, touchy) is None
    nan = np.full(3, np.nan, np.float32)
    assert is_wrong(nan, nan, start, name, touchy) is None
    assert is_wrong(nan, right, start, name, lambda _: right) == np.inf


def test_a_check_changes_no_bit_and_a_sound_model_is_not_given_up() -> None:
    made = task(None, steps=3)
    fast = made.fast(PARTS)
    checked, plain = (list(fast.updates(range(CLIENTS), made.start, r)) for r in (1, UNCHECKED))
    assert fast.apart is None
    for one, other in zip(checked, plain, strict=True):  # no batches, so rounds are alike
        assert np.array_equal(one.vector, other.vector)


# -- whichever process hosts a client ---------------------------------------------------------


@pytest.mark.parametrize("method", [ERIS(aggregators=3), DPSGD()], ids=lambda one: one.name)
@pytest.mark.parametrize("kind", [None, ByValue])
def test_the_number_of_stations_changes_no_bit(kind: Any, method: Any) -> None:
    sizes = [8, 16, 8, 32, 8, 8, 16, 64, 8, 40, 8, 16] * 3
    ends = np.cumsum([0, *sizes])
    inputs, targets = draws("many", int(ends[-1]), 12).clamp(-3, 3), labels(int(ends[-1]), 4)
    inputs[5, 3] = 50.0
    parts = [np.arange(ends[k], ends[k + 1]) for k in range(len(sizes))]
    model = (perceptron() if kind is None else task(kind)).model
    made = Task(model, inputs, targets, learning_rate=0.3, steps=3)

    def trained(stations: int) -> tuple[Any, int | None]:
        clients = made.fast(parts)
        session = Federation(clients, made.start, method, seed=1).start(ROUNDS, stations=stations)
        for _ in range(ROUNDS):
            session.step()
        return session.model, clients.apart

    (expected, apart), *others = (trained(stations) for stations in (1, 2, 3, 5))
    assert apart == (None if kind is None else 1)
    for found, same in others:
        assert np.array_equal(found, expected)
        assert same == apart
