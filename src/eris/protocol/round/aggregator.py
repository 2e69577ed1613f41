"""An owner's half of the round: collect contributions to its segments, publish one result each.

A segment closes when every client has contributed, or at its deadline if enough have; otherwise it
keeps its value. There is exactly one result per segment and round, ever: two, with
included sets I and I∖{k}, would reveal k's contribution.

Where sums are secure, the owner then asks helpers for what opens the sum over exactly the clients
it has included; where they are encrypted, those clients themselves. That set never changes any
more: if it is not opened in time, the result is withheld. What helpers shall keep for that is
gathered, since nothing can be closed before all clients are in or late: it is offered then, and
before for every few clients or at times of asking.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from eris.core.errors import InvalidSetting, MalformedMessage, RefusedContribution
from eris.protocol.agreement import Agreement, Key
from eris.protocol.messages import (
    Contribution,
    Header,
    Outgoing,
    Payload,
    Refusal,
    Result,
    Reveal,
    RevealRequest,
)
from eris.protocol.round.replica import Replica
from eris.protocol.schemes.collector import Asking, Collector
from eris.protocol.secure.vault import Vault
from eris.protocol.view import View

GATHERED = 16
"""Clients of whom helpers hear together: with more, all their words would wait in memory."""


@dataclass
class _Open:
    """A segment that is collecting contributions."""

    collector: Collector
    heard: set[int] = field(default_factory=set)
    """Included, or refused: nobody else's contribution is worth waiting for."""
    until: float = math.inf
    """How long what was taken is waited for, once all others are in or late."""


@dataclass
class _Revealing:
    """A segment that is closed, whose sum is not yet open."""

    collector: Collector
    included: frozenset[int]
    asked: dict[int, bytes]
    """Who has not answered yet, and what it was asked."""
    helpers: set[int] = field(default_factory=set)
    """Whoever was asked since it was closed: a late answer counts, too."""
    until: float = math.inf
    ask_at: float = math.inf
    """When others are asked, if these do not answer."""


class Aggregator:
    """One member's aggregator machine for the shards it owns, on the node's replica.

    Memory is that of the segments that are open, not of all clients' shards.
    """

    def __init__(
        self, agreement: Agreement, me: int, replica: Replica, vault: Vault | None = None
    ) -> None:
        self.agreement, self.me, self.replica = agreement, me, replica
        self.desk = agreement.halves.desk(me, replica, vault)
        self.keys: list[Key] = []
        self._owned: frozenset[Key] = frozenset()
        self._shards: tuple[int, ...] | None = None
        self._take_up(agreement.view)
        self.round = 0
        self._overdue = False
        self._deadline = float("inf")
        self._open: dict[Key, _Open] = {}
        self._closed: set[Key] = set()
        self._revealing: dict[Key, _Revealing] = {}
        self._heard: dict[int, set[int]] = {}
        """By shard: who has been heard of in any of its segments."""
        self._questions: list[Outgoing] = []
        self._offer_at = math.inf
        """When helpers are offered again what they have said nothing about."""

    def close(self) -> list[Result]:
        """Close what enough clients have been heard for; the rest stays open until they are."""
        ready = [key for key in self._unclosed() if self._may_close(key)]
        return [result for key in ready for result in self._close(key)]

    def begin(self, round: int, now: float) -> list[Result]:
        """Enter a round, the one before being finished and its results applied."""
        self._enter(round, now)
        return self._settle_turns()

    def receive(self, contribution: Contribution) -> tuple[list[Result], list[Outgoing]]:
        """Add a contribution; returns results that are complete now and answers to the client."""
        header = contribution.header
        key, sender = header.key, header.sender
        if key not in self._owned:
            return [], [self._refuse(header, "this node does not own the segment's shard")]
        if sender not in self.agreement.view_at(header.round).client_set:
            return [], [self._refuse(header, "the sender is not a client of this federation")]
        try:
            self.desk.check(contribution)
        except (InvalidSetting, MalformedMessage) as error:
            return [], [self._refuse(header, str(error))]
        current = header.round == self.round and self._takes(key)
        if not current or contribution.based_on != self.replica.versions[key]:
            return [], self._missed(contribution)
        state = self._open.get(key) or self._begin_segment(key)
        if sender in state.heard:
            return [], []
        answers = self._add(contribution, state)
        return self._hear(key, sender), answers

    def excuse(self, key: Key, client: int) -> list[Result]:
        """A client gives nothing to a segment of this round: it is not waited for."""
        if key not in self._owned or not self._takes(key):
            return []
        if key not in self._open:
            self._begin_segment(key)
        return self._hear(key, client)

    def _hear(self, key: Key, client: int) -> list[Result]:
        """A client has said what it had to say; returns the result if that was all."""
        self._open[key].heard.add(client)
        heard = self._heard.setdefault(key[0], set())
        heard.add(client)
        if self._overdue or len(heard) % GATHERED == 0 or len(heard) == len(self._clients):
            self._offer(key[0])
        return self._try(key)

    def _try(self, key: Key) -> list[Result]:
        """Close a segment if nothing is worth waiting for any more."""
        state = self._open[key]
        everyone = len(state.heard) == len(self._clients)
        if not (everyone or self._overdue) or state.collector.waiting or not self._may_close(key):
            return []
        return self._close(key)

    def _takes(self, key: Key) -> bool:
        """Whether a segment still takes contributions."""
        return key not in self._closed and key not in self._revealing and self._may_publish

    def reveal(self, answer: Reveal) -> list[Result]:
        """Take in what a helper was asked for; returns the result if that was all."""
        header = answer.header
        key, sender = header.key, header.sender
        if header.round != self.round or key not in self._owned:
            return []
        if self.desk.said(self.round, header.shard, sender, answer.data):
            return self._settle(header.shard)
        state = self._revealing.get(key)
        if state is None or sender not in state.helpers:
            return []
        if answer.included != state.included:
            raise MalformedMessage("reveal.included", "is not the set that was asked for")
        ending = state.collector.reveal(sender, answer.data)
        state.asked.pop(sender, None)
        if isinstance(ending, Asking):
            self._ask(key, state, ending)
        if ending is None or isinstance(ending, Asking):
            return []
        del self._revealing[key]
        result = self._result(key, state.collector, ending)
        try:
            self.replica.check(result)
        except MalformedMessage as refused:
            # By a lie in a sum that nobody can look into: not to say a word would stop the round.
            self.desk.notes.append(f"round {self.round}, segment {key}: withheld: {refused}")
            result = self._withheld(key, self.round, self.replica.versions[key])
        return [result]

    def _settle(self, shard: int) -> list[Result]:
        """Helpers keep more of a shard's seeds: its segments may be closed now."""
        results = []
        for key in [key for key in self._open if key[0] == shard]:
            self._open[key].collector.settle()
            results += self._try(key)
        return results

    def ask(self) -> list[Outgoing]:
        """What helpers are to be asked, since this was last called."""
        questions, self._questions = self._questions, []
        return questions

    def offer(self, *, again: bool = False) -> None:
        """Offer helpers what they shall keep: what is new, or all that they said nothing about."""
        for shard in self._shards or ():
            self._offer(shard, again=again)

    def _offer(self, shard: int, *, again: bool = False) -> None:
        header = self.agreement.header(self.me, self.round, (shard, 0))
        for member, data in self.desk.offers(self.round, shard, again=again):
            self._questions.append(Outgoing((member,), RevealRequest(header, frozenset(), data)))

    def tick(self, now: float) -> list[Result]:
        """Close what is past its deadline."""
        results = self._wait_for_answers(now)
        if now >= self._deadline:
            self._overdue = True
            self.offer()
            for key in [key for key in self._unclosed() if key in self._open]:
                results += self._try(key)
        return results + self._wait_for_helpers(now)

    def _wait_for_helpers(self, now: float) -> list[Result]:
        """Offer again what helpers have not accepted; do without it in the end."""
        settings, results = self.agreement.settings, []
        # What came in time counts, late as it is, if helpers accept it when they are next asked.
        patience = settings.retry_every if self._overdue else settings.close_after
        waiting = [key for key, state in self._open.items() if state.collector.waiting]
        for key in waiting:
            state = self._open[key]
            if self._may_close(key) and (self._overdue or len(state.heard) == len(self._clients)):
                state.until = min(state.until, now + patience)
            if now >= state.until:
                results += self._close(key)
        if not waiting:
            self._offer_at = math.inf
        elif now >= self._offer_at:
            self.offer(again=True)
            self._offer_at = now + settings.retry_every
        else:
            self._offer_at = min(self._offer_at, now + settings.retry_every)
        return results

    def _wait_for_answers(self, now: float) -> list[Result]:
        """Ask others, or give up: the set of a closed segment does not shrink."""
        settings, given_up = self.agreement.settings, []
        for key, state in list(self._revealing.items()):
            state.until = min(state.until, now + settings.close_after)
            state.ask_at = min(state.ask_at, now + settings.retry_every)
            if now >= state.until:
                given_up += self._give_up(key)
            elif now >= state.ask_at:
                self.offer(again=True)  # what a helper lacks
                self._ask(key, state, state.collector.again(frozenset(state.asked)))
        return given_up

    def _ask(self, key: Key, state: _Revealing, asking: Asking) -> None:
        state.asked, state.ask_at = dict(asking.members), math.inf
        state.helpers |= state.asked.keys()
        header = self.agreement.header(self.me, self.round, key)
        for member, data in asking.members.items():
            request = RevealRequest(header, state.included, data)
            self._questions.append(Outgoing((member,), request))

    def give_up(self) -> list[Result]:
        """Withhold what is closed and not open by now."""
        return [result for key in list(self._revealing) for result in self._give_up(key)]

    def _give_up(self, key: Key) -> list[Result]:
        collector = self._revealing.pop(key).collector
        collector.abandon()
        return self.withhold(key, collector.exponent)

    def withhold(self, key: Key, exponent: int | None = None) -> list[Result]:
        """Close a segment as it is, whoever was heard; nothing if it is closed already.

        The unit of its words, if that follows, is the ``exponent``'s from now on.
        """
        if not self._takes(key):
            return []
        self._open.pop(key, None)
        self._closed.add(key)
        return [self._withheld(key, self.round, self.replica.versions[key], exponent)]

    @property
    def done(self) -> bool:
        """Whether nothing of the current round is worth waiting for any more."""
        return not self._revealing and (self._overdue or self._owned <= self._closed)

    @property
    def wakes_at(self) -> float:
        """When :meth:`tick` has something to do; at once where a wait has yet to begin."""
        ends = [min(s.until, s.ask_at) for s in self._revealing.values()]
        waiting = [state for state in self._open.values() if state.collector.waiting]
        if math.inf in ends or (waiting and self._offer_at == math.inf):
            return -math.inf
        ends += [state.until for state in waiting]
        over = self._overdue or self._owned <= self._closed
        return min([math.inf if over else self._deadline, self._offer_at, *ends])

    def drop(self, key: Key) -> None:
        """Forget what was collected for a segment: its state has moved under it.

        Where a set has been named, there is no other one in this round.
        """
        self._open.pop(key, None)
        if self._revealing.pop(key, None) is not None:
            self._closed.add(key)

    # -- collecting ---------------------------------------------------------------------------

    def _enter(self, round: int, now: float) -> None:
        self._take_up(self.agreement.view_at(round))
        self.round = round
        self._open.clear()
        self._heard.clear()
        self._revealing.clear()
        self._overdue, self._offer_at = False, math.inf
        self._deadline = now + self.agreement.settings.close_after
        self._closed = {key for key in self.keys if self.replica.versions[key] >= round}

    def _take_up(self, view: View) -> None:
        """Own what the view says."""
        shards = view.owned_by(self.me)
        if shards != self._shards:
            self._shards = shards
            self.keys = [key for key in self.agreement.keys if key[0] in shards]
            self._owned = frozenset(self.keys)

    def _begin_segment(self, key: Key) -> _Open:
        segment = self.agreement.segments(self.round)[key]
        state = _Open(self.desk.collector(self.round, segment))
        self._open[key] = state
        return state

    def _add(self, contribution: Contribution, state: _Open) -> list[Outgoing]:
        """Count a contribution in, or refuse it."""
        try:
            state.collector.take(contribution)
        except (RefusedContribution, MalformedMessage) as error:
            return [self._refuse(contribution.header, str(error))]
        return []

    def _missed(self, contribution: Contribution) -> list[Outgoing]:
        """What a client whose contribution cannot count has missed, if anything."""
        key, sender = contribution.header.key, contribution.header.sender
        return [
            Outgoing((sender,), message)
            for message in self.replica.since(key, contribution.based_on, self.me)
        ]

    def _refuse(self, header: Header, reason: str) -> Outgoing:
        back = self.agreement.header(self.me, header.round, header.key)
        return Outgoing((header.sender,), Refusal(back, reason))

    # -- publishing ---------------------------------------------------------------------------

    def _settle_turns(self) -> list[Result]:
        """Withhold the last round of each turn that is over and in which this owner was away:
        shards that are drawn anew need every old one settled, turn by turn."""
        results = []
        for key in self.keys:
            previous = self.replica.versions[key]
            for end in self.agreement.turn_ends(previous, self.round):
                results.append(self._withheld(key, end, previous))
                previous = end
        return results

    @property
    def _may_publish(self) -> bool:
        """An owner that does not yet hold the state its shards are cut from stays silent."""
        return self.replica.ready(self.round)

    def _unclosed(self) -> list[Key]:
        if not self.round or not self._may_publish:
            return []
        return [key for key in self.keys if self._takes(key)]

    def _may_close(self, key: Key) -> bool:
        """Whether enough clients have been heard."""
        state = self._open.get(key)
        return state is not None and len(state.heard) >= self._enough

    @property
    def _clients(self) -> tuple[int, ...]:
        return self.agreement.view_at(self.round).clients

    @property
    def _enough(self) -> int:
        return self.agreement.enough(max(1, self.round))

    def _withheld(self, key: Key, round: int, previous: int, exponent: int | None = None) -> Result:
        header = self.agreement.header(self.me, round, key)
        return Result(
            header, previous, frozenset(), 0, 0, None, exponent=self._exponent(key, exponent)
        )

    def _exponent(self, key: Key, said: int | None) -> int:
        """What a result says of the unit of the next words."""
        return self.replica.exponent(key, max(1, self.round)) if said is None else said

    def _close(self, key: Key) -> list[Result]:
        """The result of a segment; none yet if members have to be asked first."""
        state = self._open.get(key)
        if state is None or len(state.collector.included) < self._enough:
            return self.withhold(key)
        del self._open[key]
        collector = state.collector
        ending = collector.finish()
        if ending is None:
            return self.withhold(key)
        if not isinstance(ending, Asking):
            return [self._result(key, collector, ending)]
        revealing = _Revealing(collector, frozenset(collector.included), {})
        self._revealing[key] = revealing
        self._ask(key, revealing, ending)
        return []

    def _result(self, key: Key, collector: Collector, payload: Payload) -> Result:
        self._closed.add(key)
        return Result(
            self.agreement.header(self.me, self.round, key),
            self.replica.versions[key],
            frozenset(collector.included),
            collector.samples,
            collector.sample_steps,
            payload,
            closed=collector.closed,
            exponent=self._exponent(key, collector.exponent),
        )
