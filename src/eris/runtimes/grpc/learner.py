"""A user's training code: found by the name in ``node.toml``, and asked how good a model is."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from eris.core.combine import MOST_SAMPLES
from eris.core.errors import ErisError, InvalidSetting
from eris.core.vectors import Vector
from eris.named import named_function
from eris.training.trainer import Learner

_log = logging.getLogger("eris.node")


def load(where: str, folder: Path, name: str, options: Mapping[str, Any]) -> Learner:
    """The learner that ``module:function`` makes for a node.

    Modules are looked for in ``folder`` (that of ``node.toml``), then in the folder the node was
    started from. The function is called with the node's name and the options of
    ``[training.options]``.
    """
    made = named_function("training.trainer", where, [folder, Path.cwd()])
    try:
        learner = made(name, **options)
    except ErisError:
        raise
    except TypeError as error:
        expected = f"keys that {where} takes ({error})"
        raise InvalidSetting("training.options", dict(options), expected) from error
    except SystemExit as left:
        expected = "an object with initial() and update(parameters, round)"
        raise InvalidSetting(f"what {where} did", f"sys.exit({left.code})", expected) from left
    if not isinstance(learner, Learner):
        expected = "an object with initial() and update(parameters, round)"
        raise InvalidSetting(f"what {where} returned", type(learner).__name__, expected)
    return learner


def initial_model(learner: Learner) -> Vector:
    """The model a learner starts from, checked."""
    model = np.asarray(learner.initial())
    if model.ndim != 1 or model.dtype != np.float32 or not np.isfinite(model).all():
        found = f"{model.dtype} array of shape {model.shape}"
        raise InvalidSetting("what initial() returned", found, "a flat float32 array, all finite")
    return model


def declared_samples(learner: Learner) -> int:
    """The samples that a learner says it has, for methods that weigh clients by what they declare.

    >>> class Small:
    ...     samples = 20
    >>> declared_samples(Small())
    20
    """
    found = getattr(learner, "samples", None)
    if isinstance(found, np.integer):
        found = int(found)
    if type(found) is not int or not 1 <= found <= MOST_SAMPLES:
        expected = f"a whole number from 1 to {MOST_SAMPLES}: the method weighs clients by it"
        raise InvalidSetting("what the trainer has as `samples`", found, expected)
    return found


def evaluated(learner: Learner, model: Vector) -> tuple[dict[str, float], str]:
    """Metrics of the final model by the user's ``evaluate``, and what is wrong: nothing, empty.

    >>> class Careless:
    ...     def evaluate(self, parameters):
    ...         return {"loss": float("nan")}
    >>> evaluated(Careless(), np.zeros(3, np.float32))
    ({'loss': nan}, 'evaluate() gives loss nan')
    """
    wrong = int((~np.isfinite(model)).sum())
    problem = f"{wrong} of {len(model)} values of the model are not finite" if wrong else ""
    evaluate = getattr(learner, "evaluate", None)
    if evaluate is None:
        return {}, problem
    try:
        found = evaluate(model)
        if not isinstance(found, Mapping):
            raise TypeError(f"it returned {type(found).__name__}, not a mapping")
        metrics = {str(key): float(value) for key, value in found.items()}
    except BaseException as error:  # sys.exit() of the user's code, too
        _log.error("evaluate() raised", exc_info=error)
        return {}, problem or f"evaluate() failed: {type(error).__name__}: {error}"
    strange = [f"{key} {value}" for key, value in metrics.items() if not math.isfinite(value)]
    if strange and not problem:
        problem = f"evaluate() gives {', '.join(strange)}"
    return metrics, problem
