"""What a client gives to a round: one update, made once, in one view; or nothing, and it says so.

Two contents of one client, round and segment, or one content in two views, would give owners two
looks at one update. So an update is bound to the versions that it was trained from: of a segment
that has moved on since, nothing is sent, and once a part of an update has left, nothing is trained
again in its round. It leaves with a permit only: no later view holds for a round that anybody had a
permit for. Owners are told of what does not come, lest they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from eris.core.exact_clip import Content
from eris.core.vectors import Vector
from eris.protocol.agreement import Key
from eris.protocol.messages import Outgoing, Refusal
from eris.protocol.round.dispatch import Dispatch
from eris.protocol.round.ownership import Ownership
from eris.protocol.round.roles import Node
from eris.protocol.view import NOBODY, View


@dataclass(frozen=True)
class Job:
    """What is to be trained now: the round, and a model that is the trainer's own copy."""

    round: int
    model: Vector


class Giving:
    """One client's part in the current round, beside its node."""

    def __init__(self, node: Node, ownership: Ownership) -> None:
        self._node, self._ownership = node, ownership
        self.round = 0
        self.given = 0
        """The last round to which a contribution has left, since this start of the member."""
        self.dispatch: Dispatch | None = None
        """The update of the current round, once it is there."""
        self._trained_from: dict[Key, int] = {}

    @property
    def _view(self) -> View:
        return self._node.agreement.view_at(max(1, self.round))

    def enter(self, round: int) -> bool:
        """Enter a round; returns whether this member is to train for it."""
        self.round, self.dispatch = round, None
        return self._node.me in self._view.client_set and not self.abstains

    @property
    def abstains(self) -> bool:
        """Whether this client gives nothing to the round, as it may have before it restarted, or
        since others know it by keys that it has no more."""
        if self._node.me not in self._view.client_set:
            return False
        sender, round = self._node.client.sender, max(1, self.round)
        if self.dispatch is None and sender.drew(round):
            return True
        return not sender.trains(round) or self._ownership.abstains(self.round)

    @property
    def _bound(self) -> bool:
        """Whether nothing else can be trained for the round: a part of an update has left, or its
        noise is drawn."""
        return self.given == self.round or self._node.client.sender.drew(self.round)

    def train(self) -> Job:
        """What to train; what comes of it is bound to the versions that its model has now."""
        self.dispatch = None
        self._trained_from = dict(self._node.replica.versions)
        self._node.client.sender.bind(self.round, self._node.replica)
        model = self._node.client.sender.training_model(self._node.replica.own_model())
        return Job(self.round, model)

    def trained(
        self, update: Vector, samples: int, steps: int, content: Content | None = None
    ) -> bool:
        """Take in what was trained; returns whether there is something to give."""
        based_on = self._trained_from
        if not self._useful(based_on):  # before noise is drawn for it, which costs
            return False
        prepared = self._node.client.prepare(update, samples, steps, based_on, content)
        self.dispatch = Dispatch(prepared)
        return True

    def take(self, over: Callable[[Key], bool], waits: Callable[[int], bool]) -> list[Key]:
        """The next segments that may go (:class:`~eris.protocol.round.dispatch.Dispatch`)."""
        if self.dispatch is None or not self._ownership.permits(self.round):
            return []
        return self.dispatch.take(over, waits)

    def contributions(self, keys: Iterable[Key]) -> list[Outgoing]:
        """What is to be sent of these segments."""
        if self.dispatch is None or not self._ownership.permits(self.round):
            return []
        made = self._node.client.contributions(self.dispatch.prepared, keys)
        if made:
            self.given = self.round
        return made

    def again(self, keys: list[Key], now: float) -> list[Outgoing]:
        """Nothing was heard of these segments: send them again, or say that nothing will come."""
        if self.dispatch is not None:
            self.dispatch.drop()
            if not self._bound and not self._useful(self.dispatch.prepared.pieces):
                self.dispatch = None  # to be trained again
        silent = [key for key in keys if self._silent(key)]
        sent = [] if silent == keys else self.contributions(keys)
        return sent + [out for key in silent for out in self._excuse(key, now)]

    def _silent(self, key: Key) -> bool:
        """Whether nothing of a segment leaves in this round any more."""
        if self.abstains or not self._node.client.sender.gives(self.round, key[0]):
            return True
        return self._bound and self.dispatch is not None and not self._fresh(key)

    def _fresh(self, key: Key) -> bool:
        """Whether a segment is still as it was when the update was trained."""
        assert self.dispatch is not None
        prepared = self.dispatch.prepared
        return key in prepared.pieces and self._node.client.fits(prepared, key)

    def _useful(self, keys: Iterable[Key]) -> bool:
        """Whether one of these segments has an owner, and is as it was when training began."""
        owners, versions = self._view.owners, self._node.replica.versions
        return any(
            owners[key[0]] != NOBODY and versions[key] == self._trained_from[key] for key in keys
        )

    def _excuse(self, key: Key, now: float) -> list[Outgoing]:
        """Tell a segment's owner that nothing comes of this client."""
        me, owner = self._node.me, self._view.owners[key[0]]
        header = self._node.agreement.header(me, self.round, key)
        if owner == me:
            return self._ownership.excuse(header, me, now)
        reason = "this client gives nothing to the round"
        excuse = Refusal(header, reason, no_result=True)
        return [] if owner == NOBODY else [Outgoing((owner,), excuse)]
