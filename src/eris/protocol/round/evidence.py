"""What a member takes on whose word.

An owner is believed about the results of its own shards. Of anybody else one word is not enough:
a state that a peer holds counts if the segment's owner or a second member holds the same, and a
round is reached if the authority, or two members, say so. So a single member that lies, or has lost
its mind, changes nobody's model and ends nobody's training; nothing here needs a signature.

What is remembered of peers is a round each, and a digest for each segment that they were asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest

from eris.protocol.agreement import Agreement, Key
from eris.protocol.messages import CatchUp, Contribution, Outgoing

State = tuple[int, bytes]
"""A segment's version and the digest of its state."""


class Evidence:
    """What peers were asked and have said, and what follows from it."""

    def __init__(self, agreement: Agreement, me: int) -> None:
        self.agreement, self.me = agreement, me
        self.reached = 0
        """The highest round that the authority or two members say they have reached."""
        self.abstains: float = 0
        """The last round in which this member may have published what it does not know of."""
        self._rounds: dict[int, int] = {}
        self._asked: dict[Key, set[int]] = {}
        self._held: dict[Key, dict[int, State]] = {}
        self._final: dict[Key, dict[int, State]] = {}

    # -- rounds -------------------------------------------------------------------------------

    def hear(self, peer: int, round: int) -> None:
        """A peer says that it is in a round, or has a result of it."""
        if peer != self.me and round > self._rounds.get(peer, 0):
            self._rounds[peer] = round
            self.reached = max(self.reached, min(nlargest(2, [0, *self._rounds.values()])))

    # -- states -------------------------------------------------------------------------------

    def asks(self, out: Iterable[Outgoing]) -> None:
        """These are on their way: who is sent a contribution, or asked, may answer with a state."""
        for outgoing in out:
            if isinstance(outgoing.message, CatchUp | Contribution):
                self._asked.setdefault(outgoing.message.header.key, set()).update(outgoing.to)

    def asked(self, key: Key, peer: int) -> bool:
        """Whether a peer has a reason to send a segment's state."""
        return peer in self._asked.get(key, ())

    def holds(self, key: Key, peer: int, state: State, *, final: bool = False) -> None:
        """A peer says what it holds; ``final`` if it is through with training."""
        self._held.setdefault(key, {})[peer] = state
        if final:
            self._final.setdefault(key, {})[peer] = state

    def told(self, key: Key) -> bool:
        """Whether anybody has said what it holds; not enough, or the segment would have moved."""
        return bool(self._held.get(key))

    def moved(self, key: Key) -> None:
        """The segment has a new state here: what was said of others before is of no use."""
        self._asked.pop(key, None)
        self._held.pop(key, None)

    def owns(self, key: Key, peer: int, round: int) -> bool:
        """Whether a peer decides about a segment: in the newest view, or in a round's."""
        agreement, shard = self.agreement, key[0]
        if agreement.knows(round) and agreement.view_at(round).owners[shard] == peer:
            return True
        return agreement.view.owners[shard] == peer

    def believes(self, key: Key, state: State, peer: int, version: int) -> bool:
        """Whether a state that a peer sends is the federation's; here is an earlier ``version``."""
        if self.owns(key, peer, state[0]):
            return True
        at, agreement = state[0], self.agreement
        own = agreement.knows(at) and agreement.view_at(at).owners[key[0]] == self.me
        if own and at > self.abstains:
            return False  # there is no result that it has not made itself
        held = self._held.get(key, {})
        if any(theirs == state for other, theirs in held.items() if other != peer):
            return True
        ahead = {other for other, theirs in held.items() if theirs[0] > version} - {peer}
        if ahead or self.agreement.view.owners[key[0]] != self.me:
            return False  # they do not agree, or it is for another to decide
        return not self.spares({peer})

    def spares(self, clients: set[int]) -> bool:
        """Whether there can be a result without these clients. If not, the chain goes on from the
        state that they have or not at all, and an owner takes one word for it."""
        others = self.agreement.view.client_set - clients
        return len(others) >= self.agreement.enough(self.agreement.newest_from)

    # -- at the end ---------------------------------------------------------------------------

    def agreed(self, key: Key, mine: State) -> bool:
        """Whether those that are through hold the same: its owner, or most members that matter."""
        final = self._final.get(key, {})
        same = {peer for peer, state in final.items() if state == mine}
        return self.agreement.view.owners[key[0]] in same or self._most({*same, self.me})

    def outvoted(self, key: Key, mine: State) -> bool:
        """Whether the owner, or most of those that are through, hold one earlier state, and nobody
        has this one: the last result here died with its owner, who has ended without it.

        An owner is not outvoted: what others said of themselves may be older than its result."""
        final = self._final.get(key, {})
        if self.owns(key, self.me, mine[0]) or any(s[0] >= mine[0] for s in final.values()):
            return False
        if final.get(self.agreement.view.owners[key[0]], (0, b""))[0]:
            return True
        states = {state for state in final.values() if state[0]}  # what was trained at all
        return any(self._most({p for p, one in final.items() if one == state}) for state in states)

    def _most(self, members: set[int]) -> bool:
        roles = self.agreement.view.roles
        return 2 * len(members & set(roles)) > len(roles)
