"""What gossip methods share: nodes that mix models, and secrets that simulations repeat."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Self

from eris.core.errors import InvalidSetting
from eris.core.graphs import possible_degree
from eris.core.noise import Draws
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.methods.method import GossipMethod
from eris.protocol.gossip.mixing import Mixing, MixingPeer
from eris.protocol.gossip.peer import GossipSettings, Nodes
from eris.protocol.secure.noise import CipherDraws


class MixingMethod(GossipMethod):
    """A method whose nodes mix whole models; it says how."""

    @abstractmethod
    def mixing(self, settings: GossipSettings) -> Mixing:
        """How models are mixed; refuses a graph that cannot be."""

    def nodes(self, settings: GossipSettings) -> Nodes:
        """Nodes that send their models in every gossip step."""
        return Nodes(self.mixing(settings).steps, partial(self.neighbour, settings))

    def members(self, settings: GossipSettings, draw: Callable[[int], bytes]) -> Nodes:
        """Members whose noise is from a cipher, under a key of its own every time."""
        mixing = self.mixing(settings)
        if mixing.noise is not None:
            noise = replace(mixing.noise, draws=lambda round, member: CipherDraws(draw(32)))
            mixing = replace(mixing, noise=noise)
        return Nodes(
            mixing.steps, lambda member, initial: MixingPeer(settings, member, initial, mixing)
        )

    def neighbour(self, settings: GossipSettings, member: int, initial: Vector) -> MixingPeer:
        """A node's machine, which can be moved by its messages as well."""
        return MixingPeer(settings, member, initial, self.mixing(settings))


class RegularMixing(MixingMethod):
    """A method whose graphs are regular: every node has ``degree`` neighbours."""

    degree: int

    def among(self, nodes: int) -> Self:
        """With the degree that a graph of so many nodes can have."""
        fits = possible_degree(nodes, self.degree)
        return replace(self, degree=fits)  # type: ignore[type-var]


def simulated_secret(purpose: str, seed: int) -> int:
    """A secret for simulations, which must repeat: anyone who knows the public seed can derive it.

    A deployment draws its secrets from the operating system, as
    :func:`eris.core.noise.secret_seed` does.

    >>> simulated_secret("noise", 1) != simulated_secret("owners", 1)
    True
    """
    text = f"eris/secret/1/{purpose}/{seed}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little")


def repeatable(secret: int) -> Callable[[int, int], Draws]:
    """A simulation's noise of a round and member, which whoever knows the secret can subtract.

    >>> noise = repeatable(5)
    >>> bool((noise(3, 0).normal(0, 4) == noise(3, 0).normal(0, 4)).all())
    True
    """
    return partial(Stream, secret, "gossip-noise")


def check_secret(name: str, value: int | None) -> None:
    """Refuse a secret that is no seed of a stream, without repeating it."""
    if value is not None and not 0 <= value < 1 << 64:
        raise InvalidSetting(name, "out of range", "an integer from 0 to 2**64 - 1, or None")
