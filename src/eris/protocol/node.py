"""A node: one replica, a client machine if it has data, an aggregator machine if it owns shards.

What a runtime carries. It is given the time and messages and returns messages; it never waits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import ErisError
from eris.protocol.aggregator import Aggregator
from eris.protocol.client import Client
from eris.protocol.membership import View
from eris.protocol.messages import (
    CatchUp,
    Contribution,
    Message,
    Outgoing,
    Refusal,
    Result,
    Snapshot,
)
from eris.protocol.replica import Replica
from eris.protocol.settings import Settings

Vector = NDArray[np.float32]


class Node:
    """One member of a federation, without I/O."""

    def __init__(self, settings: Settings, view: View, me: int, initial: Vector) -> None:
        self.settings, self.view, self.me = settings, view, me
        self.replica = Replica(settings, view, initial)
        self.client = Client(settings, view, me, self.replica) if me in view.clients else None
        owns = bool(view.owned_by(me))
        self.aggregator = Aggregator(settings, view, me, self.replica) if owns else None
        self.refused: list[str] = []
        """Why contributions of this node were refused, and messages to it that it refused."""
        self._others = tuple(m for m in range(len(view.members)) if m != me)

    @property
    def model(self) -> Vector:
        """The current model."""
        return self.replica.model

    def begin(self, round: int, now: float) -> list[Outgoing]:
        """Enter a round."""
        if self.client is not None:
            self.client.begin(round, now)
        return self._publish(self.aggregator.begin(round, now)) if self.aggregator else []

    def restart(self, round: int, now: float) -> list[Outgoing]:
        """Enter a round after a crash: what was being collected is lost."""
        if self.client is not None:
            self.client.begin(round, now)
        return self._publish(self.aggregator.abstain(round, now)) if self.aggregator else []

    def contribute(self, update: Vector, samples: int, steps: int, now: float) -> list[Outgoing]:
        """Send this node's update of the round; segments of its own shards stay here."""
        assert self.client is not None
        out = []
        for outgoing in self.client.contribute(update, samples, steps):
            if outgoing.to == (self.me,):
                out += self.receive(outgoing.message, now)
            else:
                out.append(outgoing)
        return out

    def receive(self, message: Message, now: float) -> list[Outgoing]:
        """Take a message in. A message that makes no sense here is noted and otherwise ignored."""
        header = message.header
        try:
            if header.federation != self.settings.fingerprint:
                raise ErisError("belongs to a federation with other settings")
            if header.epoch != self.view.epoch or header.sender >= len(self.view.members):
                raise ErisError(f"is of epoch {header.epoch}; this node is in {self.view.epoch}")
            if header.round < 1 or header.key not in self.replica.versions:
                raise ErisError(f"names round {header.round}, segment {header.key}: no such thing")
            return self._dispatch(message, now)
        except ErisError as error:
            kind = type(message).__name__.lower()
            self.refused.append(f"{kind} from member {header.sender}: {error}")
            return []

    def tick(self, now: float) -> list[Outgoing]:
        """Let time pass: deadlines, retries."""
        out = self._publish(self.aggregator.tick(now)) if self.aggregator else []
        return out + (self.client.tick(now) if self.client is not None else [])

    def _dispatch(self, message: Message, now: float) -> list[Outgoing]:
        match message:
            case Contribution():
                if self.aggregator is None:
                    raise ErisError("this node owns no shard")
                results, answers = self.aggregator.receive(message, now)
                own = [a for a in answers if a.to == (self.me,)]
                for answer in own:
                    self._dispatch(answer.message, now)
                return self._publish(results) + [a for a in answers if a.to != (self.me,)]
            case Result():
                self._apply(message)
                return []
            case CatchUp():
                return self._serve(message)
            case Snapshot():
                self.replica.adopt(message)
                return []
            case Refusal():
                self.refused.append(f"round {message.header.round}, segment {message.header.key}: "
                                    f"{message.reason}")  # fmt: skip
                return []

    def _serve(self, message: CatchUp) -> list[Outgoing]:
        key, asker = message.header.key, message.header.sender
        chain = self.replica.results_after(key, message.have)
        if chain is None:
            return [Outgoing((asker,), self.replica.snapshot(key, self.me))]
        return [Outgoing((asker,), result) for result in chain]

    def _publish(self, results: list[Result]) -> list[Outgoing]:
        """Apply own results before they leave, so that a crash cannot lead to a second one."""
        for result in results:
            self._apply(result)
        return [Outgoing(self._others, result) for result in results if self._others]

    def _apply(self, result: Result) -> None:
        owner = self.view.owners[result.header.shard]
        if result.header.sender != owner:
            raise ErisError(
                f"member {result.header.sender} does not own shard {result.header.shard}"
            )
        for applied in self.replica.offer(result):
            if self.client is not None:
                self.client.follow(applied)
