"""The one check that every bound makes of its arguments."""

from __future__ import annotations

from eris.core.errors import InvalidSetting


def require(holds: bool, name: str, value: object, expected: str) -> None:
    """Refuse ``value`` by name unless ``holds``.

    >>> require(0 < 1.5 <= 1, "share", 1.5, "a number in (0, 1]")
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: share is 1.5; expected a number in (0, 1]
    """
    if not holds:
        raise InvalidSetting(name, value, expected)
