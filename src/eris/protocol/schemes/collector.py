"""An owner's half of a scheme: takes contributions to a segment and ends in a payload, or in
questions to members whose answers make one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from eris.core.errors import MalformedMessage
from eris.core.vectors import Vector
from eris.protocol.messages import Contribution, Payload

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Segment
    from eris.protocol.round.replica import Replica
    from eris.protocol.schemes.scheme import Coding


class Mean(Protocol):
    """What combines values (:mod:`eris.core.combine`)."""

    @property
    def weight(self) -> int:
        """The sum of the samples."""

    def add(self, values: Vector, samples: int, client: object) -> None:
        """Count a client's values in."""

    def result(self) -> Vector:
        """Their mean, or what the rule has instead."""


@dataclass(frozen=True)
class Asking:
    """What an owner has to ask members before it can publish."""

    members: Mapping[int, bytes]


class Collector:
    """An owner's half: contributions go in, one payload comes out."""

    def __init__(self, coding: Coding, round: int, segment: Segment, client: int = 0) -> None:
        settings = coding.agreement.settings
        self._coding, self._round, self._segment = coding, round, segment
        self._mean: Mean = settings.rule.collector(
            coding.size(round, segment, client), settings.precision, settings.non_finite
        )
        self._included: set[int] = set()
        self.sample_steps = 0

    @property
    def included(self) -> AbstractSet[int]:
        """Whose contributions are counted in."""
        return self._included

    @property
    def samples(self) -> int:
        """The samples of the included clients."""
        return self._mean.weight

    def take(self, contribution: Contribution) -> None:
        """Count a contribution in, or refuse it."""
        sender = contribution.header.sender
        values = self._coding.decode(contribution, self._segment)
        name = self._coding.agreement.view.members[sender]
        self._mean.add(values, contribution.samples, name)
        self._included.add(sender)
        self.sample_steps += contribution.samples * contribution.steps

    @property
    def waiting(self) -> bool:
        """Whether something that was taken is not counted in yet, and may be."""
        return False

    @property
    def closed(self) -> bytes:
        """What names the set that was closed on, where members are asked."""
        return b""

    exponent: int | None = None
    """What the result says, published or withheld, where units follow; None: that it stays."""

    def settle(self) -> None:
        """Count in what can be by now."""

    def finish(self) -> Payload | Asking | None:
        """What is published of the included clients' contributions, or what is missing for it;
        None if nothing ever can be."""
        return self._coding.publish(self.mean(), self._round)

    def mean(self) -> Vector:
        """The mean of what was taken, or what the rule has instead."""
        return self._mean.result()

    def again(self, silent: frozenset[int]) -> Asking:
        """Some that were asked did not answer: whom to ask now."""
        return Asking({})

    def abandon(self) -> None:
        """Answers are waited for no longer: the result is withheld."""

    def reveal(self, member: int, data: bytes) -> Payload | Asking | None:
        """Take in a member's answer; what is published, or asked next, once all are there."""
        raise MalformedMessage("reveal", "answers what nobody asked")


class Desk:
    """What an owner's collectors have in common."""

    def __init__(self, agreement: Agreement, replica: Replica) -> None:
        self.agreement, self.replica = agreement, replica
        self.notes: list[str] = []
        """What was found, for people."""

    def check(self, contribution: Contribution) -> None:
        """Refuse a weight that cannot be a client's."""
        self.agreement.coding.check_weight(contribution)

    def collector(self, round: int, segment: Segment) -> Collector:
        """An owner's half, for one segment and round."""
        return self.agreement.coding.collector(
            round, segment, lambda: self.replica.held.piece(segment)
        )

    def offers(self, round: int, shard: int, *, again: bool = False) -> Iterable[tuple[int, bytes]]:
        """What members are told before a shard's segments are closed, if there is something new."""
        return ()

    def said(self, round: int, shard: int, member: int, data: bytes) -> bool:
        """A member's answer to that; whether it was one."""
        return False
