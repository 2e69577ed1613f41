"""The directory's answers as messages of ``directory.proto``, and back, checked."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

from eris.core.errors import MalformedMessage
from eris.protocol import directory_pb2 as wire
from eris.protocol.authority.directory import Description, ShardStatus
from eris.protocol.authority.enrolment import MemberStatus, Presence
from eris.protocol.authority.history import Mark
from eris.protocol.authority.standing import Joined, Scheduled, Standing
from eris.protocol.view import NOBODY, View


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


def standing_to_wire(standing: Standing, time: float) -> wire.Standing:
    """A member's place; ``time`` is the directory's, in seconds since 1970."""
    views = standing.views
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
            )
            for scheduled in views
        ],
        through=standing.through,
        round=standing.round,
        time=time,
        mark=mark_to_wire(standing.mark),
    )


def standing_from_wire(message: wire.Standing) -> Standing:
    """The place a directory's answer describes."""
    names = tuple(message.members)
    views = tuple(_view(view, names) for view in message.views)
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
    return Standing(message.me, views, addresses, message.through, message.round, mark)


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
    shards = tuple(ShardStatus(shard.size, shard.owner, shard.heir) for shard in message.shards)
    for shard in shards:
        for number in (shard.owner, shard.heir):
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


def _view(message: wire.ScheduledView, names: tuple[str, ...]) -> Scheduled:
    if message.members > len(names):
        reason = f"epoch {message.epoch} has {message.members}, of {len(names)} names"
        raise MalformedMessage("view.members", reason)
    members, clients = names[: message.members], tuple(message.clients)
    view = View(members, clients, tuple(message.owners), None, message.epoch)
    return Scheduled(view, message.from_round)


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
    )
