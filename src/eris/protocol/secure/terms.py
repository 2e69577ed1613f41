"""What members agree on about secure sums, and what does not go together with them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eris.core.combine import VALUE_BITS, FixedPoint
from eris.core.errors import InvalidSetting, require
from eris.core.rules import RULES
from eris.protocol.schemes.dense import Dense
from eris.protocol.schemes.grid import Grid
from eris.protocol.schemes.masked import Masked
from eris.protocol.schemes.rotated import Rotated
from eris.protocol.secure.seats import Threshold

if TYPE_CHECKING:
    from eris.protocol.settings import Settings
    from eris.protocol.view import View

RINGS = (4, 5, 6, 8)
REKEY_EVERY = 20
"""Rounds after which all members draw new keys: what is stolen later opens nothing older."""
LEAST_PLACES = 8
"""Binary places that a value must keep."""


@dataclass(frozen=True)
class SecureSums:
    """Sums that ``threshold`` helpers open together, in words of ``ring_bytes``.

    ``colluders`` may know their own parts of a sum besides its owner; by default as many as helpers
    may collude. ``total_samples`` is the largest weight of a sum: the fewer, the finer the grid.

    >>> SecureSums.parse("3 of 4").colluders
    2
    """

    threshold: Threshold
    ring_bytes: int = 8
    colluders: int | None = None
    total_samples: int = (1 << 24) - 1

    def __post_init__(self) -> None:
        need = self.threshold.need
        if self.colluders is None:
            object.__setattr__(self, "colluders", need - 1)
        if self.known < need - 1:
            made = f'"{self.threshold}" is made against an owner and {need - 1} of its helpers'
            raise InvalidSetting("colluders", self.colluders, f"at least {need - 1}: {made}")
        require(self.ring_bytes in RINGS, "ring_bytes", self.ring_bytes, "4, 5, 6 or 8")
        most = 1 << 40
        require(1 <= self.total_samples <= most, "total_samples", self.total_samples,
                f"1 to {most}")  # fmt: skip

    @classmethod
    def parse(
        cls, words: str, ring_bytes: int = 8, colluders: int | None = None
    ) -> SecureSums | None:
        """From the words of a setting; None for ``none``."""
        if words == "none":
            return None
        return cls(Threshold.parse(words), ring_bytes, colluders)

    @property
    def known(self) -> int:
        """The colluders that are reckoned with."""
        assert self.colluders is not None
        return self.colluders

    @property
    def least_masked(self) -> int:
        """Clients whose masked words are in a sum: two besides those that the owner may know."""
        return 2 + self.known

    @property
    def least_included(self) -> int:
        """The fewest clients of a sum."""
        return 3 + self.known

    def fraction_bits(self, precision: FixedPoint) -> int:
        """f: binary places of a value, at most those of a sum in the clear.

        >>> [SecureSums.parse("2 of 3", size).fraction_bits(FixedPoint()) for size in (5, 8)]
        [9, 33]
        """
        range_bits = VALUE_BITS - precision.fraction_bits
        room = 8 * self.ring_bytes - 1 - range_bits - self.total_samples.bit_length()
        return min(precision.fraction_bits, room)

    def bound(self, precision: FixedPoint) -> int:
        """The largest magnitude of a word for a weight of one."""
        return math.ceil(math.ldexp(precision.value_range, self.fraction_bits(precision)))

    def check(self, settings: Settings) -> None:
        """Refuse what does not go together with secure sums."""
        rule, scheme = settings.rule, settings.scheme
        if not rule.works_compressed:
            means = ", ".join(name for name, kind in RULES.items() if kind.works_compressed)
            expected = f"a mean, for masked sums give no single contributions: {means}"
            raise InvalidSetting("rule", rule.name, expected)
        if type(scheme) not in (Dense, Masked, Rotated, Grid):
            raise InvalidSetting(
                "scheme", str(scheme),
                "whole segments, rand-p or rand-k with one mask for all clients, or a common grid: "
                "secure sums add words, and clients with grids, masks or references of their own "
                "have none in common",
            )  # fmt: skip
        if settings.min_included < self.least_included:
            raise InvalidSetting(
                "min_included", settings.min_included,
                f"at least {self.least_included}: the owner and {self.known} colluders know their "
                "own parts of a sum",
            )  # fmt: skip
        if isinstance(scheme, Grid):
            expected = "8, as it is where nothing is said: words have the bits of the common grid"
            require(self.ring_bytes == 8, "ring_bytes", self.ring_bytes, expected)
            return
        places = self.fraction_bits(settings.precision)
        if places < LEAST_PLACES:
            found = (
                f"{places} for value_range {settings.precision.value_range:g} and "
                f"{self.total_samples} samples in all"
            )
            expected = f"at least {LEAST_PLACES}: more ring_bytes, a smaller range, fewer samples"
            raise InvalidSetting(
                f"binary places that ring_bytes = {self.ring_bytes} leaves", found, expected
            )

    def check_view(self, view: View) -> None:
        """Refuse a federation that is too small."""
        members, clients = self.threshold.seats + 1, self.least_included
        if len(view.members) < members or len(view.clients) < clients:
            found = f"{len(view.members)} members, {len(view.clients)} of them clients"
            expected = f"at least {members} members and {clients} clients, or secure sums of fewer"
            raise InvalidSetting(f'members for secure_sums "{self.threshold}"', found, expected)
