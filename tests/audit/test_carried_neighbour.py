"""What members read that carry virtual nodes for each other: whose, how much, and their models."""

from __future__ import annotations

from typing import Any

import numpy as np

from eris.audit.linkability import true_owners
from eris.audit.neighbour import NeighbourWatch
from eris.protocol.gossip.member import GossipMember
from eris.protocol.observers import Observer
from eris.protocol.transcript import Record
from eris.testing.gossip_world import GossipWorld
from eris.testing.shape import Shape

MEMBERS, ROUNDS, CHUNKS, DEGREE = 6, 5, 3, 3


class Recorded(GossipWorld):
    """A world that keeps what was said."""

    def said(self, member: GossipMember, record: Record, message: Any) -> None:
        self.__dict__.setdefault("records", []).append(record)
        super().said(member, record, message)


def test_a_members_model_and_what_it_met_follow_from_its_messages() -> None:
    shape = Shape(members=MEMBERS, rounds=ROUNDS, gossip="shatter")
    world = Recorded(4, shape=shape, kinds=frozenset())
    world.run()
    records: list[Record] = world.__dict__["records"]
    for record in records:
        record.arrived = set(record.receivers)
    settings, owners = world.settings, true_owners(world.settings, records)
    assert len(owners) == MEMBERS + MEMBERS * CHUNKS * ROUNDS, "every name is of one round"
    for me in range(MEMBERS):
        watch = NeighbourWatch(settings, world.initial, Observer("neighbour", frozenset({me})))
        met = carried = 0
        for round in range(1, ROUNDS + 1):
            pieces = watch.follow(round, records).pieces
            named = [piece for piece in pieces if piece.sender < MEMBERS]
            assert me not in {owners[piece.sender] for piece in pieces}
            # Of a member a carrier has at most one of three chunks: there are five others.
            assert len({piece.sender for piece in named}) == len(named)
            sizes = [len(piece.coordinates) for piece in pieces]
            assert max(sizes) <= -(-settings.n // CHUNKS)
            carried, met = carried + len(named), met + len(pieces) - len(named)
        member = world.seats[me].member
        assert member is not None
        assert watch.model.tobytes() == member.model.tobytes()
        assert carried > 0
        # Its guests and its own virtual nodes have met so many at most, and some of them again.
        assert 0 < met <= (carried + CHUNKS * ROUNDS) * DEGREE
    assert np.isfinite(watch.model).all()
