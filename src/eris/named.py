"""A user's own function, found by its name: ``module:function``."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eris.core.errors import ErisError, InvalidSetting


def is_named(name: str) -> bool:
    """Whether a name is that of a function.

    >>> is_named("my_data:load"), is_named("mnist")
    (True, False)
    """
    module, colon, function = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in f"{module}.{function}".split("."))


def named_function(what: str, name: str, folders: Sequence[Path] = ()) -> Callable[..., Any]:
    """The function called ``module:function``; ``what`` is the setting that names it.

    The module is looked for in ``folders`` (if none are given, in the one this process was started
    from), then among those installed.

    >>> named_function("loss", "math:sqrt")(4.0)
    2.0
    """
    if not is_named(name):
        raise InvalidSetting(what, name, "module:function, such as my_training:make_trainer")
    module_name, _, function = name.partition(":")
    places = [str(folder) for folder in folders or [Path.cwd()]]
    sys.path[:0] = [place for place in dict.fromkeys(places) if place not in sys.path]
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        expected = f"a module in {', '.join(places)} or installed ({_said(error)})"
        raise InvalidSetting(what, name, expected) from error
    file = getattr(found, "__file__", module_name)
    for part in function.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise InvalidSetting(what, name, f"a function {function} in {file}")
    return found  # type: ignore[no-any-return]


def called(
    what: str, name: str, folders: Sequence[Path] = (), given: Mapping[str, Any] | None = None
) -> Any:
    """What the function called ``name`` returns; what it raises is told in one line."""
    function = named_function(what, name, folders)
    try:
        return function(**given or {})
    except ErisError:
        raise
    except Exception as error:
        raise InvalidSetting(what, name, f"a function that works ({_said(error)})") from error


def code_sha256(function: Callable[..., Any]) -> str | None:
    """The checksum of the file that a function is in; None where there is no such file."""
    file = getattr(sys.modules.get(function.__module__), "__file__", None)
    return None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _said(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
