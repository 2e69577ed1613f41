"""SCAFFOLD (Karimireddy et al., 2020), option II, as a flat model [x; c] of twice the length.

Client k keeps a control variate c_k, all share c. A round's K steps are y ← y − λ(g(y) − c_k + c);
then Δc_k = (x − y)/(Kλ) − c, c_k ← c_k + Δc_k, and the server sets

    x ← x − λ_s·mean_k (x − y_k)/λ,        c ← c + (participation)·mean_k Δc_k.

Both are one FedAvg step of rate λ_s on the update [(x − y)/λ; −participation·Δc_k/λ_s]. So control
variates are cut into shards, sent and averaged like everything else, and no part of the protocol
knows of them. Every other server rule would treat c as a model, which it is not.

Weights are the clients' numbers of samples as everywhere (the paper weighs clients alike: then give
all as many). A client whose contribution is lost has moved its c_k all the same; c is then no
longer the mean of all c_k until it takes part again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import numpy as np

from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.training.torch import LocalTraining, TorchTrainer, parameter_count
from eris.training.trainer import LocalUpdate


def scaffold_initial(parameters: Vector) -> Vector:
    """The flat model to start a federation from: the parameters, and a control variate of zeros.

    >>> scaffold_initial(np.array([1, 2], np.float32))
    array([1., 2., 0., 0.], dtype=float32)
    """
    return np.concatenate([parameters, np.zeros_like(parameters)])


def scaffold_model(vector: Vector) -> Vector:
    """The parameters in a flat model of SCAFFOLD, to evaluate.

    >>> scaffold_model(np.array([1, 2, 0, 0], np.float32))
    array([1., 2.], dtype=float32)
    """
    return _halves(vector)[0].copy()


class ScaffoldTrainer:
    """One client under SCAFFOLD: a plain trainer, and the control variate it keeps.

    ``server_learning_rate`` is that of the FedAvg rule the federation runs with; by default it is
    the trainer's, which sets x to the mean of the clients' models. ``participation`` is the share
    of the clients that take part in a round.
    """

    fast_path_obstacle = "SCAFFOLD keeps a control variate per client"

    def __init__(
        self,
        trainer: TorchTrainer,
        *,
        server_learning_rate: float | None = None,
        participation: float = 1.0,
    ) -> None:
        _check_plain(trainer.options)
        rate = server_learning_rate
        if rate is None:
            rate = trainer.options.learning_rate
        if not 0 < rate < float("inf"):
            raise InvalidSetting("server_learning_rate", rate, "a finite number above 0")
        if not 0 < participation <= 1:
            raise InvalidSetting("participation", participation, "a number in (0, 1]")
        self._trainer, self._scale = trainer, -participation / rate
        self._control: Vector | None = None

    @property
    def learning_rate(self) -> float:
        """The step of the plain trainer."""
        return self._trainer.learning_rate

    def initial(self) -> Vector:
        """The plain trainer's model, and a control variate of zeros."""
        return scaffold_initial(self._trainer.initial())

    def evaluate(self, parameters: Vector) -> Mapping[str, float]:
        """How well the parameters in [x; c] do, by the plain trainer."""
        return cast(Mapping[str, float], self._trainer.evaluate(scaffold_model(parameters)))

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        """Train from ``parameters``, which are [x; c], and return the update of both."""
        model, shared = _halves(parameters)
        own = np.zeros_like(shared) if self._control is None else self._control
        local = self._trainer.corrected_update(model, round, shared - own)
        change = local.vector / np.float32(local.steps) - shared
        self._control = own + change
        both = np.concatenate([local.vector, np.float32(self._scale) * change])
        return replace(local, vector=both)

    def state(self) -> dict[str, Vector]:
        """The control variate, once there is one, and what the plain trainer keeps."""
        control = {} if self._control is None else {"control": self._control.copy()}
        return self._trainer.state() | control

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()``; an empty one is that of a client that never trained."""
        rest = {name: value for name, value in state.items() if name != "control"}
        control = state.get("control")
        expected = (parameter_count(self._trainer.model),)
        if control is not None and (control.dtype != np.float32 or control.shape != expected):
            found = f"{control.dtype} {control.shape}"
            raise InvalidSetting("control variate", found, f"float32 {expected}")
        self._trainer.restore(rest)
        self._control = None if control is None else control.copy()


def _halves(vector: Vector) -> tuple[Vector, Vector]:
    if vector.ndim != 1 or len(vector) % 2:
        expected = "(2n,), a model and its control variate: start from scaffold_initial(model)"
        raise InvalidSetting("shape of the SCAFFOLD vector", vector.shape, expected)
    middle = len(vector) // 2
    return vector[:middle], vector[middle:]


def _check_plain(options: LocalTraining) -> None:
    # (x − y)/(Kλ) is the mean of the corrected gradients for plain steps only.
    if options.running_statistics == "averaged":
        expected = "another choice under SCAFFOLD, which corrects gradients"
        raise InvalidSetting("running_statistics", options.running_statistics, expected)
    for name, plain in (
        ("optimiser", "sgd"),
        ("momentum", 0.0),
        ("estimator", "sgd"),
        ("proximal", 0.0),
    ):
        if getattr(options, name) != plain:
            raise InvalidSetting(name, getattr(options, name), f"{plain!r} under SCAFFOLD")
