"""What all reports have in common: cells of tables, and pictures drawn without a screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

NOTHING = "–"
"""Where there is no such figure."""


def figure(value: float | None, form: str) -> str:
    """A number in a format, or that there is none.

    >>> figure(0.12345, ".3g"), figure(0.5, ".1%"), figure(None, ".2f")
    ('0.123', '50.0%', '–')
    """
    return NOTHING if value is None else format(value, form)


def percent(share: float | None) -> str:
    """A share in percent, without the sign.

    >>> percent(0.1234), percent(None)
    ('12.3', '–')
    """
    return NOTHING if share is None else f"{100 * share:.1f}"


def panels(count: int, width: float, height: float, **options: Any) -> tuple[Any, Any]:
    """A picture, and its panels side by side, each with a grid."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    picture, axes = plt.subplots(
        1, count, figsize=(width, height), layout="constrained", squeeze=False, **options
    )
    for axis in axes[0]:
        axis.grid(alpha=0.3)
    return picture, axes[0]


def saved(picture: Any, path: Path) -> Path:
    """Write a picture, and be done with it."""
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=120)
    plt.close(picture)
    return path
