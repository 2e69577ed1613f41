"""What a method has to say: how updates are cut and compressed, and who aggregates what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from eris.core.compress import Compressor
from eris.core.shards import ShardPlan
from eris.protocol.membership import View


@dataclass(frozen=True)
class Composition:
    """A method's parts, for given clients."""

    view: View
    plan: ShardPlan
    compressor: Compressor | None = None
    masks: Literal["shared", "independent"] = "shared"


class Method(Protocol):
    """A published method as a composition of the package's parts."""

    name: ClassVar[str]

    def compose(self, names: Sequence[str], samples: Sequence[int]) -> Composition:
        """The parts for these clients."""
        ...
