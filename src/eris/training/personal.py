"""Parameters that stay with their client: a head, norms, or whatever is named.

The client trains its whole model; only the rest of it travels. Heads that stay local are FedPer's
(Arivazhagan et al., 2019), norms FedBN's (Li et al., 2021).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, cast

import numpy as np

from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.training.flat import state_with
from eris.training.torch import TorchTrainer
from eris.training.trainer import LocalUpdate

if TYPE_CHECKING:
    from torch import Tensor

LOCAL = "local"
"""What a client's own parameters are called in its state."""


class PersonalTrainer:
    """A client whose parameters of some names are its own.

    ``local`` are names as in a ``state_dict``, with * for any part: ``"head.*"``. They start as the
    module has them, follow the client's own steps, and are kept between rounds (``state()``; after
    ``fit`` in ``fit.kept``).

    >>> import torch
    >>> model, labels = torch.nn.Linear(2, 2), torch.arange(2)
    >>> plain = TorchTrainer(model, torch.eye(2), labels, learning_rate=0.1)
    >>> PersonalTrainer(plain, "bias").layout
    [('weight', (2, 2))]
    """

    def __init__(self, trainer: TorchTrainer, *local: str) -> None:
        self._trainer = trainer
        found = []
        kept: set[str] = set()
        for name, shape in trainer.layout:
            mine = [pattern for pattern in local if fnmatchcase(name, pattern)]
            kept.update(mine)
            found.append(np.full(math.prod(shape), bool(mine)))
        for pattern in local:
            if pattern not in kept:
                known = ", ".join(name for name, _ in trainer.layout)
                raise InvalidSetting("local parameters", pattern, f"a name among {known}")
        self._mine = np.concatenate(found)
        if self._mine.all() or not self._mine.any():
            expected = "some of the model's parameters, not all and not none"
            raise InvalidSetting("local parameters", list(local), expected)
        self._patterns = local
        self._start = trainer.initial()
        self._own = self._start[self._mine]

    @property
    def layout(self) -> list[tuple[str, tuple[int, ...]]]:
        """Name and shape of what travels."""
        return [
            (name, shape)
            for name, shape in self._trainer.layout
            if not any(fnmatchcase(name, pattern) for pattern in self._patterns)
        ]

    @property
    def samples(self) -> int:
        """How many the client has."""
        return self._trainer.samples

    @property
    def learning_rate(self) -> float:
        """The step of the client."""
        return self._trainer.learning_rate

    def initial(self) -> Vector:
        """What travels, as the module had it."""
        return np.asarray(self._start[~self._mine], np.float32)

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        """Train the whole model; return the update of what travels, and keep the rest."""
        made = self._trainer.update(self.whole(parameters), round)
        self._own = self._own - np.float32(self.learning_rate) * made.vector[self._mine]
        return replace(made, vector=made.vector[~self._mine])

    def evaluate(self, parameters: Vector) -> Mapping[str, float]:
        """How well the client's own model does: what travels, and its own parameters."""
        return cast(Mapping[str, float], self._trainer.evaluate(self.whole(parameters)))

    def whole(self, parameters: Vector) -> Vector:
        """The client's own model, flat: the given parameters and its own."""
        travelling = int((~self._mine).sum())
        if parameters.shape != (travelling,):
            expected = f"({travelling},), the values that travel"
            raise InvalidSetting("shape of the parameter vector", parameters.shape, expected)
        vector = np.empty(len(self._mine), np.float32)
        vector[self._mine], vector[~self._mine] = self._own, parameters
        return vector

    def state_dict(self, parameters: Vector) -> dict[str, Tensor]:
        """The ``state_dict`` of the client's own model: what travels as given, and its own."""
        return state_with(self._trainer.model, self.whole(parameters), self._trainer.layout)

    def state(self) -> dict[str, Vector]:
        """The client's own parameters, and what the plain trainer keeps."""
        return {**self._trainer.state(), LOCAL: self._own.copy()}

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()``; an empty one is that of a client that never trained."""
        own = state.get(LOCAL, self._start[self._mine])
        if own.shape != self._own.shape or own.dtype != np.float32:
            expected = f"float32 {self._own.shape}"
            raise InvalidSetting("local parameters", f"{own.dtype} {own.shape}", expected)
        self._trainer.restore({name: value for name, value in state.items() if name != LOCAL})
        self._own = own.copy()
