"""Members of a gossiping federation in one process, round by round in step.

Every member has a model of its own. In a round all train, then messages pass in as many phases as
the method has; everything sent in a phase is there before anyone takes its next turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eris.core.errors import ErisError
from eris.core.vectors import Vector
from eris.methods.method import GossipComposition
from eris.protocol.codec import decode
from eris.protocol.messages import Message, Outgoing, Share
from eris.runtimes.faults import FaultPlan
from eris.runtimes.station import (
    Outbox,
    Parcel,
    Place,
    Post,
    Report,
    apart,
    trainers_state,
    under,
)
from eris.training.population import Population
from eris.training.trainer import PerSampleNoise, check_update


class Swarm:
    """One station of a gossiping federation."""

    def __init__(
        self,
        composition: GossipComposition,
        initial: Vector,
        population: Population,
        *,
        place: Place | None = None,
        faults: FaultPlan | None = None,
        noise: PerSampleNoise | None = None,
        record: bool = False,
    ) -> None:
        self.composition, self.population = composition, population
        self._place = (place or Place()).with_lanes_of(population)
        self._faults = faults or FaultPlan()
        self._noise = noise
        self._post, self._report = Post(record=record), Report()
        self.peers = {
            member: composition.peer(member, initial)
            for member in range(len(composition.members))
            if self._place.hosts(member)
        }
        self._here = [member for member in composition.clients if self._place.hosts(member)]

    @property
    def phases(self) -> int:
        """Training, and one turn after each phase of messages."""
        return self.composition.phases + 1

    def act(self, round: int, phase: int, inbox: Sequence[Parcel]) -> Outbox:
        """Train, or take the turn after a phase of messages."""
        for parcel in inbox:
            message = decode(parcel.data)
            for receiver in parcel.receivers:
                self._deliver(parcel.sender, receiver, message)
        if phase == 0:
            outgoing = self._train(round)
        else:
            # All turns before any delivery: what they send belongs to the next phase.
            outgoing = {
                member: peer.turn(phase - 1)
                for member, peer in self.peers.items()
                if not self._away(member, round)
            }
        out: Outbox = {}
        for member, messages in outgoing.items():
            self._send(round + phase / 100, round, member, messages, out)
        return out

    def report(self) -> Report:
        """What happened since this was last asked."""
        report, self._report = self._report, Report()
        report.traffic, report.records = self._post.empty()
        report.apart = apart(self.population)
        return report

    def models(self) -> dict[int, Vector]:
        """The models of the hosted members that train."""
        return {member: self.peers[member].model for member in self._here}

    def _away(self, member: int, round: int) -> bool:
        """Whether a member is away; a virtual node is whenever its real one is."""
        return self._faults.churned(self.composition.hosts[member], round)

    def _train(self, round: int) -> dict[int, list[Outgoing]]:
        """Every hosted member enters the round, those with data after training."""
        there = (member for member in self._here if not self._away(member, round))
        training = sorted(there, key=self._place.lane)
        models = [self.peers[member].model for member in training]
        updates = self.population.updates(training, models, round, self._noise)
        outgoing = {}
        for member, update in zip(training, updates, strict=True):
            check_update(update, self.composition.members[member], len(models[0]))
            self._report.clients[member] = update.metrics
            outgoing[member] = self.peers[member].begin(round, update.vector)
        # Members that are away do not enter the round, so what they have yet to send is kept.
        for member in self.peers.keys() - outgoing.keys():
            if not self._away(member, round):
                outgoing[member] = self.peers[member].begin(round, None)
        return {member: outgoing[member] for member in sorted(outgoing)}

    def _send(
        self, time: float, round: int, sender: int, messages: Sequence[Outgoing], out: Outbox
    ) -> None:
        for outgoing in messages:
            record = self._post.stamp(time, sender, outgoing.to, outgoing.message)
            away: dict[int, list[int]] = {}
            for receiver in outgoing.to:
                lost = self._faults.cut(sender, receiver, round)
                if lost or self._away(receiver, round):
                    continue
                record.arrived.add(receiver)
                if self._place.hosts(receiver):
                    self._deliver(sender, receiver, outgoing.message)
                else:
                    away.setdefault(self._place.home(receiver), []).append(receiver)
            for station, receivers in away.items():
                parcel = Parcel(sender, tuple(receivers), record.data)
                out.setdefault(station, []).append(parcel)

    def _deliver(self, sender: int, receiver: int, message: Message) -> None:
        """A member takes a message in; one that makes no sense to it is noted and left out."""
        try:
            if not isinstance(message, Share):
                raise ErisError(f"{type(message).__name__} has no place in gossip")
            self.peers[receiver].receive(message, sender)
        except ErisError as error:
            self._report.refused.append(f"share from member {sender} to {receiver}: {error}")

    def state(self) -> dict[str, Vector]:
        """What the members and their trainers keep."""
        state = {
            f"peer/{member}/{name}": value
            for member, peer in self.peers.items()
            for name, value in peer.state().items()
        }
        return state | trainers_state(self.population, self._place)

    def restore(self, round: int, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()`` after a round."""
        for member, peer in self.peers.items():
            peer.restore(under(f"peer/{member}/", state))
        self.population.restore(under("trainer/", state))
