"""D-PSGD: local steps, and mixing with the neighbours of one fixed graph.

Lian et al., "Can decentralized algorithms outperform centralized algorithms? A case study for
decentralized parallel stochastic gradient descent", 2017. The graph is a random regular one,
connected, and the weights are those of Metropolis and Hastings: x_i ← Σ_j W_ij x_j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from eris.core.graphs import connected_regular_graph
from eris.methods.assembling import RegularMixing
from eris.protocol.gossip.mixing import Mixing
from eris.protocol.gossip.peer import GossipSettings


@dataclass(frozen=True)
class DPSGD(RegularMixing):
    """Every node has ``degree`` neighbours, the same ones in every round.

    A neighbour that is not heard in a round leaves its weight to the node itself.

    >>> DPSGD(degree=2).compose_gossip(["anna", "ben", "cleo"], 10, 0, 0.1, [1, 1, 1]).phases
    1
    """

    degree: int = 8
    name: ClassVar[str] = "d-psgd"
    public: ClassVar[tuple[str, ...]] = ("degree",)
    paper: ClassVar[str] = (
        "Lian, Zhang, Zhang, Hsieh, Zhang, Liu: Can decentralized algorithms outperform "
        "centralized algorithms? A case study for decentralized parallel stochastic gradient "
        "descent, 2017"
    )

    def mixing(self, settings: GossipSettings) -> Mixing:
        """The same graph in every round."""
        graph = connected_regular_graph(settings.nodes, self.degree, settings.seed)
        return Mixing(lambda round, step: graph)
