"""The directory's answers as messages of ``directory.proto``, and back, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import get_args

from eris.core.combine import MOST_SAMPLES
from eris.core.errors import MalformedMessage
from eris.protocol import directory_pb2 as wire
from eris.protocol.authority.described import Description, ShardStatus
from eris.protocol.authority.enrolment import MemberStatus, Presence, check_statement
from eris.protocol.authority.history import Mark
from eris.protocol.authority.standing import Joined, Scheduled, Standing
from eris.protocol.secure.certified import KeyStatement
from eris.protocol.secure.keys import PublicKeys
from eris.protocol.secure.seats import MOST_SEATS
from eris.protocol.view import NOBODY, Seating, View


def mark_to_wire(mark: Mark | None) -> wire.Mark | None:
    """A mark, if there is one."""
    return None if mark is None else wire.Mark(**vars(mark))


def mark_of(
    message: wire.JoinRequest | wire.RenewRequest | wire.LeaveRequest | wire.Standing,
) -> Mark | None:
    """The mark that a message carries, if it does."""
    if not message.HasField("mark"):
        return None
    mark = message.mark
    return Mark(mark.ledger, mark.term, mark.revision, mark.seal)


def keys_to_wire(keys: KeyStatement | None) -> wire.KeyStatement | None:
    """A key statement, if there is one; whose it is, is said elsewhere."""
    if keys is None:
        return None
    return wire.KeyStatement(
        start=keys.start,
        exchange=keys.keys.exchange,
        signing=keys.keys.signing,
        certificate=keys.certificate,
        signature=keys.signature,
    )


def keys_of(message: wire.JoinRequest | wire.RenewRequest, name: str) -> KeyStatement | None:
    """The keys that a member of a name states with a request, if it does."""
    return _statement(message.keys, name) if message.HasField("keys") else None


def _statement(message: wire.KeyStatement, name: str) -> KeyStatement:
    keys = PublicKeys(message.exchange, message.signing)
    return KeyStatement(name, message.start, keys, message.certificate, message.signature)


def standing_to_wire(standing: Standing, time: float, knows: int = 0) -> wire.Standing:
    """A member's place; ``time`` is the directory's, in seconds since 1970.

    Keys of views up to the epoch that the member ``knows`` are left out: they are most of an
    answer, and a member asks in every round.
    """
    views = standing.views
    stated: dict[tuple[int, KeyStatement], int] = {}
    for scheduled in views:
        seating = scheduled.view.seating
        if seating is not None and scheduled.view.epoch > knows:
            for member, keys in enumerate(seating.statements):
                if keys is not None:
                    stated.setdefault((member, keys), len(stated) + 1)
    return wire.Standing(
        me=standing.me,
        members=views[-1].view.members if views else (),  # of earlier views, its first ones
        addresses=standing.addresses,
        views=[
            wire.ScheduledView(
                epoch=scheduled.view.epoch,
                from_round=scheduled.from_round,
                members=len(scheduled.view.members),
                clients=scheduled.view.clients,
                owners=scheduled.view.owners,
                samples=scheduled.view.samples or (),
                helpers=[m for line in seating.helpers for m in line] if seating else (),
                keys=[
                    0 if keys is None else stated[member, keys]
                    for member, keys in enumerate(seating.statements)
                ]
                if seating and scheduled.view.epoch > knows
                else (),
            )
            for scheduled in views
            for seating in (scheduled.view.seating,)
        ],
        through=standing.through,
        round=standing.round,
        time=time,
        mark=mark_to_wire(standing.mark),
        held=standing.held,
        stated=[wire.StatedKeys(member=member, keys=keys_to_wire(keys)) for member, keys in stated],
    )


def standing_from_wire(
    message: wire.Standing, known: Mapping[int, Seating] | None = None
) -> Standing:
    """The place a directory's answer describes; ``known`` are seatings by epoch from answers
    before, whose keys it may have left out."""
    names = tuple(message.members)
    views = tuple(_view(view, names, message.stated, known or {}) for view in message.views)
    for earlier, later in pairwise(views):
        if not (
            earlier.view.epoch < later.view.epoch
            and earlier.from_round <= later.from_round
            and len(earlier.view.owners) == len(later.view.owners)
        ):
            raise MalformedMessage("standing.views", f"epoch {later.view.epoch} is out of order")
    if not message.me < len(message.addresses) >= len(names):
        reason = f"{len(message.addresses)} for member {message.me} of {len(names)}"
        raise MalformedMessage("standing.addresses", reason)
    mark = mark_of(message)
    if mark is not None:
        mark.check()
    addresses = tuple(message.addresses)
    return Standing(
        message.me, views, addresses, message.through, message.round, mark, message.held
    )


def joined_to_wire(joined: Joined, time: float) -> wire.Joined:
    """The answer to a member that joins."""
    return wire.Joined(
        number=joined.number,
        abstain_through=joined.abstain_through,
        incarnation=joined.incarnation,
        standing=standing_to_wire(joined.standing, time),
    )


def joined_from_wire(message: wire.Joined) -> Joined:
    """What a directory answered to a member that joins."""
    standing = standing_from_wire(message.standing)
    if standing.me != message.number:
        raise MalformedMessage("joined.number", f"{message.number}, but {standing.me} in standing")
    return Joined(message.number, message.abstain_through, standing, message.incarnation)


def description_to_wire(description: Description, time: float) -> wire.Description:
    """What the directory knows, for people."""
    return wire.Description(
        charter=description.charter,
        epoch=description.epoch,
        from_round=description.from_round,
        round=description.round,
        start_with=description.start_with,
        lease=description.lease,
        members=[wire.MemberStatus(**vars(member)) for member in description.members],
        shards=[wire.ShardStatus(**vars(shard)) for shard in description.shards],
        time=time,
    )


def description_from_wire(message: wire.Description) -> Description:
    """What a directory says it knows."""
    members = tuple(_member(member) for member in message.members)
    shards = tuple(
        ShardStatus(shard.size, shard.owner, shard.heir, tuple(shard.helpers))
        for shard in message.shards
    )
    for shard in shards:
        for number in (shard.owner, shard.heir, *shard.helpers):
            if not NOBODY <= number < len(members):
                raise MalformedMessage("description.shards", f"names member {number}")
    return Description(
        charter=message.charter,
        epoch=message.epoch,
        from_round=message.from_round,
        round=message.round,
        start_with=message.start_with,
        lease=message.lease,
        members=members,
        shards=shards,
    )


Stated = Sequence[wire.StatedKeys]


def _view(
    message: wire.ScheduledView,
    names: tuple[str, ...],
    stated: Stated,
    known: Mapping[int, Seating],
) -> Scheduled:
    if message.members > len(names):
        reason = f"epoch {message.epoch} has {message.members}, of {len(names)} names"
        raise MalformedMessage("view.members", reason)
    members, clients = names[: message.members], tuple(message.clients)
    seating = _seating(message, members, stated, known) if message.helpers else None
    samples = tuple(message.samples) or None
    if samples is not None and max(samples) > MOST_SAMPLES:
        raise MalformedMessage("view.samples", f"epoch {message.epoch} has {max(samples)}")
    view = View(members, clients, tuple(message.owners), samples, message.epoch, seating)
    return Scheduled(view, message.from_round)


def _seating(
    message: wire.ScheduledView,
    members: tuple[str, ...],
    stated: Stated,
    known: Mapping[int, Seating],
) -> Seating:
    shards, flat = len(message.owners), tuple(message.helpers)
    seats = len(flat) // shards if shards else 0
    where = f"epoch {message.epoch}"
    if not 0 < seats <= MOST_SEATS or len(flat) != seats * shards:
        raise MalformedMessage("view.helpers", f"{where} has {len(flat)} for {shards} shards")
    if not NOBODY <= min(flat) <= max(flat) < len(members):
        raise MalformedMessage("view.helpers", f"{where} names no member")
    helpers = tuple(flat[first : first + seats] for first in range(0, len(flat), seats))
    if not message.keys:
        before = known.get(message.epoch)
        if before is None or before.helpers != helpers:
            raise MalformedMessage("view.keys", f"{where} has none")
        return before
    if len(message.keys) != len(members):
        raise MalformedMessage("view.keys", f"{where} has {len(message.keys)}")
    keys = (
        _keys(stated, place, member, members[member]) if place else None
        for member, place in enumerate(message.keys)
    )
    return Seating(helpers, tuple(keys))


def _keys(stated: Stated, place: int, member: int, name: str) -> KeyStatement:
    if place > len(stated) or stated[place - 1].member != member:
        raise MalformedMessage("standing.stated", f"{place} is of no member, or of another")
    found = _statement(stated[place - 1].keys, name)
    check_statement(name, found)
    return found


def _member(message: wire.MemberStatus) -> MemberStatus:
    presence: Presence | None = next((p for p in get_args(Presence) if p == message.presence), None)
    if presence is None:
        raise MalformedMessage("member.presence", f"{message.presence[:20]!r}")
    return MemberStatus(
        name=message.name,
        address=message.address,
        presence=presence,
        client=message.client,
        aggregator=message.aggregator,
        max_share=message.max_share,
        round=message.round,
        through=message.through,
        lease_left=message.lease_left,
        party=message.party,
        keys_from=message.keys_from if message.HasField("keys_from") else None,
    )
