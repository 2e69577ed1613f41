"""Files that a question is put together from: rates of links, and a model's shapes."""

from __future__ import annotations

import csv
import io
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from eris.core.errors import InvalidSetting, did_you_mean
from eris.planning.plan import MBIT
from eris.planning.question import MOST_CLIENTS
from eris.theory.distribution_time import Links

KEYS = ("name", "rate", "up", "down")
LARGEST_FILE = 10 << 20
"""Bytes of a file of rates."""


@dataclass(frozen=True)
class LinkFile:
    """Members as a file lists them: their names, if it has any, and rates in Mbit/s."""

    names: tuple[str, ...]
    up: tuple[float, ...]
    down: tuple[float, ...]

    @property
    def links(self) -> Links:
        """The rates in bytes/s."""
        return Links(up=[one * MBIT for one in self.up], down=[one * MBIT for one in self.down])


def read_links(path: Path) -> LinkFile:
    """Rates from TOML (``[[member]]`` tables) or CSV (a header and a row a member).

    A member has ``rate``, or ``up`` and ``down``, in Mbit/s, and may have a ``name``.
    """
    readers = {".toml": _toml_rows, ".csv": _csv_rows}
    if path.suffix.lower() not in readers:
        raise InvalidSetting("--rates", str(path), "a file that ends in .toml or .csv")
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InvalidSetting("--rates", str(path), f"at most {LARGEST_FILE:,} bytes")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as failed:
        raise InvalidSetting("--rates", str(path), f"a file ({failed.strerror})") from None
    except UnicodeDecodeError:
        raise InvalidSetting("--rates", str(path), "text in UTF-8") from None
    rows = readers[path.suffix.lower()](text, path)
    if not 1 <= len(rows) <= MOST_CLIENTS:
        raise InvalidSetting(str(path), f"{len(rows)} members", f"1 to {MOST_CLIENTS:,} members")
    found = [_member(row, f"{path}, member {number}") for number, row in enumerate(rows, 1)]
    names = tuple(name for name, _, _ in found)
    if any(names):
        for number, name in enumerate(names):
            if not name or name in names[:number]:
                where = f"{path}, name of member {number + 1}"
                raise InvalidSetting(where, name, "one of its own, as all have names or none")
    ups, downs = tuple(up for _, up, _ in found), tuple(down for _, _, down in found)
    return LinkFile(names if any(names) else (), ups, downs)


def _toml_rows(text: str, path: Path) -> Sequence[Mapping[str, Any]]:
    try:
        rows = tomllib.loads(text).get("member", [])
    except tomllib.TOMLDecodeError as wrong:
        raise InvalidSetting("--rates", str(path), f"TOML ({wrong})") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidSetting(f"{path}: member", "no tables", "[[member]] tables")
    return rows


def _csv_rows(text: str, path: Path) -> Sequence[Mapping[str, Any]]:
    try:
        reader = csv.DictReader(io.StringIO(text), strict=True, skipinitialspace=True)
        return [
            {str(key).strip(): value for key, value in row.items() if value not in (None, "")}
            for row in reader
        ]
    except csv.Error as wrong:
        raise InvalidSetting("--rates", str(path), f"CSV ({wrong})") from None


def _member(row: Mapping[str, Any], where: str) -> tuple[str, float, float]:
    for key in row:
        if key not in KEYS:
            expected = f"{', '.join(KEYS)}{did_you_mean(str(key), KEYS)}"
            raise InvalidSetting(where, key, expected)
    if set(row) - {"name"} not in ({"rate"}, {"up", "down"}):
        raise InvalidSetting(where, sorted(row), "rate, or up and down, in Mbit/s")
    ways = [row.get(way, row.get("rate")) for way in ("up", "down")]
    up, down = (_rate(value, where) for value in ways)
    return str(row.get("name", "")).strip(), up, down


def _rate(value: object, where: str) -> float:
    try:
        rate = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        rate = math.nan
    if isinstance(value, bool) or not 0 < rate < math.inf:
        raise InvalidSetting(where, value, "a rate above 0, in Mbit/s")
    return rate


@dataclass(frozen=True)
class ModelShape:
    """How many parameters a model has, and its linear layers (rows, columns with the bias)."""

    parameters: int
    layers: tuple[tuple[int, int], ...]


def read_model(path: Path) -> ModelShape:
    """The shapes in a file of safetensors; no weight is read."""
    try:
        with safe_open(path, "numpy") as stored:
            shapes = {key: tuple(stored.get_slice(key).get_shape()) for key in stored.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as wrong:
        raise InvalidSetting("--model", str(path), f"a file of safetensors ({wrong})") from None
    parameters = sum(math.prod(shape) for shape in shapes.values())
    if parameters < 1:
        raise InvalidSetting("--model", str(path), "a model with a parameter at least")
    layers = []
    for key, shape in shapes.items():
        if len(shape) == 2:
            bias = f"{key.removesuffix('weight')}bias" in shapes
            layers.append((shape[0], shape[1] + bias))
    return ModelShape(parameters, tuple(layers))


def parse_size(text: str) -> int:
    """A number of parameters, with k, M or G behind it if wanted.

    >>> parse_size("61706"), parse_size("1.2M"), parse_size("1e6")
    (61706, 1200000, 1000000)
    """
    units = {"k": 1e3, "M": 1e6, "G": 1e9}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        found = float(number) * unit
    except ValueError:
        found = math.nan
    if not 1 <= found <= 1e12 or found != round(found):
        raise InvalidSetting(
            "--parameters", text, "a whole number up to 10^12, such as 61706, 1.2M or 1e6"
        )
    return round(found)
