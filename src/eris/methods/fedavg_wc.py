"""FedAvg_wc: FedAvg whose clients send clustered weights, in the clear.

The baseline of the EncCluster paper without encryption: what clusters cost and save by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from eris.methods.fedavg import FedAvg
from eris.methods.method import Composition
from eris.protocol.schemes import Clustered
from eris.protocol.schemes.clustered import ClearCoding, Fewer
from eris.protocol.schemes.layers import BooksOf
from eris.protocol.schemes.weights import Travelling


@dataclass(frozen=True)
class FedAvgWC:
    """A central server that gets ``clusters`` centroids and a mapping of every client.

    ``coding`` is how the mapping travels: a packed index, or a Huffman code. ``clusters_of`` says
    whether weights are clustered, as in the paper, or updates. Where a model has fewer distinct
    values, ``fewer`` allows as many clusters, or refuses. ``books``: the model is clustered as a
    whole, or layer by layer.

    >>> str(FedAvgWC(clusters=16).compose(["anna", "ben"], [10, 20]).scheme)
    '16 clusters of weights, packed'
    """

    clusters: int = 128
    coding: ClearCoding = "packed"
    clusters_of: Travelling = "weights"
    fewer: Fewer = "allow"
    books: BooksOf = "model"
    name: ClassVar[str] = "fedavg-wc"
    paper: ClassVar[str] = (
        "Tsouvalas, Mohammadi, Balador, Ozcelebi, Flammini, Meratnia: EncCluster: scalable "
        "functional encryption in federated learning through weight clustering and probabilistic "
        "filters, 2024 (baseline)"
    )

    def compose(self, names: Sequence[str], samples: Sequence[int]) -> Composition:
        """The parts for these clients."""
        scheme = Clustered(self.clusters, self.coding, self.clusters_of, self.fewer, self.books)
        return replace(FedAvg().compose(names, samples), scheme=scheme)
