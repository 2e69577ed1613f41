"""Where results go: checked before the work that makes them, without leaving a trace."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from eris.core.errors import InvalidSetting

PICTURES = (".png", ".pdf", ".svg", ".jpg", ".jpeg", ".webp")
"""Formats in which every picture can be drawn with what the package itself installs."""


def check_picture(name: str, path: Path) -> None:
    """Refuse what no picture can be drawn into; ``name`` is the option that gave it.

    >>> check_picture("--picture", Path("curve.xyz"))
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: --picture is 'curve.xyz'; expected a file that ends in .png, \
.pdf, .svg, .jpg, .jpeg or .webp
    """
    check_file(name, path, PICTURES)


def check_file(name: str, path: Path, endings: Sequence[str] = ()) -> None:
    """Refuse a folder, another ending, and a place that cannot be written to."""
    *some, last = endings or ("",)
    kinds = f" that ends in {', '.join(some)}{' or ' if some else ''}{last}" if endings else ""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a device"
        raise InvalidSetting(name, str(path), f"a file{kinds}, not {what}")
    if endings and path.suffix.lower() not in endings:
        raise InvalidSetting(name, str(path), f"a file{kinds}")
    if path.exists() and not os.access(path, os.W_OK):
        raise InvalidSetting(name, str(path), "a file that can be written to")
    check_folder(name, path.parent, given=path)


def check_folder(name: str, path: Path, *, given: Path | None = None) -> None:
    """Refuse a folder that cannot be written to, or made; it need not be there yet."""
    there = next(place for place in (path, *path.absolute().parents) if os.path.lexists(place))
    shown = str(given or path)
    if not there.is_dir():
        raise InvalidSetting(name, shown, f"a place in a folder; {there} is none")
    try:
        # A file without a name: what access rights promise, a disk need not hold.
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as refused:
        expected = f"a place that can be written to ({there}: {refused.strerror})"
        raise InvalidSetting(name, shown, expected) from refused
