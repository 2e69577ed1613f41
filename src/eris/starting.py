"""What a federation starts from: clients, method and rule as a person names them, and the model as
one flat vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from eris.core.errors import InvalidSetting
from eris.core.rules import FedAvg, ServerRule, server_rule
from eris.core.vectors import Vector
from eris.methods.eris import ERIS
from eris.methods.method import GossipMethod, Method
from eris.methods.registry import create
from eris.training.population import Population
from eris.training.trainer import Layout, Trainer

ADAPTERS = {
    "state_dict": "eris.training.torch.TorchTrainer(module, inputs, targets, learning_rate=…)",
    "get_parameters": "eris.training.flower.FlowerTrainer(client)",
    "predict": "eris.training.sklearn.SklearnTrainer(model, inputs, targets, classes=…)",
}
"""What makes a trainer of something that is none, by a method that tells what it is."""


def check_trainers(clients: Sequence[Trainer], names: Sequence[str]) -> None:
    """Refuse what is no trainer, before anything has trained.

    >>> check_trainers([object()], ["anna"])
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: trainer of anna is 'object'; expected an object with \
update(parameters, round)
    """
    for name, client in zip(names, clients, strict=True):
        if not callable(getattr(client, "update", None)):
            known = [how for method, how in ADAPTERS.items() if hasattr(client, method)]
            expected = "an object with update(parameters, round)"
            expected += f"; {known[0]} makes one of it" if known else ""
            raise InvalidSetting(f"trainer of {name}", type(client).__name__, expected)


def chosen_method(method: Method | GossipMethod | str | None) -> Method | GossipMethod:
    """A method, by its name if that is given; if none is said, ERIS.

    >>> chosen_method("fedavg").name
    'fedavg'
    """
    if isinstance(method, str):
        return create(method)
    if method is not None and not isinstance(getattr(method, "name", None), str):
        raise InvalidSetting("method", type(method).__name__, "a method, such as eris.ERIS()")
    return method or ERIS()


def starting_point(model: Any, population: Population) -> tuple[Vector, Layout | None]:
    """The flat model that a federation starts from, and what its parameters are called.

    >>> from eris.training.population import Trainers
    >>> starting_point([1, 2], Trainers([]))
    (array([1., 2.], dtype=float32), None)
    """
    layout: Layout | None = getattr(population, "layout", None) if len(population) else None
    if model is None:
        found = getattr(population, "initial", lambda: None)()
        if found is None:
            expected = "a flat vector, a module or a state_dict, or clients that have initial()"
            raise InvalidSetting("model", None, expected)
        return np.array(found, np.float32), layout
    if hasattr(model, "named_parameters"):
        from eris.training.flat import FlatParameters

        flat, state = FlatParameters(model), model.state_dict()
        if layout is not None and all(name in state for name, _ in layout):
            return flat_state(state, layout), layout  # by name: some may stay with the clients
        vector = flat.read().cpu().numpy()
        return _fitting(vector, layout, type(model).__name__), layout or flat.layout
    if isinstance(model, Mapping):
        return flat_state(model, layout), layout
    vector = np.array(model, np.float32)
    if vector.ndim != 1 or not np.isfinite(vector).all():
        found = f"shape {vector.shape}"
        raise InvalidSetting("initial", found, "a flat vector of finite values")
    return _fitting(vector, layout, "vector"), layout


def _fitting(model: Vector, layout: Layout | None, kind: str) -> Vector:
    """The model, if it has as many values as the clients train."""
    if layout is not None and (wanted := sum(prod(shape) for _, shape in layout)) != len(model):
        expected = f"{wanted} values: what the clients train"
        raise InvalidSetting("model", f"a {kind} of {len(model)} values", expected)
    return model


def flat_state(state: Mapping[str, Any], layout: Layout | None) -> Vector:
    """A ``state_dict`` as the flat vector of this layout; what does not travel is left out.

    >>> flat_state({"bias": [3.0], "weight": [[1.0, 2.0]]}, [("weight", (1, 2)), ("bias", (1,))])
    array([1., 2., 3.], dtype=float32)
    """
    if layout is None:
        expected = "a flat vector or a module: these clients do not know their parameters by name"
        raise InvalidSetting("model", "a state_dict", expected)
    pieces = []
    for name, shape in layout:
        if name not in state:
            raise InvalidSetting("state_dict", f"without {name}", "all that the clients train")
        value = state[name]
        piece = np.asarray(value.cpu() if hasattr(value, "cpu") else value, np.float32)
        if piece.shape != shape:
            raise InvalidSetting(f"shape of {name} in the state_dict", piece.shape, str(shape))
        pieces.append(piece.reshape(-1))
    return np.concatenate(pieces)


def chosen_rule(rule: ServerRule | str | None, population: Population) -> ServerRule:
    """The server's rule; if none is said FedAvg by the clients' own step, which sets the model to
    the mean of theirs."""
    if isinstance(rule, ServerRule):
        return rule
    if rule is not None:
        return server_rule(rule)
    rate: float | None = getattr(population, "learning_rate", None)
    return FedAvg() if rate is None else FedAvg(learning_rate=rate)
