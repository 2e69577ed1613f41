"""The errors a user can meet, each naming what was wrong, where, and what was expected.

Everything the package raises on purpose descends from :class:`ErisError`, so that a caller can
catch the package's own refusals apart from programming mistakes.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Any


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint at the nearest of the known names, or nothing.

    >>> did_you_mean("fedadm", ["fedavg", "fedadam"])
    " (did you mean 'fedadam'?)"
    """
    near = get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def one_of(known: Iterable[str], word: object) -> str:
    """What was expected instead of an unknown word.

    >>> one_of(["fedavg", "fedadam"], "FedAdm")
    "one of fedavg, fedadam (did you mean 'fedadam'?)"
    """
    names = list(known)
    return f"one of {', '.join(names)}{did_you_mean(str(word).lower(), names)}"


class ErisError(Exception):
    """Base of every refusal the package raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # So that an error raised in a worker's process arrives as what it is.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[ErisError], args: tuple[Any, ...], fields: dict[str, Any]) -> ErisError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


class InvalidSetting(ErisError, ValueError):
    """A setting is outside its allowed range; see :func:`require`."""

    def __init__(self, name: str, value: object, expected: str) -> None:
        self.name, self.value, self.expected = name, value, expected
        super().__init__(f"{name} is {value!r}; expected {expected}")


def require(holds: bool, name: str, value: object, expected: str) -> None:
    """Refuse ``value`` by name unless ``holds``.

    >>> require(0 < 1.5 <= 1, "share", 1.5, "a number in (0, 1]")
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: share is 1.5; expected a number in (0, 1]
    """
    if not holds:
        raise InvalidSetting(name, value, expected)


class RefusedContribution(ErisError):
    """A client's contribution cannot be combined; it is left out and its sender is named."""

    def __init__(self, client: object, reason: str) -> None:
        self.client, self.reason = client, reason
        super().__init__(f"contribution of client {client}: {reason}")


class MalformedMessage(ErisError, ValueError):
    """Bytes from a peer do not form a message; names the field that is wrong."""

    def __init__(self, field: str, reason: str) -> None:
        self.field, self.reason = field, reason
        super().__init__(f"{field}: {reason}")


class DataUnavailable(ErisError):
    """A data set is neither in the cache nor at a given path; says which command fetches it."""


class MissingExtra(ErisError, ImportError):
    """A part of the package needs a library that is not installed; says how to install it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"not installed: {what}; run `pip install 'eris-fl[{extra}]'`")


def library(module: str, what: str, extra: str) -> Any:
    """A module of a library that an extra brings.

    >>> library("math", "mathematics", "audit").sqrt(4)
    2.0
    """
    try:
        return import_module(module)
    except ImportError as missing:
        raise MissingExtra(what, extra) from missing


class TrainingWarning(UserWarning):
    """A choice with which training may go wrong."""


class CastWarning(UserWarning):
    """Numbers of another kind were cast to the one that models are trained in."""


class PrivacyWarning(UserWarning):
    """A choice that gives away more than the method's share of an update suggests."""


class PrecisionWarning(UserWarning):
    """Updates are so small that much of them vanishes in the agreed fixed point."""
