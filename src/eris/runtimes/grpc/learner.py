"""A user's training code: found by the name in ``node.toml``, and asked how good a model is."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from eris.core.combine import MOST_SAMPLES
from eris.core.errors import ErisError, InvalidSetting
from eris.core.rules import FedAvg, ServerRule
from eris.core.vectors import Vector
from eris.named import named_function
from eris.protocol.round.giving import Job
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


def step_problem(learner: Learner, rule: ServerRule) -> str:
    """What a user has to know where the federation steps by another rate than the trainer; empty
    where it does not, or the trainer does not say.

    >>> class Small:
    ...     learning_rate = 0.2
    >>> step_problem(Small(), FedAvg(learning_rate=0.05))
    'the trainer steps by 0.2, the federation by 0.05: a round moves the model 0.25 times as far \
as the mean of its members; learning_rate in federation.rule_options is the step'
    >>> step_problem(Small(), FedAvg(learning_rate=0.2))
    ''
    """
    own = getattr(learner, "learning_rate", None)
    if not isinstance(rule, FedAvg) or not own or own == rule.learning_rate:
        return ""
    return (
        f"the trainer steps by {own:g}, the federation by {rule.learning_rate:g}: a round moves "
        f"the model {rule.learning_rate / own:.3g} times as far as the mean of its members; "
        "learning_rate in federation.rule_options is the step"
    )


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


def evaluating(
    learner: Learner,
    every: int,
    note: Callable[[int, dict[str, float], str], object],
    job: Job,
    train: Callable[[], object],
) -> Callable[[], object]:
    """Training that first asks, every so many rounds, how good the model is that it starts from.

    Both in one thread, for a module may be scratch space of both; what was found is noted in the
    event loop, with the last round that is in the model.
    """
    done = job.round - 1
    if getattr(learner, "evaluate", None) is None or every == 0 or done % every:
        return train
    loop = asyncio.get_running_loop()

    def both() -> object:
        loop.call_soon_threadsafe(note, done, *evaluated(learner, job.model.copy()))
        return train()

    return both


def evaluated(learner: Learner, model: Vector) -> tuple[dict[str, float], str]:
    """Metrics of a model by the user's ``evaluate``, and what is wrong: nothing, empty.

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
