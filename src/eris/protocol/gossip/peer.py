"""Gossip: every member keeps a model of its own and exchanges pieces of it with peers.

What is agreed (:class:`GossipSettings`), what a member's machine looks like to a runtime
(:class:`Peer`) and to whoever reads its messages (:class:`Neighbour`), and what all machines share:
the checks of a message and the local step. Machines do no I/O. A round has phases: all messages of
a phase are delivered before anyone takes its turn.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import ClassVar, Literal, Protocol

import numpy as np

from eris.core.errors import ErisError, InvalidSetting, MalformedMessage, RefusedContribution
from eris.core.vectors import Indices, Vector
from eris.protocol.messages import Header, Outgoing, Payload, Share

EPOCH = 0
LEAST_CLIENTS = 2
Reader = Callable[[Payload], Vector]
"""Decodes a payload, or raises :class:`MalformedMessage`."""

Sends = Literal["models", "increments"]
"""What travels: a member's model, or what it moved by."""


@dataclass(frozen=True)
class GossipSettings:
    """The agreement of a gossiping federation: every member must hold the same.

    ``nodes`` members train; ``seed`` is public and decides graphs and chunks. ``parameters`` are
    the public settings of the method. Secrets (of noise, of who owns a virtual node) are not here.
    Where members may fail, a node waits ``close_after`` seconds for what is missing of a phase and
    asks for it every ``retry_every``.

    >>> GossipSettings(n=10, nodes=1, method="el")
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: nodes is 1; expected at least 2 members that train
    """

    n: int
    nodes: int
    method: str
    parameters: tuple[tuple[str, int | float | str | bool], ...] = ()
    seed: int = 0
    learning_rate: float = 1.0
    initial: str = ""
    """SHA-256 of the model everyone starts from, in hexadecimal; empty: not checked."""
    name: str = "federation"
    close_after: float = 10.0
    retry_every: float = 2.0
    secure: ClassVar[None] = None
    noise: ClassVar[None] = None
    keyed: ClassVar[bool] = False
    seats: ClassVar[None] = None
    weighed: ClassVar[bool] = False
    """As of members that aggregate: sums and noise there are none."""
    least_clients: int = LEAST_CLIENTS
    """Where members may fail: fewest of them that gossip; nobody does alone."""
    epoch: int = field(default=EPOCH, init=False, compare=False, repr=False)
    """Of the view that its nodes are in (:meth:`in_view`)."""

    def __post_init__(self) -> None:
        if self.n < 1:
            raise InvalidSetting("n", self.n, "at least 1 coordinate")
        if self.nodes < 2:
            raise InvalidSetting("nodes", self.nodes, "at least 2 members that train")
        if not 0 <= self.seed < 1 << 64:
            raise InvalidSetting("seed", self.seed, "an integer from 0 to 2**64 - 1")
        if not 0 < self.learning_rate < math.inf:
            raise InvalidSetting("learning_rate", self.learning_rate, "a finite number above 0")
        if self.least_clients < LEAST_CLIENTS:
            raise InvalidSetting("least_clients", self.least_clients, "at least 2 members")
        for name in ("close_after", "retry_every"):
            if not 0 < getattr(self, name) < math.inf:
                expected = "a positive number of seconds"
                raise InvalidSetting(name, getattr(self, name), expected)

    @cached_property
    def canonical(self) -> str:
        """The agreement as text, the same for the same agreement."""
        numbers = ("learning_rate", "close_after", "retry_every")
        text = asdict(self) | {name: float(getattr(self, name)) for name in numbers}
        del text["epoch"]
        if self.least_clients == LEAST_CLIENTS:  # as in texts from before there was another
            del text["least_clients"]
        return json.dumps(text | {"kind": "gossip"}, sort_keys=True)

    @cached_property
    def fingerprint(self) -> int:
        """64 bits of the agreement's hash; every message carries it."""
        return int.from_bytes(hashlib.sha256(self.canonical.encode()).digest()[:8], "little")

    @classmethod
    def from_canonical(cls, text: str) -> GossipSettings:
        """The agreement that a text of :attr:`canonical` is of, as transcripts carry it.

        >>> agreed = GossipSettings(n=10, nodes=3, method="el", parameters=(("degree", 2),))
        >>> GossipSettings.from_canonical(agreed.canonical) == agreed
        True
        """
        try:
            found = json.loads(text)
            if found.pop("kind") != "gossip":
                raise ValueError("not of members that gossip")
            found["parameters"] = tuple((name, value) for name, value in found["parameters"])
            return cls(**found)
        except (ValueError, KeyError, TypeError, AttributeError) as broken:
            expected = f"the agreement of members that gossip ({broken!r})"
            raise InvalidSetting("settings", f"{text[:40]}…", expected) from None

    def in_view(self, nodes: int, epoch: int) -> GossipSettings:
        """The same agreement among those who are there in an epoch, whatever model they hold;
        messages bear its fingerprint.

        >>> agreed = GossipSettings(n=10, nodes=3, method="el")
        >>> agreed.in_view(2, epoch=4).fingerprint == agreed.fingerprint
        True
        """
        other = copy.copy(self)
        other.__dict__["fingerprint"] = self.fingerprint
        other.__dict__.pop("canonical", None)
        for name, value in {"nodes": nodes, "epoch": epoch, "initial": ""}.items():
            object.__setattr__(other, name, value)
        other.__post_init__()
        return other

    def header(self, sender: int, round: int, chunk: int, step: int) -> Header:
        """The header of a share of this federation."""
        return Header(self.fingerprint, self.epoch, sender, round, chunk, step)


class Peer(Protocol):
    """One member's machine."""

    def begin(self, round: int, update: Vector | None) -> list[Outgoing]:
        """Enter a round, take the local step and return the messages of phase 0.

        Without an update (a member without data, or away from training) there is no local step.
        An update that leads out of float32 is refused before anything has changed.
        """

    def receive(self, message: Share, source: int) -> None:
        """Note a message; one that makes no sense here raises and changes nothing."""

    def awaited(self, phase: int) -> frozenset[int]:
        """Whose messages of a phase of the round are not here yet."""

    def turn(self, phase: int) -> list[Outgoing]:
        """All messages of ``phase`` have been delivered: fold them in, return the next phase's."""

    @property
    def model(self) -> Vector:
        """The member's model; empty for a member that has none."""

    def state(self) -> dict[str, Vector]:
        """All that is kept between rounds, as copies."""

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a state, between rounds, to the same bits."""


@dataclass(frozen=True)
class Nodes:
    """The machines of members that gossip: ``build(member, initial)`` makes one.

    Behind the nodes that train come virtual ones, each at one of ``owners``. They are numbered and
    nothing else: who owns whom is in no name, message or setting.
    """

    phases: int
    build: Callable[[int, Vector], Peer]
    owners: tuple[int, ...] = field(default=(), repr=False)


@dataclass(frozen=True, eq=False)
class Piece:
    """What one sender told of its model in one gossip step.

    ``values`` is its model on the coordinates, ``update`` the direction it seems to have trained
    in. ``sender`` is who the message says made it: in Shatter a virtual node.
    """

    sender: int
    step: int
    coordinates: Indices
    values: Vector = field(repr=False)
    update: Vector = field(repr=False)


@dataclass(frozen=True)
class Arrived:
    """A share and who carried it to whom."""

    source: int
    receivers: tuple[int, ...]
    share: Share


class Neighbour(Protocol):
    """What a node that gossips can read out of its own messages: its model, and others'.

    A node knows the protocol and its own part in it. Its own shares hold the model after its local
    step, and what it received is mixed in by the method's rule; so its model follows from its view,
    to the bit unless a method's class says otherwise.

    What a sender trained from is not known to its neighbours. The node's own last average stands
    for it (:func:`direction`). Where models have drifted apart that difference is in it as well.
    """

    names_clients: ClassVar[bool]
    """Whether the sender of a piece is the client it comes from."""
    sends: ClassVar[Sends]
    """What travels: a piece's ``values``, or its ``update``."""

    @property
    def model(self) -> Vector:
        """The own average now."""

    def overhear(self, round: int, own: Sequence[Arrived], came: Sequence[Arrived]) -> list[Piece]:
        """What the node sent and received in a round; gives the pieces of others."""

    def tapped(self, one: Arrived) -> Piece:
        """What a share says to whoever taps its wire; raises if it cannot be read."""


def direction(before: Vector, values: Vector, settings: GossipSettings) -> Vector:
    """The update that leads from the own average to what a sender has there."""
    moved = before.astype(np.float64) - values
    return (moved / settings.learning_rate).astype(np.float32)


@dataclass
class Turns:
    """Where in a round a machine is, and what it has received there: the same in every machine.

    ``held[step]`` maps (sender, source) to a payload that has been read once, so that it can be
    read again when its turn comes. Until then only what came over the wire is kept.
    """

    settings: GossipSettings
    me: int
    phases: int

    def __post_init__(self) -> None:
        self.round, self.phase = 0, self.phases
        self.held: dict[int, dict[tuple[int, int], Payload]] = {}

    def begin(self, round: int) -> None:
        """Enter a round after the last one (rounds count from 1)."""
        self.check_next(round)
        self.round, self.phase, self.held = round, 0, {}

    def check_next(self, round: int) -> None:
        """Refuse to enter a round again."""
        if round <= self.round:
            raise InvalidSetting("round", round, f"a round after {self.round}")

    def forget(self) -> None:
        """Stand before the first round, or before whichever comes next."""
        self.round, self.phase, self.held = 0, self.phases, {}

    def advance(self, phase: int) -> list[tuple[int, Payload]]:
        """End a phase: what was received in it as (sender, payload), in order of the senders."""
        if phase != self.phase or phase >= self.phases:
            expected = f"{self.phase} of the round's {self.phases}" if self.round else "a round"
            raise InvalidSetting("phase", phase, expected)
        self.phase += 1
        return [
            (sender, payload) for (sender, _), payload in sorted_items(self.held.pop(phase, {}))
        ]

    def sources(self, step: int) -> frozenset[int]:
        """Who has brought something of a step that is yet to come."""
        return frozenset(source for _, source in self.held.get(step, ()))

    def check(self, share: Share, step: int) -> None:
        """Refuse what is of another federation, round or step, or comes too late."""
        header = share.header
        if header.federation != self.settings.fingerprint:
            raise ErisError("belongs to a federation with other settings")
        if header.epoch != self.settings.epoch:
            raise ErisError(f"is of epoch {header.epoch}; this node is in {self.settings.epoch}")
        if header.round != self.round:
            raise ErisError(f"is of round {header.round}; this node is in {self.round}")
        if not self.phase <= step < self.phases:
            raise ErisError(f"is of step {header.segment}; this node is past it or has none")

    def hold(self, share: Share, source: int, step: int, read: Reader) -> None:
        """Keep a share for its turn, once it has been read without an error."""
        held = self.held.setdefault(step, {})
        key = (share.header.sender, source)
        if key in held:
            raise ErisError(f"member {share.header.sender} has already sent this")
        if not np.isfinite(read(share.payload)).all():
            raise MalformedMessage("share.payload.data", "holds a value that is not finite")
        held[key] = share.payload


def sorted_items(
    held: Mapping[tuple[int, int], Payload],
) -> list[tuple[tuple[int, int], Payload]]:
    """Payloads by (sender, source): a sum must not depend on the order of arrival."""
    return sorted(held.items(), key=lambda item: item[0])


def expect_chunk(share: Share, chunk: int) -> None:
    """Refuse a share of a chunk that its sender does not send here now."""
    if share.header.shard != chunk:
        raise ErisError(f"is of chunk {share.header.shard}; expected {chunk}")


def stepped(me: int, model: Vector, update: Vector | None, rate: float) -> Vector:
    """x − rate·update in float32, or a refusal where that is not finite."""
    if update is None:
        return model
    if update.shape != model.shape or update.dtype != np.float32:
        found = f"{update.dtype} {update.shape}"
        raise InvalidSetting("update", found, f"float32 {model.shape}, like the model")
    with np.errstate(over="ignore", invalid="ignore"):  # reported below, by name
        after = model - np.float32(rate) * update
    if not np.isfinite(after).all():
        raise RefusedContribution(me, "its local step leads to values that are not finite")
    return after


def taken(state: Mapping[str, Vector], sizes: Mapping[str, int]) -> dict[str, Vector]:
    """Copies of a state's vectors, if they are those a machine keeps."""
    if set(state) != set(sizes):
        raise InvalidSetting("state", sorted(state), f"the vectors {sorted(sizes)}")
    for name, size in sizes.items():
        if state[name].shape != (size,) or state[name].dtype != np.float32:
            found = f"{state[name].dtype} {state[name].shape}"
            raise InvalidSetting(f"state {name}", found, f"float32 ({size},)")
    return {name: state[name].copy() for name in sizes}
