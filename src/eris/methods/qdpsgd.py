"""Q-DPSGD-1: local steps, noisy if asked for, then gossip of quantised models on a fixed graph.

Ding et al., "Differentially private and communication efficient collaborative learning", 2021.
x_i ← x_i + ε·Σ_j W_ij (Q(x_j) − x_i) with an unbiased quantiser Q of b bits a coordinate, on a
graph that has the share ``density`` of all edges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from eris.core.compress import UniformQuantiser
from eris.core.errors import require
from eris.core.graphs import connected_random_graph
from eris.methods.assembling import MixingMethod, check_secret, repeatable, simulated_secret
from eris.protocol.gossip.mixing import Mixing, Noise
from eris.protocol.gossip.peer import GossipSettings


@dataclass(frozen=True)
class QDPSGD1(MixingMethod):
    """``sigma`` is the noise on every coordinate of the update, before it is applied; 0: none.

    ``pace`` is ε, how far a node moves towards its neighbours: quantised models are noisy, and a
    smaller pace averages over more rounds. ``noise_secret`` names the streams of a simulation's
    noise and of the quantiser's rounding; see :class:`~eris.methods.muffliato.Muffliato` for what
    keeps noise secret, and for why no privacy budget is claimed here.

    >>> QDPSGD1(density=0)
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: density is 0; expected a number in (0, 1]
    """

    bits: int = 6
    density: float = 0.4
    sigma: float = 0.0
    pace: float = 1.0
    noise_secret: int | None = field(default=None, repr=False)
    name: ClassVar[str] = "q-dpsgd-1"
    public: ClassVar[tuple[str, ...]] = ("bits", "density", "sigma", "pace")
    paper: ClassVar[str] = (
        "Ding, Liang, Bi, Pan: Differentially private and communication efficient collaborative "
        "learning, 2021"
    )

    def __post_init__(self) -> None:
        UniformQuantiser(self.bits)  # refuses a number of bits that cannot be
        for name in ("density", "pace"):
            require(0 < getattr(self, name) <= 1, name, getattr(self, name), "a number in (0, 1]")
        require(0 <= self.sigma < math.inf, "sigma", self.sigma, "a finite number, 0 or more")
        check_secret("noise_secret", self.noise_secret)

    def mixing(self, settings: GossipSettings) -> Mixing:
        """One graph, noise on the update, quantised models."""
        graph = connected_random_graph(settings.nodes, self.density, settings.seed)
        secret = self.noise_secret
        if secret is None:
            secret = simulated_secret("q-dpsgd-1-noise", settings.seed)
        return Mixing(
            lambda round, step: graph,
            noise=Noise(self.sigma, repeatable(secret), on="update"),
            quantiser=UniformQuantiser(self.bits),
            secret=secret,
            pace=self.pace,
        )
