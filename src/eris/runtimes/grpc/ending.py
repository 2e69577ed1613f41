"""What a node says when its training is over: how good the model is, and what was wrong."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

import numpy as np

from eris.core.vectors import Vector
from eris.training.trainer import Learner

_log = logging.getLogger("eris.node")


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
