"""D-PSGD: local steps, and mixing with the neighbours of one fixed graph.

Lian et al., "Can decentralized algorithms outperform centralized algorithms? A case study for
decentralized parallel stochastic gradient descent", 2017. The graph is a random regular one,
connected, and the weights are those of Metropolis and Hastings: x_i ← Σ_j W_ij x_j.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from eris.core.graphs import connected_regular_graph
from eris.core.vectors import Vector
from eris.methods.gossip import compose_nodes
from eris.methods.method import GossipComposition
from eris.protocol.gossip import GossipSettings
from eris.protocol.mixing import Mixing, MixingPeer


@dataclass(frozen=True)
class DPSGD:
    """Every node has ``degree`` neighbours, the same ones in every round.

    A neighbour that is not heard in a round leaves its weight to the node itself.

    >>> DPSGD(degree=2).compose_gossip(["anna", "ben", "cleo"], 10, 0, 0.1, [1, 1, 1]).phases
    1
    """

    degree: int = 8
    name: ClassVar[str] = "d-psgd"
    paper: ClassVar[str] = (
        "Lian, Zhang, Zhang, Hsieh, Zhang, Liu: Can decentralized algorithms outperform "
        "centralized algorithms? A case study for decentralized parallel stochastic gradient "
        "descent, 2017"
    )

    def compose_gossip(
        self,
        names: Sequence[str],
        n: int,
        seed: int,
        learning_rate: float,
        samples: Sequence[int],
    ) -> GossipComposition:
        """The parts for these nodes."""
        parameters = (("degree", self.degree),)
        settings = GossipSettings(n, len(names), self.name, parameters, seed, learning_rate)
        connected_regular_graph(len(names), self.degree, seed)  # refuses a degree that cannot be
        return compose_nodes(settings, names, samples, phases=1, build=self.neighbour)

    def neighbour(self, settings: GossipSettings, member: int, initial: Vector) -> MixingPeer:
        """A node's machine, which can be moved by its messages as well."""
        graph = connected_regular_graph(settings.nodes, self.degree, settings.seed)
        return MixingPeer(settings, member, initial, Mixing(lambda round, step: graph))
