"""Every value as it is: no compression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from eris.protocol.schemes.scheme import Scheme


@dataclass(frozen=True)
class Dense(Scheme):
    """Whole segments of float32 values."""

    name: ClassVar[str] = "dense"
    small_results: ClassVar[bool] = False

    def __str__(self) -> str:
        return "all coordinates"
