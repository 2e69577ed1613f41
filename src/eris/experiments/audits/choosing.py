"""An owner that chooses its sets, and a client that stays away: what masks do not prevent.

Round r is closed on all clients, round r + 1 on all but k. Each sum is opened once, as agreed. In a
model that moves slowly the others' gradients nearly cancel in the difference of the two, and k's
are left. Who is left out by an owner that lies is shown in that owner's shard; who drops out by
itself is shown in all shards, to every member.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.gradients import SampleModel
from eris.audit.joint import RIDGE
from eris.audit.roc import roc
from eris.core.rules import server_rule
from eris.core.streams import Stream
from eris.data import load_digits
from eris.experiments.audits.opened_sums import Late, Lie, OpenedRound, opened_rounds
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.methods.privacy import LocalPrivacy
from eris.models.seeding import seeded
from eris.training.flat import flatten
from eris.training.vectorised import TorchPopulation

PIXELS, CLASSES, GREY = 64, 10, 16
RATE = 0.1
OWNERS = 8
VICTIM, LIAR = 0, 1


@cache
def digits() -> tuple[Tensor, Tensor, str]:
    """All digits as rows in [0, 1], their labels, and where they are from."""
    data = load_digits()
    images = np.concatenate([data.train_images, data.test_images]).reshape(-1, PIXELS)
    labels = np.concatenate([data.train_labels, data.test_labels]).astype(np.int64)
    return torch.from_numpy(images.astype(np.float32) / GREY), torch.from_numpy(labels), data.source


def network(seed: int, width: int) -> nn.Sequential:
    """64 – width – 10 with ReLU, as PyTorch initialises it."""

    def build() -> nn.Sequential:
        return nn.Sequential(nn.Linear(PIXELS, width), nn.ReLU(), nn.Linear(width, CLASSES))

    return seeded(build, seed)


@dataclass(frozen=True)
class DigitClients:
    """Clients with so many digits each, one full-batch step a round, secure sums; with ``epsilon``
    the noise that clients share, for so many rounds, single samples clipped to ``clip``."""

    clients: int
    samples: int
    width: int = 64
    epsilon: float | None = None
    rounds: int = 30
    clip: float = 1.0
    seed: int = 0

    @property
    def order(self) -> NDArray[np.int64]:
        """The digits in an order drawn by lot: clients have the first ones, in turn."""
        words = Stream(self.seed, "digits of clients").words(0, len(digits()[0]))
        return np.argsort(words, kind="stable")

    @property
    def trained_on(self) -> NDArray[np.int64]:
        """The places of all clients' digits."""
        return self.order[: self.clients * self.samples]

    def federation(self) -> Federation:
        """They may do without one of them."""
        inputs, labels, _ = digits()
        model = network(self.seed, self.width)
        parts = list(self.trained_on.reshape(self.clients, self.samples))
        population = TorchPopulation(model, inputs, labels, parts, learning_rate=RATE)
        noise = None if self.epsilon is None else LocalPrivacy(self.epsilon, clip=self.clip)
        return Federation(
            population, flatten(model),
            ERIS(aggregators=OWNERS, secure="2 of 3", privacy=noise),
            rule=server_rule("fedavg", learning_rate=RATE), samples=[self.samples] * self.clients,
            seed=self.seed, min_included=self.clients - 1,
        )  # fmt: skip


@dataclass(frozen=True)
class ChosenSets:
    """What came of one difference of two sums."""

    cosine: float
    """Of the difference with what k gave in the first round, on the coordinates that differ."""
    difference: float
    """AUC, k's samples against as many others."""
    one_sum: float
    """The same from the first of the two sums alone."""
    coordinates: int


def chosen_sets(world: DigitClients, round: int, *, lies: bool) -> ChosenSets:
    """Compare rounds ``round`` and the next, in which k is missing: left out by one owner that
    ``lies``, or by itself."""
    gone = VICTIM, round + 1
    how: dict[str, Any] = {"lie": Lie(LIAR, gone)} if lies else {"faults": Late(*gone)}
    federation = world.federation()
    seen = opened_rounds(federation, round + 1, planned=max(world.rounds, round + 1), **how)
    *_, before, after = seen
    return compared(world, before, after)


def compared(world: DigitClients, before: OpenedRound, after: OpenedRound) -> ChosenSets:
    """What the sums of two rounds tell about the client that is in the first alone."""
    lacking = np.flatnonzero((before.weights > after.weights) & (after.weights > 0))
    assert len(lacking), "no sum is without it"
    inputs, labels, _ = digits()
    order, count = world.order, world.samples
    others = order[world.clients * count :][:count]
    asked = torch.from_numpy(np.concatenate([order[:count], others]))
    samples = SampleModel(
        network(world.seed, world.width), functional.cross_entropy, inputs[asked], labels[asked]
    )
    rows = np.stack([row for _, row in samples.gradients(before.model)]).astype(np.float64)
    if world.epsilon is not None:  # as it is agreed, so known
        rows *= np.minimum(1, world.clip / np.linalg.norm(rows, axis=1))[:, None]
    rows = rows[:, lacking]
    difference = (before.sums - after.sums)[lacking].astype(np.float64)
    given = rows[:count].sum(axis=0)
    inside = np.arange(2 * count) < count
    return ChosenSets(
        float(difference @ given / (np.linalg.norm(difference) * np.linalg.norm(given))),
        roc(weights_of(rows, difference), inside).auc,
        roc(weights_of(rows, before.sums[lacking].astype(np.float64)), inside).auc,
        len(lacking),
    )


def weights_of(gradients: NDArray[np.float64], update: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weight of every gradient in an update, by ridge regression as in ``audit.joint``."""
    product = gradients @ gradients.T
    ridge = RIDGE * np.trace(product) / len(product)
    return np.linalg.solve(product + ridge * np.eye(len(product)), gradients @ update)
