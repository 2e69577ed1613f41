"""One member of a federation over the rounds: when to train, send, publish, catch up and go on.

A machine without I/O. In go messages, the time, what the authority over epochs says and what
training computed; out come messages, and :attr:`Member.job` says what is to be trained. Rounds
synchronise through the data: a member goes on when a round's results are in, or when those that are
missing will not come; it never counts on its peers' clocks.

What keeps a round to one result a segment, whatever fails:

- every round belongs to one view, and the owner of a shard in it publishes only with a permit
  (:mod:`eris.protocol.authority.standing`);
- a member that has restarted publishes nothing in rounds in which it may have published before;
- a result needs a quorum, so the chain of results can only go on from a state that a quorum holds.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting
from eris.core.exact_clip import Content
from eris.core.vectors import Vector
from eris.protocol.agreement import Key, networked
from eris.protocol.authority.standing import Standing
from eris.protocol.messages import (
    CatchUp,
    Contribution,
    Message,
    Outgoing,
    Refusal,
    Result,
    Snapshot,
)
from eris.protocol.round.ending import Ending, Phase
from eris.protocol.round.giving import Giving, Job
from eris.protocol.round.ownership import Ownership
from eris.protocol.round.roles import Node
from eris.protocol.secure.vault import Vault
from eris.protocol.settings import Settings
from eris.protocol.view import View

LISTENING = 8
"""Times of asking in which an owner that lives will have said something."""

RESENT = 64
"""Segments that are sent again at a time, of all shards alike."""

AHEAD = 8
"""Rounds beyond what is believed to be reached of which results are kept until it is."""


class Member:
    """One member's whole logic, moved by a runtime.

    ``settings`` and ``standing`` say what was agreed and who is there, ``initial`` is the model all
    start from. ``rounds`` is where training ends. A member that has restarted publishes nothing in
    rounds up to ``abstain_through``; one that is ``unsure`` what it published before publishes
    nothing until enough others have told by their contributions where they are. After every call, a
    runtime sends what was returned, trains :attr:`job` if it is new, asks the authority again if
    :attr:`renewal_due`, and calls :meth:`tick` by :attr:`wakes_at`.
    """

    def __init__(
        self,
        settings: Settings,
        standing: Standing,
        initial: Vector,
        *,
        rounds: int,
        abstain_through: int = 0,
        unsure: bool = False,
        vault: Vault | None = None,
    ) -> None:
        founding = b"" if standing.mark is None else standing.mark.founding
        self.agreement = networked(settings, standing.views, founding)
        self.me, self.rounds = standing.me, rounds
        self.node = Node(self.agreement, self.me, initial, vault)
        self.refused, self.take_stayed = self.node.refused, self.node.take_stayed
        self.node.client.sender.uncertain(abstain_through)
        self.ownership = Ownership(
            self.node, through=standing.through, abstain_through=abstain_through, unsure=unsure
        )
        self.evidence, self.ending = self.node.evidence, Ending(self.node, rounds)
        self.evidence.reached = standing.round
        self.highest = standing.round
        """The round that the federation has reached, as far as this member can tell."""
        self.node.replica.horizon = 0
        self.phase = Phase.CATCHING_UP
        self.round = 0
        self.job: Job | None = None
        self._renewal_due = False
        self.discarded = 0
        """Updates that came too late for any segment of their round."""
        self.giving = Giving(self.node, self.ownership)
        self._hint: Key | None = None
        """A segment that was missing when last asked: asking it first is usually enough."""
        self._barren: set[Key] = set()
        """Segments of the current round whose owners said that no result will come."""
        self._heard: set[int] = {self.me}
        """Who has said something lately."""
        self._retry_at, self._flush_at, self._retries = 0.0, 0.0, 0

    # -- reading ------------------------------------------------------------------------------

    @property
    def model(self) -> Vector:
        """The current model."""
        return self.node.model

    @property
    def view(self) -> View:
        """The view of the current round."""
        return self.agreement.view_at(max(1, self.round))

    @property
    def acted(self) -> int | None:
        """The last round in which this member may have published or contributed; None if it does
        not know. This is what it tells the authority when it leaves."""
        if self.ownership.unsure:
            return None
        return max(self.ownership.abstain_through, self.node.aggregator.round, self.giving.given)

    @property
    def renewal_due(self) -> bool:
        """Whether the authority should be asked soon: a round has begun, or a permit is missing."""
        return self._renewal_due or self.ownership.wants_permit

    @renewal_due.setter
    def renewal_due(self, due: bool) -> None:
        self._renewal_due = self.ownership.wants_permit = due

    @property
    def wakes_at(self) -> float:
        """When :meth:`tick` should be called at the latest."""
        retry = self._retry_at if self._waiting else float("inf")
        flush = self._flush_at if self._held else float("inf")
        return min(retry, flush, self.node.aggregator.wakes_at)

    @property
    def finished(self) -> bool:
        """Whether training is over and the model complete (:mod:`eris.protocol.round.ending`)."""
        if self.phase is not Phase.DONE or self._astray:
            return False
        return not self.ending.lacking(self.rounds) or (
            self._all_asked and not self.ending.unknown()
        )

    @property
    def exhausted(self) -> bool:
        """Whether training is over and all have been asked twice: what is missing now comes only
        with somebody who was away."""
        return self.phase is Phase.DONE and self._retries > 2 * len(self.view.members)

    @property
    def _all_asked(self) -> bool:
        return self._retries > len(self.view.members)

    def missing(self, round: int) -> list[Key]:
        """Segments whose result of a round is not here, although its owner is there to give one."""
        return list(self._missing(round, self.node.replica.versions))

    def _missing(self, round: int, keys: Iterable[Key]) -> Iterator[Key]:
        versions = self.node.replica.versions
        owners, roles = self.agreement.view_at(round).owners, self.agreement.view.roles
        barren = self._refused() if round == self.round else ()
        for key in keys:
            if versions[key] < round and key not in barren:
                owner = owners[key[0]]
                if owner == self.me or owner in roles:
                    yield key

    def _settled(self, round: int) -> bool:
        """Whether nothing of a round is missing."""
        keys = self.node.replica.versions
        hint = () if self._hint is None else (self._hint,)
        self._hint = next(self._missing(round, chain(hint, keys)), None)
        return self._hint is None

    # -- what goes in -------------------------------------------------------------------------

    def start(self, now: float) -> list[Outgoing]:
        """Begin, or go on after a restart: catch up if the others are ahead."""
        self._quiet_from(now)
        if self.highest <= max(1, self.round + 1):
            return self._enter(self.round + 1, now)
        return self._ask(now)

    def stand(self, standing: Standing, now: float) -> list[Outgoing]:
        """Take in what the authority says; an answer older than what is known changes nothing."""
        self.evidence.reached = max(self.evidence.reached, standing.round)
        if standing.views and standing.views[-1].view.epoch >= self.agreement.view.epoch:
            self.agreement.schedule(standing.views)
            self.ownership.through = max(self.ownership.through, standing.through)
        self._look_ahead()
        return self.ownership.invite(now) + self._proceed(now)

    def receive(self, message: Message, source: int, now: float) -> list[Outgoing]:
        """Take a message in from a member."""
        header = message.header
        self._heard.add(source)
        if header.epoch > self.agreement.view.epoch:
            self.renewal_due = True
        replica = self.node.replica
        if header.key not in replica.versions:
            return self.node.receive(message, source)  # which notes what is wrong with it
        if header.round > self.rounds + 1:
            why = f"names round {header.round}; training ends after round {self.rounds}"
            self.node.refuse(message, source, why)
            return []
        if isinstance(message, Contribution | CatchUp | Refusal) and header.sender == source:
            self.ownership.hear(source, header.round)
        if isinstance(message, Contribution):
            out = self.ownership.collect(message, source, self.round, now)
            self.evidence.asks(out)
            return out + self._proceed(now)
        version, astray = replica.versions[header.key], header.key in replica.astray
        waited = replica.waits(header.key)
        ours = header.federation == self.agreement.settings.fingerprint
        if header.sender == source and ours and not isinstance(message, Refusal):
            self._learn(message, source)
        if isinstance(message, Result) and header.round > replica.horizon:
            self.renewal_due = True  # the authority knows whether that can be
            if header.round > replica.horizon + AHEAD:
                self.node.refuse(message, source, f"nobody else has reached round {header.round}")
                return []
        if isinstance(message, Refusal) and message.no_result and self.ownership.owns(header):
            excuse = self.ownership.excuse if header.sender == source and ours else None
            return (excuse(header, source, now) if excuse else []) + self._proceed(now)
        out = self.node.receive(message, source)
        if isinstance(message, Result | Snapshot):
            # What waits for its predecessor is news once, however often it is sent.
            if replica.versions[header.key] != version or replica.waits(header.key) != waited:
                self._hear(now)
            if header.key in replica.astray and not astray:
                self._retry_at = min(self._retry_at, now)
        elif isinstance(message, CatchUp) and self.phase is Phase.DONE:
            out = out or self.ending.tell(header.key, source, self.round)
            if header.round > self.rounds and message.have < version:
                self.ending.disputed.setdefault(header.key, 0)
        elif isinstance(message, Refusal):
            theirs = self.view.owners[header.shard] == source and header.round == self.round
            if message.no_result and theirs:
                self._barren.add(header.key)
            elif message.again and theirs:
                out += self._sent(self.giving.contributions([header.key]))
        return out + self._proceed(now)

    def _learn(self, message: Message, source: int) -> None:
        """Whoever asks, publishes or tells a state says where it is; one word is worth a round."""
        round = message.at if isinstance(message, Snapshot) else message.header.round
        self.evidence.hear(source, min(round, self.rounds + 1))
        self.highest = max(self.highest, min(round, self.round + 1))
        self._look_ahead()

    def _look_ahead(self) -> None:
        """Results of one round more than this member, or the others, have reached are welcome."""
        self.highest = max(self.highest, self.evidence.reached)
        self.node.look_ahead(max(self.round, self.evidence.reached) + 1)

    def trained(
        self, update: Vector, samples: int, steps: int, now: float,
        content: Content | None = None,
    ) -> list[Outgoing]:  # fmt: skip
        """Take in what was trained; :meth:`pull` hands it out piece by piece.

        An update that could not be combined is refused here and whole: it counts as ``failed``.
        """
        self.job = None
        self.phase = Phase.EXCHANGING
        self._quiet_from(now)
        if self._settled(self.round):
            self.discarded += 1
            return self._proceed(now)
        self.node.stayed.clear()
        if not self.giving.trained(update, samples, steps, content):
            self.discarded += 1  # results of earlier rounds have come in the meantime
            return self._proceed(now)
        return []

    def failed(self, now: float) -> list[Outgoing]:
        """Training gave nothing: this member follows the round without contributing.

        If nothing comes of the round without it, it trains once more.
        """
        self.job = None
        self.phase = Phase.EXCHANGING
        self._quiet_from(now)
        return self._proceed(now)

    def pull(self, now: float, full: Container[int] = ()) -> list[Outgoing] | None:
        """The next contributions, at most one a shard; None if there are none to send now.

        A runtime calls this as long as it has room for what is to be sent, and says which members
        it has no room for: their segments wait, those of others do not.
        """
        if self.giving.dispatch is None:
            return None
        owners, versions = self.view.owners, self.node.replica.versions
        out = self.ownership.open(self.round, now) if self.me in owners else []
        later = self.ownership.opens_later(self.round)
        keys = self.giving.take(
            over=lambda key: versions[key] >= self.round or key in self._barren,
            waits=lambda shard: owners[shard] in full or (later and owners[shard] == self.me),
        )
        if not keys:
            return out or None
        self._quiet_from(now)
        return out + self._sent(self.giving.contributions(keys)) + self._proceed(now)

    def _sent(self, made: list[Outgoing]) -> list[Outgoing]:
        """What of these is to be sent; what is for this member itself has been taken in."""
        self.evidence.asks(made)  # an owner that is further on answers with what it has
        return self.node.keep(made)

    def tick(self, now: float) -> list[Outgoing]:
        """Let time pass."""
        out = self.node.close(now) + self.ownership.invite(now) + self._proceed(now)
        if self._held and self.giving.dispatch is not None and now >= self._flush_at:
            self.giving.dispatch.unbounded = True
        if self._waiting and now >= self._retry_at:
            if self._hopeless():
                out += self._give_up(now)
            elif self._wanted():
                self._train()
            else:
                out += self._ask(now)
        return out

    # -- the course of a round ----------------------------------------------------------------

    def _proceed(self, now: float) -> list[Outgoing]:
        """Go on if all is in that can be."""
        if self.phase is Phase.EXCHANGING and self._settled(self.round):
            # Nobody goes on from a round in which nothing has happened: those that are away would
            # find the training over, and nothing learnt. Unless it is certain that nothing will.
            if self._something(self.round) or self._overtaken or self._refused():
                return self._enter(self._next(), now)
        elif self.phase is Phase.CATCHING_UP and self._settled(self.highest - 1):
            return self._enter(max(self.round + 1, self.highest), now)
        return []

    def _enter(self, round: int, now: float) -> list[Outgoing]:
        self.round = min(round, self.rounds + 1)
        trains = self.giving.enter(self.round)
        self._barren.clear()
        self._heard = {self.me}
        self._quiet_from(now)
        self.renewal_due = True
        self._look_ahead()
        self.node.client.begin(self.round)
        if self.round > self.rounds:
            self.phase = Phase.DONE
            return []
        if trains:
            self._train()
            return []
        self.phase = Phase.EXCHANGING
        if self.giving.abstains:
            self._retry_at = now  # to say so
        return self._proceed(now)

    def _train(self) -> None:
        self.phase = Phase.TRAINING
        self.job = self.giving.train()

    def _next(self) -> int:
        """The first round that is not over for this member."""
        over = self.highest if not self.missing(self.highest) else self.highest - 1
        return max(self.round, over) + 1

    def _something(self, round: int) -> bool:
        return any(version >= round for version in self.node.replica.versions.values())

    def _refused(self) -> set[Key]:
        """Segments of the current round that are without a result for good: their owner has said
        so, or is this member, and has gone on or must abstain."""
        if self.round > self.ownership.last_over:
            return self._barren
        view, versions = self.view, self.node.replica.versions
        own = {k for k, v in versions.items() if v < self.round and view.owners[k[0]] == self.me}
        return self._barren | own

    def _silent(self) -> bool:
        """Whether nothing has been heard for a while of any owner that still might publish."""
        if self._retries % LISTENING != LISTENING - 1:
            return False
        owners = self.view.owners
        return not any(owners[shard] in self._heard for shard, _ in self.missing(self.round))

    def _hear(self, now: float) -> None:
        """A result is news.

        As long as the federation is in this member's round, more is likely to come. If it is not,
        what is missing here has been sent, and lost.
        """
        if self._overtaken:
            self._retry_at = min(self._retry_at, now + self.agreement.settings.retry_every)
        else:
            self._quiet_from(now)

    def _quiet_from(self, now: float) -> None:
        settings = self.agreement.settings
        self._retries = 0
        # What is astray is asked for when it is due, whatever else goes on.
        due = self._retry_at if self._astray else math.inf
        self._retry_at = min(due, now + settings.catch_up_after)
        self._flush_at = now + settings.retry_every

    @property
    def _held(self) -> bool:
        """Whether segments are held back until earlier ones have results."""
        dispatch = self.giving.dispatch
        return dispatch is not None and dispatch.held

    @property
    def _waiting(self) -> bool:
        """Whether there is something to ask for when nothing is heard."""
        if self.phase is Phase.DONE:
            return bool(self._astray or self.ending.disputed or self.ending.lacking(self.rounds))
        return self.phase is not Phase.TRAINING

    @property
    def _astray(self) -> set[Key]:
        return self.node.replica.astray

    @property
    def _overtaken(self) -> bool:
        return self.highest > self.round

    # -- silence ------------------------------------------------------------------------------

    def _ask(self, now: float) -> list[Outgoing]:
        """Ask for what is missing, and send again what may not have arrived."""
        self._retry_at = now + self.agreement.settings.retry_every
        self._retries += 1
        if self._retries % LISTENING == 0:
            self._heard = {self.me}
        catching = self.phase is Phase.CATCHING_UP
        last = self.highest if catching or self._overtaken else self.round
        done = self.phase is Phase.DONE
        if done:
            self.ending.settle_disputes()
        wanted = self.ending.lacking(min(last, self.rounds))
        more = sorted({*self._astray, *self.ending.disputed})
        wanted += [key for key in more if key not in wanted]
        # At the end nobody is left who would bring what only a member without a role has.
        out = self.node.client.ask(wanted, everyone=done, at_once=2)
        self.evidence.asks(out)
        if self.phase is Phase.EXCHANGING:
            first = sorted(self.missing(self.round), key=lambda key: (key[1], key[0]))
            out += self._sent(self.giving.again(first[:RESENT], now))
        return out

    def _hopeless(self) -> bool:
        """Whether what is missing will not come: others went on, or the rest of the round is in."""
        if self._retries < 3 or self.phase is Phase.DONE:
            return False
        if self.phase is Phase.CATCHING_UP or self._overtaken or self._something(self.round):
            return True
        if self._refused() and self._silent():
            return True
        # Nothing can come of a round whose members have gone; a later view has others, but if they
        # are too few, waiting for those that have gone burns no rounds.
        start = self.agreement.newest_from
        return start > self.round and len(self.agreement.view.clients) >= self.agreement.enough(
            start
        )

    def _wanted(self) -> bool:
        """Whether the round stands still and this client has given nothing to it."""
        idle = self.phase is Phase.EXCHANGING and self.giving.dispatch is None
        trains = self.me in self.view.client_set and not self.giving.abstains
        return idle and trains and self._retries >= 3

    def _give_up(self, now: float) -> list[Outgoing]:
        if self.phase is Phase.CATCHING_UP:
            return self._enter(max(self.round + 1, self.highest), now)
        if self._overtaken or self._something(self.round) or self._refused():
            return self._enter(self._next(), now)
        return self._enter(self.agreement.newest_from, now)

    # -- checkpoints --------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """All that is needed to go on after a restart."""
        return {**self.node.state(), "round": np.array([self.round], np.int64)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a ``state()``; what happened since is caught up with."""
        if "round" not in state:
            raise InvalidSetting("checkpoint", "no round", "one of this federation")
        self.node.restore(state)
        self.round = max(0, int(state["round"][0]) - 1)
