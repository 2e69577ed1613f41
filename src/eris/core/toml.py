"""Values of typed settings as TOML has them."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin

from eris.core.errors import InvalidSetting

Kind = Any
"""A type as it is written at a field."""


def unwrapped(kind: Kind) -> tuple[Kind, bool]:
    """The type without ``None``, and whether ``None`` was in it.

    >>> unwrapped(int | None)
    (<class 'int'>, True)
    """
    origin: Any = get_origin(kind)
    if origin not in (Union, types.UnionType):
        return kind, False
    inner = [part for part in get_args(kind) if part is not types.NoneType]
    return inner[0] if len(inner) == 1 else Union[tuple(inner)], True  # noqa: UP007


def toml_value(value: object) -> str:
    """A value in TOML.

    >>> toml_value(1e-5), toml_value(True), toml_value((1, 2.5)), toml_value('say "a"')
    ('1e-05', 'true', '[1, 2.5]', '"say \\\\"a\\\\""')
    >>> toml_value({"learning_rate": 0.1, "name": "a"})
    '{ learning_rate = 0.1, name = "a" }'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, Mapping):
        pairs = (f"{toml_key(key)} = {toml_value(item)}" for key, item in value.items())
        return f"{{ {', '.join(pairs)} }}" if value else "{}"
    if isinstance(value, str) or hasattr(value, "__fspath__"):
        # JSON's strings are TOML's, but for one character that TOML wants escaped as well.
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    raise InvalidSetting("value", value, "text, a number, true, false, a list or a table of these")


def toml_key(key: str) -> str:
    """A key in TOML, in quotes where it needs them."""
    bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if bare else toml_value(key)
