"""Muffliato: noise on the local model once a round, then several gossip steps that average it out.

Cyffers et al., "Muffliato: peer-to-peer privacy amplification for decentralized optimization and
averaging", 2022. Simple gossip without acceleration, on a random regular graph drawn anew in each
gossip step, as Shatter's authors ran it (section 6.1 of their paper).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from eris.core.errors import require
from eris.core.graphs import check_degree, regular_graph
from eris.methods.assembling import RegularMixing, check_secret, repeatable, simulated_secret
from eris.protocol.gossip.mixing import Mixing, Noise
from eris.protocol.gossip.peer import GossipSettings


@dataclass(frozen=True)
class Muffliato(RegularMixing):
    """``sigma`` is the noise on every coordinate of the model that a node sends first.

    The default is the low level that Shatter's authors ran on CIFAR-10; with 0.05 their training
    ended in NaN, and with 0.1 it did not converge (section 3.1). ``degree`` is that of the graph of
    each of the ``steps`` gossip steps of a round.

    ``noise_secret`` names the streams of a simulation's noise. By default it follows from the run's
    seed, so that simulations repeat, and hides nothing from whoever knows that seed; a node's noise
    is from a cipher under keys of the operating system, which are in no message. What ε a σ is
    worth depends on how far a model can move with one person's data, which nothing here bounds: no
    ε is claimed.

    >>> Muffliato(sigma=-1.0)
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: sigma is -1.0; expected a finite number, 0 or more
    """

    sigma: float = 0.025
    steps: int = 10
    degree: int = 8
    noise_secret: int | None = field(default=None, repr=False)
    name: ClassVar[str] = "muffliato"
    public: ClassVar[tuple[str, ...]] = ("degree", "sigma", "steps")
    paper: ClassVar[str] = (
        "Cyffers, Even, Bellet, Massoulié: Muffliato: peer-to-peer privacy amplification for "
        "decentralized optimization and averaging, 2022"
    )

    def __post_init__(self) -> None:
        require(0 <= self.sigma < math.inf, "sigma", self.sigma, "a finite number, 0 or more")
        require(self.steps >= 1, "steps", self.steps, "at least 1 gossip step")
        check_secret("noise_secret", self.noise_secret)

    def mixing(self, settings: GossipSettings) -> Mixing:
        """A graph of its own for every gossip step, and noise on the model."""
        check_degree(settings.nodes, self.degree)
        graph = partial(regular_graph, settings.nodes, self.degree, settings.seed)
        secret = self.noise_secret
        if secret is None:
            secret = simulated_secret("muffliato-noise", settings.seed)
        noise = Noise(self.sigma, repeatable(secret), on="model")
        return Mixing(graph, steps=self.steps, noise=noise)
