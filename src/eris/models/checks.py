"""Checks that several models share."""

from __future__ import annotations

from eris.core.errors import InvalidSetting


def check_classes(classes: int) -> None:
    """Refuse a classifier with fewer than two classes."""
    if classes < 2:
        raise InvalidSetting("classes", classes, "an integer of at least 2")
