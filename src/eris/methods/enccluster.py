"""EncCluster: clients encrypt the centroids of their clustered weights; only sums are opened.

Tsouvalas et al., 2024, with keys that are new in every round, shares that are bound to one set of
clients, and no third party. It does not hide a client's model from the server: docs/enccluster.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from eris.core.shards import RandomPlan
from eris.methods.method import Composition
from eris.protocol.enccluster.coding import MOST_RANGE
from eris.protocol.enccluster.mapped import MappingCoding, Policy
from eris.protocol.schemes import EncryptedClusters
from eris.protocol.schemes.clustered import Fewer
from eris.protocol.schemes.declared import Average
from eris.protocol.schemes.layers import BooksOf
from eris.protocol.schemes.weights import Travelling
from eris.protocol.view import View


@dataclass(frozen=True)
class EncCluster:
    """A central server, or ``aggregators`` of the clients that own a shard each.

    ``coding`` is how the mapping to ``clusters`` centroids travels: packed, sealed, huffman, or in
    a filter of 8, 16 or 32 bits with a ``policy`` for several hits: exact, first or populous.
    ``colluders`` clients may be on the server's side; the law of the set follows from that. Who
    gives no share in ``strikes`` rounds in a row is left out of as many by its owner. Weights
    are at most ``weight_range`` in magnitude and have ``fraction_bits``; ``average`` weighs clients
    by their samples, or is plain. ``clusters_of`` weights, as in the paper, or of updates, which
    gives the server nearly all of them. ``fewer``: a model of fewer distinct values is allowed as
    many clusters, or refused. ``books``: the model, or a shard of it, is clustered as a whole or
    layer by layer.

    >>> EncCluster(clusters=16, aggregators=2).compose(["anna", "ben", "cleo"], [1, 1, 1]).plan
    RandomPlan(shards=2, rotate=0)
    """

    clusters: int = 128
    coding: MappingCoding = "packed"
    policy: Policy = "exact"
    colluders: int = 1
    strikes: int = 2
    weight_range: float = MOST_RANGE
    fraction_bits: int = 20
    average: Average = "samples"
    clusters_of: Travelling = "weights"
    fewer: Fewer = "allow"
    books: BooksOf = "model"
    aggregators: int | None = None
    name: ClassVar[str] = "enccluster"
    paper: ClassVar[str] = (
        "Tsouvalas, Mohammadi, Balador, Ozcelebi, Flammini, Meratnia: EncCluster: scalable "
        "functional encryption in federated learning through weight clustering and probabilistic "
        "filters, 2024"
    )

    def compose(self, names: Sequence[str], samples: Sequence[int]) -> Composition:
        """The parts for these clients."""
        scheme = EncryptedClusters(
            self.weight_range, self.fraction_bits, self.average, self.colluders, self.strikes,
            self.clusters, self.coding, self.policy, self.clusters_of, self.fewer, self.books,
        )  # fmt: skip
        view, shards = owned(names, samples, self.aggregators)
        return Composition(view, RandomPlan(shards), scheme)


def owned(
    names: Sequence[str], samples: Sequence[int], aggregators: int | None
) -> tuple[View, int]:
    """A view with a central server, or with so many clients as owners; and how many shards."""
    if aggregators is None:
        return View.central(list(names), samples=tuple(samples)), 1
    weights = tuple(samples)
    return View.serverless(list(names), aggregators=aggregators, samples=weights), aggregators
