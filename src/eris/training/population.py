"""All clients of a simulation as one object, so that many can be trained in one pass."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np

from eris.core.errors import CastWarning, InvalidSetting
from eris.core.vectors import Vector
from eris.training.trainer import (
    Batch,
    ClippingTrainer,
    Layout,
    Learner,
    LocalUpdate,
    PerSampleClip,
    PerSampleNoise,
    PrivateTrainer,
    StatefulTrainer,
    Trainer,
    as_update,
    starting_model,
)

Models = Vector | Sequence[Vector]
"""The flat model that all clients of a round start from, or one for each of them."""


class Population(Protocol):
    """Clients numbered from 0, of which a round trains some."""

    def __len__(self) -> int:
        """How many clients there are."""

    def updates(
        self,
        clients: Sequence[int],
        models: Models,
        round: int,
        noise: PerSampleNoise | None = None,
    ) -> Iterator[LocalUpdate]:
        """The updates of these clients in this order, each once it is ready."""

    def state(self) -> Mapping[str, Vector]:
        """What clients keep between rounds, named "client/what"."""

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()``; clients it does not name are as if they never trained."""


@runtime_checkable
class ClippingPopulation(Population, Protocol):
    """A population whose clients can bound what every single sample contributes, exactly."""

    def check_clipping(self, model: Vector, *, packed: bool = False) -> None:
        """Refuse, before the first round, training whose samples cannot be bounded one by one or,
        if they are to be ``packed``, of whom a gradient depends on its place in a pass."""

    def clipped_updates(
        self,
        clients: Sequence[int],
        models: Models,
        round: int,
        clip: PerSampleClip,
        batches: Sequence[Batch] | None = None,
    ) -> Iterator[LocalUpdate]:
        """The updates of these clients in this order, each with its ``content``; ``batches`` has
        one for each of them."""


@runtime_checkable
class Together(Protocol):
    """A population that trains several clients in one pass, which may move the last bits.

    An engine keeps lanes together, so that it does not matter where a client is hosted, and tells
    all copies of the population when one has found its passes wrong.
    """

    @property
    def lanes(self) -> int:
        """Client k is in lane k mod ``lanes``; only clients of one lane are trained together."""

    @property
    def apart(self) -> int | None:
        """The round after which clients train one after another because a pass was wrong."""

    def train_apart(self, after: int) -> None:
        """Train clients one after another in all later rounds."""


def evaluations(population: Population, models: Models) -> dict[int, dict[str, float]]:
    """What every client says of a model, or of its own where there is one for each."""
    evaluate = getattr(population, "evaluate", None)
    if evaluate is None:
        return {}
    found = {}
    for client in range(len(population)):
        model = models if isinstance(models, np.ndarray) else models[client]
        if said := evaluate(client, model):
            found[client] = {str(name): float(value) for name, value in said.items()}
    return found


def mean_metrics(found: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """The mean over clients of what all of them say, weighted by ``samples`` if they tell them.

    >>> mean_metrics({0: {"loss": 1.0, "samples": 10}, 1: {"loss": 2.0, "samples": 30}})
    {'loss': 1.75}
    """
    said = [one for one in found.values() if one.get("samples") != 0]
    common = [name for name in said[0] if all(name in one for one in said)] if said else []
    weights = [one.get("samples", 1.0) if "samples" in common else 1.0 for one in said]
    return {
        name: float(np.average([one[name] for one in said], weights=weights))
        for name in common
        if name != "samples"
    }


def by_client(state: Mapping[str, Vector]) -> dict[int, dict[str, Vector]]:
    """The ``state()`` of a population as those of its clients.

    >>> by_client({"0/momentum": np.ones(1), "all/apart": np.zeros(1)})
    {0: {'momentum': array([1.])}}
    """
    kept: dict[int, dict[str, Vector]] = {}
    for key, value in state.items():
        number, _, name = key.partition("/")
        if number != "all":  # what concerns passes of several clients
            kept.setdefault(int(number), {})[name] = value
    return kept


class Trainers:
    """A population of single trainers, asked one after another: the plain loop.

    >>> class Constant:
    ...     def update(self, parameters, round):
    ...         return LocalUpdate(parameters + round, samples=1)
    >>> clients = Trainers([Constant(), Constant()])
    >>> [update.vector for update in clients.updates([1], np.zeros(2, np.float32), round=3)]
    [array([3., 3.], dtype=float32)]
    """

    def __init__(self, trainers: Sequence[Trainer], names: Sequence[str] | None = None) -> None:
        self._trainers = list(trainers)
        self._names = names or [f"client {client}" for client in range(len(self._trainers))]
        self._told = False
        """Whether it was said that updates are cast."""

    def __len__(self) -> int:
        return len(self._trainers)

    @property
    def layout(self) -> Layout | None:
        """Names and shapes of the model's parameters, if the first trainer knows them."""
        return getattr(self._trainers[0], "layout", None)

    @property
    def learning_rate(self) -> float | None:
        """The step of all trainers; None if they do not say it, or not the same."""
        rates = {getattr(trainer, "learning_rate", None) for trainer in self._trainers}
        return rates.pop() if len(rates) == 1 else None

    def initial(self) -> Vector | None:
        """The model that trainers start from, the same for all that know one; None if none does."""
        found: Vector | None = None
        for name, trainer in zip(self._names, self._trainers, strict=True):
            if not isinstance(trainer, Learner):
                continue
            model = starting_model(trainer)
            if found is not None and not np.array_equal(found, model):
                expected = "the same bits as that of the other clients; seed what draws it"
                raise InvalidSetting(f"initial() of {name}", "another model", expected)
            found = model
        return found

    def evaluate(self, client: int, model: Vector) -> Mapping[str, float]:
        """What a client's trainer says of a model; nothing if it does not evaluate."""
        evaluate = getattr(self._trainers[client], "evaluate", None)
        return {} if evaluate is None else evaluate(model.copy())

    @property
    def uses_of_a_sample(self) -> int:
        """How many steps of a round may use one sample, as far as trainers say."""
        return max(int(getattr(trainer, "uses_of_a_sample", 1)) for trainer in self._trainers)

    def updates(
        self,
        clients: Sequence[int],
        models: Models,
        round: int,
        noise: PerSampleNoise | None = None,
    ) -> Iterator[LocalUpdate]:
        """The updates of these clients, one after another."""
        for position, client in enumerate(clients):
            model = models if isinstance(models, np.ndarray) else models[position]
            trainer = self._trainers[client]
            # A copy: a trainer must not be able to write into the federation's state.
            if noise is None:
                made = trainer.update(model.copy(), round)
                yield as_update(made, self._names[client], len(model), self._notice)
            elif isinstance(trainer, PrivateTrainer):
                yield trainer.private_update(model.copy(), round, noise)
            else:
                raise InvalidSetting(
                    f"trainer of client {client}",
                    type(trainer).__name__,
                    "one with private_update: the method adds noise to single samples' gradients",
                )

    def _notice(self, text: str) -> None:
        if not self._told:
            self._told = True
            warnings.warn(CastWarning(text), stacklevel=2)

    def check_clipping(self, model: Vector, *, packed: bool = False) -> None:
        """Refuse, before the first round, training whose samples cannot be bounded one by one."""
        for client in range(len(self)):
            trainer, own = self._clipping(client), model.copy()
            # Only those that know of batches are asked about them.
            trainer.check_clipping(own, packed=True) if packed else trainer.check_clipping(own)

    def clipped_updates(
        self,
        clients: Sequence[int],
        models: Models,
        round: int,
        clip: PerSampleClip,
        batches: Sequence[Batch] | None = None,
    ) -> Iterator[LocalUpdate]:
        """The updates of these clients, one after another, each with its ``content``."""
        for position, client in enumerate(clients):
            model = models if isinstance(models, np.ndarray) else models[position]
            own = clip if batches is None else replace(clip, batch=batches[position])
            yield self._clipping(client).clipped_update(model.copy(), round, own)

    def _clipping(self, client: int) -> ClippingTrainer:
        trainer = self._trainers[client]
        if not isinstance(trainer, ClippingTrainer):
            raise InvalidSetting(
                f"trainer of client {client}",
                type(trainer).__name__,
                "one with clipped_update for noise per sample; where whole clients are protected "
                "any trainer works",
            )
        return trainer

    def state(self) -> dict[str, Vector]:
        """What clients keep between rounds, named "client/what"."""
        return {
            f"{client}/{name}": value
            for client, trainer in enumerate(self._trainers)
            if isinstance(trainer, StatefulTrainer)
            for name, value in trainer.state().items()
        }

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()``."""
        kept = by_client(state)
        for client, trainer in enumerate(self._trainers):
            if isinstance(trainer, StatefulTrainer):
                trainer.restore(kept.get(client, {}))
