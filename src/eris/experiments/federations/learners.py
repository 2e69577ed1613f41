"""Training code for nodes, ready made: what ``eris local`` and the demonstration train."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import torch

from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.data import iid
from eris.data.images import ImageData
from eris.experiments.federations.processes import fetched_mnist
from eris.models.lenet import lenet5
from eris.training.torch import TorchTrainer, evaluate, flatten, normalise, single_threaded
from eris.training.trainer import LocalUpdate, PerSampleClip, PerSampleNoise


class Mnist:
    """LeNet-5 on one member's share of MNIST, one epoch a round; the same bits wherever it runs.

    A server has no share: its ``member`` is None, and it only evaluates.
    """

    def __init__(
        self, member: int | None, members: int, samples: int, batch_size: int, rate: float,
        seed: int,
    ) -> None:  # fmt: skip
        data, module = _data(), lenet5(seed)
        self._module, self._start, self.samples = module, flatten(module), samples
        if member is None:
            return
        part = iid(len(data.train_images), members, samples, seed)[member]
        # A node normalises what it trains on, not all sixty thousand images.
        self.trainer = TorchTrainer(
            module,
            normalise(data.train_images[part]),
            _labels(data.train_labels[part]),
            client=member,
            learning_rate=rate,
            epochs=1,
            batch_size=batch_size,
            seed=seed,
        )

    def initial(self) -> Vector:
        """The network as it was drawn."""
        return self._start

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        """One epoch over the member's samples."""
        with single_threaded():
            return self.trainer.update(parameters, round)

    @property
    def uses_of_a_sample(self) -> int:
        """How often a round uses a sample, for noise per sample."""
        return self.trainer.uses_of_a_sample

    def private_update(self, parameters: Vector, round: int, noise: PerSampleNoise) -> LocalUpdate:
        """As ``update``, with every sample's gradient clipped, and noise in every step."""
        with single_threaded():
            return self.trainer.private_update(parameters, round, noise)

    def check_clipping(self, parameters: Vector, *, packed: bool = False) -> None:
        """Refuse a batch that is not all of the member's samples, for noise per sample."""
        self.trainer.check_clipping(parameters, packed=packed)

    def clipped_update(self, parameters: Vector, round: int, clip: PerSampleClip) -> LocalUpdate:
        """The sum of the member's clipped gradients."""
        return self.trainer.clipped_update(parameters, round, clip)

    def evaluate(self, parameters: Vector) -> Mapping[str, float]:
        """Accuracy on all test images."""
        data = _data()
        images, wanted = normalise(data.test_images), _labels(data.test_labels)
        with single_threaded():
            found = evaluate(self._module, parameters, images, wanted, batch_size=256)
        return {"accuracy": found["accuracy"]}


def mnist(
    name: str,
    *,
    member: int | None = None,
    members: int,
    samples: int = 500,
    batch_size: int = 25,
    learning_rate: float = 0.05,
    seed: int = 0,
) -> Mnist:
    """The learner of member number ``member`` of ``members`` with equal shares of MNIST; without a
    number, of a server."""
    if member is not None and not 0 <= member < members:
        raise InvalidSetting("training.options.member", member, f"0 to {members - 1}")
    return Mnist(member, members, samples, batch_size, learning_rate, seed)


@cache
def _data() -> ImageData:
    return fetched_mnist(lambda line: None)


def _labels(labels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> torch.Tensor:
    return torch.from_numpy(labels.astype(np.int64))
