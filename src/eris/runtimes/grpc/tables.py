"""Tables of typed settings: read from TOML and the environment, written as a template and as docs.

A setting is one field of a frozen dataclass. Its type says what it may hold, its default what it
holds if left out, :func:`setting` what it means; files, variables, checks and manual follow from
that. Every refusal names the key; :func:`located` adds the file, or the variable it came from.
"""

from __future__ import annotations

import math
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from eris.core.errors import InvalidSetting
from eris.core.toml import Kind, one_of, toml_value, unwrapped

T = TypeVar("T", bound="Table")
WIDTH = 100
"""Of the lines of a template."""

RANGES: dict[str, Callable[[Any], bool]] = {
    "at least 1": lambda x: x >= 1,
    "a number above 0": lambda x: x > 0,
    "a share above 0 and at most 1": lambda x: 0 < x <= 1,
    "1 to 10,000": lambda x: 1 <= x <= 10**4,
    "1 to 1,000,000,000": lambda x: 1 <= x <= 10**9,
    "0 to 2**64 - 1": lambda x: 0 <= x < 1 << 64,
    "1 to 100 characters": lambda x: 1 <= len(x) <= 100,
}

_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text in quotes",
    Path: "a path in quotes",
}


class _Unset:
    def __repr__(self) -> str:
        return "not set"


UNSET = _Unset()
"""The value of a setting that should be there, in an error."""


def setting(
    doc: str,
    *,
    default: Any = MISSING,
    within: str | None = None,
    example: Any = None,
    empty: str = "",
) -> Any:
    """A field of a table; without a default it is required.

    ``within`` is one of ``RANGES``. ``example`` stands in the template where there is no default,
    ``empty`` says what leaving the setting out means.
    """
    told = {"doc": doc, "within": within, "example": example, "empty": empty}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=told)
    return field(default=default, metadata=told)


class Table:
    """Base of the tables: values are checked when one is made."""

    title: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for item, kind in settings_of(type(self)):
            where, value = f"{self.title}.{item.name}", getattr(self, item.name)
            value = typed(value, kind, where)
            within = item.metadata["within"]
            if value is not None and within is not None and not RANGES[within](value):
                raise InvalidSetting(where, value, within)
            object.__setattr__(self, item.name, value)


def settings_of(table: type[Table]) -> tuple[tuple[Field[Any], Kind], ...]:
    """The settings of a table and their types."""
    hints = get_type_hints(table)
    return tuple((item, hints[item.name]) for item in fields(table))  # type: ignore[arg-type]


def required(item: Field[Any]) -> bool:
    """Whether a setting has no default."""
    return item.default is MISSING and item.default_factory is MISSING


def typed(value: object, kind: Kind, where: str) -> object:
    """The value as a type has it; a whole number serves as a number, text as a path.

    >>> typed(1, float | None, "lease"), typed("state", Path, "folder")
    (1.0, PosixPath('state'))
    """
    inner, optional = unwrapped(kind)
    if value is None and optional:
        return None
    origin: Any = get_origin(inner)
    if origin is Literal:
        words = get_args(inner)
        if value not in words:
            raise InvalidSetting(where, value, one_of(words, str(value)))
        return value
    if origin is not None:  # a table of whatever keys
        if not isinstance(value, Mapping):
            raise InvalidSetting(where, value, f"a table: [{where}]")
        return dict(value)
    if inner is float and type(value) is int:
        value = float(value)
    if inner is Path and isinstance(value, str) and value and "\0" not in value:
        value = Path(value)
    fits = isinstance(value, Path) if inner is Path else type(value) is inner
    if not fits or (isinstance(value, float) and not math.isfinite(value)):
        raise InvalidSetting(where, value, _WORDS[inner])
    return value


# -- reading ----------------------------------------------------------------------------------


def parsed_file(path: Path, what: str) -> dict[str, Any]:
    """The TOML document in a file."""
    try:
        # Some editors put a byte order mark in front.
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except tomllib.TOMLDecodeError as broken:
        raise InvalidSetting(what, str(path), f"TOML: {broken}") from None
    except UnicodeDecodeError as broken:
        raise InvalidSetting(what, str(path), f"text in UTF-8: {broken}") from None
    except OSError as failed:
        reason = failed.strerror or str(failed)
        raise InvalidSetting(what, str(path), f"a file that can be read: {reason}") from None


def read(table: type[T], found: object, folder: Path, others: Iterable[type[Table]] = ()) -> T:
    """A table of a TOML document; relative paths begin at ``folder``."""
    title = table.title
    if not isinstance(found, Mapping):
        raise InvalidSetting(title, found, f"a table: [{title}]")
    known = {item.name: (item, kind) for item, kind in settings_of(table)}
    for key in found:
        if key not in known:
            expected = one_of(known, key) + _elsewhere(key, others)
            raise InvalidSetting(f"key in [{title}]", key, expected)
    values = dict(found)
    for name, (item, kind) in known.items():
        if name not in found and required(item):
            inner, _ = unwrapped(kind)
            expected = f"{_WORDS[inner]}. {item.metadata['doc']}"
            raise InvalidSetting(f"{title}.{name}", UNSET, expected)
        value = values.get(name, item.default)
        if unwrapped(kind)[0] is Path and isinstance(value, str | Path) and str(value):
            values[name] = folder / value
    return table(**values)


def _elsewhere(key: str, others: Iterable[type[Table]]) -> str:
    homes = [table.title for table in others if key in {i.name for i, _ in settings_of(table)}]
    return f" ({key} belongs to [{'] or ['.join(homes)}])" if homes else ""


def variable(title: str, key: str) -> str:
    """The environment variable that overrides a setting.

    >>> variable("node", "listen")
    'ERIS_NODE_LISTEN'
    """
    return f"ERIS_{title}_{key}".upper()


def overrides(
    tables: Iterable[type[Table]], environ: Mapping[str, str]
) -> Iterator[tuple[str, str, object, str]]:
    """(table, key, value, variable) of every setting that the environment overrides."""
    for table in tables:
        known = {variable(table.title, i.name): (i.name, kind) for i, kind in settings_of(table)}
        for name in sorted(environ):
            if not name.startswith(variable(table.title, "")):
                continue
            if name not in known:
                raise InvalidSetting("environment variable", name, one_of(known, name))
            key, kind = known[name]
            yield table.title, key, _from_text(environ[name], kind), name


def _from_text(text: str, kind: Kind) -> object:
    """A value as TOML has it, or else the text itself."""
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = found["value"]
    inner, _ = unwrapped(kind)
    origin: Any = get_origin(inner)
    textual = inner in (str, Path) or origin is Literal
    # A name such as 7 or a text over several lines is meant as it stands.
    return text if len(found) != 1 or (textual and not isinstance(value, str)) else value


@contextmanager
def located(path: Path, origins: Mapping[str, str]) -> Iterator[None]:
    """Put the file, or the variable that a value came from, in front of a refused key."""
    try:
        yield
    except InvalidSetting as wrong:
        if wrong.name == "environment variable":
            raise
        where = origins.get(wrong.name, f"{path}: {wrong.name}")
        raise InvalidSetting(where, wrong.value, wrong.expected) from None


# -- writing ----------------------------------------------------------------------------------


def template(table: type[Table], values: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a table with every key explained; those not in ``values`` are comments."""
    yield f"# {(table.__doc__ or '').splitlines()[0]}"
    yield f"[{table.title}]"
    for item, _ in settings_of(table):
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        empty = item.metadata["empty"]
        doc = item.metadata["doc"] + (f" Left out: {empty}." if empty else "")
        yield from (f"# {line}" for line in textwrap.wrap(doc, WIDTH - 2))
        if item.name in values:
            yield f"{item.name} = {toml_value(values[item.name])}"
        else:
            shown = item.metadata["example"] if default in (MISSING, None, {}) else default
            yield f"#{item.name} = {toml_value(shown)}"


def reference(tables: Iterable[type[Table]], *, variables: bool = True) -> Iterator[str]:
    """A Markdown table of every setting."""
    heads = ["table", "key", "default", "meaning", *(["environment"] if variables else [])]
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for table in tables:
        for item, _ in settings_of(table):
            cells = [table.title, f"`{item.name}`", _default(item), item.metadata["doc"]]
            cells += [f"`{variable(table.title, item.name)}`"] if variables else []
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(item: Field[Any]) -> str:
    if item.default_factory is not MISSING:
        return item.metadata["empty"] or "none"
    if required(item):
        return "required"
    if item.default is None or item.metadata["empty"]:
        return str(item.metadata["empty"] or "not set")
    return f"`{toml_value(item.default)}`"
