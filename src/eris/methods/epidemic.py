"""EL: local steps, and the mean with the neighbours of a fresh random graph every round.

De Vos et al., "Epidemic learning: boosting decentralized learning with randomized communication",
2023 (EL-Oracle: the graph of a round is a random regular one that all nodes derive alike).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from eris.core.graphs import check_degree, regular_graph
from eris.methods.assembling import RegularMixing
from eris.protocol.gossip.mixing import Mixing
from eris.protocol.gossip.peer import GossipSettings


@dataclass(frozen=True)
class EpidemicLearning(RegularMixing):
    """Every node has ``degree`` neighbours, others in every round.

    The new model is the plain mean of the node's own and of those that arrived.

    >>> EpidemicLearning(degree=3).compose_gossip(["anna", "ben", "cleo"], 10, 0, 0.1, [1, 1, 1])
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: degree is 3; expected 1 to 2 for 3 nodes
    """

    degree: int = 8
    name: ClassVar[str] = "el"
    public: ClassVar[tuple[str, ...]] = ("degree",)
    paper: ClassVar[str] = (
        "De Vos, Farhadkhani, Guerraoui, Kermarrec, Pires, Sharma: Epidemic learning: boosting "
        "decentralized learning with randomized communication, 2023"
    )

    def mixing(self, settings: GossipSettings) -> Mixing:
        """A graph of its own for every round."""
        check_degree(settings.nodes, self.degree)
        graph = partial(regular_graph, settings.nodes, self.degree, settings.seed)
        return Mixing(graph, weights="uniform")
