"""How one client trains in a round, as data: every option of the PyTorch trainer, checked once.

The options are the same for all clients of a federation; what differs, the data and the client's
number, is not here. ``docs/training.md`` says what each option computes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Required, TypedDict, get_args

import numpy as np

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Indices

Optimiser = Literal["sgd", "adam", "adamw"]
"""How a step follows from gradients, as in ``torch.optim``."""

Estimator = Literal["sgd", "svrg", "saga"]
"""How the gradient of a batch estimates that of all the client's data."""

Augment = Literal["none", "crop-flip"]
"""Whether pictures are shifted and mirrored at random before each use."""

RunningStatistics = Literal["refuse", "averaged", "local", "batch", "ignore"]
"""What to do with a model that has running statistics (batch norm), which are no parameters.

``refuse``
    is an error that names the other choices, unless ``with_statistics`` has marked the model.
``averaged``
    lets means and variances travel behind the parameters: a FedAvg step of the clients' learning
    rate sets them to the clients' mean.
``local``
    gives every client statistics of its own, kept between rounds and part of its ``state()``
    (FedBN keeps the whole layer local; here its scale and shift travel).
``batch``
    normalises every batch by its own statistics, also in evaluation, and tracks none.
``ignore``
    leaves them in the module: they do not travel, and clients that share it share them too.
"""


class TrainerSettings(TypedDict, total=False):
    """The fields of ``LocalTraining`` as keywords."""

    learning_rate: Required[float]
    momentum: float
    keep_momentum: bool
    steps: int
    batch_size: int | None
    epochs: int | None
    optimiser: Optimiser
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    proximal: float
    estimator: Estimator
    refresh: int
    running_statistics: RunningStatistics
    augment: Augment
    seed: int


@dataclass(frozen=True)
class LocalTraining:
    """What a client does in a round.

    A round makes ``steps`` steps, or ``epochs`` passes over the data, on batches of ``batch_size``
    (``None``: all the data in one batch, the papers' unbiased setting).

    ``optimiser`` is ``sgd`` with ``momentum``, or ``adam`` or ``adamw`` with ``betas`` and ``eps``;
    ``weight_decay`` is theirs in ``torch.optim``. Momentum and moments stay with the client from
    round to round, or start anew in each with ``keep_momentum=False``. ``proximal`` is FedProx's μ:
    every step's gradient at y gets + μ·(y − x), x being the model the round started from.
    ``estimator`` is the batch's gradient, or SVRG with a snapshot that is renewed every ``refresh``
    rounds, or SAGA. ``augment`` shifts and mirrors pictures. ``seed`` names the streams of batches,
    of these changes and of what the model draws.

    >>> LocalTraining(learning_rate=0.01, epochs=2, batch_size=64).local_steps(samples=100)
    4
    """

    learning_rate: float
    momentum: float = 0.0
    keep_momentum: bool = True
    steps: int = 1
    batch_size: int | None = None
    epochs: int | None = None
    optimiser: Optimiser = "sgd"
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    proximal: float = 0.0
    estimator: Estimator = "sgd"
    refresh: int = 1
    running_statistics: RunningStatistics = "refuse"
    augment: Augment = "none"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < math.inf:
            raise InvalidSetting("learning_rate", self.learning_rate, "a finite number above 0")
        if not 0 <= self.momentum < 1:
            raise InvalidSetting("momentum", self.momentum, "a number in [0, 1)")
        for name in ("steps", "batch_size", "epochs", "refresh"):
            at_least_one(name, getattr(self, name))
        if self.epochs is not None and self.steps != 1:
            expected = f"nothing beside epochs={self.epochs}, which sets it"
            raise InvalidSetting("steps", self.steps, expected)
        for name, choices in (
            ("optimiser", get_args(Optimiser)),
            ("estimator", get_args(Estimator)),
            ("running_statistics", get_args(RunningStatistics)),
            ("augment", get_args(Augment)),
        ):
            one_of(name, getattr(self, name), choices)
        if self.augment != "none" and self.estimator != "sgd":
            expected = f"'none' beside estimator={self.estimator!r}, which remembers samples"
            raise InvalidSetting("augment", self.augment, expected)
        self._check_optimiser()
        Stream(self.seed, "batches")  # refuses a bad seed now, not in the first round

    def _check_optimiser(self) -> None:
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise InvalidSetting("betas", self.betas, "two numbers in [0, 1)")
        if not 0 < self.eps < math.inf:
            raise InvalidSetting("eps", self.eps, "a finite number above 0")
        for name in ("weight_decay", "proximal"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidSetting(name, getattr(self, name), "a finite number, 0 or more")
        if self.optimiser != "sgd" and self.momentum != 0:
            expected = f"0 beside optimiser={self.optimiser!r}, whose momentum is betas[0]"
            raise InvalidSetting("momentum", self.momentum, expected)

    def batch(self, samples: int) -> int:
        """The number of samples in a batch of a client that has so many."""
        return min(self.batch_size or samples, samples)

    def batches(self, samples: int, client: int, round: int) -> Iterator[Indices | None]:
        """Which of a client's samples each step uses, without end; None is all, in their order."""
        batch = self.batch(samples)
        if batch == samples:
            yield from itertools.repeat(None)
        stream = Stream(self.seed, "batches", round=round, client=client)
        for epoch in itertools.count():
            # Row ``epoch`` of Stream.permutations, without knowing how many there will be.
            order = np.argsort(stream.words(epoch * samples, samples), kind="stable")
            yield from (order[start : start + batch] for start in range(0, samples, batch))

    @property
    def uses_of_a_sample(self) -> int:
        """How many steps of a round may use one sample: what an accountant counts."""
        return self.steps if self.epochs is None else self.epochs

    def local_steps(self, samples: int) -> int:
        """The number of steps a client with so many samples makes in a round."""
        if self.epochs is None:
            return self.steps
        return self.epochs * math.ceil(samples / self.batch(samples))

    @property
    def fast_path_obstacle(self) -> str | None:
        """Why many clients cannot be trained in one pass with these options; None if they can."""
        if self.estimator != "sgd":
            return f"estimator={self.estimator!r} keeps gradients per client"
        return None


def at_least_one(name: str, value: int | None) -> None:
    """Refuse a count below 1; None is no count."""
    if value is not None and value < 1:
        raise InvalidSetting(name, value, "at least 1")


def one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a word that is not among the choices."""
    if value not in choices:
        raise InvalidSetting(name, value, " or ".join(map(repr, choices)))
