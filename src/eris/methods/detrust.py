"""DeTrust-FL: every weight encrypted by clients that need no third party; only sums are opened.

Xu et al., "DeTrust-FL: privacy-preserving federated learning in decentralized trust setting", 2022,
as the EncCluster paper compares with it, on the keys and sets of :mod:`eris.methods.enccluster`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from eris.core.shards import RandomPlan
from eris.methods.enccluster import owned
from eris.methods.method import Composition
from eris.protocol.enccluster.coding import MOST_RANGE
from eris.protocol.schemes import EncryptedWeights
from eris.protocol.schemes.declared import Average


@dataclass(frozen=True)
class DeTrustFL:
    """A central server, or ``aggregators`` of the clients that own a shard each.

    It costs 33 bytes and about 0.2 ms a weight at each client: small models only. The settings
    are those of :class:`~eris.methods.enccluster.EncCluster`.

    >>> str(DeTrustFL().compose(["anna", "ben", "cleo"], [1, 1, 1]).scheme)
    'every weight encrypted'
    """

    colluders: int = 1
    strikes: int = 2
    weight_range: float = MOST_RANGE
    fraction_bits: int = 20
    average: Average = "samples"
    aggregators: int | None = None
    name: ClassVar[str] = "detrust"
    paper: ClassVar[str] = (
        "Xu, Baracaldo, Zhou, Anwar, Kadhe, Ludwig: DeTrust-FL: privacy-preserving federated "
        "learning in decentralized trust setting, 2022"
    )

    def compose(self, names: Sequence[str], samples: Sequence[int]) -> Composition:
        """The parts for these clients."""
        scheme = EncryptedWeights(
            self.weight_range, self.fraction_bits, self.average, self.colluders, self.strikes
        )
        view, shards = owned(names, samples, self.aggregators)
        return Composition(view, RandomPlan(shards), scheme)
