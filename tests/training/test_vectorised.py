"""Many clients in one pass against the plain loop, one ``TorchTrainer`` a client."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Indices, Vector
from eris.models import create
from eris.models.factorisation import mean_squared_error
from eris.training.fast_passes import Passes
from eris.training.population import Population, Trainers
from eris.training.torch import flatten, single_threaded, torch_clients
from eris.training.trainer import LocalUpdate, PerSampleNoise
from eris.training.vectorised import TorchPopulation, passes

TOLERANCE = 1e-5
RATE = 0.05
RAGGED = [np.arange(0, 8), np.arange(8, 16), np.arange(16, 19), np.arange(19, 20),
          np.array([30, 21, 25, 22, 23])]  # fmt: skip
EVERYONE = range(len(RAGGED))
ROUNDS = 3


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with single_threaded():
        yield


def draws(purpose: str, *shape: int) -> Tensor:
    count = int(np.prod(shape))
    return torch.tensor(Stream(1, purpose).normal(0, count), dtype=torch.float32).reshape(shape)


def labels(count: int, classes: int = 10) -> Tensor:
    return torch.tensor((Stream(2, "labels").uniform(0, count) * classes).astype(np.int64))


def seeded(build: Any) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model: nn.Module = build()
        return model


class Task:
    """A model with data for it."""

    def __init__(self, model: nn.Module, inputs: Tensor, targets: Tensor, **settings: Any) -> None:
        self.model, self.inputs, self.targets, self.settings = model, inputs, targets, settings
        self.start = flatten(model)

    def fast(self, parts: Sequence[Indices] = RAGGED, **settings: Any) -> TorchPopulation:
        chosen = {"path": "fast", "learning_rate": RATE, **self.settings, **settings}
        return TorchPopulation(self.model, self.inputs, self.targets, parts, **chosen)

    def loop(self, parts: Sequence[Indices] = RAGGED, **settings: Any) -> Trainers:
        chosen = {"learning_rate": RATE, **self.settings, **settings}
        return Trainers(torch_clients(self.model, self.inputs, self.targets, parts, **chosen))

    def own_models(self) -> list[Vector]:
        """A model for every client, each somewhere else near the start."""
        length = len(self.start)
        return [
            self.start + 0.01 * Stream(4, "own", client=k).normal(0, length).astype(np.float32)
            for k in EVERYONE
        ]


def lenet(**settings: Any) -> Task:
    return Task(create("lenet5", 0), draws("images", 32, 1, 28, 28), labels(32), **settings)


def resnet(name: str) -> Task:
    return Task(create(name, 0), draws("colour", 32, 3, 32, 32), labels(32))


def perceptron(**settings: Any) -> Task:
    model = seeded(lambda: nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 4)))
    return Task(model, draws("rows", 32, 12), labels(32, 4), **settings)


def factorisation() -> Task:
    model = create("matrix-factorisation", 0, users=30, items=20, dimensions=4)
    pairs = torch.stack([labels(32, 30), labels(64, 20)[32:]], dim=1)
    return Task(model, pairs, labels(96, 5)[64:] + 1, loss=mean_squared_error)


TASKS: dict[str, Callable[[], Task]] = {
    "lenet5": lenet,
    "perceptron": perceptron,
    "factorisation": factorisation,
    "resnet9": lambda: resnet("resnet9"),
    "resnet20": lambda: resnet("resnet20"),
}


def assert_close(found: LocalUpdate, expected: LocalUpdate) -> None:
    assert found.vector.dtype == np.float32
    assert found.vector.flags.c_contiguous
    assert found.vector.shape == expected.vector.shape
    scale = np.linalg.norm(expected.vector)
    assert 0 < scale < np.inf
    assert np.linalg.norm(found.vector - expected.vector) <= TOLERANCE * scale
    assert (found.samples, found.steps) == (expected.samples, expected.steps)
    assert found.metrics["loss"] == pytest.approx(expected.metrics["loss"], rel=1e-4)


def assert_alike(
    found: Population, expected: Population, models: Any, round: int, clients: Any = EVERYONE
) -> None:
    together = list(found.updates(clients, models, round))
    alone = list(expected.updates(clients, models, round))
    assert len(together) == len(clients)
    for one, other in zip(together, alone, strict=True):
        assert_close(one, other)


@pytest.fixture
def smooth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models without kinks.

    Where rounding carries an activation across the kink of a ReLU or of max pooling, the gradient
    jumps; that happens to the loop too, from a model that differs in the last bit.
    """
    monkeypatch.setattr(functional, "relu", lambda x, inplace=False: functional.softplus(x))
    monkeypatch.setattr(functional, "max_pool2d", lambda x, size: functional.avg_pool2d(x, size))


# -- equal to the plain loop ------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"momentum": 0.9},
        {"steps": 5},
        {"steps": 3, "batch_size": 2, "momentum": 0.5},
        {"epochs": 2, "batch_size": 3},
        {"epochs": 2, "batch_size": 3, "momentum": 0.9, "seed": 7, "threads": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("task", ["lenet5", "perceptron", "factorisation"])
@pytest.mark.usefixtures("smooth")
def test_updates_are_those_of_the_loop(task: str, settings: dict[str, Any]) -> None:
    made = TASKS[task]()
    fast = made.fast(**settings)
    loop = made.loop(**{name: value for name, value in settings.items() if name != "threads"})
    assert fast.obstacle is None
    model = made.start
    for round in range(ROUNDS):
        assert_alike(fast, loop, model, round)
        model = model - np.float32(0.01)
    assert_alike(fast, loop, made.own_models(), ROUNDS)
    assert fast.state().keys() == loop.state().keys()


@pytest.mark.parametrize("name", ["resnet9", "resnet20"])
@pytest.mark.usefixtures("smooth")
def test_updates_of_large_models_are_those_of_the_loop(name: str) -> None:
    made = TASKS[name]()
    parts = [np.arange(1), np.arange(1, 3)]
    fast, loop = (make(parts, steps=2, momentum=0.9) for make in (made.fast, made.loop))
    assert_alike(fast, loop, made.start, 0, range(2))
    assert_alike(fast, loop, made.own_models()[:2], 1, range(2))


@pytest.mark.parametrize("settings", [{}, {"steps": 5}], ids=str)
@pytest.mark.parametrize("task", ["lenet5", "resnet9"])
def test_updates_of_models_with_kinks(task: str, settings: dict[str, Any]) -> None:
    made = TASKS[task]()
    parts, tolerance = RAGGED[2:4], 1e-2 if settings else 1e-3
    fast, loop = made.fast(parts, **settings), made.loop(parts, **settings)
    updates = zip(*(one.updates([0, 1], made.start, 0) for one in (fast, loop)), strict=True)
    for found, expected in updates:
        difference = np.linalg.norm(found.vector - expected.vector)
        assert difference <= tolerance * np.linalg.norm(expected.vector)


@pytest.mark.parametrize(
    "settings",
    [
        {"weight_decay": 0.1, "steps": 3},
        {"proximal": 0.5, "steps": 3},
        {"optimiser": "adam", "steps": 3},
        {"optimiser": "adamw", "weight_decay": 0.1, "epochs": 2, "batch_size": 2},
        {"momentum": 0.9, "keep_momentum": False, "steps": 2},
        {"estimator": "saga", "batch_size": 2},
    ],
    ids=str,
)
def test_every_option_gives_what_the_loop_gives(settings: dict[str, Any]) -> None:
    task = perceptron()
    fast, loop = task.fast(path="auto", **settings), task.loop(**settings)
    for round in range(ROUNDS):
        assert_alike(fast, loop, task.start, round)
    state = loop.state()
    assert fast.state().keys() == state.keys()
    for name, value in fast.state().items():
        np.testing.assert_allclose(value, state[name], rtol=1e-3, atol=1e-6)


def test_some_clients_in_another_order() -> None:
    task = perceptron(momentum=0.9)
    fast, loop = task.fast(), task.loop()
    for round, clients in enumerate(([4, 0], [2], [3, 2, 1], [])):
        assert_alike(fast, loop, task.start, round, clients)


def test_a_client_asked_for_twice_goes_on_from_its_own_momentum() -> None:
    task = perceptron(momentum=0.9)
    assert_alike(task.fast(), task.loop(), task.start, 0, [1, 1])


# -- layers and losses ------------------------------------------------------------------------


class Shared(nn.Module):
    """A layer used twice, a frozen one, one that is not used, and shifts of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.frozen, self.idle = (nn.Linear(12, 12) for _ in range(3))
        self.frozen.weight.requires_grad_(False)
        self.scale = nn.Parameter(torch.full((12,), 1.5))
        self.shift = nn.Parameter(torch.zeros(1, 12))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu_(self.twice(x))
        x = torch.tanh(self.scale * self.frozen(x) - self.shift)
        assert self.scale.shape == (12,)
        out: Tensor = self.twice(x)[:, :4]
        return out


class Sentence(nn.Module):
    """Words (samples, time) through a table, layers that see (samples, time, width), and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 6, padding_idx=0)
        self.inner, self.norm, self.out = nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 4)

    def forward(self, words: Tensor) -> Tensor:
        out: Tensor = self.out(self.norm(functional.gelu(self.inner(self.table(words)))).mean(1))
        return out


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, stride=2, padding=1, bias=False),
        nn.GroupNorm(2, 6),
        nn.ReLU(inplace=True),
        nn.Conv2d(6, 6, (3, 2), dilation=(1, 2), padding=(2, 1), groups=3),
        nn.MaxPool2d(2),
        nn.Flatten(2),
        nn.Conv1d(6, 5, 3),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(5, 4),
    )


@pytest.mark.parametrize("settings", [{}, {"steps": 3}], ids=str)
@pytest.mark.parametrize(
    ("build", "inputs"),
    [
        (Shared, draws("rows", 32, 12)),
        (Sentence, labels(32 * 7).reshape(32, 7)),
        (convolutions, draws("two channels", 32, 2, 13, 11)),
    ],
    ids=["shared", "sentence", "convolutions"],
)
def test_layers(build: Any, inputs: Tensor, settings: dict[str, Any]) -> None:
    task = Task(seeded(build), inputs, labels(32, 4), **settings)
    fast, loop = task.fast(), task.loop()
    assert_alike(fast, loop, task.start, 0)
    assert_alike(fast, loop, task.own_models(), 1)


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets).square().mean() + outputs.abs().amax()


@pytest.mark.parametrize("loss", [squares, nn.CrossEntropyLoss(label_smoothing=0.1)])
def test_any_mean_loss_of_a_batch(loss: Any) -> None:
    task = perceptron(loss=loss)
    assert_alike(task.fast(), task.loop(), task.start, 0)


def test_targets_that_are_left_out_do_not_count() -> None:
    task = perceptron()
    task.targets[[0, 1, 9]] = -100
    assert_alike(task.fast(), task.loop(), task.start, 0)


def test_the_fast_path_is_taken_where_several_clients_fit_into_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trained, train = [], Passes.train

    def noted(self: Passes, members: Any, *others: Any) -> None:
        trained.append(len(members))
        train(self, members, *others)

    monkeypatch.setattr(Passes, "train", noted)
    large, small = resnet("resnet9"), perceptron()
    parts = [np.arange(12), np.arange(12, 24)]
    expected = [
        (large.fast(parts, path="auto"), []),
        (large.fast(parts, path="auto", threads=2), [1]),
        (large.fast(parts), [1]),
        (small.fast(path="auto"), [1]),
        (small.fast(path="loop"), []),
    ]
    for clients, passed in expected:
        trained.clear()
        start = small.start if len(clients) == len(RAGGED) else large.start
        list(clients.updates([1], start, 0))
        assert trained == passed
    trained.clear()
    list(small.fast(path="auto").updates(EVERYONE, small.start, 0))
    assert sorted(trained) == [2, 3]  # two passes, for two cores


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
