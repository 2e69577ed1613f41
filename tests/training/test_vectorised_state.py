"""What clients trained in one pass keep, what they cost, and what is refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from eris.core.errors import InvalidSetting
from eris.core.vectors import Indices
from eris.training.torch import flatten, single_threaded
from eris.training.trainer import PerSampleNoise
from eris.training.vectorised import passes
from support.together import (
    EVERYONE,
    RAGGED,
    Task,
    assert_alike,
    assert_close,
    draws,
    labels,
    lenet,
    perceptron,
    seeded,
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with single_threaded():
        yield


# -- what clients keep ------------------------------------------------------------------------


@pytest.mark.parametrize("forwards", [True, False])
def test_a_state_moves_between_the_ways(forwards: bool) -> None:
    task = perceptron(momentum=0.9, steps=2)
    first, second = (task.fast(), task.loop()) if forwards else (task.loop(), task.fast())
    list(first.updates([1, 3], task.start, round=0))
    state = first.state()
    assert sorted(state) == ["1/momentum", "3/momentum"]
    second.restore(state)
    assert_alike(first, second, task.start, 1)


def test_a_saved_state_is_a_copy_and_restoring_forgets_the_rest() -> None:
    task = perceptron(momentum=0.9)
    clients = task.fast()
    list(clients.updates(EVERYONE, task.start, round=0))
    state = clients.state()
    kept = {name: value.copy() for name, value in state.items()}
    list(clients.updates(EVERYONE, task.start, round=1))
    assert all(np.array_equal(state[name], value) for name, value in kept.items())
    clients.restore({"2/momentum": state["2/momentum"]})
    assert list(clients.state()) == ["2/momentum"]
    clients.restore({})
    assert_alike(clients, task.loop(), task.start, 0)


def test_what_was_not_taken_is_not_remembered() -> None:
    task = perceptron(momentum=0.9, threads=2)
    clients = task.fast(memory_budget_mib=1)
    updates = clients.updates(EVERYONE, task.start, round=0)
    assert clients.state() == {}
    next(updates)
    updates.close()  # type: ignore[attr-defined]
    assert list(clients.state()) == ["0/momentum"]


def test_an_update_is_nobody_elses_memory() -> None:
    task = perceptron(momentum=0.9)
    clients = task.fast()
    first = [update.vector for update in clients.updates(EVERYONE, task.start, round=0)]
    before = [vector.copy() for vector in first]
    for vector in first[1:]:
        vector[:] = 7
    assert np.array_equal(first[0], before[0])
    loop = task.loop()
    list(loop.updates(EVERYONE, task.start, round=0))
    assert_alike(clients, loop, task.start, 1)
    assert np.array_equal(first[0], before[0])


def test_only_the_clients_asked_for_are_looked_up() -> None:
    asked = []

    class Computed(Sequence[Indices]):
        def __len__(self) -> int:
            return 100_000

        def __getitem__(self, client: Any) -> Any:
            asked.append(client)
            return np.array([client % 32, client % 7])

    task = perceptron(momentum=0.9)
    clients = task.fast(Computed())
    assert (len(clients), set(asked)) == (100_000, {0, 1})
    asked.clear()
    assert len(list(clients.updates([99_999, 5], task.start, round=0))) == 2
    assert sorted(set(asked)) == [5, 99_999]
    assert list(clients.state()) == ["5/momentum", "99999/momentum"]


# -- threads, memory, noise -------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"steps": 2, "momentum": 0.9}], ids=str)
def test_threads_do_not_change_a_bit(settings: dict[str, Any]) -> None:
    task = lenet()
    parts = [np.arange(k % 8, 24 + k % 8) for k in range(14)]
    made = [task.fast(parts, threads=threads, **settings) for threads in (1, 2, 3)]
    for round in range(2):
        first, *others = ([*clients.updates(range(14), task.start, round)] for clients in made)
        for other in others:
            for one, same in zip(first, other, strict=True):
                assert np.array_equal(one.vector, same.vector)
    assert torch.get_num_threads() == 1


def test_passes_are_small_where_memory_is() -> None:
    task = lenet()
    tight, wide = task.fast(memory_budget_mib=1), task.fast(memory_budget_mib=1024)
    assert_alike(tight, wide, task.start, 0)


def test_passes_are_full_even_in_number_and_in_order() -> None:
    shares = [0.07, 0.3, 0.2] * 20
    found = passes(shares)
    assert [place for places in found for place in places] == list(range(60))
    assert len(found) == 12
    assert all(sum(shares[place] for place in places) <= 1.2 for places in found)
    assert passes([5.0, 4.0]) == [[0], [1]]
    assert passes([0.1]) == [[0]]
    assert passes([]) == []


@pytest.mark.parametrize("settings", [{}, {"steps": 2, "momentum": 0.9}], ids=str)
def test_noise_inside_the_steps_is_that_of_the_loop(settings: dict[str, Any]) -> None:
    task, noise = perceptron(**settings), PerSampleNoise(clip=0.3, sigma=0.1, seed=9)
    fast, loop = task.fast(), task.loop()
    for round in range(2):
        found = fast.updates(EVERYONE, task.start, round, noise)
        expected = loop.updates(EVERYONE, task.start, round, noise)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)


# -- what cannot be done together -------------------------------------------------------------


class Mixing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.full = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.full(x - x.mean(dim=0))
        return out


class Bare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(12, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


SLOW = {
    "dropout": (lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(12, 4)), {}, "draws random"),
    "mixing": (Mixing, {}, "samples of a batch meet"),
    "batch norm": (
        lambda: nn.Sequential(nn.BatchNorm1d(12, affine=False), nn.Linear(12, 4)),
        {"running_statistics": "batch"},
        "batch norm mixes the samples",
    ),
    "bare": (Bare, {}, "no rule for (__)?matmul"),
    "estimator": (lambda: nn.Linear(12, 4), {"estimator": "saga"}, "saga"),
}


@pytest.mark.parametrize("name", SLOW)
def test_what_cannot_be_trained_together_is_named(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    build, settings, complaint = SLOW[name]
    task = Task.__new__(Task)
    task.model, task.settings = seeded(build), settings
    task.inputs, task.targets = draws("rows", 32, 12), labels(32, 4)
    start = np.concatenate([p.detach().numpy().ravel() for p in task.model.parameters()])
    before = torch.random.get_rng_state()
    with pytest.raises(InvalidSetting, match=complaint):
        task.fast()
    with caplog.at_level(logging.INFO, "eris.training"):
        clients = task.fast(RAGGED * 2, path="auto")
        expected = task.loop(RAGGED * 2)
        for round in range(2):
            asked = range(3)  # batch norm takes no batch of one
            found, alone = (one.updates(asked, start, round) for one in (clients, expected))
            for one, other in zip(found, alone, strict=True):
                assert np.array_equal(one.vector, other.vector)
    assert clients.obstacle is not None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert clients.obstacle in caplog.text
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_loop_can_be_asked_for() -> None:
    task = perceptron(momentum=0.9, steps=2)
    slow, loop = task.fast(path="loop"), task.loop()
    assert slow.obstacle is not None
    for round in range(2):
        updates = zip(
            slow.updates(EVERYONE, task.start, round),
            loop.updates(EVERYONE, task.start, round),
            strict=True,
        )
        assert all(np.array_equal(one.vector, other.vector) for one, other in updates)


def test_the_model_given_is_left_as_it_was() -> None:
    task = perceptron()
    task.model.eval()
    list(task.fast().updates(EVERYONE, task.start + 1, round=0))
    assert np.array_equal(flatten(task.model), task.start)
    assert not task.model.training


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"path": "quick"}, "path is 'quick'"),
        ({"threads": 0}, "threads is 0; expected at least 1"),
        ({"memory_budget_mib": 0}, "memory_budget_mib is 0; expected at least 1"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0"),
        ({"parts": []}, "at least one client"),
        ({"parts": [np.zeros(0, np.int64)]}, "part of client 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidSetting, match=complaint):
        perceptron().fast(**settings)


def test_requests_that_do_not_fit_are_refused() -> None:
    task = perceptron(momentum=0.9)
    clients = task.fast()
    with pytest.raises(InvalidSetting, match="client is 5; expected a number from 0 to 4"):
        list(clients.updates([5], task.start, round=0))
    with pytest.raises(InvalidSetting, match="models is '1 of them'; expected 2"):
        list(clients.updates([0, 1], [task.start], round=0))
    with pytest.raises(InvalidSetting, match=r"shape of the parameter vector is \(3,\)"):
        list(clients.updates([0], task.start[:3], round=0))
    with pytest.raises(InvalidSetting, match="part of client 2"):
        list(task.fast([*RAGGED[:2], np.zeros(0, np.int64)]).updates([2], task.start, round=0))
    for state in ({"9/momentum": task.start}, {"momentum": task.start}, {"x/momentum": task.start}):
        with pytest.raises(InvalidSetting, match="name in the state"):
            clients.restore(state)
    with pytest.raises(InvalidSetting, match="momentum"):
        clients.restore({"0/momentum": task.start[:3]})
    assert clients.state() == {}
