"""SoteriaFL: noisy gradients, then shifted compression to a central server.

Li, Zhao, Li & Chi, "SoteriaFL: a unified framework for private federated learning with
communication compression", 2022. Every client has a reference and a mask of its own; client and
server move their references by the same γ (with different ones the server's estimate drifts).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from eris.core.compress import RandP
from eris.methods.fedavg import FedAvg
from eris.methods.method import Composition
from eris.methods.privacy import Calibration, LocalPrivacy
from eris.protocol.schemes import Independent


@dataclass(frozen=True)
class SoteriaFL:
    """A central server, local noise, and the share ``kept_fraction`` of the coordinates sent.

    ``noise=False`` leaves the noise out, for seeing what compression alone does.

    >>> SoteriaFL().compose(["anna"], [1]).scheme.name
    'independent'
    """

    kept_fraction: float = 0.05
    epsilon: float = 10.0
    delta: float = 1e-5
    clip: float = 1.0
    calibration: Calibration = "composed"
    noise: bool = True
    name: ClassVar[str] = "soteriafl"
    paper: ClassVar[str] = (
        "Li, Zhao, Li, Chi: SoteriaFL: a unified framework for private federated learning with "
        "communication compression, 2022"
    )

    def __post_init__(self) -> None:
        RandP(self.kept_fraction)
        self._privacy()

    def compose(self, names: Sequence[str], samples: Sequence[int]) -> Composition:
        """The parts for these clients."""
        scheme = Independent(RandP(self.kept_fraction))
        central = FedAvg().compose(names, samples)
        return replace(central, scheme=scheme, privacy=self._privacy())

    def _privacy(self) -> LocalPrivacy | None:
        privacy = LocalPrivacy(self.epsilon, self.delta, self.clip, self.calibration)
        return privacy if self.noise else None
