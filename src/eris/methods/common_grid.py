"""A masked sum on a coarse grid: EncCluster's saving in bytes, without its mappings.

The repaired form of EncCluster (Tsouvalas et al., 2024): a few bits a weight travel, on a grid that
all clients share, under the masks of secure sums. An owner gets the sum, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from eris.core.shards import RandomPlan
from eris.methods.enccluster import owned
from eris.methods.method import Composition
from eris.protocol.schemes import Grid
from eris.protocol.schemes.declared import Average
from eris.protocol.schemes.grid import Rounding
from eris.protocol.schemes.weights import Travelling
from eris.protocol.secure.terms import SecureSums


@dataclass(frozen=True)
class MaskedGrid:
    """A central server, or ``aggregators`` of the clients that own a shard each.

    ``bits`` of every coordinate travel: of the update, in a unit that ``follows`` the last mean, or
    of ``travelling`` weights. ``range`` bounds a mean update in the first round, or a weight;
    ``rounding`` is stochastic or nearest; ``average`` weighs clients by their samples, or is plain.
    ``secure`` helpers open sums, and ``colluders`` may be on an owner's side.

    >>> MaskedGrid(bits=10).compose(["anna", "ben", "cleo", "dora"], [1] * 4).scheme.bits
    10
    """

    bits: int = 12
    secure: str = "2 of 3"
    travelling: Travelling = "updates"
    follows: bool | None = None
    rounding: Rounding = "stochastic"
    range: float | None = None
    average: Average = "samples"
    colluders: int | None = None
    aggregators: int | None = None
    name: ClassVar[str] = "grid"
    paper: ClassVar[str] = (
        "after Tsouvalas, Mohammadi, Balador, Ozcelebi, Flammini, Meratnia: EncCluster, 2024: what "
        "it wants to save, by a masked sum on a common grid"
    )

    def compose(self, names: Sequence[str], samples: Sequence[int]) -> Composition:
        """The parts for these clients."""
        follows = self.travelling == "updates" if self.follows is None else self.follows
        scheme = Grid(self.bits, self.travelling, follows, self.rounding, self.range, self.average)
        view, shards = owned(names, samples, self.aggregators)
        secure = SecureSums.parse(self.secure, colluders=self.colluders)
        return Composition(view, RandomPlan(shards), scheme, secure=secure)
