"""A Flower client as a trainer: any object with ``fit``, and what else a ``NumPyClient`` has.

The package itself is not needed. A round calls
``fit(parameters, config)`` with the model as a list of arrays, and the update is what leads from
there to the arrays that it returns: (x − x_k)/λ with λ = 1, so that a server's step of 1 sets the
model to the clients' mean, as Flower's FedAvg does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.training.trainer import LocalUpdate

Arrays = Sequence[NDArray[Any]]
LARGEST = 1 << 24
"""Whole numbers up to this one are held by float32, in which models travel."""


class FlowerClient(Protocol):
    """What is needed of a ``NumPyClient``."""

    def get_parameters(self, config: Any) -> Any:
        """The model as a list of arrays."""

    def fit(self, parameters: Any, config: Any) -> Any:
        """(arrays after training, samples, metrics)."""

    def evaluate(self, parameters: Any, config: Any) -> Any:
        """(loss, samples, metrics)."""


class FlowerTrainer:
    """One client that was written for Flower.

    ``config`` is what its methods are called with, beside ``server_round``. ``initial`` are the
    arrays that everyone starts from; without them the client's ``get_parameters`` is asked. A
    client that is wrapped already (``to_client()``) is unwrapped. Arrays keep their types: whole
    numbers, as batch norm's counters are, are averaged and rounded.

    >>> class Mean:
    ...     "A client that moves half the way to 1."
    ...     def get_parameters(self, config):
    ...         return [np.zeros((1, 2)), np.zeros(1)]
    ...     def fit(self, parameters, config):
    ...         return [(array + 1) / 2 for array in parameters], 10, {}
    ...     def evaluate(self, parameters, config):
    ...         return float(1 - parameters[1][0]), 10, {"round": config["server_round"]}
    >>> trainer = FlowerTrainer(Mean())
    >>> trainer.update(trainer.initial(), round=1).vector
    array([-0.5, -0.5, -0.5], dtype=float32)
    >>> trainer.evaluate(np.ones(3, np.float32))
    {'loss': 0.0, 'samples': 10, 'round': 1}
    """

    learning_rate = 1.0

    def __init__(
        self,
        client: FlowerClient,
        config: Mapping[str, Any] | None = None,
        *,
        initial: Arrays | None = None,
    ) -> None:
        client = getattr(client, "numpy_client", client)
        asked = ("fit",) if initial is not None else ("get_parameters", "fit")
        for method in asked:
            if not callable(getattr(client, method, None)):
                expected = f"a NumPyClient of Flower, which has {method}"
                if method == "get_parameters":
                    expected += "; without it, say the arrays to start from: initial=[...]"
                raise InvalidSetting("client", type(client).__name__, expected)
        self._client, self._config, self._round = client, dict(config or {}), 0
        whose = "get_parameters() returned" if initial is None else "initial is"
        given = client.get_parameters(self._given(0)) if initial is None else initial
        arrays = [np.asarray(array) for array in given]
        if not arrays or any(array.dtype.kind not in "fiu" for array in arrays):
            expected = "a list of arrays of numbers, or the arrays to start from as initial=[...]"
            raise InvalidSetting(f"what {whose}", _kinds(arrays), expected)
        self._shapes = [(array.shape, array.dtype) for array in arrays]
        self._start = self._flat(arrays, whose).astype(np.float32)

    @property
    def layout(self) -> list[tuple[str, tuple[int, ...]]]:
        """The arrays by their numbers, for Flower gives them no names."""
        return [(str(number), shape) for number, (shape, _) in enumerate(self._shapes)]

    def initial(self) -> Vector:
        """What everyone starts from, as it was when the trainer was made."""
        return self._start.copy()

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        """What leads from ``parameters`` to what ``fit`` makes of them."""
        self._round = round
        made = self._client.fit(self._arrays(parameters), self._given(round))
        arrays, samples, metrics = _three("fit()", made)
        trained = self._flat([np.asarray(array) for array in arrays], "fit() returned")
        vector = (parameters.astype(np.float64) - trained).astype(np.float32)
        return LocalUpdate(vector, int(samples), metrics=dict(metrics or {}))

    def evaluate(self, parameters: Vector) -> dict[str, float]:
        """The loss, the samples and the metrics that ``evaluate`` gives; nothing of a client
        without one, or whose own says that it asked no sample, as Flower's default does."""
        if not callable(getattr(self._client, "evaluate", None)):
            return {}
        given = self._given(max(1, self._round))
        made = self._client.evaluate(self._arrays(parameters), given)
        loss, samples, metrics = _three("evaluate()", made)
        if not samples:
            return {}
        return {"loss": float(loss), "samples": int(samples), **dict(metrics or {})}

    def _given(self, round: int) -> dict[str, Any]:
        return {**self._config, "server_round": round}

    def _arrays(self, parameters: Vector) -> list[NDArray[Any]]:
        found, start = [], 0
        for shape, kind in self._shapes:
            piece = parameters[start : start + math.prod(shape)].reshape(shape)
            start += math.prod(shape)
            found.append((piece if kind.kind == "f" else np.rint(piece)).astype(kind))
        return found

    def _flat(self, arrays: Arrays, whose: str) -> NDArray[np.float64]:
        if [array.shape for array in arrays] != [shape for shape, _ in self._shapes]:
            expected = f"arrays of shapes {[shape for shape, _ in self._shapes]}"
            raise InvalidSetting(f"what {whose}", _kinds(arrays), expected)
        for array in arrays:
            if array.dtype.kind != "f" and array.size and int(abs(array).max()) > LARGEST:
                expected = f"whole numbers up to {LARGEST}, which float32 holds"
                raise InvalidSetting(f"what {whose}", str(abs(array).max()), expected)
        return np.concatenate([array.astype(np.float64).reshape(-1) for array in arrays])


def _three(whose: str, made: Any) -> tuple[Any, Any, Any]:
    if not isinstance(made, tuple) or len(made) != 3:
        expected = "a tuple of three, as Flower's NumPyClient returns"
        raise InvalidSetting(f"what {whose} returned", type(made).__name__, expected)
    return made


def _kinds(arrays: Arrays) -> str:
    return ", ".join(f"{array.dtype} {array.shape}" for array in arrays) or "nothing"
