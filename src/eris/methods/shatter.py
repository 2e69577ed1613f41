"""Shatter: chunks of a model travel between virtual nodes, and nobody knows whose they are.

Biswas et al., "Noiseless privacy-preserving decentralized learning", 2025. N real nodes with k
virtual nodes each; a fresh r-regular graph over all N·k virtual nodes every round. A node sends
(1 + 2r)·d values in k + 2kr messages a round, its virtual nodes' included.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from eris.core.chunks import Chunking, ChunkKind
from eris.core.errors import require
from eris.core.graphs import check_degree, possible_degree
from eris.core.vectors import Vector
from eris.methods.assembling import check_secret, simulated_secret
from eris.methods.method import GossipMethod
from eris.methods.privacy import LocalPrivacy
from eris.protocol.gossip.carried import HOPS, LEAST, CarriedNode, Carrying, Draw
from eris.protocol.gossip.overheard import CarriedNeighbour
from eris.protocol.gossip.peer import GossipSettings, Neighbour, Nodes, Peer
from eris.protocol.gossip.virtual import (
    PHASES,
    RealNode,
    Shattering,
    ShatterNeighbour,
    VirtualNode,
    VirtualNodes,
)


@dataclass(frozen=True)
class Shatter(GossipMethod):
    """``virtual_nodes`` (k) for each node, each with ``degree`` (r) neighbours a round.

    ``chunking`` is static (the paper's choice), or for comparison linear, replacement or dynamic
    (appendix C); with replacement, chunks that overlap betray that they have one owner. Without
    ``full_sharing`` a node shares one random chunk a round and no other (section 6.5). ``privacy``
    adds local differential privacy.

    ``owner_secret`` decides which virtual node is whose. It is in no message and not in the agreed
    settings. By default it follows from the run's seed, so that simulations repeat, and hides
    nothing from whoever knows that seed; a deployment draws it from the operating system
    (:func:`eris.core.noise.secret_seed`). Nodes that drop out together with their virtual nodes
    show over time which belong together, as do nodes that share one chunk only. Real nodes have no
    such secret: they carry each other's virtual nodes (:mod:`eris.protocol.gossip.carried`).

    >>> Shatter(virtual_nodes=2, degree=3).compose_gossip(
    ...     ["anna", "ben", "cleo"], 10, 0, 0.1, [1, 1, 1]
    ... ).members[3:5]
    ('virtual-0', 'virtual-1')
    """

    virtual_nodes: int = 8
    degree: int = 8
    chunking: ChunkKind = "static"
    full_sharing: bool = True
    owner_secret: int | None = field(default=None, repr=False)
    privacy: LocalPrivacy | None = None
    name: ClassVar[str] = "shatter"
    least_members: ClassVar[int] = LEAST
    public: ClassVar[tuple[str, ...]] = ("virtual_nodes", "degree", "chunking", "full_sharing")
    paper: ClassVar[str] = (
        "Biswas, Even, Kermarrec, Massoulié, Pires, Sharma, de Vos: Noiseless privacy-preserving "
        "decentralized learning, 2025"
    )

    def __post_init__(self) -> None:
        require(self.virtual_nodes >= 1, "virtual_nodes", self.virtual_nodes, "at least 1")
        Chunking(self.virtual_nodes, self.chunking, self.virtual_nodes, 0)  # refuses the unknown
        check_secret("owner_secret", self.owner_secret)

    def nodes(self, settings: GossipSettings) -> Nodes:
        """Real nodes, and the virtual ones that nobody can tell whose they are."""
        check_degree(settings.nodes * self.virtual_nodes, self.degree)
        secret = self.owner_secret
        if secret is None:
            secret = simulated_secret("shatter-owners", settings.seed)
        parts = self._shattering(settings, secret)

        def build(member: int, initial: Vector) -> Peer:
            if member < settings.nodes:
                return RealNode(parts, member, initial)
            return VirtualNode(parts, member)

        return Nodes(PHASES, build, parts.ownership.owners)

    def members(self, settings: GossipSettings, draw: Draw) -> Nodes:
        """Members that carry each other's virtual nodes, drawn anew in every round."""
        carrying = self.carrying(settings)
        count = settings.nodes
        expected = f"at least {LEAST}: with fewer whoever gets a chunk knows whose it is"
        require(count >= LEAST, "the number of members", count, expected)
        check_degree(count * self.virtual_nodes, self.degree)
        return Nodes(HOPS, lambda me, initial: CarriedNode(carrying, me, initial, draw))

    def largest(self, settings: GossipSettings) -> int:
        """Values of the largest message between members."""
        return self.carrying(settings).largest

    def carrying(self, settings: GossipSettings) -> Carrying:
        """What members that carry each other's virtual nodes agree on."""
        return Carrying(settings, self._chunks(settings), self.degree, self.full_sharing)

    def among(self, nodes: int) -> Self:
        """With the degree that a graph of so many members' virtual nodes can have."""
        return replace(self, degree=possible_degree(nodes * self.virtual_nodes, self.degree))

    def neighbour(self, settings: GossipSettings, member: int, initial: Vector) -> Neighbour:
        """What a node can read out of its messages: whose a virtual node is, is not there, unless
        it carries it for another member."""
        if settings.least_clients == LEAST:  # members that carry for each other
            return CarriedNeighbour(self.carrying(settings), member, initial)
        return ShatterNeighbour(self._shattering(settings, secret=0), member, initial)

    def _shattering(self, settings: GossipSettings, secret: int) -> Shattering:
        chunking = self._chunks(settings)
        ownership = VirtualNodes(settings.nodes, self.virtual_nodes, secret)
        return Shattering(settings, chunking, self.degree, self.full_sharing, ownership)

    def _chunks(self, settings: GossipSettings) -> Chunking:
        expected = f"1 to n = {settings.n}: every chunk holds a coordinate"
        require(self.virtual_nodes <= settings.n, "virtual_nodes", self.virtual_nodes, expected)
        return Chunking(self.virtual_nodes, self.chunking, settings.n, settings.seed)
