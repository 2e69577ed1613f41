"""A user's training code, found by the name that ``node.toml`` gives it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from eris.core.errors import ErisError, InvalidSetting
from eris.core.vectors import Vector
from eris.training.trainer import Learner


def load(where: str, folder: Path, name: str, options: Mapping[str, Any]) -> Learner:
    """The learner that ``module:function`` makes for a node.

    Modules are looked for in ``folder`` (that of ``node.toml``) first, and last in the folder the
    node was started from. The function is called with the node's name and the options of
    ``[training.options]``.
    """
    module_name, _, function_name = where.partition(":")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        expected = f"a module beside node.toml, in this folder, or installed ({error})"
        raise InvalidSetting("training.trainer", where, expected) from error
    made: Any = module
    for part in function_name.split("."):
        made = getattr(made, part, None)
    if not callable(made):
        expected = f"a function {function_name} in {getattr(module, '__file__', module_name)}"
        raise InvalidSetting("training.trainer", where, expected)
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
