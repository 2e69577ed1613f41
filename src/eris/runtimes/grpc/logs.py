"""What a node logs: events with fields, one line each, as text for people or JSON for collectors.

Values of updates and models are never written: arrays and bytes show their size alone, long lists
their beginning, and objects of other kinds their type.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, TextIO

import numpy as np

from eris.core.errors import InvalidSetting, one_of

LOGGER = "eris"
LEVELS = ("debug", "info", "warning", "error")
LONGEST_TEXT = 1000
"""Characters of a text that are shown; a peer may have written it."""
MOST_ITEMS = 16
"""Items of a list that are shown."""
_RESERVED = {"time", "level", "logger", "event", "exception"}


def configure(level: str = "info", format: str = "text", stream: TextIO | None = None) -> None:
    """Send what the package logs to a stream (default: standard error); again: instead."""
    if level not in LEVELS:
        raise InvalidSetting("log_level", level, one_of(LEVELS, level))
    if format not in _FORMATTERS:
        raise InvalidSetting("log_format", format, one_of(_FORMATTERS, format))
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_FORMATTERS[format]())
    logger = logging.getLogger(LOGGER)
    for old in list(logger.handlers):
        if isinstance(old.formatter, _Formatter):
            logger.removeHandler(old)
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    # A program that has set up logging of its own would show every line twice.
    logger.propagate = False


def event(logger: logging.Logger, level: int, what: str, /, **fields: object) -> None:
    """Log an event with its fields.

    >>> event(logging.getLogger("eris.node"), logging.DEBUG, "round closed", round=3, included=5)
    """
    if logger.isEnabledFor(level):
        logger.log(level, "%s", what, extra={"fields": fields}, stacklevel=2)


def told(value: object, depth: int = 3) -> Any:
    """A value as a log may show it.

    >>> told(np.zeros(5, np.float32)), told(b"secret"), told((1, 2.5))
    ('<float32 array of shape (5,)>', '<6 bytes>', [1, 2.5])
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str | PurePath | BaseException):
        text = str(value)
        return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"
    if isinstance(value, np.ndarray):
        return f"<{value.dtype} array of shape {value.shape}>"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return _several(value, depth)
    return f"<{type(value).__name__}>"


def _several(value: Any, depth: int) -> Any:
    if not depth:
        return f"<{len(value)} items>"
    if isinstance(value, Mapping):
        shown = {str(key): told(item, depth - 1) for key, item in list(value.items())[:MOST_ITEMS]}
        return shown | ({"…": len(value) - MOST_ITEMS} if len(value) > MOST_ITEMS else {})
    items = list(value)
    if isinstance(value, set | frozenset):
        items.sort(key=lambda item: (str(type(item)), item if isinstance(item, int) else str(item)))
    more = [f"… {len(items) - MOST_ITEMS} more"] if len(items) > MOST_ITEMS else []
    return [told(item, depth - 1) for item in items[:MOST_ITEMS]] + more


class _Formatter(logging.Formatter):
    """What both formats share: the record's parts, fit to be shown."""

    def parts(self, record: logging.LogRecord) -> tuple[str, str, dict[str, Any]]:
        """Time, message and fields."""
        moment = datetime.fromtimestamp(record.created, UTC)
        time = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        args = record.args
        if isinstance(args, tuple):
            args = tuple(told(arg) for arg in args)
        elif isinstance(args, Mapping):
            args = {key: told(arg) for key, arg in args.items()}
        text = str(told(record.msg))
        message = text % args if args else text
        found = getattr(record, "fields", {})
        fields = {key: told(item) for key, item in found.items()}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return time, message, fields


class _Text(_Formatter):
    """``2026-03-01T12:00:00.000Z INFO    round closed round=3 included=5``."""

    def format(self, record: logging.LogRecord) -> str:
        time, message, fields = self.parts(record)
        trace = fields.pop("exception", None)
        pairs = "".join(f" {key}={_word(value)}" for key, value in fields.items())
        line = f"{time} {record.levelname:<7} {_printable(message)}{pairs}"
        return "\n    ".join([line, *map(_printable, trace.split("\n"))] if trace else [line])


class _JSON(_Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        time, message, fields = self.parts(record)
        level = record.levelname.lower()
        line = {"time": time, "level": level, "logger": record.name, "event": message}
        if record.exc_info:
            line["exception"] = fields.pop("exception")
        line |= {f"{key}_" if key in _RESERVED else key: item for key, item in fields.items()}
        return json.dumps(line)


_FORMATTERS: dict[str, type[_Formatter]] = {"text": _Text, "json": _JSON}


def _word(value: object) -> str:
    """A field's value in one piece."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    plain = text.isprintable() and not set(text) & set(' "=') and text != ""
    return text if plain or not isinstance(value, str) else json.dumps(text, ensure_ascii=False)


def _printable(text: str) -> str:
    """Without line breaks and control characters, with which a peer could forge a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
