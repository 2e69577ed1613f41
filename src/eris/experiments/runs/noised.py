"""One training with shared noise per sample: MNIST, FedAvgM, every client in every round.

Clients clip, add their noise and round as they would before masking; what a sum would open is the
sum of their words (:mod:`eris.protocol.secure`: masks cancel, exactly), so it is added up here in
the clear. That is the same bits, without the pads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from time import process_time
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from eris.core.compress import RandP
from eris.core.errors import InvalidSetting
from eris.core.exact_clip import Arranged
from eris.core.rotation import Rotation
from eris.core.rules import FedAvgM, Slots
from eris.core.streams import Stream
from eris.core.vectors import Indices, Vector
from eris.data import load_mnist
from eris.data.partition import iid
from eris.models.lenet import lenet5
from eris.models.seeding import seeded
from eris.models.softmax import Softmax
from eris.protocol.schemes import Rotated
from eris.protocol.secure.noise_terms import SharedNoise
from eris.protocol.secure.noising import SharedNoising
from eris.protocol.settings import Settings
from eris.training.flat import flatten
from eris.training.torch import evaluate, normalise, single_threaded
from eris.training.trainer import PerSampleClip, Rows
from eris.training.vectorised import TorchPopulation

CLIENTS, ROUNDS, MOMENTUM, COLLUDERS = 50, 160, 0.9, 1
VALIDATION = 5000
"""Training images that no client has: rates are chosen on them."""
KEPT = 0.033
"""The share that is kept, in a rotated basis, where DSC is on."""
RING_BYTES = 8
CLIPS = {"softmax": 1.0, "lenet5": 0.5}
UNBOUNDED = 2.0**14
"""A clip that no gradient reaches."""

Noise = Literal["none", "clipped", "shared", "local"]


@dataclass(frozen=True)
class NoisedTraining:
    """What is trained; ``rate`` is the server's step times the clip (of ``none``, the step).

    ``local`` gives every client alone the ε that ``shared`` gives readers of the sum.
    """

    model: str
    samples: int
    noise: Noise
    epsilon: float
    dsc: bool
    rate: float
    seed: int = 0
    rounds: int = ROUNDS

    @property
    def clip(self) -> float:
        """C; with DSC of the kept part, as much shorter as that is."""
        whole = UNBOUNDED if self.noise == "none" else CLIPS[self.model]
        return whole * math.sqrt(KEPT) if self.dsc else whole

    @property
    def step(self) -> float:
        """The server's step."""
        return self.rate if self.noise == "none" else self.rate / CLIPS[self.model]

    @property
    def terms(self) -> SharedNoise:
        """The noise as members would agree on it; of what has none, its grid."""
        planned = SharedNoise.planned(
            "sample", self.epsilon, clip=self.clip, rounds=ROUNDS, clients=CLIENTS,
            samples=self.samples, min_included=CLIENTS, colluders=COLLUDERS,
        )  # fmt: skip
        return replace(planned, of_a_client=planned.sigma) if self.noise == "local" else planned

    @property
    def noise_of_a_sum(self) -> float:
        """Its standard deviation where all clients are included, in clips."""
        if self.noise in ("none", "clipped"):
            return 0.0
        return self.terms.std * math.sqrt(CLIENTS) / self.clip


def walk(training: NoisedTraining, parameters: int) -> float:
    """W: how far noise alone moves the model over all rounds.

    Where it is two or three times the norm that the model starts with, rates have been seen to be
    good; a rate follows from it without a look at private data (:func:`rate_for`).
    """
    spread = training.noise_of_a_sum * math.sqrt(parameters * ROUNDS)
    return training.rate * spread / ((1 - MOMENTUM) * CLIENTS * training.samples)


def rate_for(training: NoisedTraining, parameters: int, wanted: float) -> float:
    """The rate at which noise alone moves the model so far, two digits of it."""
    return float(f"{wanted / walk(replace(training, rate=1.0), parameters):.2g}")


def network(model: str, seed: int) -> nn.Module:
    """The model to start from."""
    if model == "softmax":
        return seeded(lambda: Softmax((1, 28, 28), 10), seed)
    if model == "lenet5":
        return lenet5(seed)
    raise InvalidSetting("model", model, "softmax or lenet5")


@dataclass(frozen=True, eq=False)
class Images:
    """Inputs and labels."""

    inputs: Tensor
    labels: Tensor

    def at(self, places: Indices) -> Images:
        """Some of them."""
        chosen = torch.from_numpy(places)
        return Images(self.inputs[chosen], self.labels[chosen])


@cache
def mnist() -> tuple[str, Images, Images]:
    """Where it is from, training and test images."""
    data = load_mnist()
    sets = [
        Images(normalise(images), torch.from_numpy(labels.astype(np.int64)))
        for images, labels in (
            (data.train_images, data.train_labels),
            (data.test_images, data.test_labels),
        )
    ]
    return data.source, sets[0], sets[1]


def trained(training: NoisedTraining, tell: Callable[[float], None]) -> dict[str, Any]:
    """Accuracy by round, and on images that neither trained nor test, as JSON has them."""
    began = process_time()
    _, images, test = mnist()
    order = np.concatenate(iid(len(images.labels), 1, None, training.seed))
    parts = order[: CLIENTS * training.samples].reshape(CLIENTS, training.samples)
    held_out = images.at(order[-VALIDATION:])
    model = network(training.model, training.seed)
    clients = TorchPopulation(
        model, images.inputs, images.labels, list(parts), path="loop", learning_rate=1.0
    )
    shown: dict[str, float] = {}
    with single_threaded():
        for done, x in enumerate(course(training, clients, flatten(model)), start=1):
            tell(done / training.rounds)
            if done in (training.rounds // 2, 3 * training.rounds // 4, training.rounds):
                shown[str(done)] = evaluate(model, x, test.inputs, test.labels)["accuracy"]
        validated = evaluate(model, x, held_out.inputs, held_out.labels)["accuracy"]
    return {
        "training": asdict(training),
        "parameters": len(x),
        "noise of a sum in clips": training.noise_of_a_sum,
        "walk": walk(training, len(x)),
        "validation": validated,
        "test": shown,
        "norm": float(np.linalg.norm(x)),
        "cpu seconds": process_time() - began,
    }


def course(training: NoisedTraining, clients: TorchPopulation, initial: Vector) -> Iterator[Vector]:
    """The model after every round."""
    terms, grid = training.terms, training.terms.grid(RING_BYTES)
    noising = [
        SharedNoising(terms, grid, "simulated", _chain_key(training.seed, client), _uncharged)
        for client in range(CLIENTS)
    ]
    noisy = training.noise in ("shared", "local")
    # Words are on the ring's grid, what has no noise stays on the fine one.
    unit = 2.0 ** (grid.places if noisy else grid.fine_places)
    divisor = terms.divisor(CLIENTS * training.samples) * unit
    rule = FedAvgM(training.step, MOMENTUM)
    basis = _Rotated(training, rule, initial) if training.dsc else _Dense(len(initial))
    y = basis.enter(initial)
    slots: Slots = (np.zeros_like(y),)
    for round in range(training.rounds):
        clip = PerSampleClip(training.clip, grid.fine_places, basis.select(round))
        total: Any = 0
        updates = clients.clipped_updates(range(CLIENTS), basis.leave(y), round, clip)
        for client, update in enumerate(updates):
            assert update.content is not None
            words = noising[client].words(update.content, round) if noisy else update.content
            total = total + words
        mean = (total / divisor).astype(np.float32)
        y, slots = rule.step(y, basis.increment(mean, round), slots, round + 1, 1.0)
        yield basis.leave(y)


class _Dense:
    """All coordinates, in their order."""

    def __init__(self, n: int) -> None:
        self.n = n

    def enter(self, x: Vector) -> Vector:
        return x

    def leave(self, y: Vector) -> Vector:
        return y

    def select(self, round: int) -> Callable[[Rows], Rows]:
        return Arranged(np.arange(self.n))

    def increment(self, mean: Vector, round: int) -> Vector:
        return mean


class _Rotated(_Dense):
    """A kept set a round in a rotated basis, with the usual limit of the momentum's steps."""

    def __init__(self, training: NoisedTraining, rule: FedAvgM, initial: Vector) -> None:
        scheme = Rotated(RandP(KEPT)).fitted(rule, initial)
        settings = Settings(len(initial), rule=rule, scheme=scheme, seed=training.seed)
        super().__init__(settings.places)
        assert isinstance(scheme, Rotated)
        self._scheme, self._seed = scheme, training.seed
        self._largest = np.float32(scheme.largest_entry(settings))
        self._rotation = Rotation(len(initial), training.seed)

    def enter(self, x: Vector) -> Vector:
        return self._rotation.forward(x)

    def leave(self, y: Vector) -> Vector:
        return self._rotation.back(y)

    def _places(self, round: int) -> Indices:
        kept = self._scheme.compressor.kept(self.n, Stream(self._seed, "mask", round))
        return kept.among(np.arange(self.n))

    def select(self, round: int) -> Callable[[Rows], Rows]:
        places = self._places(round)
        return lambda rows: self._rotation.forward_at(places, rows)

    def increment(self, mean: Vector, round: int) -> Vector:
        whole = np.zeros(self.n, np.float32)
        scaled = mean * np.float32(1 / KEPT)
        whole[self._places(round)] = np.clip(scaled, -self._largest, self._largest)
        return whole


def _chain_key(seed: int, client: int) -> bytes:
    """Of a simulation alone: whoever knows the seed can take the noise off."""
    return Stream(seed, "noise-chain", client=client).words(0, 8).tobytes()


def _uncharged(round: int, tag: bytes) -> None:
    """A simulation has no ledger."""
