"""What gossip methods share: putting nodes together, and secrets that simulations repeat."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.methods.method import GossipComposition
from eris.protocol.gossip import GossipSettings, Peer
from eris.protocol.membership import View


def compose_nodes(
    settings: GossipSettings,
    names: Sequence[str],
    samples: Sequence[int],
    phases: int,
    build: Callable[[GossipSettings, int, Vector], Peer],
    owners: Sequence[int] = (),
) -> GossipComposition:
    """A composition of named nodes and of virtual ones, each of which has one of them as its owner.

    Virtual nodes are numbered and nothing else: ``owners`` is in no name, message or setting.
    """
    if len(samples) != len(names) or min(samples, default=1) < 1:
        raise InvalidSetting("samples", tuple(samples), "a positive number for every node")
    members = (*names, *(f"virtual-{number}" for number in range(len(owners))))
    view = View(members, tuple(range(len(names))), owners=())  # refuses a name that comes twice

    def machine(member: int, initial: Vector) -> Peer:
        if not 0 <= member < len(members):
            raise InvalidSetting("member", member, f"a member's number, 0 to {len(members) - 1}")
        return build(settings, member, initial)

    hosts = (*range(len(names)), *owners)
    return GossipComposition(view.members, view.clients, hosts, phases, settings, machine)


def simulated_secret(purpose: str, seed: int) -> int:
    """A secret for simulations, which must repeat: anyone who knows the public seed can derive it.

    A deployment draws its secrets from the operating system, as
    :func:`eris.core.noise.secret_seed` does.

    >>> simulated_secret("noise", 1) != simulated_secret("owners", 1)
    True
    """
    text = f"eris/secret/1/{purpose}/{seed}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little")


def check_secret(name: str, value: int | None) -> None:
    """Refuse a secret that is no seed of a stream, without repeating it."""
    if value is not None and not 0 <= value < 1 << 64:
        raise InvalidSetting(name, "out of range", "an integer from 0 to 2**64 - 1, or None")
