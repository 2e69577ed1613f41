"""What must hold where members gossip, whatever fails, checked on every message and model.

A slow oracle goes along with every member: from the messages that reached it, and from the method's
public graph and weights, it says what the model must be after every local step and every mixing.
So a share that counts twice, late or not at all, a weight that is not the method's, or a round that
is mixed again shows at once, and as a sum of differences with the method's weights conserves mass,
so do members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from eris.core.compress import Encoding, decode_values
from eris.core.errors import ErisError
from eris.core.vectors import Vector
from eris.methods.ako import Ako
from eris.methods.assembling import MixingMethod
from eris.methods.method import GossipMethod
from eris.protocol.authority.directory import Refused
from eris.protocol.authority.standing import Scheduled
from eris.protocol.gossip.member import AHEAD, MOST_EARLY, GossipMember
from eris.protocol.gossip.mixing import Mixing
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.messages import Header, Message, Outgoing, Share
from eris.protocol.round.ending import Phase
from eris.protocol.view import View
from eris.testing.sum_laws import LawBroken

Exact = NDArray[np.float64]
TO_ALL = -1
CLOSE = 1e-4
"""How far a model in float32 may be from the oracle's, for values of a few units."""


@dataclass
class Shadow:
    """What a member must hold, as the oracle has it."""

    model: Exact
    begun: int = 0
    step: int = 0
    """The phases of the round that were begun that are over."""
    here: dict[tuple[int, int], dict[int, Share]] = field(default_factory=dict)
    """By round and step: the first share of each sender that reached it in time."""


class GossipWitness:
    """Checks the laws of a run as it goes; ``saw`` counts what it has come across."""

    def __init__(self, settings: GossipSettings, method: GossipMethod, initial: Vector) -> None:
        self.settings, self.method, self.initial = settings, method, initial
        self.saw: Counter[str] = Counter()
        self.liars: set[int] = set()
        self.said: dict[tuple[int, int, int], dict[tuple[int, int], Share]] = {}
        """By sender, round and step: what it said, by chunk and receiver."""
        self.missed: dict[int, list[tuple[int, frozenset[int]]]] = {}
        """By round: who has mixed without whom."""
        self._views: dict[int, Scheduled] = {}
        self._permits: dict[int, tuple[int, int]] = {}
        self._shadows: dict[int, Shadow] = {}
        self._last: dict[int, int] = {}
        """By member: the last round that it sent in, in all its lives."""
        self._updates: dict[int, dict[int, Exact]] = {}
        """By member and round: what it trained, where increments travel."""
        self._told: dict[tuple[int, int, int], int] = {}
        """By sender, receiver and partition: the round in which it was last sent."""

    # -- the authority ------------------------------------------------------------------------

    def announced(self, views: Sequence[Scheduled]) -> None:
        """A view is told."""
        for scheduled in views:
            before = self._views.setdefault(scheduled.view.epoch, scheduled)
            if before != scheduled:
                raise LawBroken(f"epoch {scheduled.view.epoch} has two views")

    def permitted(self, member: int, through: int) -> None:
        """A member is permitted to send up to a round."""
        after, before = self._permits.get(member, (0, 0))
        self._permits[member] = after, max(before, through)

    def started(self, member: int, abstain_through: int, *, unsure: bool = False) -> None:
        """A member starts, for the first time or again."""
        self._permits[member] = abstain_through, 0
        self._shadows.pop(member, None)
        if abstain_through:
            self.saw["a member comes back"] += 1

    def refused(self, refused: Refused) -> None:
        """The directory refuses somebody."""
        self.saw["the directory refuses somebody"] += 1

    def view_of(self, round: int) -> View:
        """The view that holds in a round, among all that were told."""
        known = [one for one in self._views.values() if one.from_round <= round]
        return max(known, key=lambda one: one.view.epoch).view

    # -- messages -----------------------------------------------------------------------------

    def sent(self, said: Outgoing, member: GossipMember) -> None:
        """A member says something, whoever hears it."""
        message = said.message
        if not isinstance(message, Share):
            kind = type(message).__name__.lower()
            self.saw[f"a {kind} is sent"] += 1
            return
        header, me = message.header, member.me
        where = f"member {me}, round {header.round}, step {header.segment}"
        if header.sender != me:
            raise LawBroken(f"{where}: it speaks for member {header.sender}")
        after, through = self._permits[me]
        if not after < header.round <= through:
            raise LawBroken(f"{where}: sent without a permit, which is for {after} to {through}")
        view = self.view_of(header.round)
        if header.epoch != view.epoch:
            raise LawBroken(f"{where}: of epoch {header.epoch}; its view is that of {view.epoch}")
        if me not in view.client_set or not {*said.to} <= self._neighbours(view, header, me):
            raise LawBroken(f"{where}: sent to {said.to}, who are no neighbours")
        told = self.said.setdefault((me, header.round, header.segment), {})
        again = (header.shard, self._said_to(said)[0]) in told
        for receiver in self._said_to(said):
            before = told.setdefault((header.shard, receiver), message)
            if (before.names, before.payload) != (message.names, message.payload):
                raise LawBroken(f"{where}: it says two things")
        if isinstance(self.method, Ako) and not again:
            for receiver in said.to:
                self._check_told_once(message, receiver, view, where)

    def _said_to(self, said: Outgoing) -> tuple[int, ...]:
        """Whom something is said to, where others may be told otherwise: to all alike."""
        return (TO_ALL,)

    def _check_told_once(self, share: Share, receiver: int, view: View, where: str) -> None:
        """An increment is a sum of updates that its receiver has not been told of: of all since the
        last time, or of the latest of them, where others were lost with a process or a view."""
        header, values = share.header, self._values(share, view, receiver)
        place = (header.sender, receiver, header.shard)
        before = self._told.get(place, 0)
        self._told[place] = header.round
        mine, part = self._updates.get(header.sender, {}), self._part(header.shard)
        total = np.zeros(len(values))
        if np.allclose(values, total, atol=CLOSE):
            return
        for round in sorted((one for one in mine if before < one <= header.round), reverse=True):
            total += mine[round][part]
            if np.allclose(values, total, rtol=1e-4, atol=CLOSE):
                return
        raise LawBroken(f"{where}: member {receiver} is told of updates that it knows, or of none")

    def received(self, message: Message, source: int, member: GossipMember) -> None:
        """A message reaches a member that is up."""
        if not isinstance(message, Share):
            return
        header, shadow = message.header, self._shadow(member)
        if (header.round, header.segment) < (shadow.begun, shadow.step):
            self.saw["a share comes too late"] += 1
            return
        if self._sound(message, source, member):
            shares = shadow.here.setdefault((header.round, header.segment), {})
            if source in shares:
                self.saw["a share comes again"] += 1
            elif header.round > member.round:
                self.saw["a share comes early"] += 1
            shares.setdefault(source, message)

    def _sound(self, share: Share, source: int, member: GossipMember) -> bool:
        """Whether a share is one that a member may take in."""
        header, view = share.header, self.view_of(share.header.round)
        if header.federation != self.settings.fingerprint or header.sender != source:
            return False
        if not 1 <= header.round <= min(member.rounds, member.round + AHEAD):
            return False
        if header.epoch != view.epoch or source not in view.client_set:
            return False
        if member.me not in view.client_set or header.segment >= self._phases:
            return False
        if source not in self._neighbours(view, header, member.me):
            return False
        try:
            values = self._values(share, view, member.me)
        except ErisError:
            return False
        return bool(np.isfinite(values).all()) and header.shard == self._chunk(share, view, member)

    # -- models -------------------------------------------------------------------------------

    def trained(self, member: GossipMember, round: int, update: Vector | None) -> None:
        """A member takes its local step, or none."""
        shadow, view = self._shadow(member), self.view_of(round)
        if round <= self._last.get(member.me, 0):
            raise LawBroken(f"member {member.me} enters round {round} again")
        self._last[member.me] = round
        if update is not None:
            self._updates.setdefault(member.me, {})[round] = update.astype(np.float64)
            shadow.model = self._stepped(shadow.model, update, view, round, member.me)
        shadow.begun, shadow.step = round, 0
        shadow.here = {key: one for key, one in shadow.here.items() if key[0] >= round}

    def look(self, member: GossipMember) -> None:
        """Compare a member with its shadow, wherever it is now."""
        shadow = self._shadow(member)
        self._check_limits(member)
        begun = shadow.begun
        exchanging = member.phase is Phase.EXCHANGING and member.round == begun
        phases = self._phases if begun else 0
        over = member.step if exchanging else phases
        while shadow.step < over:
            self._turn(member, shadow)
        if not np.allclose(member.model, shadow.model, rtol=1e-5, atol=CLOSE):
            worst = float(np.abs(member.model - shadow.model).max())
            raise LawBroken(
                f"member {member.me}, round {begun}, step {shadow.step}: its model is {worst:.3g} "
                "off what it sent, heard and trained"
            )
        shadow.model = member.model.astype(np.float64)  # its rounding is its own

    def _turn(self, member: GossipMember, shadow: Shadow) -> None:
        view, place = self.view_of(shadow.begun), (shadow.begun, shadow.step)
        came = shadow.here.pop(place, {})
        for liar in self.liars & came.keys():  # who floods a member may not be heard
            if (shadow.step, liar, came[liar].header.shard) not in member._got:
                del came[liar]
        shadow.model = self._mixed(shadow.model, came, view, place, member.me)
        shadow.step += 1
        missing = frozenset(self._around(view, *place, member.me)) - came.keys()
        self.missed.setdefault(place[0], []).append((member.me, missing))
        if missing:
            self.saw["a share is missing at its deadline"] += 1

    def _check_limits(self, member: GossipMember) -> None:
        if any(len(kept) > MOST_EARLY for kept in member._early.values()):
            raise LawBroken(f"member {member.me} keeps too much of what is early")
        if len(member._sent) > self._phases + 1:
            raise LawBroken(f"member {member.me} keeps too much of what it sent")

    def _shadow(self, member: GossipMember) -> Shadow:
        if member.me not in self._shadows:
            self._shadows[member.me] = Shadow(member.model.astype(np.float64), member.begun)
            shadow = self._shadows[member.me]
            if (
                shadow.begun
            ):  # what it went on from was stored in the middle of that round, or after
                shadow.step = self._phases
        return self._shadows[member.me]

    # -- the method, once more ----------------------------------------------------------------

    def _agreed(self, view: View) -> tuple[GossipMethod, GossipSettings]:
        nodes = len(view.clients)
        return self.method.among(nodes), self.settings.in_view(nodes, view.epoch)

    def _mixing(self, view: View) -> Mixing:
        method, settings = self._agreed(view)
        assert isinstance(method, MixingMethod)
        return method.mixing(settings)

    @property
    def _phases(self) -> int:
        return getattr(self.method, "steps", 1)

    def _around(self, view: View, round: int, step: int, me: int) -> dict[int, float]:
        """The neighbours in a step, with their weights."""
        place = view.clients.index(me)
        if isinstance(self.method, Ako):
            return {other: 1.0 for other in view.clients if other != me}
        mixing = self._mixing(view)
        graph = mixing.graph(round, step)
        weights = [mixing.pace * weight for weight in graph.metropolis(place)]
        around = [view.clients[other] for other in graph.neighbours[place]]
        return dict(zip(around, weights, strict=True))

    def _neighbours(self, view: View, header: Header, me: int) -> set[int]:
        return {*self._around(view, header.round, header.segment, me)}

    def _chunk(self, share: Share, view: View, member: GossipMember) -> int:
        if not isinstance(self.method, Ako):
            return 0
        places = [view.clients.index(one) for one in (share.header.sender, member.me)]
        later = (places[1] - places[0]) % len(view.clients)
        return (share.header.round + later) % self.method.partitions

    def _part(self, chunk: int) -> slice:
        assert isinstance(self.method, Ako)
        n, count = self.settings.n, self.method.partitions
        return slice(n * chunk // count, n * (chunk + 1) // count)

    def _values(self, share: Share, view: View, me: int) -> Vector:
        encoded = share.payload.encoded
        if isinstance(self.method, Ako):
            part = self._part(share.header.shard % self.method.partitions)
            return decode_values(encoded, Encoding.DENSE, part.stop - part.start)
        quantiser = self._mixing(view).quantiser
        if quantiser is not None:
            return quantiser.decode(encoded, self.settings.n)
        return decode_values(encoded, Encoding.DENSE, self.settings.n)

    def _stepped(self, model: Exact, update: Vector, view: View, round: int, me: int) -> Exact:
        rate = self.settings.learning_rate
        if isinstance(self.method, Ako):
            return model - rate / len(view.clients) * update.astype(np.float64)
        noise, place = self._mixing(view).noise, view.clients.index(me)
        if noise is not None and noise.on == "update":
            update = noise.onto(update, round, place)
        after = model - rate * update.astype(np.float64)
        if noise is not None and noise.on == "model":
            after = noise.onto(after.astype(np.float32), round, place).astype(np.float64)
        return after

    def _mixed(
        self, model: Exact, came: dict[int, Share], view: View, place: tuple[int, int], me: int
    ) -> Exact:
        read = {one: self._values(share, view, me) for one, share in came.items()}
        after = model.copy()
        if isinstance(self.method, Ako):
            for one, values in read.items():
                part = self._part(came[one].header.shard)
                after[part] -= self.settings.learning_rate / len(view.clients) * values
            return after
        weights = self._around(view, *place, me)
        if self._mixing(view).weights == "uniform":
            weights = dict.fromkeys(read, 1 / (1 + len(read)))
        for one, values in read.items():
            after += weights[one] * (values - model)
        return after
