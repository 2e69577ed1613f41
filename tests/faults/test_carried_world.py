"""Members that carry each other's virtual nodes: what they compute, and bugs put in on purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from eris.core import mixing
from eris.core.graphs import Graph
from eris.core.vectors import Vector
from eris.methods.shatter import Shatter
from eris.protocol.gossip import carried, roll
from eris.protocol.gossip.carried import Bundle, CarriedNode, Carrying, Draw
from eris.protocol.gossip.member import GossipMember
from eris.protocol.gossip.roll import Label
from eris.protocol.gossip.virtual import PHASES, RealNode, Shattering, VirtualNode
from eris.protocol.messages import Outgoing, Share
from eris.testing import LawBroken
from eris.testing.gossip_world import METHODS, GossipWorld
from eris.testing.shape import Shape
from eris.testing.soak import OPEN
from eris.testing.weather import FORGETTING

# -- where nothing fails, members compute what the simulator's machines do -------------------------


@dataclass(frozen=True)
class Drawn:
    """Who carries what in a round, as members have drawn it, in the simulator's numbers: virtual
    node i of the roll is member N + i."""

    nodes: int
    per_node: int
    owners: Sequence[int]
    chunks: Sequence[int]

    def owner(self, virtual: int) -> int:
        return self.owners[virtual - self.nodes]

    def chunk(self, virtual: int) -> int:
        return self.chunks[virtual - self.nodes]

    def virtual(self, node: int, chunk: int) -> int:
        return self.nodes + list(zip(self.owners, self.chunks, strict=True)).index((node, chunk))


@dataclass(frozen=True)
class OnRoll(Shattering):
    """The simulator's Shatter with the graph of a round's roll."""

    drawn: Graph

    def graph(self, round: int) -> Graph:
        return self.drawn


class Watched(GossipWorld):
    """A world that keeps what its members knew at the end of every round."""

    def moved(self, seat: Any, member: GossipMember) -> None:
        super().moved(seat, member)
        node = member._peer
        if isinstance(node, CarriedNode) and node._roll.carriers:
            rounds = self.__dict__.setdefault("known", {})
            rounds.setdefault(node._turns.round, {})[member.me] = (node._roll, {*node._own})


def simulated(
    world: Watched, models: Mapping[int, Vector], hosts: Sequence[int], round: int
) -> dict[int, Vector]:
    """A round of the simulator's real and virtual nodes, for the names that members have drawn."""
    known, method = world.__dict__["known"][round], METHODS["shatter"]
    assert isinstance(method, Shatter)
    (rolls,) = ({tuple(one.carriers.items()) for one, _ in known.values()},)
    assert len(rolls) == 1, "all have one roll"
    on_roll, count = known[0][0], len(hosts)
    names = list(on_roll.carriers)
    owners = [next(me for me, (_, own) in known.items() if name in own) for name in names]
    chunks = [on_roll.carriers[name][1] for name in names]
    around = [tuple(map(names.index, on_roll.neighbours[name])) for name in names]
    settings = world.settings.in_view(count, 1)
    carrying = method.carrying(settings)
    parts = OnRoll(
        settings, carrying.chunking, method.degree, True,
        Drawn(count, method.virtual_nodes, owners, chunks),  # type: ignore[arg-type]
        Graph(tuple(around)),
    )  # fmt: skip
    peers: list[RealNode | VirtualNode] = [RealNode(parts, me, models[me]) for me in range(count)]
    peers += [VirtualNode(parts, count + number) for number in range(len(names))]
    updates = [world.update(host, models[me], round) for me, host in enumerate(hosts)]
    said = [
        peer.begin(round, updates[number] if number < count else None)
        for number, peer in enumerate(peers)
    ]
    for phase in range(PHASES):
        for number, out in enumerate(said):
            for one in out:
                for receiver in one.to:
                    assert isinstance(one.message, Share)
                    peers[receiver].receive(one.message, number)
        said = [peer.turn(phase) for peer in peers]
    return {me: peers[me].model for me in range(count)}


def test_without_trouble_members_compute_what_the_simulator_computes() -> None:
    world = Watched(4, shape=Shape(members=6, rounds=4, gossip="shatter"), kinds=frozenset())
    world.run()
    seats = [world.seats[number] for number in sorted(world.seats)]
    models = dict.fromkeys(range(6), world.initial)
    for round in range(1, 5):
        models = simulated(world, models, [seat.number for seat in seats], round)
    for number, seat in enumerate(seats):
        assert seat.member is not None
        assert seat.member.model.tobytes() == models[number].tobytes()
    names = [name for known in world.__dict__["known"].values() for name in known[0][0].carriers]
    assert len({*names}) == 4 * 6 * 3, "every name is of one round"


# -- bugs put in on purpose are caught -------------------------------------------------------------


def broken(law: str) -> bool:
    """Whether one of some worlds breaks a law."""
    for seed in range(5, 65, 6):
        world = GossipWorld(seed, shape=Shape.gossiping(seed), kinds=OPEN - {*FORGETTING})
        try:
            world.run()
        except LawBroken as found:
            if law in str(found):
                return True
    return False


def lasting(self: Carrying, draw: Draw, me: int) -> list[tuple[int, Label]]:
    """Names that say whose they are, for a whole training."""
    count = self.chunking.chunks
    others = [one for one in range(self.settings.nodes) if one != me]
    return [(others[c % len(others)], (bytes([me, c]) * 8, c)) for c in range(count)]


def trusting(self: Carrying, draw: Draw, me: int) -> list[tuple[int, Label]]:
    """One carrier for all."""
    carrier = (me + 1) % self.settings.nodes
    return [(carrier, (draw(16), chunk)) for chunk in range(self.chunking.chunks)]


def careless(self: Carrying, draw: Draw, me: int) -> list[tuple[int, Label]]:
    """A chunk is forgotten."""
    return deal(self, draw, me)[1:]


deal = Carrying.deal


@pytest.mark.parametrize(
    ("bug", "law"),
    [
        (lasting, "a name is handed out again"),
        (trusting, "carries too much of it"),
        (careless, "its chunks are not handed out once each"),
    ],
)
def test_a_bug_in_the_deal_is_found(bug: Any, law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Carrying, "deal", bug)
    assert broken(law)


def test_guests_that_stay_for_another_round(monkeypatch: pytest.MonkeyPatch) -> None:
    forget = CarriedNode._forget

    def keeping(self: CarriedNode) -> None:
        guests = getattr(self, "_guests", {})
        forget(self)
        self._guests = dict(guests)

    monkeypatch.setattr(CarriedNode, "_forget", keeping)
    assert broken("something else than what follows")


def test_a_roll_that_one_member_makes_up_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(echoes: Sequence[roll.Echo]) -> dict[int, tuple[Label, ...]]:
        return {place: said for place, said in enumerate(echoes[0]) if said is not None}

    monkeypatch.setattr(carried, "most_say", own)
    assert broken("something else than what follows")


def test_chunks_that_a_carrier_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    hand_back = CarriedNode._hand_back

    def averaging(self: CarriedNode, came: Mapping[int, Bundle]) -> list[Outgoing]:
        halved = {
            place: Bundle(one.labels, tuple(values / np.float32(2) for values in one.values))
            for place, one in came.items()
        }
        return hand_back(self, halved)

    monkeypatch.setattr(CarriedNode, "_hand_back", averaging)
    assert broken("something else than what follows")


def test_a_chunk_that_counts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    add = mixing.add_difference_at
    monkeypatch.setattr(carried, "add_difference_at", lambda *given: [add(*given), add(*given)])
    assert broken("off what it sent")


def test_chunks_of_strangers_that_are_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a carrier says is taken, also where its roll is another one."""
    monkeypatch.setattr(CarriedNode, "_around", lambda self, name: tuple(self._roll.carriers))
    assert broken("something else than what follows")


def test_a_carrier_that_dies_costs_its_chunks_of_the_round_alone() -> None:
    """Of six members one stops in the middle of announcing: the others have one roll."""

    class Torn(Watched):
        def utter(self, seat: Any, record: Any, message: Any) -> None:
            dies = isinstance(message, Share) and message.header.segment == carried.ANNOUNCE
            if dies and message.header.round == 3 and seat.member.me == 5:
                record.receivers = record.receivers[:2]
                super().utter(seat, record, message)
                seat.stop()
            else:
                super().utter(seat, record, message)

    world = Torn(4, shape=Shape(members=6, rounds=8, gossip="shatter"), kinds=frozenset())
    world.run_until(20.0)
    known = world.__dict__["known"][3]
    rolls = {tuple(one.carriers.items()) for me, (one, _) in known.items() if me != 5}
    assert len(rolls) == 1
    (only,) = rolls
    carriers = {carrier for _, (carrier, _) in only}
    assert carriers == {0, 1, 2, 3, 4}, "what the dead one carries is nowhere, all else is there"
