"""What a method has to say: how updates are cut and compressed, and who aggregates what."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Protocol, Self

from eris.core.errors import InvalidSetting, require
from eris.core.shards import ShardPlan
from eris.core.vectors import Vector
from eris.methods.privacy import LocalPrivacy
from eris.protocol.gossip.peer import GossipSettings, Neighbour, Nodes, Peer
from eris.protocol.schemes import Dense, Scheme
from eris.protocol.secure.noise_terms import Level
from eris.protocol.secure.terms import SecureSums
from eris.protocol.view import View


@dataclass(frozen=True)
class Composition:
    """A method's parts, for given clients."""

    view: View
    plan: ShardPlan
    scheme: Scheme = field(default_factory=Dense)
    privacy: LocalPrivacy | None = None
    secure: SecureSums | None = None
    shares: Level | None = None
    """Whether ``privacy`` is noise that clients share, and what it protects."""
    sampling_rate: float = 1.0
    """Of noise that is shared: how likely a sample is in a round's batch."""

    @property
    def central(self) -> bool:
        """Whether a server without data owns everything."""
        return not self.view.client_set & {*self.view.owners}


class Method(Protocol):
    """A published method as a composition of the package's parts."""

    name: ClassVar[str]
    paper: ClassVar[str]

    def compose(self, names: Sequence[str], samples: Sequence[int]) -> Composition:
        """The parts for these clients."""


@dataclass(frozen=True)
class GossipComposition:
    """A method's parts where every node has a model of its own.

    Real nodes come first among the members, then virtual ones; ``clients`` are those that train.
    ``hosts[member]`` is the real node that a member runs at: where that goes, the member goes too.
    """

    members: tuple[str, ...]
    clients: tuple[int, ...]
    hosts: tuple[int, ...] = field(repr=False)
    phases: int
    settings: GossipSettings
    build: Callable[[int, Vector], Peer]
    privacy: LocalPrivacy | None = None

    def peer(self, member: int, initial: Vector) -> Peer:
        """A member's machine, starting from a model."""
        expected = f"a member's number, 0 to {len(self.members) - 1}"
        require(0 <= member < len(self.members), "member", member, expected)
        return self.build(member, initial)


class GossipMethod(ABC):
    """A published method in which nodes exchange models, and nobody aggregates for others."""

    name: ClassVar[str]
    paper: ClassVar[str]
    public: ClassVar[tuple[str, ...]]
    """Settings that all nodes agree on; whatever else it has is a node's secret."""
    least_members: ClassVar[int] = 2
    """Fewest that gossip where members may fail."""
    privacy: LocalPrivacy | None = None

    def with_secrets(self, draw: Callable[[], int]) -> Self:
        """The method with secrets of one node, where it has some that are not given."""
        names = {item.name for item in fields(self) if item.name.endswith("_secret")}  # type: ignore[arg-type]
        missing = {name: draw() for name in names if getattr(self, name) is None}
        return replace(self, **missing)  # type: ignore[type-var]

    @property
    def parameters(self) -> tuple[tuple[str, int | float | str | bool], ...]:
        """Its public settings, as nodes agree on them."""
        kinds = {name: type(getattr(type(self), name)) for name in self.public}  # 1 means 1.0
        return tuple((name, kind(getattr(self, name))) for name, kind in kinds.items())

    @abstractmethod
    def nodes(self, settings: GossipSettings) -> Nodes:
        """The machines of nodes that agree on this; refuses settings that cannot be."""

    def members(self, settings: GossipSettings, draw: Callable[[int], bytes]) -> Nodes:
        """The machines of members that may fail, one a process; ``draw`` gives secret random
        bytes."""
        return self.nodes(settings)

    def largest(self, settings: GossipSettings) -> int:
        """Values of the largest message."""
        return settings.n

    def among(self, nodes: int) -> Self:
        """The method where only so many nodes are there, of those that it was agreed for."""
        return self

    @abstractmethod
    def neighbour(self, settings: GossipSettings, member: int, initial: Vector) -> Neighbour:
        """What a node can read out of its own messages; secrets are not asked for."""

    def compose_gossip(
        self,
        names: Sequence[str],
        n: int,
        seed: int,
        learning_rate: float,
        samples: Sequence[int],
    ) -> GossipComposition:
        """The parts for these clients and a model of ``n`` coordinates."""
        settings = GossipSettings(n, len(names), self.name, self.parameters, seed, learning_rate)
        nodes = self.nodes(settings)
        if len(samples) != len(names) or min(samples, default=1) < 1:
            raise InvalidSetting("samples", tuple(samples), "a positive number for every node")
        members = (*names, *(f"virtual-{number}" for number in range(len(nodes.owners))))
        clients = tuple(range(len(names)))
        View(members, clients, owners=())  # refuses a name that comes twice
        hosts = (*clients, *nodes.owners)
        return GossipComposition(
            members, clients, hosts, nodes.phases, settings, nodes.build, self.privacy
        )
