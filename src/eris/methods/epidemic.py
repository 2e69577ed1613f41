"""EL: local steps, and the mean with the neighbours of a fresh random graph every round.

De Vos et al., "Epidemic learning: boosting decentralized learning with randomized communication",
2023 (EL-Oracle: the graph of a round is a random regular one that all nodes derive alike).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from eris.core.graphs import check_degree, regular_graph
from eris.core.vectors import Vector
from eris.methods.gossip import compose_nodes
from eris.methods.method import GossipComposition
from eris.protocol.gossip import GossipSettings
from eris.protocol.mixing import Mixing, MixingPeer


@dataclass(frozen=True)
class EpidemicLearning:
    """Every node has ``degree`` neighbours, others in every round.

    The new model is the plain mean of the node's own and of those that arrived.

    >>> EpidemicLearning(degree=3).compose_gossip(["anna", "ben", "cleo"], 10, 0, 0.1, [1, 1, 1])
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: degree is 3; expected 1 to 2 for 3 nodes
    """

    degree: int = 8
    name: ClassVar[str] = "el"
    paper: ClassVar[str] = (
        "De Vos, Farhadkhani, Guerraoui, Kermarrec, Pires, Sharma: Epidemic learning: boosting "
        "decentralized learning with randomized communication, 2023"
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
        check_degree(len(names), self.degree)
        return compose_nodes(settings, names, samples, phases=1, build=self.neighbour)

    def neighbour(self, settings: GossipSettings, member: int, initial: Vector) -> MixingPeer:
        """A node's machine, which can be moved by its messages as well."""
        graph = partial(regular_graph, settings.nodes, self.degree, settings.seed)
        return MixingPeer(settings, member, initial, Mixing(graph, weights="uniform"))
