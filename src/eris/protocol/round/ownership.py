"""What a member may do in which rounds, and an owner's part in them.

A member publishes and contributes with a permit only, and never in a round in which it may have
done so before it was started again (:mod:`eris.protocol.authority.standing`): a second result, or a
second contribution of one client, would tell more than one does.
"""

from __future__ import annotations

import math

from eris.protocol.agreement import Key
from eris.protocol.authority.standing import LOOKAHEAD
from eris.protocol.messages import CatchUp, Contribution, Header, Outgoing, Refusal
from eris.protocol.round.roles import Node

PATIENCE = 8
"""Times of asking for which an owner that is behind waits for two that agree."""


class Ownership:
    """What a node may publish and contribute, and its segments that are open.

    ``through`` is the last round it is permitted, ``abstain_through`` the last one in which it may
    have acted before. One that is ``unsure`` of that finds it out from what it hears.
    """

    def __init__(self, node: Node, *, through: int, abstain_through: int, unsure: bool) -> None:
        self.node, self.through, self.abstain_through = node, through, abstain_through
        if node.helping is not None:
            node.helping.permits = self.permits
        node.evidence.abstains = math.inf if unsure else abstain_through
        self.wants_permit = False
        """Whether a round could not be opened for want of a permit."""
        self._doubt: dict[int, int] | None = {} if unsure else None
        """While it is not known what was done before: by client, the round it was heard in."""
        self._early: dict[int, set[tuple[Key, int]]] = {}
        """By round: (segment, client) of contributions that came before it could be opened."""
        self._behind: dict[Key, tuple[int, float]] = {}
        """By segment: the version at which a client was found to be ahead, and since when."""

    @property
    def unsure(self) -> bool:
        """Whether it may have published in rounds that it does not know of."""
        return self._doubt is not None

    def abstains(self, round: int) -> bool:
        """Whether this member does nothing in a round, since it may have before it restarted."""
        return self.unsure or round <= self.abstain_through

    def permits(self, round: int) -> bool:
        """Whether this member may act in a round; if only a permit is missing, that is noted."""
        if self.abstains(round):
            return False
        self.wants_permit |= round > self.through
        return round <= self.through

    @property
    def last_over(self) -> int:
        """The last round in which this owner publishes nothing any more."""
        return max(self.abstain_through, self.node.aggregator.round - 1)

    def opens_later(self, round: int) -> bool:
        """Whether this owner has yet to open a round: its own segments wait for that."""
        return max(self.node.aggregator.round, self.abstain_through) < round

    def open(self, round: int, now: float) -> list[Outgoing]:
        """Open a round if that is permitted and the last one is done with."""
        return self.node.open(round, now) if self._may_open(round) else []

    def collect(
        self, contribution: Contribution, source: int, round: int, now: float
    ) -> list[Outgoing]:
        """Take in a contribution; the first one of a round opens it. ``round`` is the member's."""
        header, node = contribution.header, self.node
        view, key = node.agreement.view_at(header.round), header.key
        sound = header.epoch == view.epoch and source == header.sender and source in view.client_set
        if not sound or view.owners[header.shard] != node.me:
            return node.receive(contribution, source)  # which says what is wrong with it
        version = node.replica.versions[key]
        if version < contribution.based_on < header.round:
            # A client that is further on has what this owner lacks.
            ask = node.agreement.header(node.me, max(1, round), key)
            return [Outgoing((source,), CatchUp(ask, version)), *self._insist(contribution, now)]
        out = self.open(header.round, now)
        if header.round <= node.aggregator.round:
            out += node.receive(contribution, source)
        elif header.round <= round + 1 and source != node.me:
            self._early.setdefault(header.round, set()).add((key, source))
        return out + self._answer(header, source) + self.invite(now)

    def owns(self, header: Header) -> bool:
        """Whether this member owns what a message is about."""
        return self.node.agreement.view_at(header.round).owners[header.shard] == self.node.me

    def excuse(self, header: Header, source: int, now: float) -> list[Outgoing]:
        """A client says that it gives nothing to a segment of a round."""
        node = self.node
        view = node.agreement.view_at(header.round)
        if header.epoch != view.epoch or source not in view.client_set:
            return []
        out = self.open(header.round, now)
        if header.round == node.aggregator.round:
            out += node.excuse(header.key, source)
        return out + self._answer(header, source)

    def _answer(self, header: Header, source: int) -> list[Outgoing]:
        """Tell a client that no result will come of a round, if so."""
        node, round = self.node, header.round
        if round > self.last_over or node.replica.versions[header.key] >= round:
            return []
        if source == node.me:
            return []  # it knows
        back = node.agreement.header(node.me, round, header.key)
        reason = f"this owner publishes no result of round {round}"
        return [Outgoing((source,), Refusal(back, reason, no_result=True))]

    def hear(self, source: int, round: int) -> None:
        """A client says that it is in a round: while this member is unsure, that counts."""
        if self._doubt is None or source == self.node.me:
            return
        if source in self.node.agreement.view_at(round).client_set:
            self._doubt[source] = max(round, self._doubt.get(source, 0))
            self._resolve(round)

    def _insist(self, contribution: Contribution, now: float) -> list[Outgoing]:
        """Go on from the own state if those that are ahead have told theirs, and no two agree.

        So it is when many came back with what they had stored, each of another round. A result
        that is withheld makes this state the newest: the others find that theirs was dropped.
        """
        key, round = contribution.header.key, contribution.header.round
        version = self.node.replica.versions[key]
        before, since = self._behind.get(key, (version, now))
        self._behind[key] = version, (since if before == version else now)
        settings = self.node.agreement.settings
        patience = settings.catch_up_after + PATIENCE * settings.retry_every
        if now < self._behind[key][1] + patience or not self.node.evidence.told(key):
            return []
        out = self.open(round, now)
        return out + (self.node.withhold(key) if self.node.aggregator.round == round else [])

    def invite(self, now: float) -> list[Outgoing]:
        """Ask for contributions again that came before their round could be opened."""
        out: list[Outgoing] = []
        for round in sorted(self._early):
            out += self.open(round, now)
            if round <= self.node.aggregator.round:
                for key, client in sorted(self._early.pop(round)):
                    back = self.node.agreement.header(self.node.me, round, key)
                    reason = "it came before the round was opened"
                    out.append(Outgoing((client,), Refusal(back, reason, again=True)))
        return out

    def _resolve(self, round: int) -> None:
        """End the doubt once so many were heard that one of them was in the last result.

        Nobody goes back in rounds, so that result is of none after theirs. A single word that is
        far from all others would silence this owner for ever: it waits for one more then, and does
        without that word.
        """
        assert self._doubt is not None
        agreement, heard = self.node.agreement, sorted(self._doubt.values())
        least = len(agreement.view_at(round).clients) - agreement.enough(round) + 1
        if len(heard) > 1 and heard[-1] > heard[-2] + LOOKAHEAD:
            heard.pop()
        if len(heard) >= least:
            last = heard[-1] + LOOKAHEAD
            self.abstain_through, self._doubt = max(self.abstain_through, last), None
            self.node.evidence.abstains = self.abstain_through

    def _may_open(self, round: int) -> bool:
        aggregator = self.node.aggregator
        if round <= aggregator.round or not self.permits(round):
            return False
        return aggregator.round == 0 or aggregator.done
