"""What a method has to say: how updates are cut and compressed, and who aggregates what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

from eris.core.shards import ShardPlan
from eris.core.vectors import Vector
from eris.methods.privacy import LocalPrivacy
from eris.protocol.gossip import GossipSettings, Neighbour, Peer
from eris.protocol.membership import View
from eris.protocol.schemes import Dense, Scheme


@dataclass(frozen=True)
class Composition:
    """A method's parts, for given clients."""

    view: View
    plan: ShardPlan
    scheme: Scheme = field(default_factory=Dense)
    privacy: LocalPrivacy | None = None


class Method(Protocol):
    """A published method as a composition of the package's parts."""

    name: ClassVar[str]
    paper: ClassVar[str]

    def compose(self, names: Sequence[str], samples: Sequence[int]) -> Composition:
        """The parts for these clients."""
        ...


@dataclass(frozen=True)
class GossipComposition:
    """A method's parts where every node has a model of its own.

    Real nodes come first among the members, then virtual ones; ``clients`` are those that train.
    ``hosts[member]`` is the real node that a member runs at: where that goes, the member goes too.
    ``machine(member, initial)`` makes a member's machine.
    """

    members: tuple[str, ...]
    clients: tuple[int, ...]
    hosts: tuple[int, ...] = field(repr=False)
    phases: int
    settings: GossipSettings
    machine: Callable[[int, Vector], Peer]
    privacy: LocalPrivacy | None = None

    def peer(self, member: int, initial: Vector) -> Peer:
        """A member's machine, starting from a model."""
        return self.machine(member, initial)


@runtime_checkable
class GossipMethod(Protocol):
    """A published method in which nodes exchange models, and nobody aggregates for others."""

    name: ClassVar[str]
    paper: ClassVar[str]

    def compose_gossip(
        self,
        names: Sequence[str],
        n: int,
        seed: int,
        learning_rate: float,
        samples: Sequence[int],
    ) -> GossipComposition:
        """The parts for these clients and a model of ``n`` coordinates."""
        ...

    def neighbour(self, settings: GossipSettings, member: int, initial: Vector) -> Neighbour:
        """What a node can read out of its own messages; secrets are not asked for."""
        ...
