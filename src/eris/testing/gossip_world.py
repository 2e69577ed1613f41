"""A federation whose members gossip, under a virtual clock and in trouble.

The real members and the real directory, as in :mod:`~eris.testing.world`; what must hold is in
:mod:`~eris.testing.gossip_laws`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from eris.core.compress import encode_values
from eris.core.errors import ErisError
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.methods.ako import Ako
from eris.methods.assembling import MixingMethod
from eris.methods.dpsgd import DPSGD
from eris.methods.epidemic import EpidemicLearning
from eris.methods.method import GossipMethod
from eris.methods.muffliato import Muffliato
from eris.methods.qdpsgd import QDPSGD1
from eris.methods.shatter import Shatter
from eris.protocol.authority.directory import Directory
from eris.protocol.authority.standing import Standing
from eris.protocol.codec import decode, encode
from eris.protocol.gossip.carried import ANNOUNCE, ECHO, EXCHANGE, HAND_OUT, CarriedNode
from eris.protocol.gossip.member import GossipMember
from eris.protocol.gossip.peer import GossipSettings, Nodes
from eris.protocol.gossip.roll import NAME_BYTES, pack_echo, pack_labels
from eris.protocol.messages import CatchUp, Header, Message, Outgoing, Payload, Refusal, Share
from eris.protocol.round.giving import Job
from eris.protocol.settings import model_digest
from eris.protocol.transcript import Record
from eris.testing.carried_laws import CarriedWitness
from eris.testing.gossip_laws import GossipWitness
from eris.testing.places import Host
from eris.testing.realm import Realm
from eris.testing.shape import Shape
from eris.testing.sum_laws import LawBroken
from eris.testing.weather import Incident, Trouble

METHODS: dict[str, GossipMethod] = {
    method.name: method
    for method in (
        DPSGD(degree=2),
        EpidemicLearning(degree=2),
        Muffliato(sigma=0.01, steps=3, degree=2),
        QDPSGD1(density=0.6, sigma=0.01, pace=0.5),
        Ako(partitions=3),
        Shatter(virtual_nodes=3, degree=3),
    )
}
SETTLED = 6.0
"""Virtual seconds after the storm from which on rounds must be as if there had been none."""


class GossipWorld(Realm[GossipMember]):
    """A federation whose members gossip by the method that its shape names.

    >>> shape = Shape(members=3, rounds=4, gossip="el")
    >>> world = GossipWorld(seed=1, shape=shape, kinds=frozenset())
    >>> world.run()
    >>> {host.member.round for host in world.hosts}
    {5}
    """

    witness: GossipWitness

    def __init__(
        self,
        seed: int,
        *,
        shape: Shape,
        kinds: frozenset[Trouble] = frozenset(Trouble),
        incidents: Sequence[Incident] | None = None,
        directory: type[Directory] = Directory,
        member: type[GossipMember] = GossipMember,
    ) -> None:
        self.initial, self._make_member = shape.initial(seed), member
        self.method = METHODS[shape.gossip].among(shape.members)
        self.settings = GossipSettings(
            len(self.initial), shape.members, self.method.name, self.method.parameters, seed, 0.1,
            model_digest(self.initial), close_after=0.9, retry_every=0.3,
            least_clients=self.method.least_members,
        )  # fmt: skip
        witness = CarriedWitness if isinstance(self.method, Shatter) else GossipWitness
        self.witness = witness(self.settings, METHODS[shape.gossip], self.initial)
        self._draws = 0
        super().__init__(seed, shape, (), kinds=kinds, incidents=incidents, directory=directory)

    def nodes(self, settings: GossipSettings) -> Nodes:
        """The machines of as many as are there."""
        return METHODS[self.shape.gossip].among(settings.nodes).nodes(settings)

    def members(self, host: int, settings: GossipSettings) -> Nodes:
        """The machines that may fail; what they draw in secret is a stream here. Noise repeats, for
        the witness computes it again."""
        method = METHODS[self.shape.gossip].among(settings.nodes)
        if isinstance(method, MixingMethod):
            return method.nodes(settings)
        return method.members(settings, partial(self._drawn, host))

    def _drawn(self, host: int, size: int) -> bytes:
        self._draws += 1
        return (
            Stream(self.seed, "drawn", self._draws, host).words(0, -(-size // 4)).tobytes()[:size]
        )

    def make(self, host: Host[GossipMember], standing: Standing) -> GossipMember:
        """A member that gossips."""
        assert host.joined is not None
        return self._make_member(
            self.settings, standing, self.initial, rounds=self.shape.rounds,
            nodes=partial(self.members, host.number),
            abstain_through=host.joined.abstain_through,
        )  # fmt: skip

    def conclude(self) -> None:
        """All that are there are through, and rounds after the storm missed nobody."""
        here = {host.member.me for host in self.survivors if host.member is not None}
        if self.weather.lost and self.authority.roster:
            return  # whoever waits for the lost is late for the others
        settled = self.weather.calm_at + SETTLED
        for round, time in self.entered.items():
            if time > settled and self.entered.get(round - 1, 0.0) > settled:
                for member, missing in self.witness.missed.get(round, ()):
                    if missing & here:
                        raise LawBroken(
                            f"round {round} is calm, but member {member} mixed without "
                            f"{sorted(missing & here)}"
                        )
                self.witness.saw["a round is calm"] += round <= self.shape.rounds

    # -- members ------------------------------------------------------------------------------

    def moved(self, seat: Host[GossipMember], member: GossipMember) -> None:
        """Look at where the member is now."""
        self.witness.look(member)
        super().moved(seat, member)

    def train(self, seat: Host[GossipMember], member: GossipMember, job: Job) -> None:
        """Training takes its time."""
        takes = self.weather.training(seat.number, job.round, self.now)
        self.at(self.now + takes, partial(self._trained, seat, member, job))

    def _trained(self, host: Host[GossipMember], member: GossipMember, job: Job) -> None:
        if host.member is not member or member.job is not job:
            return
        clock = host.clock(self.now)
        wrong = self.weather.outcome(host.number, job.round, self.now)
        if wrong is not None:
            self._note_fault()
        update = self.update(host.number, job.model, job.round)
        if wrong is Trouble.POISON:
            update[-1] = np.nan
        self.witness.trained(member, job.round, None if wrong is not None else update)
        try:
            out = member.failed(clock) if wrong is Trouble.FAILURE else member.trained(
                update, 1, 1, clock
            )  # fmt: skip
        except ErisError:
            out = member.failed(clock)
        self.move(host, out)

    def update(self, host: int, model: Vector, round: int) -> Vector:
        """What a host trains: a noisy gradient of a parabola around its number."""
        drawn = Stream(self.seed, "gradient", round, host).uniform(0, len(model))
        return (model - host + drawn.astype(np.float32)).astype(np.float32)

    def said(self, member: GossipMember, record: Record, message: Message) -> None:
        """It is said, whoever hears it."""
        self.witness.sent(Outgoing(record.receivers, message), member)

    def utter(self, seat: Host[GossipMember], record: Record, message: Message) -> None:
        """Carry what was said; the doomed do not get to the end."""
        torn = seat.doomed and isinstance(message, Share)
        heard, kept = self.weather.heard_when_torn(seat.number, self.now) if torn else (None, False)
        record.receivers = record.receivers[:heard]
        super().utter(seat, record, message)
        if torn:  # the process ends in the middle of a sentence
            self._note_fault()
            if kept:
                seat.store()
            seat.stop()

    def hear(self, seat: Host[GossipMember], message: Message, source: int) -> None:
        """A message has reached a member."""
        assert seat.member is not None
        self.witness.received(message, source, seat.member)
        super().hear(seat, message, source)

    # -- lies ---------------------------------------------------------------------------------

    def lie(self, host: Host[GossipMember]) -> None:
        """Tell all others what is not true; and soon again."""
        if not host.lying:
            return
        self.at(self.now + 0.4, partial(self.lie, host))
        if host.member is None:
            return
        self._struck(Trouble.LIE)
        self.witness.liars.add(host.member.me)
        for lie in self._lies(host.member):
            told = decode(encode(lie.message))
            self.spread(host, lie, partial(self._deceive, told, host.member.me))

    def _deceive(self, lie: Message, sender: int, host: Host[GossipMember]) -> None:
        if host.member is not None:
            self.hear(host, lie, sender)

    def _lies(self, member: GossipMember) -> list[Outgoing]:
        """Rounds that are not, models that are none, and words in others' names."""
        me, rounds = member.me, (member.round, member.round + 1, member.rounds, 1 << 30)
        others = tuple(m for m in range(len(member.agreement.view.members)) if m != me)
        epoch = member.agreement.view.epoch
        odd = Payload(encode_values(np.full(len(self.initial), np.nan, np.float32)))
        short = Payload(encode_values(np.ones(3, np.float32)))
        told: list[Message] = []
        for round in {max(1, one) for one in rounds}:
            header = replace(self.settings.header(me, round, 0, 0), epoch=epoch)
            told += [Share(header, odd), Share(header, short)]
            told += [CatchUp(header, 0), Refusal(header, "gone", no_result=True)]
            if round <= member.rounds:  # more than anybody needs to keep
                ahead = range(round, min(round + 12, member.rounds))
                told += [Share(replace(header, round=one), odd) for one in ahead]
            forged = replace(header, sender=others[0])
            told += [Share(forged, Payload(encode_values(self.initial)))]
            if isinstance(member._peer, CarriedNode):
                told += self._names(member._peer, header)
        return [Outgoing(others, message) for message in told]

    def _names(self, node: CarriedNode, header: Header) -> list[Message]:
        """Names that others carry, names of nobody, and that nobody has announced anything."""
        known = [(name, chunk) for name, (_, chunk) in node._own.items()]
        names = pack_labels(sorted([*known, (bytes(NAME_BYTES), 0)]))
        silence = pack_echo((None,) * node.settings.nodes)
        nothing = Payload(encode_values(np.empty(0, np.float32)))
        return [
            Share(replace(header, segment=ANNOUNCE), nothing, names),
            Share(replace(header, segment=ECHO), nothing, silence),
            Share(replace(header, segment=EXCHANGE), nothing, names),
            Share(replace(header, segment=HAND_OUT), nothing, names * 99),
        ]
