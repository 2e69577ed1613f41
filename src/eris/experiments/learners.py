"""Training code for nodes, ready made: what ``eris local`` and the demonstration train."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from eris.core.errors import DataUnavailable, InvalidSetting
from eris.core.vectors import Vector
from eris.data import fetch, iid, load_mnist
from eris.models.lenet import lenet5
from eris.training.torch import TorchTrainer, evaluate, flatten, normalise, torch_clients
from eris.training.trainer import LocalUpdate


class Mnist:
    """LeNet-5 on one member's share of MNIST, one epoch a round."""

    def __init__(self, trainer: TorchTrainer, start: Vector, module: torch.nn.Module) -> None:
        self._trainer, self._start, self._module = trainer, start, module

    def initial(self) -> Vector:
        """The network as it was drawn."""
        return self._start

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        """One epoch over the member's samples."""
        return self._trainer.update(parameters, round)

    def evaluate(self, parameters: Vector) -> Mapping[str, float]:
        """Accuracy on the test images."""
        data = load_mnist()
        wanted = torch.from_numpy(data.test_labels.astype(np.int64))
        found = evaluate(
            self._module, parameters, normalise(data.test_images), wanted, batch_size=256
        )
        return {"accuracy": found["accuracy"]}


def mnist(
    name: str,
    *,
    member: int,
    members: int,
    samples: int = 500,
    batch_size: int = 25,
    learning_rate: float = 0.05,
    seed: int = 0,
) -> Mnist:
    """The learner of member number ``member`` of ``members`` with equal shares of MNIST."""
    if not 0 <= member < members:
        raise InvalidSetting("training.options.member", member, f"0 to {members - 1}")
    torch.set_num_threads(1)
    return Mnist(*mnist_parts(members, samples, batch_size, learning_rate, seed)[member])


def mnist_parts(
    members: int, samples: int, batch_size: int, learning_rate: float, seed: int
) -> list[tuple[TorchTrainer, Vector, torch.nn.Module]]:
    """Trainer, initial model and network of every member."""
    try:
        data = load_mnist()
    except DataUnavailable:
        fetch("mnist", progress=lambda line: None)
        data = load_mnist()
    module = lenet5(seed)
    start = flatten(module)
    parts = iid(len(data.train_images), members, samples, seed)
    trainers = torch_clients(
        module,
        normalise(data.train_images),
        torch.from_numpy(data.train_labels.astype(np.int64)),
        parts,
        learning_rate=learning_rate,
        epochs=1,
        batch_size=batch_size,
        seed=seed,
    )
    return [(trainer, start, module) for trainer in trainers]
