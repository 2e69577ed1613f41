"""Tables of typed options: a frozen dataclass that is read from, and written as, a TOML table.

An option is one field. Its type says what it may hold, its default what it holds if left out, and
:func:`option` adds what it means and in which range; reading TOML, the command's options and the
checks all follow from that.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import Field, field, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from eris.core.errors import InvalidSetting
from eris.core.toml import Kind, one_of, toml_key, toml_value, unwrapped

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
T = TypeVar("T", bound="Table")


def option(
    default: Any,
    meaning: str,
    *,
    flag: str | None = None,
    within: str | None = None,
    empty: str | None = None,
    identity: bool = True,
) -> Any:
    """A field of a table.

    ``flag`` is its name on the command line if it is not the field's; ``within`` one of
    ``RANGES``; ``empty`` says what leaving it unset means. An option that is no part of a run's
    ``identity`` may change between a run and its continuation.
    """
    told = {
        "meaning": meaning,
        "flag": flag,
        "within": within,
        "empty": empty,
        "identity": identity,
    }
    return field(default=default, metadata=told)


def further(meaning: str) -> Any:
    """A field that takes the keys of a table that are not options themselves, such as a method's
    settings."""
    return field(default_factory=dict, metadata={"meaning": meaning, "further": True})


RANGES = {
    "at least 0": lambda x: x >= 0,
    "at least 1": lambda x: x >= 1,
    "a finite number above 0": lambda x: x > 0,
    "a number in [0, 1)": lambda x: 0 <= x < 1,
    "a rate from 0 to 1": lambda x: 0 <= x <= 1,
}


class Table:
    """Base of the tables: values are checked when one is made."""

    title = ""

    def __post_init__(self) -> None:
        for item, kind in options(type(self)):
            value = getattr(self, item.name)
            object.__setattr__(self, item.name, fitting(value, kind, self.title, item))
        if (rest := further_field(type(self))) is not None:
            object.__setattr__(self, rest, dict(sorted(getattr(self, rest).items())))


def options(table: type[Table]) -> tuple[tuple[Field[Any], Kind], ...]:
    """The options of a table and their types, without the tables in it."""
    return tuple(
        (item, kind)
        for item, kind in _fields(table)
        if "further" not in item.metadata and not _is_table(kind)
    )


def subtables(table: type[Table]) -> Mapping[str, type[Table]]:
    """The tables in a table."""
    return {item.name: kind for item, kind in _fields(table) if _is_table(kind)}


def _fields(table: type[Table]) -> tuple[tuple[Field[Any], Kind], ...]:
    if table not in _KNOWN:
        hints = get_type_hints(table)
        _KNOWN[table] = tuple((item, hints[item.name]) for item in fields(table))  # type: ignore[arg-type]
    return _KNOWN[table]


_KNOWN: dict[type[Table], tuple[tuple[Field[Any], Kind], ...]] = {}
"""Fields and their types; to look the types up takes a while."""


def _is_table(kind: Kind) -> bool:
    return isinstance(kind, type) and issubclass(kind, Table)


def further_field(table: type[Table]) -> str | None:
    """The name of the field that takes further keys, if the table has one."""
    return next((item.name for item, _ in _fields(table) if "further" in item.metadata), None)


def fitting(value: object, kind: Kind, title: str, item: Field[Any]) -> object:
    """The value as the field's type has it, or an error that says where it is and what fits."""
    where = f"{title}.{item.name}" if title else item.name
    value = typed(value, kind, where)
    allowed = item.metadata.get("within")
    if value is not None and allowed is not None and not RANGES[allowed](value):
        raise InvalidSetting(where, value, allowed)
    return value


def typed(value: object, kind: Kind, where: str) -> object:
    """The value as a type has it; a whole number serves as a number.

    >>> typed((1, 2), tuple[float, ...] | None, "capacities")
    (1.0, 2.0)
    """
    inner, optional = unwrapped(kind)
    if value is None and optional:
        return None
    if is_choice(inner):
        if value not in get_args(inner):
            raise InvalidSetting(where, value, one_of(get_args(inner), str(value)))
        return value
    if is_sequence(inner) and isinstance(value, tuple):
        return tuple(typed(one, get_args(inner)[0], where) for one in value)
    if inner is float and type(value) is int:
        value = float(value)
    wrong = type(value) is not inner
    if wrong or (isinstance(value, float) and not math.isfinite(value)):
        raise InvalidSetting(where, value, expected(kind))
    return value


def is_choice(kind: Kind) -> bool:
    """Whether a type is one of several words."""
    origin: Any = get_origin(kind)
    return origin is Literal


def is_sequence(kind: Kind) -> bool:
    """Whether a type is a tuple of one type of value."""
    origin: Any = get_origin(kind)
    return origin is tuple and len(set(get_args(kind)) - {...}) == 1


def expected(kind: Kind) -> str:
    """A type in words; what TOML cannot hold is none."""
    inner, _ = unwrapped(kind)
    if is_choice(inner):
        return f"one of {', '.join(get_args(inner))}"
    if is_sequence(inner):
        return f"a list, each {expected(get_args(inner)[0])}"
    return _WORDS.get(inner, "nothing: only a program can give it")


def check_settings(owner: Any, settings: Mapping[str, Any], title: str) -> dict[str, Any]:
    """Further keys as the class or function that takes them has its types; it checks the names."""
    try:
        hints = get_type_hints(owner)
    except Exception:  # a user's own function may be annotated with what only its file knows
        hints = {}
    return {
        key: typed(value, hints[key], f"{title}.{key}") if key in hints else value
        for key, value in settings.items()
    }


def read(table: type[T], found: object) -> T:
    """The table, and those in it, as a TOML document holds it."""
    title = table.title
    if not isinstance(found, Mapping):
        raise InvalidSetting(title, found, f"a table: [{title}]")
    known = {item.name for item, _ in options(table)}
    inner, rest = subtables(table), further_field(table)
    values: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for key, value in found.items():
        if key in inner:
            values[key] = read(inner[key], value)
        elif key in known:
            values[key] = value
        elif rest is not None:
            others[key] = _plain(value, f"{title}.{key}")
        else:
            where = f"key in [{title}]" if title else "key"
            raise InvalidSetting(where, key, one_of([*sorted(known), *inner], key))
    if rest is not None:
        values[rest] = others
    return table(**values)


def mapping(table: Table) -> dict[str, Any]:
    """The table as nested mappings, without what is unset: the inverse of :func:`read`."""
    found = {item.name: getattr(table, item.name) for item, _ in options(type(table))}
    values = {key: value for key, value in found.items() if value is not None}
    if (rest := further_field(type(table))) is not None:
        values |= getattr(table, rest)
    return values | {key: mapping(getattr(table, key)) for key in subtables(type(table))}


def parsed(text: str, kind: Kind = None) -> Any:
    """A value as a user types it: for an option of a type, or of any type that TOML has.

    >>> parsed("0.05"), parsed("[1, 2]"), parsed("random"), parsed("7", str)
    (0.05, (1, 2), 'random', '7')
    """
    inner, _ = unwrapped(kind)
    if inner is str or is_choice(inner):
        return text
    try:
        value = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return _plain(value["value"], text) if list(value) == ["value"] else text


def written(table: Table) -> Iterator[str]:
    """The lines of a table in TOML; what is unset is a comment, for TOML has no word for it."""
    for item, _ in options(type(table)):
        value = getattr(table, item.name)
        if value is None:
            yield f"# {item.name}: {item.metadata['empty'] or 'not set'}"
        else:
            yield f"{item.name} = {toml_value(value)}"
    if (rest := further_field(type(table))) is not None:
        for key, value in getattr(table, rest).items():
            yield f"{toml_key(key)} = {toml_value(value)}"
    for name in subtables(type(table)):
        yield from ("", f"[{name}]")
        yield from written(getattr(table, name))


def _plain(value: object, where: str) -> Any:
    """Values of further keys: scalars, and lists as tuples."""
    if isinstance(value, list | tuple):
        return tuple(_plain(item, where) for item in value)
    if isinstance(value, bool | int | float | str):
        return value
    raise InvalidSetting(where, value, "text, a number, true, false or a list of these")
