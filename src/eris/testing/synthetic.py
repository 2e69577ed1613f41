"""Updates and federations to test with, all of them pure functions of a seed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.protocol.agreement import Agreement
from eris.protocol.settings import Settings
from eris.protocol.view import View
from eris.runtimes.events import EventEngine
from eris.runtimes.faults import FaultPlan
from eris.training.population import Trainers
from eris.training.trainer import LocalUpdate


def assert_same_bits(found: Vector, expected: Vector, what: str = "vector") -> None:
    """Equal to the last bit, the sign of zero included.

    >>> assert_same_bits(np.zeros(2, np.float32), -np.zeros(2, np.float32))
    Traceback (most recent call last):
    ...
    AssertionError: vector: 2 of 2 values differ, the first at 0: 0.0 is not -0.0
    """
    assert found.shape == expected.shape, f"{what}: {found.shape} is not {expected.shape}"
    assert found.dtype == expected.dtype == np.float32, f"{what}: {found.dtype}, {expected.dtype}"
    differ = np.flatnonzero(found.view(np.uint32) != expected.view(np.uint32))
    if len(differ):
        first = int(differ[0])
        raise AssertionError(
            f"{what}: {len(differ)} of {len(found)} values differ, the first at {first}: "
            f"{found[first]} is not {expected[first]}"
        )


def initial_model(n: int, seed: int = 0) -> Vector:
    """A model to start from."""
    return Stream(seed, "test-model").normal(0, n).astype(np.float32)


@dataclass
class SyntheticTraining:
    """Training without data: noise of (seed, member, round) and a pull towards the model.

    The pull lets two runs that differ anywhere differ everywhere soon. ``whole`` draws whole
    numbers instead and leaves out the pull, so that every sum is exact. What was handed out is
    kept in ``given``, for oracles.

    >>> training = SyntheticTraining(3, whole=True)
    >>> training(member=1, model=np.zeros(3, np.float32), round=1)
    (array([-1., -2.,  6.], dtype=float32), 4, 2)
    """

    n: int
    seed: int = 0
    whole: bool = False
    given: dict[tuple[int, int], Vector] = field(default_factory=dict)

    def samples(self, member: int) -> int:
        """The weight of a member."""
        return 3 + member

    def steps(self, member: int) -> int:
        """The local steps of a member."""
        return 1 + member % 3

    def __call__(self, member: int, model: Vector, round: int) -> tuple[Vector, int, int]:
        """The update, samples and local steps of a member in a round."""
        draw = Stream(self.seed, "test-update", round, member)
        if self.whole:
            update = (draw.words(0, self.n) % np.uint32(17)).astype(np.float32) - np.float32(8)
        else:
            update = draw.normal(0, self.n).astype(np.float32)
            update = update + np.float32(0.5) * model
        self.given[member, round] = update
        return update, self.samples(member), self.steps(member)

    def population(self, clients: int) -> Trainers:
        """The first members, for the engines that take a population."""
        return Trainers([_SyntheticTrainer(self, member) for member in range(clients)])


@dataclass(frozen=True)
class _SyntheticTrainer:
    training: SyntheticTraining
    member: int

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        update, samples, steps = self.training(self.member, parameters, round)
        return LocalUpdate(update, samples, steps, {"norm": float(np.abs(update).max())})


def agree(
    settings: Settings, *, clients: int = 5, aggregators: int | None = None, servers: int = 0
) -> Agreement:
    """Settings and a view with the weights of :class:`SyntheticTraining`.

    The first ``aggregators`` of the clients (by default as many as can) own the shards in turn, or
    ``servers`` members without data do.
    """
    shards = settings.plan.shards
    samples = tuple(SyntheticTraining(0).samples(member) for member in range(clients))
    names = [f"client-{member}" for member in range(clients)]
    if servers:
        members = (*names, *(f"server-{number}" for number in range(servers)))
        owners = tuple(clients + shard % servers for shard in range(shards))
        return Agreement(settings, View(members, tuple(range(clients)), owners, samples))
    count = min(shards, clients) if aggregators is None else aggregators
    view = View.serverless(names, aggregators=count, shards=shards, samples=samples)
    return Agreement(settings, view)


def on_the_clock(
    agreement: Agreement, training: SyntheticTraining, *, faults: FaultPlan | None = None
) -> EventEngine:
    """The federation under a virtual clock, every member for itself and every message recorded."""
    initial = initial_model(agreement.settings.n, training.seed)
    population = training.population(len(agreement.view.clients))
    return EventEngine(agreement, initial, population, faults=faults or FaultPlan(), record=True)
