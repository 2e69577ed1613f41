"""PriPrune: clients withhold the coordinates of their update that give most away.

Chu et al., "PriPrune: quantifying and preserving privacy in pruned federated learning", 2024. The
server averages what it gets, zeros where something was withheld. Fixed: the share ``rate`` of
largest magnitudes, over the whole update. Adaptive: every client chooses its rate anew each round,
the smallest at which what it sends carries at most ``energy`` of its update's squared norm (the
paper learns its rates by gradient descent on a bound that grows with what is sent), and prunes for
the server's eyes only: its local model keeps the withheld part (pseudo-pruning).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from eris.core.prune import Prune
from eris.methods.fedavg import FedAvg
from eris.methods.method import Composition
from eris.protocol.schemes import Pruned


@dataclass(frozen=True)
class PriPrune:
    """A central server that does not get the largest coordinates.

    >>> PriPrune(rate=0.05).compose(["anna"], [1]).scheme.prune
    Prune(rate=0.05, energy=None, pseudo=False)
    >>> PriPrune(adaptive=True, energy=0.8).compose(["anna"], [1]).scheme.prune
    Prune(rate=None, energy=0.8, pseudo=True)
    """

    rate: float = 0.1
    adaptive: bool = False
    energy: float = 0.5
    name: ClassVar[str] = "priprune"
    paper: ClassVar[str] = (
        "Chu, Yang, Laoutaris, Markopoulou: PriPrune: quantifying and preserving privacy in pruned "
        "federated learning, 2024"
    )

    def __post_init__(self) -> None:
        self._prune()

    def compose(self, names: Sequence[str], samples: Sequence[int]) -> Composition:
        """The parts for these clients."""
        return replace(FedAvg().compose(names, samples), scheme=Pruned(self._prune()))

    def _prune(self) -> Prune:
        return Prune(energy=self.energy, pseudo=True) if self.adaptive else Prune(rate=self.rate)
