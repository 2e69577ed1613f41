"""FedAvg-LDP: FedAvg whose clients clip and noise their samples' gradients.

McMahan et al. 2017 with DP-SGD (Abadi et al., "Deep learning with differential privacy", 2016) at
every client, so that the server itself learns little of any sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from eris.methods.fedavg import FedAvg
from eris.methods.method import Composition
from eris.methods.privacy import Calibration, LocalPrivacy


@dataclass(frozen=True)
class FedAvgLDP:
    """FedAvg with a budget (``epsilon``, ``delta``) for every sample and clipping to ``clip``.

    ``calibration`` is ``composed`` (the budget is for the whole run) or ``per-round`` (for all uses
    of a sample in a round, the ERIS authors' way; the run then spends far more, which is reported).

    >>> FedAvgLDP(epsilon=10).compose(["anna"], [1]).privacy
    LocalPrivacy(epsilon=10, delta=1e-05, clip=1.0, calibration='composed')
    """

    epsilon: float = 10.0
    delta: float = 1e-5
    clip: float = 1.0
    calibration: Calibration = "composed"
    name: ClassVar[str] = "fedavg-ldp"
    paper: ClassVar[str] = (
        "Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: Deep learning with differential "
        "privacy, 2016"
    )

    def __post_init__(self) -> None:
        self._privacy()

    def compose(self, names: Sequence[str], samples: Sequence[int]) -> Composition:
        """The parts for these clients."""
        return replace(FedAvg().compose(names, samples), privacy=self._privacy())

    def _privacy(self) -> LocalPrivacy:
        return LocalPrivacy(self.epsilon, self.delta, self.clip, self.calibration)
