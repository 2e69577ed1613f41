"""A member that lies: what it says instead of the truth, or though nobody asked.

It keeps to the protocol otherwise, and its messages are well formed; so everything that is wrong
with them has to be found by those who receive them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eris.core.compress import encode_values
from eris.core.streams import Stream
from eris.protocol.agreement import Key
from eris.protocol.codec import DIGEST_BYTES
from eris.protocol.messages import (
    CatchUp,
    Contribution,
    Header,
    Holding,
    Message,
    Outgoing,
    Payload,
    Refusal,
    Result,
    Snapshot,
)
from eris.protocol.round.member import Member
from eris.protocol.view import NOBODY

ABSURD = 1_000_000_000
FORGED = 12.345
"""Every value that it makes up."""


def lies(member: Member, draw: Stream) -> list[Outgoing]:
    """What a member says to all others, once and unasked, of one segment drawn at random."""
    agreement, replica = member.agreement, member.node.replica
    chosen = int(draw.uniform(0, 1)[0] * len(agreement.keys))
    key = agreement.keys[chosen]
    others = tuple(m for m in range(len(agreement.view.members)) if m != member.me)
    last = member.rounds
    told: list[Message] = [
        *(CatchUp(_header(member, round, key), 0) for round in (last, last + 1, ABSURD)),
        *(_holding(member, round, key) for round in (last + 1, ABSURD)),
        *(_snapshot(member, at, key) for at in (replica.versions[key] + 1, last, ABSURD)),
        *(_contribution(member, round, key) for round in (last, ABSURD)),
        *_results(member, key),
        Refusal(_header(member, max(1, member.round), key), "none", no_result=True),
    ]
    return [Outgoing(others, message) for message in told]


def twisted(message: Message) -> Message:
    """What it answers instead: a state of its own making, for which it was asked."""
    if isinstance(message, Snapshot):
        return replace(message, model=_made_up(message.model.encoded.count))
    if isinstance(message, Holding):
        return replace(message, digest=bytes(DIGEST_BYTES))
    return message


def made_up(message: Message) -> bool:
    """Whether a message is an answer that was twisted."""
    return isinstance(message, Snapshot | Holding) and twisted(message) == message


def _results(member: Member, key: Key) -> list[Result]:
    """In the owner's name; if it owns the segment itself, for a round that there never is.

    About its own shards an owner is believed, in any round that others may have reached by the
    time they hear of it: as long as results are not signed, no law holds against that lie.
    """
    agreement, replica = member.agreement, member.node.replica
    segment = agreement.segments(1)[key]
    rounds = (max(1, member.round), member.rounds, ABSURD)
    found = []
    for round in rounds:
        owner = agreement.view_at(round).owners[key[0]]
        if owner == NOBODY or (owner == member.me and round < ABSURD):
            continue
        included = frozenset(agreement.view_at(round).clients)
        count = agreement.coding.size(round, segment, min(included))
        payload = agreement.coding.publish(np.full(count, FORGED, np.float32), round)
        samples, header = 3 * len(included), replace(_header(member, round, key), sender=owner)
        previous = min(replica.versions[key], round - 1)
        found.append(Result(header, previous, included, samples, samples, payload))
    return found


def _header(member: Member, round: int, key: Key) -> Header:
    return member.agreement.header(member.me, round, key)


def _made_up(count: int) -> Payload:
    return Payload(encode_values(np.full(count, FORGED, np.float32)))


def _holding(member: Member, round: int, key: Key) -> Holding:
    return Holding(_header(member, round, key), round, bytes(DIGEST_BYTES))


def _snapshot(member: Member, at: int, key: Key) -> Snapshot:
    true = member.node.replica.snapshot(key, member.me)
    made_up = _made_up(true.model.encoded.count)
    return replace(true, header=_header(member, at, key), at=at, model=made_up)


def _contribution(member: Member, round: int, key: Key) -> Contribution:
    """To a round that is not there yet; whom it is for does not own the segment, mostly."""
    values = _made_up(member.agreement.segments(1)[key].size)
    return Contribution(_header(member, round, key), round - 1, 3, 1, values)
