"""A node: one replica, a client machine, and an aggregator machine if it owns shards.

What a runtime carries. It is given the time and messages and returns messages; it never waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from eris.core.errors import ErisError, InvalidSetting
from eris.core.vectors import Vector
from eris.protocol.agreement import Agreement, Key
from eris.protocol.messages import (
    CatchUp,
    Contribution,
    Holding,
    Message,
    Outgoing,
    Refusal,
    Result,
    Reveal,
    RevealRequest,
    Share,
    Snapshot,
)
from eris.protocol.recent import Recent
from eris.protocol.round.aggregator import Aggregator
from eris.protocol.round.client import Client
from eris.protocol.round.evidence import Evidence
from eris.protocol.round.replica import Replica
from eris.protocol.secure.vault import Vault

MOST_REFUSALS = 1000
"""Older ones are forgotten: what a peer can make a node remember has a limit."""


class Node:
    """One member of a federation, without I/O."""

    def __init__(
        self, agreement: Agreement, me: int, initial: Vector, vault: Vault | None = None
    ) -> None:
        self.agreement, self.me = agreement, me
        if (vault is None) == agreement.settings.keyed:
            expected = "where members have keys, and only there"
            raise InvalidSetting("vault", "given" if vault else "missing", expected)
        self.replica = Replica(agreement, initial)
        # A member without data has one too: it follows results and catches up like all. And one
        # without shards aggregates none, until a view gives it some.
        self.client = Client(agreement, me, self.replica, vault)
        self.aggregator = Aggregator(agreement, me, self.replica, vault)
        self.helping = agreement.halves.answering(me, self.replica, vault, self.client.sender)
        """What owners may ask, where they have to."""
        self.evidence = Evidence(agreement, me)
        """What peers say, and whether it is to be believed."""
        self.refused: Recent[str] = Recent(MOST_REFUSALS)
        """Why contributions of this node were refused, and messages to it that it refused."""
        self.notes: Recent[str] = Recent(MOST_REFUSALS)
        """What this node found out as an owner, since a runtime last took it."""
        self.stayed: list[Message] = []
        """What it said to itself about its own shards, since a runtime last took it: it never
        leaves, but it belongs to what this node has seen."""

    @property
    def model(self) -> Vector:
        """The current model."""
        return self.replica.model

    def keep(self, said: list[Outgoing]) -> list[Outgoing]:
        """Take in what of this is for this node itself; returns what is to be sent."""
        out = []
        for outgoing in said:
            if outgoing.to != (self.me,):
                out.append(outgoing)
                continue
            if isinstance(outgoing.message, Contribution | RevealRequest | Reveal):
                self.stayed.append(outgoing.message)
            out += self.keep(self.receive(outgoing.message, self.me))
        return out

    def receive(self, message: Message, source: int) -> list[Outgoing]:
        """Take a message in from a member; one that makes no sense here is noted and ignored."""
        try:
            self._check(message, source)
            return self._dispatch(message)
        except ErisError as error:
            self.refuse(message, source, str(error))
            return []

    def refuse(self, message: Message, source: int, why: str) -> None:
        """Note that a message is ignored."""
        self.refused.append(f"{type(message).__name__.lower()} from member {source}: {why}")

    def take_stayed(self) -> list[Message]:
        """Contributions to the own shards since this was last asked; they are never sent."""
        stayed: list[Message] = [*self.stayed]
        self.stayed.clear()
        return stayed

    def close(self, now: float) -> list[Outgoing]:
        """Close the own segments that are past their deadline."""
        return self._publish(self.aggregator.tick(now))

    def open(self, round: int, now: float) -> list[Outgoing]:
        """Let the aggregator enter a round; what it still had of the one before is closed."""
        finished = self._publish(self.aggregator.close())
        return finished + self._publish(self.aggregator.begin(round, now))

    def excuse(self, key: Key, client: int) -> list[Outgoing]:
        """A client gives nothing to an own segment of the current round."""
        return self._publish(self.aggregator.excuse(key, client))

    def withhold(self, key: Key) -> list[Outgoing]:
        """Close an own segment of the current round without a mean: it stays as it is here."""
        return self._publish(self.aggregator.withhold(key))

    def _check(self, message: Message, source: int) -> None:
        header = message.header
        view = self.agreement.view_at(header.round)
        if header.federation != self.agreement.settings.fingerprint:
            raise ErisError("belongs to a federation with other settings")
        # What a peer holds is replicated state, whatever epoch it was made in.
        timeless = isinstance(message, CatchUp | Snapshot | Holding)
        known = self.agreement.knows(header.round) and not timeless
        if known and header.epoch != view.epoch:
            expected = f"round {header.round} belongs to epoch {view.epoch} here"
            raise ErisError(f"is of epoch {header.epoch}; {expected}")
        if header.round < 1 or header.key not in self.replica.versions:
            raise ErisError(f"names round {header.round}, segment {header.key}: there is none")
        if isinstance(message, Result | Snapshot) and view.owners[header.shard] == self.me:
            made = message.at if isinstance(message, Snapshot) else header.round
            if 0 < self.aggregator.round <= made:
                raise ErisError(f"is of round {made} of a shard that only this node publishes")
        if header.sender != source:
            raise ErisError(f"claims to be from member {header.sender}")
        if isinstance(message, Result):
            # Of a round whose view a newcomer was not told, whoever owns the shard now may speak.
            owners = view.owners if known else self.agreement.view.owners
            if header.sender != owners[header.shard]:
                raise ErisError(f"member {header.sender} does not own shard {header.shard}")
        if isinstance(message, Snapshot):
            if not self.evidence.asked(header.key, source):
                raise ErisError(f"nobody asked it for the state of segment {header.key}")
            if message.at > self.replica.horizon:
                raise ErisError(f"is of round {message.at}, which nobody else has reached")

    def _believes(self, snapshot: Snapshot) -> bool:
        """Whether a state is the federation's; if not yet, remember that its sender has it."""
        key, source, replica = snapshot.header.key, snapshot.header.sender, self.replica
        state = replica.state_in(snapshot)
        believed = self.evidence.believes(key, state, source, replica.versions[key])
        self.evidence.holds(key, source, state)
        return believed

    def _dispatch(self, message: Message) -> list[Outgoing]:
        match message:
            case Contribution():
                results, answers = self.aggregator.receive(message)
                for answer in answers:
                    if answer.to == (self.me,):
                        self._dispatch(answer.message)
                return self._publish(results) + [a for a in answers if a.to != (self.me,)]
            case Result():
                self._drop(self._apply(message))
                return []
            case CatchUp(header, have, whole):
                missed = self.replica.since(header.key, have, self.me, whole)
                return [Outgoing((header.sender,), answer) for answer in missed]
            case Snapshot():
                key = message.header.key
                astray = key in self.replica.astray
                if self._believes(message) and self.replica.adopt(message):
                    self.client.jumped(key, astray=astray)
                    self.aggregator.drop(key)
                    self.evidence.moved(key)
                return []
            case Holding(header, at, digest):
                self.evidence.holds(header.key, header.sender, (at, digest), final=True)
                return []
            case RevealRequest():
                if self.helping is None:
                    raise ErisError("in this federation owners have nothing to ask")
                return self.helping.answer(message)
            case Reveal():
                return self._publish(self.aggregator.reveal(message))
            case Refusal(header, reason, _, again):
                if again:
                    return []
                self.refused.append(f"round {header.round}, segment {header.key}: {reason}")
                return []
            case Share():
                raise ErisError("this federation aggregates; shares are for gossip")

    def _publish(self, results: list[Result]) -> list[Outgoing]:
        """Apply own results before they leave, so that a crash cannot lead to a second one."""
        sealed = []
        for result in results:
            self.look_ahead(result.header.round)  # it was permitted
            self._apply(result)
            sealed.append(self.replica.seal(result))
        told = [Outgoing(others, result) for result in sealed if (others := self._others)]
        notes, self.aggregator.desk.notes = self.aggregator.desk.notes, []
        for note in notes:
            self.refused.append(note)
            self.notes.append(note)
        return told + self.keep(self.aggregator.ask())

    @property
    def _others(self) -> tuple[int, ...]:
        return tuple(m for m in range(len(self.agreement.view.members)) if m != self.me)

    # -- checkpoints --------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """What this node holds: its replica, and what only its client knows."""
        own = {f"client/{name}": value for name, value in self.client.sender.state().items()}
        return {**self.replica.state(), **own}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a ``state()``."""
        self.replica.restore(state)
        client = ((k.removeprefix("client/"), v) for k, v in state.items() if "client/" in k)
        self.client.sender.restore(dict(client))

    # -- following ----------------------------------------------------------------------------

    def look_ahead(self, horizon: int) -> None:
        """Let results up to a round be applied; those that have waited for that are."""
        if horizon > self.replica.horizon:
            self.replica.horizon = horizon
            for key in self.agreement.keys:
                if self.replica.waits(key):
                    self._drop(self._follow(self.replica.release(key)))

    def _apply(self, result: Result) -> list[Result]:
        return self._follow(self.replica.offer(result))

    def _follow(self, applied: list[Result]) -> list[Result]:
        for one in applied:
            self.client.follow(one)
            self.evidence.moved(one.header.key)
        return applied

    def _drop(self, applied: list[Result]) -> None:
        """The state has moved under what was collected for these segments."""
        for one in applied:
            self.aggregator.drop(one.header.key)
