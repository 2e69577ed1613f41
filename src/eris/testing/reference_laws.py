"""What must hold whatever fails where every client has a reference of its own (SoteriaFL).

References are computed here from what was sent and published alone: a client's moves by its own
contributions that are in results, from zero in every epoch. What clients send is the difference to
that, and what all hold in common is the weighted sum of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eris.core.compress import Encoding, decode_values
from eris.core.shift import advance, difference
from eris.core.vectors import Vector
from eris.protocol.agreement import Key, Segment
from eris.protocol.messages import Contribution, Result
from eris.protocol.round.member import Member
from eris.protocol.schemes.independent import IndependentCoding
from eris.testing.sum_laws import LawBroken

if TYPE_CHECKING:
    from eris.testing.witness import Witness

CLOSE = 1e-3
"""How far the common reference may be from the sum, relative to the largest in it: both are
rounded to float32 step by step."""


class ReferenceLaws:
    """Computes references from contributions and results; a part of the witness."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self._updates: dict[tuple[Member, int], Vector] = {}
        self._known: dict[tuple[Key, int, int], Vector] = {}
        """By segment, version and client: its reference there, if its epoch goes on."""

    def trained(self, member: Member, round: int, update: Vector) -> None:
        """A member has trained; the poisoned is not looked at."""
        self._updates[member, round] = update

    def sent(self, sent: Contribution, segment: Segment, member: Member) -> Vector:
        """What a client sends is the difference to its reference; returns it with zeros where it
        keeps nothing."""
        round, key = sent.header.round, sent.header.key
        coding = _coding(member)
        own = self._reference(member, key, sent.based_on, sent.header.epoch, member.me)
        update = segment.gather(self._updates[member, round])
        places = coding.places(round, key, member.me)
        expected = difference(update[places], own[places])
        if not np.array_equal(coding.read(sent, segment), expected, equal_nan=True):
            raise LawBroken(f"round {round}, segment {key}: member {member.me} sent what is not "
                            f"the difference to its reference")  # fmt: skip
        self._witness.saw["a difference to a reference is sent"] += bool(own.any())
        return coding.decode(sent, segment)

    def held(self, member: Member, key: Key, version: int) -> None:
        """The common reference is the sum of the clients', each by its weight."""
        result, view = self._witness.results[key, version], self._witness.view_of(version)
        if result.payload is None:
            return
        assert view.samples is not None
        assert member.node.replica.reference is not None
        total = sum(view.samples)
        parts = [
            np.float64(samples / total) * self._reference(member, key, version, view.epoch, client)
            for client, samples in zip(view.clients, view.samples, strict=True)
        ]
        segment = member.agreement.segments(version)[key]
        common = member.node.replica.reference.piece(segment)
        off = np.abs(common - np.sum(parts, axis=0)).max(initial=0.0)
        if off > CLOSE * (1 + np.abs(parts).max(initial=0.0)):
            raise LawBroken(f"segment {key}, version {version}: the common reference is {off:.3g} "
                            f"off the sum of the clients'")  # fmt: skip
        self._witness.saw["references add up"] += 1

    def _reference(self, member: Member, key: Key, version: int, epoch: int, client: int) -> Vector:
        """A client's reference at a version of a segment, as it is in an epoch."""
        segment, result = (
            member.agreement.segments(1)[key],
            self._witness.results.get((key, version)),
        )
        if result is None or result.header.epoch != epoch:
            return np.zeros(segment.size, np.float32)
        if (name := (key, version, client)) not in self._known:
            own = self._reference(member, key, result.previous, epoch, client)
            if result.payload is not None and client in result.included:
                own = self._moved(member, segment, own, client, result)
            self._known[name] = own
        return self._known[name]

    def _moved(
        self, member: Member, segment: Segment, own: Vector, client: int, result: Result
    ) -> Vector:
        """s + γ·v of what a client has sent for a result."""
        round = result.header.round
        coding, moved = _coding(member), np.zeros(segment.size, np.float32)
        places = coding.places(round, segment.key, client)
        (sent,) = {
            one for one in self._witness.contributions(segment.key, round, client)
            if one.based_on == result.previous
        }  # fmt: skip
        values = decode_values(sent.payload.encoded, Encoding.KEPT, len(places))
        moved[places] = values * coding.scale(round, client)
        return advance(own, moved, coding.gamma(segment))


def _coding(member: Member) -> IndependentCoding:
    coding = member.agreement.coding
    assert isinstance(coding, IndependentCoding)
    return coding
