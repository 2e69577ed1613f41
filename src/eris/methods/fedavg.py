"""FedAvg: a central server that sees every client's whole update.

McMahan et al., "Communication-efficient learning of deep networks from decentralized data", 2017.
With any server rule of :mod:`eris.core.rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from eris.core.shards import RandomPlan
from eris.methods.method import Composition
from eris.protocol.view import View


@dataclass(frozen=True)
class FedAvg:
    """One shard, owned by a server without data.

    >>> FedAvg().compose(["anna", "ben"], [10, 20]).view.members
    ('anna', 'ben', 'server')
    """

    name: ClassVar[str] = "fedavg"
    paper: ClassVar[str] = (
        "McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-efficient learning of deep "
        "networks from decentralized data, 2017"
    )

    def compose(self, names: Sequence[str], samples: Sequence[int]) -> Composition:
        """The parts for these clients."""
        return Composition(View.central(list(names), samples=tuple(samples)), RandomPlan(1))
