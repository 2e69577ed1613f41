"""Muffliato: noise on the local model once a round, then several gossip steps that average it out.

Cyffers et al., "Muffliato: peer-to-peer privacy amplification for decentralized optimization and
averaging", 2022. Simple gossip without acceleration, on a fixed graph, as Shatter's authors ran it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from eris.core.errors import InvalidSetting
from eris.core.graphs import connected_regular_graph
from eris.core.vectors import Vector
from eris.methods.gossip import check_secret, compose_nodes, simulated_secret
from eris.methods.method import GossipComposition
from eris.protocol.gossip import GossipSettings
from eris.protocol.mixing import Mixing, MixingPeer, Noise


@dataclass(frozen=True)
class Muffliato:
    """``sigma`` is the noise on every coordinate of the model that a node sends first.

    ``noise_secret`` names the streams of the noise. By default it follows from the run's seed, so
    that simulations repeat, and hides nothing from whoever knows that seed; in a deployment every
    node draws its own from the operating system (:func:`eris.core.noise.secret_seed`). It is in no
    message and not in the agreed settings. What ε a σ is worth depends on how far a model can
    move with one person's data, which nothing here bounds: no ε is claimed.

    >>> Muffliato(sigma=-1.0)
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: sigma is -1.0; expected a finite number, 0 or more
    """

    sigma: float = 0.05
    steps: int = 10
    degree: int = 8
    noise_secret: int | None = field(default=None, repr=False)
    name: ClassVar[str] = "muffliato"
    paper: ClassVar[str] = (
        "Cyffers, Even, Bellet, Massoulié: Muffliato: peer-to-peer privacy amplification for "
        "decentralized optimization and averaging, 2022"
    )

    def __post_init__(self) -> None:
        if not 0 <= self.sigma < math.inf:
            raise InvalidSetting("sigma", self.sigma, "a finite number, 0 or more")
        if self.steps < 1:
            raise InvalidSetting("steps", self.steps, "at least 1 gossip step")
        check_secret("noise_secret", self.noise_secret)

    def compose_gossip(
        self,
        names: Sequence[str],
        n: int,
        seed: int,
        learning_rate: float,
        samples: Sequence[int],
    ) -> GossipComposition:
        """The parts for these nodes."""
        public = {"degree": self.degree, "sigma": float(self.sigma), "steps": self.steps}
        parameters = tuple(public.items())
        settings = GossipSettings(n, len(names), self.name, parameters, seed, learning_rate)
        connected_regular_graph(len(names), self.degree, seed)  # refuses a degree that cannot be
        return compose_nodes(settings, names, samples, phases=self.steps, build=self._peer)

    def _peer(self, settings: GossipSettings, member: int, initial: Vector) -> MixingPeer:
        graph = connected_regular_graph(settings.nodes, self.degree, settings.seed)
        secret = self.noise_secret
        if secret is None:
            secret = simulated_secret("muffliato-noise", settings.seed)
        noise = Noise(self.sigma, secret, on="model")
        mixing = Mixing(lambda round: graph, steps=self.steps, noise=noise)
        return MixingPeer(settings, member, initial, mixing)
