"""Tables of typed settings: frozen dataclasses that are read from, and written as, TOML.

A setting is one field. Its type says what it may hold, its default what it holds if left out,
:func:`setting` what it means and within which range; files, environment variables, options of a
command, checks and manuals follow from that. Every refusal names the key; :func:`located` adds the
file, or the variable it came from.
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

from eris.core.errors import InvalidSetting, one_of
from eris.core.toml import Kind, toml_key, toml_value, unwrapped

T = TypeVar("T", bound="Table")
WIDTH = 100
"""Of the lines of a template."""

RANGES: dict[str, Callable[[Any], bool]] = {
    "at least 0": lambda x: x >= 0,
    "at least 1": lambda x: x >= 1,
    "a number above 0": lambda x: x > 0,
    "a number in [0, 1)": lambda x: 0 <= x < 1,
    "a rate from 0 to 1": lambda x: 0 <= x <= 1,
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
    meaning: str,
    default: Any = MISSING,
    *,
    within: str | None = None,
    empty: str = "",
    example: Any = None,
    flag: str | None = None,
    identity: bool = True,
) -> Any:
    """A field of a table; without a default it is required.

    ``within`` is one of ``RANGES``; ``empty`` says what leaving the setting out means; ``example``
    stands in a template where there is no default; ``flag`` is the name on the command line if it
    is not the field's. A setting that is no part of a run's ``identity`` may change between a run
    and its continuation.
    """
    told = {
        "meaning": meaning, "within": within, "empty": empty, "example": example, "flag": flag,
        "identity": identity,
    }  # fmt: skip
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=told)
    return field(default=default, metadata=told)


def further() -> Any:
    """A field that takes the keys of a table that are not settings themselves, such as those of a
    method."""
    return field(default_factory=dict, metadata={"further": True})


class Table:
    """Base of the tables: values are checked when one is made."""

    title: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for item, kind in settings_of(type(self)):
            where = _key(self.title, item.name)
            value = typed(getattr(self, item.name), kind, where)
            within = item.metadata["within"]
            if value is not None and within is not None and not RANGES[within](value):
                raise InvalidSetting(where, value, within)
            object.__setattr__(self, item.name, value)
        if (rest := further_field(type(self))) is not None:
            object.__setattr__(self, rest, dict(sorted(getattr(self, rest).items())))


def _fields(table: type[Table]) -> tuple[tuple[Field[Any], Kind], ...]:
    if table not in _KNOWN:
        hints = get_type_hints(table)
        _KNOWN[table] = tuple((item, hints[item.name]) for item in fields(table))  # type: ignore[arg-type]
    return _KNOWN[table]


_KNOWN: dict[type[Table], tuple[tuple[Field[Any], Kind], ...]] = {}
"""Fields and their types; to look the types up takes a while."""


def settings_of(table: type[Table]) -> tuple[tuple[Field[Any], Kind], ...]:
    """The settings of a table and their types, without the tables in it."""
    return tuple((item, kind) for item, kind in _fields(table) if "meaning" in item.metadata)


def subtables(table: type[Table]) -> dict[str, type[Table]]:
    """The tables in a table."""
    return {
        item.name: kind
        for item, kind in _fields(table)
        if isinstance(kind, type) and issubclass(kind, Table)
    }


def further_field(table: type[Table]) -> str | None:
    """The name of the field that takes further keys, if the table has one."""
    return next((item.name for item, _ in _fields(table) if "further" in item.metadata), None)


def required(item: Field[Any]) -> bool:
    """Whether a setting has no default."""
    return item.default is MISSING and item.default_factory is MISSING


def _key(title: str, name: str) -> str:
    return f"{title}.{name}" if title else name


# -- types ------------------------------------------------------------------------------------


def typed(value: object, kind: Kind, where: str) -> object:
    """The value as a type has it; a whole number serves as a number, text as a path.

    >>> typed((1, 2), tuple[float, ...] | None, "capacities"), typed("state", Path, "folder")
    ((1.0, 2.0), PosixPath('state'))
    """
    inner, optional = unwrapped(kind)
    if value is None and optional:
        return None
    if is_choice(inner):
        if value not in get_args(inner):
            raise InvalidSetting(where, value, one_of(get_args(inner), value))
        return value
    if is_sequence(inner) and isinstance(value, tuple):
        return tuple(typed(one, get_args(inner)[0], where) for one in value)
    origin: Any = get_origin(inner)
    if origin is Mapping:  # a table of whatever keys
        if not isinstance(value, Mapping):
            raise InvalidSetting(where, value, f"a table: [{where}]")
        return dict(value)
    if inner is float and type(value) is int:
        value = float(value)
    if inner is Path and isinstance(value, str) and value and "\0" not in value:
        value = Path(value)
    fits = isinstance(value, Path) if inner is Path else type(value) is inner
    if not fits or (isinstance(value, float) and not math.isfinite(value)):
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


def check_settings(owner: Any, settings: Mapping[str, Any], title: str = "") -> dict[str, Any]:
    """Further keys as the class or function that takes them has its types; it checks the names."""
    try:
        hints = get_type_hints(owner)
    except Exception:  # a user's own function may be annotated with what only its file knows
        hints = {}
    return {
        key: typed(value, hints[key], _key(title, key)) if key in hints else value
        for key, value in settings.items()
    }


# -- reading ----------------------------------------------------------------------------------


def document(text: str, what: str, where: object) -> dict[str, Any]:
    """The TOML document in a text."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as broken:
        raise InvalidSetting(what, str(where), f"TOML: {broken}") from None


def document_in(path: Path, what: str) -> dict[str, Any]:
    """The TOML document in a file."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors put a byte order mark in front
    except UnicodeDecodeError as broken:
        raise InvalidSetting(what, str(path), f"text in UTF-8: {broken}") from None
    except OSError as failed:
        reason = failed.strerror or str(failed)
        raise InvalidSetting(what, str(path), f"a file that can be read: {reason}") from None
    return document(text, what, path)


def read(
    table: type[T], found: object, folder: Path = Path(), others: Iterable[type[Table]] = ()
) -> T:
    """The table, and those in it, as a TOML document holds it; paths begin at ``folder``.

    A key that one of the ``others`` has is sent there.
    """
    return table(**values_in(table, found, folder, others))


def values_in(
    table: type[Table], found: object, folder: Path, others: Iterable[type[Table]] = ()
) -> dict[str, Any]:
    """What :func:`read` makes a table of."""
    title = table.title
    if not isinstance(found, Mapping):
        raise InvalidSetting(title, found, f"a table: [{title}]")
    known = {item.name: (item, kind) for item, kind in settings_of(table)}
    inner, rest = subtables(table), further_field(table)
    made: dict[str, Any] = {key: found[key] for key in known if key in found}
    further_keys = {key: value for key, value in found.items() if key not in {*known, *inner}}
    if rest is not None:
        made[rest] = {key: _plain(value, _key(title, key)) for key, value in further_keys.items()}
    elif further_keys:
        key, value = next(iter(further_keys.items()))
        homes = [one.title for one in others if key in {item.name for item, _ in settings_of(one)}]
        hint = f" ({key} belongs to [{'] or ['.join(homes)}])" if homes else ""
        where = f"key in [{title}]" if title else "table" if isinstance(value, Mapping) else "key"
        raise InvalidSetting(where, key, one_of([*known, *inner], key) + hint)
    for name, (item, kind) in known.items():
        if name not in found and required(item):
            wanted = f"{expected(kind)}. {item.metadata['meaning']}"
            raise InvalidSetting(_key(title, name), UNSET, wanted)
        value = made.get(name, item.default)
        if unwrapped(kind)[0] is Path and isinstance(value, str | Path) and str(value):
            made[name] = folder / value
    for name, one in inner.items():
        made[name] = read(one, found.get(name, {}), folder, inner.values())
    return made


def _plain(value: object, where: str) -> Any:
    """Values of further keys: scalars, and lists as tuples."""
    if isinstance(value, list | tuple):
        return tuple(_plain(item, where) for item in value)
    if isinstance(value, bool | int | float | str):
        return value
    raise InvalidSetting(where, value, "text, a number, true, false or a list of these")


def parsed(text: str, kind: Kind = None) -> Any:
    """A value as a user types it: for a setting of a type, or of any type that TOML has.

    >>> parsed("0.05"), parsed("[1, 2]"), parsed("random"), parsed("7", str)
    (0.05, [1, 2], 'random', '7')
    """
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    inner, _ = unwrapped(kind)
    textual = inner in (str, Path) or is_choice(inner)
    # A name such as 7 or a text over several lines is meant as it stands.
    as_it_stands = len(found) != 1 or (textual and not isinstance(found["value"], str))
    return text if as_it_stands else found["value"]


def variable(title: str, key: str) -> str:
    """The environment variable that overrides a setting.

    >>> variable("node", "listen")
    'ERIS_NODE_LISTEN'
    """
    return f"ERIS_{title}_{key}".upper()


def override(
    table: type[Table], found: dict[str, Any], environ: Mapping[str, str]
) -> dict[str, str]:
    """Put what the environment says into a document; returns each such key's variable."""
    origins = {}
    for title, one in subtables(table).items():
        known = {variable(title, item.name): (item.name, kind) for item, kind in settings_of(one)}
        for name in sorted(environ):
            if not name.startswith(variable(title, "")):
                continue
            if name not in known:
                raise InvalidSetting("environment variable", name, one_of(known, name))
            key, kind = known[name]
            if isinstance(found.get(title, {}), dict):  # or else that is what is wrong
                put(table, found, {f"{title}.{key}": parsed(environ[name], kind)})
                origins[f"{title}.{key}"] = name
    return origins


def put(table: type[Table], found: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A document with values by their keys, such as "seed" or "data.clients"."""
    for key, value in given.items():
        title, _, name = key.rpartition(".")
        if title and title not in subtables(table):
            raise InvalidSetting("table", title, one_of(subtables(table), title))
        (found.setdefault(title, {}) if title else found)[name] = value
    return found


@contextmanager
def located(path: Path, origins: Mapping[str, str] | None = None) -> Iterator[None]:
    """Put the file, or the variable that a value came from, in front of a refused key."""
    try:
        yield
    except InvalidSetting as wrong:
        if wrong.name == "environment variable":
            raise
        where = (origins or {}).get(wrong.name, f"{path}: {wrong.name}")
        raise InvalidSetting(where, wrong.value, wrong.expected) from None


# -- writing ----------------------------------------------------------------------------------


def own(table: Table) -> dict[str, Any]:
    """The values in a table itself, further keys too; what is unset is None."""
    found = {item.name: getattr(table, item.name) for item, _ in settings_of(type(table))}
    rest = further_field(type(table))
    return found if rest is None else found | getattr(table, rest)


def mapping(table: Table) -> dict[str, Any]:
    """The table as nested mappings, without what is unset: the inverse of :func:`read`."""
    made = {key: value for key, value in own(table).items() if value is not None}
    return made | {key: mapping(getattr(table, key)) for key in subtables(type(table))}


def written(table: Table) -> Iterator[str]:
    """The lines of a table in TOML; what is unset is a comment, for TOML has no word for it."""
    empty = {item.name: item.metadata["empty"] for item, _ in settings_of(type(table))}
    for key, value in own(table).items():
        if value is None:
            yield f"# {key}: {empty[key] or 'not set'}"
        else:
            yield f"{toml_key(key)} = {toml_value(value)}"
    for name in subtables(type(table)):
        yield from ("", f"[{name}]")
        yield from written(getattr(table, name))


def explained(table: type[Table], given: Mapping[str, Mapping[str, Any]]) -> str:
    """A document of tables with every key explained; those not in ``given`` are comments."""
    parts = (_lines(one, given.get(title, {})) for title, one in subtables(table).items())
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _lines(table: type[Table], given: Mapping[str, Any]) -> Iterator[str]:
    known = [item.name for item, _ in settings_of(table)]
    for key in given:
        if key not in known:
            raise InvalidSetting(f"key in [{table.title}]", key, one_of(known, key))
    yield f"# {(table.__doc__ or '').splitlines()[0]}"
    yield f"[{table.title}]"
    for item, _ in settings_of(table):
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        empty = item.metadata["empty"]
        told = item.metadata["meaning"] + (f" Left out: {empty}." if empty else "")
        yield from (f"# {line}" for line in textwrap.wrap(told, WIDTH - 2))
        if item.name in given:
            yield f"{item.name} = {toml_value(given[item.name])}"
        else:
            shown = item.metadata["example"] if default in (MISSING, None, {}) else default
            yield f"#{item.name} = {toml_value(shown)}"


def described(tables: Iterable[type[Table]], *, variables: bool = True) -> Iterator[str]:
    """A Markdown table of every setting."""
    heads = ["table", "key", "default", "meaning", *(["environment"] if variables else [])]
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for table in tables:
        for item, _ in settings_of(table):
            cells = [table.title, f"`{item.name}`", _default(item), item.metadata["meaning"]]
            cells += [f"`{variable(table.title, item.name)}`"] if variables else []
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(item: Field[Any]) -> str:
    if required(item):
        return "required"
    if item.default in (None, MISSING) or item.metadata["empty"]:
        return str(item.metadata["empty"] or "not set")
    return f"`{toml_value(item.default)}`"
