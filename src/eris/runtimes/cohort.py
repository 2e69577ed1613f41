"""Members of an aggregating federation in one process, round by round in step.

The machines are those of the network: clients cut and encode, owners collect and publish. As every
node replays every result, nodes that miss none hold the same bits; so one replica stands for all of
them here, and a round costs what its messages cost. Faults are decided once a round: an owner or a
member is away, a link is cut, a client is late. Who misses a result catches up from a peer before
the next round it takes part in, as on the network; those messages are counted too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import ErisError, InvalidSetting, RefusedContribution
from eris.core.vectors import Vector
from eris.protocol.agreement import Agreement, Key
from eris.protocol.codec import decode, encode
from eris.protocol.enccluster.logarithms import built_table
from eris.protocol.messages import (
    CatchUp,
    Contribution,
    Message,
    Outgoing,
    Refusal,
    Result,
    Reveal,
    RevealRequest,
)
from eris.protocol.round.aggregator import Aggregator
from eris.protocol.round.client import Client
from eris.protocol.round.replica import Replica
from eris.protocol.schemes.halves import Answering, Tables
from eris.protocol.secure.noising import sent_rows
from eris.protocol.secure.simulated import Vaults
from eris.protocol.secure.vault import Vault
from eris.runtimes.faults import FaultPlan
from eris.runtimes.sampling import Sampling
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
from eris.training.population import ClippingPopulation, Population
from eris.training.trainer import LocalUpdate, PerSampleClip, PerSampleNoise, check_update


class Cohort:
    """One station of an aggregating federation.

    >>> from eris.protocol.view import View
    >>> from eris.protocol.settings import Settings
    >>> from eris.training.population import Trainers
    >>> class Constant:
    ...     def update(self, parameters, round):
    ...         return LocalUpdate(np.ones(2, np.float32), samples=1)
    >>> view = View.serverless(["anna", "ben", "cleo"], aggregators=1)
    >>> agreement = Agreement(Settings(n=2), view)
    >>> cohort = Cohort(agreement, np.zeros(2, np.float32), Trainers([Constant()] * 3))
    >>> for phase in range(cohort.phases):
    ...     _ = cohort.act(1, phase, [])
    >>> cohort.replica.model
    array([-0.01, -0.01], dtype=float32)
    """

    def __init__(
        self,
        agreement: Agreement,
        initial: Vector,
        population: Population,
        *,
        place: Place | None = None,
        faults: FaultPlan | None = None,
        sampling: Sampling | None = None,
        noise: PerSampleNoise | None = None,
        record: bool = False,
        tables: Tables = built_table,
    ) -> None:
        self.agreement, self.population = agreement, population
        agreement.coding.equip(tables)
        self.replica = Replica(agreement, initial)
        self._place = (place or Place()).with_lanes_of(population)
        self._faults = faults or FaultPlan()
        self._faulty = self._faults.any
        self._sampling, self._noise = sampling, noise
        self._post, self._report = Post(record=record), Report()
        self._behind: dict[int, dict[Key, int]] = {}
        """Members that missed results, and the version they have; every station knows of all."""
        self._closed: list[Result] = []
        self._clients: dict[int, Client] = {}
        self._owners: dict[int, Aggregator] = {}
        self._vaults = Vaults(agreement.settings) if agreement.settings.keyed else None
        self._answering: dict[int, Answering] = {}
        self._at_home: list[tuple[int, Message]] = []
        """Questions and answers between members of this station, for the next phase."""
        if sampling is None:
            self._enter(agreement)

    @property
    def phases(self) -> int:
        """Begin, contribute, publish, follow; a question to members and its answer are two more."""
        return 4 + 2 * self.agreement.halves.asks

    # -- a round ------------------------------------------------------------------------------

    def act(self, round: int, phase: int, inbox: Sequence[Parcel]) -> Outbox:
        """One phase."""
        out: Outbox = {}
        time = round + phase / 10
        if phase == 0 and self._sampling is not None:
            self._hand_over(time, round, self._sampling)
        for parcel in inbox:
            self._take(time, round, parcel, decode(parcel.data), out)
        at_home, self._at_home = self._at_home, []
        for member, message in at_home:
            self._consult(time, round, member, message, out)
        last = self.phases - 1
        if phase == 0:
            self._catch_up(time, round)
            self._publish(time, round, self._begin(round), out)
        elif phase == 1:
            self._contribute(time, round, out)
        elif phase < last:
            self._end(time, round, phase, out)
        else:
            self._report.included = self.replica.included_in(round)
            if (found := self.replica.gauge) is not None and found.round == round:
                self._report.noise = found.warning
            self._forget()
        return out

    def _end(self, time: float, round: int, phase: int, out: Outbox) -> None:
        """Owners close their segments, ask members if they have to, and publish."""
        # The last question is what opens a sum: nothing is closed before it is time for that.
        closing = 2 * max(1, self.agreement.halves.asks)
        for owner, aggregator in self._owners.items():
            if aggregator.round != round:
                continue
            if phase == closing:
                self._closed += aggregator.close()
            elif phase == self.phases - 2:
                self._closed += aggregator.give_up()
            aggregator.offer()
            for question in aggregator.ask():
                self._pass_on(time, round, owner, question, out)
            notes, aggregator.desk.notes = aggregator.desk.notes, []
            self._report.refused += notes
        self._publish(time, round, self._closed, out)
        self._closed = []

    def _pass_on(self, time: float, round: int, sender: int, one: Outgoing, out: Outbox) -> None:
        """A question to a member, or its answer: it is there in the next phase."""
        record = self._post.stamp(time, sender, one.to, one.message)
        (member,) = one.to
        if self._faulty and self._lost(sender, member, round):
            return
        record.arrived.add(member)
        if self._place.hosts(member):
            self._at_home.append((member, one.message))
        else:
            parcel = Parcel(sender, one.to, record.data)
            out.setdefault(self._place.home(member), []).append(parcel)

    def _consult(self, time: float, round: int, member: int, message: Message, out: Outbox) -> None:
        """A member answers an owner, or an owner takes in what a member said."""
        try:
            if isinstance(message, Reveal):
                self._closed += self._owners[member].reveal(message)
                return
            assert isinstance(message, RevealRequest)
            for answer in self._answering[member].answer(message):
                self._pass_on(time, round, member, answer, out)
        except ErisError as refusal:
            self._report.refused.append(f"round {round}: member {member}: {refusal}")

    def report(self) -> Report:
        """What happened since this was last asked."""
        report, self._report = self._report, Report()
        report.traffic, report.records = self._post.empty()
        report.apart = apart(self.population)
        return report

    def models(self) -> dict[int, Vector]:
        """The one model of all members, told by the first station."""
        return {0: self.replica.model} if self._place.number == 0 else {}

    # -- beginning ----------------------------------------------------------------------------

    def _enter(self, agreement: Agreement) -> None:
        """Take up the roles of a view."""
        vaults = self._vaults
        if vaults is not None:
            agreement = agreement.in_view(vaults.seat(agreement.view))
        self.agreement = self.replica.agreement = agreement
        view = agreement.view
        # With sampling nobody follows results: who is sampled next fetches the state.
        self._members = range(len(view.members) if self._sampling is None else 0)
        self._clients = {
            member: Client(agreement, member, self.replica, self._vault(member))
            for member in view.clients
            if self._place.hosts(member)
        }
        self._owners = {
            owner: Aggregator(agreement, owner, self.replica, self._vault(owner))
            for owner in sorted(set(view.owners))
            if self._place.hosts(owner)
        }
        self._answering = {}
        for member in agreement.view.roles if agreement.halves.asks else ():
            if self._place.hosts(member) and (made := self._answers_of(member)) is not None:
                self._answering[member] = made

    def _answers_of(self, member: int) -> Answering | None:
        client, vault = self._clients.get(member), self._vault(member)
        sender = None if client is None else client.sender
        return self.agreement.halves.answering(member, self.replica, vault, sender)

    def _vault(self, member: int) -> Vault | None:
        return None if self._vaults is None else self._vaults[member]

    def _hand_over(self, time: float, round: int, sampling: Sampling) -> None:
        """A new view: its members fetch the state from the owners of the view before.

        An owner that was away made no result, so any other member of its view that was there holds
        the same state. Members that are away now fetch nothing; a link that is down keeps nobody
        from fetching, for there are others to do it over.
        """
        before, after = self.agreement.view, sampling.view(round)
        self._enter(self.agreement.in_view(after))
        if round == 1:
            return  # everyone has the model that was agreed on
        for key in self.agreement.keys:
            owner = before.owners[key[0]]
            there = (m for m in (owner, *before.roles) if not self._away(m, round - 1))
            keeper = next(there, owner)
            if not self._place.hosts(keeper):
                continue
            receivers = tuple(member for member in after.roles if member != keeper)
            record = self._post.stamp(time, keeper, receivers, self.replica.snapshot(key, keeper))
            record.arrived.update(m for m in receivers if not self._away(m, round))

    def _begin(self, round: int) -> list[Result]:
        """Let hosted owners enter the round, those that are there."""
        results = []
        for owner, aggregator in self._owners.items():
            if not self._away(owner, round) and not self._faults.away(owner, round):
                results += aggregator.begin(round, round)
        return results

    def _away(self, member: int, round: int) -> bool:
        return self._faults.churned(member, round)

    # -- contributing -------------------------------------------------------------------------

    def _contribute(self, time: float, round: int, out: Outbox) -> None:
        """Hosted clients train and send, one after another."""
        if not self.replica.ready(round):
            return  # shards drawn anew need the old ones settled
        gone = {client for client in self._clients if self._away(client, round)} | set(self._behind)
        here = sorted((c for c in self._clients if c not in gone), key=self._place.lane)
        model = self.replica.own_model()
        local = [self._clients[client].sender.training_model(model) for client in here]
        models = model if all(one is model for one in local) else local
        updates = self._updates(here, models, round)
        for client, update in zip(here, updates, strict=True):
            check_update(update, self.agreement.view.members[client], len(model))
            self._report.clients[client] = update.metrics
            if not self._faults.straggles(client, round):
                self._send(time, round, client, update, out)

    def _updates(
        self, clients: Sequence[int], models: Vector | Sequence[Vector], round: int
    ) -> Iterable[LocalUpdate]:
        """What clients train; with noise per sample, each sample clipped exactly."""
        settings = self.agreement.settings
        if settings.noise is None or settings.noise.protects == "client":
            return self.population.updates(clients, models, round, self._noise)
        if not isinstance(self.population, ClippingPopulation):
            expected = "clients that clip single samples (clipped_updates), or protects = client"
            raise InvalidSetting("population", type(self.population).__name__, expected)
        assert settings.secure is not None
        grid = settings.noise.grid(settings.secure.ring_bytes, settings.precision.fraction_bits)
        select = sent_rows(self.agreement.coding, round, 0)
        clip = PerSampleClip(settings.noise.clip, grid.fine_places, select)
        if settings.noise.sampling_rate == 1:
            return self.population.clipped_updates(clients, models, round, clip)
        senders = [self._clients[client].sender for client in clients]
        for sender in senders:
            sender.bind(round, self.replica)  # from here on its secrets are those of this training
        batches = [partial(sender.batch, round) for sender in senders]
        return self.population.clipped_updates(clients, models, round, clip, batches)

    def _send(self, time: float, round: int, client: int, update: LocalUpdate, out: Outbox) -> None:
        machine = self._clients[client]
        machine.begin(round)
        try:
            contributions = machine.contribute(
                update.vector, int(update.samples), int(update.steps), update.content
            )
        except RefusedContribution as error:
            self._report.refused.append(f"round {round}: {error}")
            return
        self._report.note_faint(self.agreement.view.members[client], machine.sender.lost)
        for outgoing in contributions:
            (owner,) = outgoing.to
            record = self._post.stamp(time, client, outgoing.to, outgoing.message)
            if self._faulty and self._lost(client, owner, round):
                continue
            record.arrived.add(owner)
            if self._place.hosts(owner):
                self._collect(time, owner, outgoing.message, out)
            else:
                parcel = Parcel(client, outgoing.to, record.data)
                out.setdefault(self._place.home(owner), []).append(parcel)

    def _lost(self, client: int, owner: int, round: int) -> bool:
        """Whether what a member sends an owner, or an owner a member, does not get there."""
        if owner != client and self._faults.cut(client, owner, round):
            return True
        return self._away(owner, round)

    def _collect(self, time: float, owner: int, message: Message, out: Outbox) -> None:
        """An owner takes a contribution in; a refusal goes back."""
        assert isinstance(message, Contribution)
        results, answers = self._owners[owner].receive(message)
        self._closed += results
        for answer in answers:
            if isinstance(answer.message, Refusal):
                self._answer(time, owner, answer, out)

    def _answer(self, time: float, owner: int, answer: Outgoing, out: Outbox) -> None:
        record = self._post.stamp(time, owner, answer.to, answer.message)
        record.arrived.update(answer.to)
        (client,) = answer.to
        if self._place.hosts(client):
            self._refused(answer.message)
        else:
            parcel = Parcel(owner, answer.to, record.data)
            out.setdefault(self._place.home(client), []).append(parcel)

    def _refused(self, message: Message) -> None:
        assert isinstance(message, Refusal)
        header = message.header
        self._report.refused.append(f"round {header.round}, segment {header.key}: {message.reason}")

    # -- publishing and following -------------------------------------------------------------

    def _publish(self, time: float, round: int, results: Iterable[Result], out: Outbox) -> None:
        for result in results:
            owner = self.agreement.view.owners[result.header.shard]
            self._apply(round, result)
            data = self._announce(time, round, owner, self.replica.seal(result))
            for station in range(self._place.stations):
                if station != self._place.number:
                    out.setdefault(station, []).append(Parcel(owner, (), data))

    def _announce(self, time: float, round: int, owner: int, result: Result) -> bytes:
        """Send a result to every member; with sampling it travels in the next round's snapshots."""
        others = tuple(member for member in self._members if member != owner)
        record = self._post.stamp(time, owner, others, result)
        if self._faulty:
            others = tuple(m for m in others if not self._missed(owner, m, round))
        record.arrived.update(others)
        return record.data

    def _missed(self, owner: int, member: int, round: int) -> bool:
        return self._away(member, round) or self._faults.cut(owner, member, round)

    def _take(self, time: float, round: int, parcel: Parcel, message: Message, out: Outbox) -> None:
        """A message from another station."""
        match message:
            case Contribution():
                self._collect(time, parcel.receivers[0], message, out)
            case Result():
                self._apply(round, message)
            case RevealRequest() | Reveal():
                self._consult(time, round, parcel.receivers[0], message, out)
            case _:
                self._refused(message)

    def _apply(self, round: int, result: Result) -> None:
        """Follow a result that is published in this round (its own may be an earlier one)."""
        owner = self.agreement.view.owners[result.header.shard]
        if self._faulty:
            for member in self._members:
                if member != owner and self._missed(owner, member, round):
                    behind = self._behind.setdefault(member, {})
                    behind.setdefault(result.header.key, result.previous)
        for applied in self.replica.offer(result):
            for client in self._clients.values():
                client.follow(applied)

    # -- catching up --------------------------------------------------------------------------

    def _catch_up(self, time: float, round: int) -> None:
        """Members that missed results ask a peer for them before they go on."""
        # In one order at every station: who has caught up can help those that come after.
        for member in sorted(m for m in self._behind if not self._away(m, round)):
            for key, have in self._behind[member].copy().items():
                peer = self._peer(member, key, round)
                if peer is None:
                    continue
                del self._behind[member][key]
                if not self._place.hosts(member):
                    continue
                header = self.agreement.header(member, round, key)
                answers = [CatchUp(header, have), *self.replica.since(key, have, peer)]
                for number, message in enumerate(answers):
                    sender, receiver = (peer, member) if number else (member, peer)
                    self._post.stamp(time, sender, (receiver,), message).arrived.add(receiver)
            if not self._behind[member]:
                del self._behind[member]

    def _peer(self, member: int, key: Key, round: int) -> int | None:
        """The owner of a segment or, if it cannot be reached, the next member that can help."""
        count = len(self._members)
        owner = self.agreement.view.owners[key[0]]
        for peer in (owner, *((member + step) % count for step in range(1, count))):
            if peer == member or self._away(peer, round) or key in self._behind.get(peer, {}):
                continue
            if not self._faults.cut(peer, member, round):
                return peer
        return None

    def _forget(self) -> None:
        """Results that nobody here lacks need not be kept."""
        lacking = self._lacking()
        for key, version in self.replica.versions.items():
            self.replica.forget(key, lacking.get(key, version))

    def _lacking(self) -> dict[Key, int]:
        """The earliest version of a segment that someone still has."""
        lacking: dict[Key, int] = {}
        for behind in self._behind.values():
            for key, have in behind.items():
                lacking[key] = min(have, lacking.get(key, have))
        return lacking

    # -- checkpoints --------------------------------------------------------------------------

    def state(self) -> dict[str, Vector]:
        """The replica, who is behind it, the clients' own parts, and what the trainers keep."""
        state = self.replica.state() | self._missing() if self._place.number == 0 else {}
        for member, client in self._clients.items():
            state.update({f"client/{member}/{k}": v for k, v in client.sender.state().items()})
        return state | trainers_state(self.population, self._place)

    def _missing(self) -> dict[str, NDArray[Any]]:
        """Who is behind, and the results that they will ask for."""
        behind = [
            (member, *key, have) for member in self._behind
            for key, have in self._behind[member].items()
        ]  # fmt: skip
        if not behind:
            return {}
        chains = [self.replica.results_after(key, have) for key, have in self._lacking().items()]
        results = [result for chain in chains for result in chain or ()]
        missed = {f"missed/{i}": np.frombuffer(encode(r), np.uint8) for i, r in enumerate(results)}
        return {"behind": np.array(behind, np.int64), **missed}

    def restore(self, round: int, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()`` after a round."""
        view = self.agreement.view
        if self._sampling is not None and round > 0:
            view = self._sampling.view(round)
        self._enter(self.agreement.in_view(view))
        self.replica.restore(state)
        for member, client in self._clients.items():
            client.sender.restore(under(f"client/{member}/", state))
        self.population.restore(under("trainer/", state))
        self._behind.clear()
        behind: list[list[int]] = state["behind"].tolist() if "behind" in state else []
        for member, shard, segment, have in behind:
            self._behind.setdefault(member, {})[shard, segment] = have
        for data in under("missed/", state).values():
            result = decode(data.tobytes())
            assert isinstance(result, Result)
            self.replica.remember(result)
