"""Every value as it is: no compression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from eris.protocol.schemes.scheme import Coding, Scheme

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement


@dataclass(frozen=True)
class Dense(Scheme):
    """Whole segments of float32 values."""

    name: ClassVar[str] = "dense"
    small_results: ClassVar[bool] = False

    def at(self, agreement: Agreement) -> Coding:
        """This scheme at work."""
        return Coding(self, agreement)

    def __str__(self) -> str:
        return "all coordinates"
