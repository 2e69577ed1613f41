"""Members that carry each other's virtual nodes, moved by hand: names, limits, who is missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from eris.core.compress import encode_values
from eris.core.errors import ErisError, InvalidSetting
from eris.methods.shatter import Shatter
from eris.protocol.codec import encode
from eris.protocol.gossip.carried import (
    ANNOUNCE,
    ECHO,
    EXCHANGE,
    HAND_BACK,
    HAND_OUT,
    HOPS,
    CarriedNode,
)
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.gossip.roll import Label, Roll, pack_echo, pack_labels
from eris.protocol.messages import Outgoing, Payload, Share

N, MEMBERS, K = 30, 5, 3
METHOD = Shatter(virtual_nodes=K, degree=2)
SETTINGS = GossipSettings(N, MEMBERS, "shatter", METHOD.parameters, seed=3, learning_rate=1.0)
Change = Callable[[int, Outgoing], Outgoing | None]


def members() -> list[CarriedNode]:
    nodes = METHOD.members(SETTINGS, os.urandom)
    made = [nodes.build(me, np.zeros(N, np.float32)) for me in range(MEMBERS)]
    return [one for one in made if isinstance(one, CarriedNode)]


def unchanged(sender: int, out: Outgoing) -> Outgoing | None:
    return out


def hop(nodes: Sequence[CarriedNode], said: Sequence[Sequence[Outgoing]], change: Change) -> None:
    """Carry what was said, as far as there is something to carry."""
    for sender, out in enumerate(said):
        for one in (change(sender, each) for each in out):
            for receiver in () if one is None else one.to:
                assert one is not None
                assert isinstance(one.message, Share)
                nodes[receiver].receive(one.message, sender)


def run(
    nodes: Sequence[CarriedNode], until: int = HOPS, change: Change = unchanged
) -> list[list[Outgoing]]:
    """A round up to a hop: what is said in it. Member i holds i after its local step."""
    said = [node.begin(1, np.full(N, -me, np.float32)) for me, node in enumerate(nodes)]
    for step in range(until):
        hop(nodes, said, change)
        said = [node.turn(step) for node in nodes]
    return said


def empty() -> Payload:
    return Payload(encode_values(np.empty(0, np.float32)))


def test_everybody_hears_from_everybody_and_values_are_means_of_members() -> None:
    nodes = members()
    run(nodes)
    for node in nodes:
        # Three virtual nodes meet two others each: means of one to seven of the numbers 0 to 4.
        assert np.allclose(420 * node.model, (420 * node.model).round(), atol=1e-2)
        assert 0 <= node.model.min() <= node.model.max() <= 4
        assert not node._own, "a name is forgotten with its round"
        assert not node._guests
    mixed = [value for me, node in enumerate(nodes) for value in node.model if value != me]
    assert len(mixed) > MEMBERS * N // 4, "a coordinate is its member's own where nobody sent it"


def test_what_one_carrier_announces_of_another_is_nobodys() -> None:
    nodes, stolen = members(), list[Label]()

    def steal(sender: int, out: Outgoing) -> Outgoing | None:
        message = out.message
        assert isinstance(message, Share)
        if message.header.segment == ANNOUNCE and sender == 0:
            stolen[:] = [g.label for g in nodes[1]._guests.values()][:1]
            mine = [guest.label for guest in nodes[0]._guests.values()]
            return replace(out, message=replace(message, names=pack_labels(sorted(mine + stolen))))
        return out

    run(nodes, EXCHANGE, steal)
    assert stolen
    for node in nodes[1:]:
        assert stolen[0][0] not in node._roll.carriers
        assert len(node._roll.carriers) == MEMBERS * K - 1


def test_less_than_a_third_cannot_take_a_carrier_off_the_roll() -> None:
    nodes = members()

    def deny(sender: int, out: Outgoing) -> Outgoing | None:
        message = out.message
        assert isinstance(message, Share)
        if message.header.segment == ECHO and sender < 1:
            silence = pack_echo((None,) * MEMBERS)
            return replace(out, message=replace(message, names=silence))
        return out

    run(nodes, EXCHANGE, deny)
    assert all(len(node._roll.carriers) == MEMBERS * K for node in nodes)


def test_a_carrier_that_tells_two_halves_two_things_cannot_have_them_go_by_two_rolls() -> None:
    """Four are honest: two are told one thing, two another, and each side that its own is right."""
    nodes = members()
    told = [pack_labels([(letter * 16, 0)]) for letter in (b"a", b"b")]
    heard: list[list[bytes]] = []

    def split(sender: int, out: Outgoing) -> Outgoing | None:
        message = out.message
        assert isinstance(message, Share)
        step = message.header.segment
        if sender != 4 or step not in (ANNOUNCE, ECHO):
            return out
        for side, names in enumerate(told):
            if step == ECHO:
                labels = [nodes[4]._announced.get(place) for place in range(4)]
                names = pack_echo((*labels, ((b"ab"[side : side + 1] * 16, 0),)))
            for receiver in (2 * side, 2 * side + 1):
                nodes[receiver].receive(replace(message, names=names), 4)
                heard.append([names])
        return None

    run(nodes, EXCHANGE, split)
    assert len(heard) == 8
    assert len({tuple(node._roll.carriers.items()) for node in nodes[:4]}) == 1
    honest = {carrier for carrier, _ in nodes[0]._roll.carriers.values()}
    assert honest == {0, 1, 2, 3}


def marked() -> tuple[int, list[CarriedNode]] | None:
    """A round in which member 0 marks what it sends to one name, if a carrier has one such name
    alone; and whose that was."""
    nodes, met, own = members(), list[bytes](), list[set[bytes]]()

    def mark(sender: int, out: Outgoing) -> Outgoing | None:
        message = out.message
        assert isinstance(message, Share)
        if message.header.segment != EXCHANGE or sender != 0 or met:
            return out
        own[:] = [{*node._own} for node in nodes]
        mine, theirs = {*nodes[0]._carried()}, nodes[out.to[0]]
        around = [name for name in theirs._carried() if mine & {*theirs._around(name)}]
        if len(around) != 1:
            return out
        met.extend(around)
        loud = np.full(message.payload.encoded.count, 1e6, np.float32)
        return replace(out, message=replace(message, payload=Payload(encode_values(loud))))

    run(nodes, HOPS, mark)
    return next(((me, nodes) for me, names in enumerate(own) if {*met} & names), None)


def test_a_mark_tells_whose_a_name_was() -> None:
    """What the threat model says of a carrier that lies: the owner mixes the mark, nobody else."""
    while (found := marked()) is None:
        pass  # names are drawn: sooner or later a carrier has one neighbour of it alone
    owner, nodes = found
    assert [me for me, node in enumerate(nodes) if node.model.max() > 1e4] == [owner]


def test_the_largest_message_is_as_large_as_it_may_be() -> None:
    """Four members, many virtual nodes of many neighbours: names take more than values."""
    method = Shatter(virtual_nodes=64, degree=128)
    agreed = GossipSettings(64, 4, "shatter", method.parameters, seed=3)
    made = method.members(agreed, os.urandom)
    nodes = [made.build(me, np.zeros(64, np.float32)) for me in range(4)]
    sizes, said = list[int](), [node.begin(1, None) for node in nodes]
    for step in range(HOPS):
        for sender, out in enumerate(said):
            for one in out:
                sizes.append(len(encode(one.message)))
                for receiver in one.to:
                    assert isinstance(one.message, Share)
                    nodes[receiver].receive(one.message, sender)
        said = [node.turn(step) for node in nodes]
    most = 4 * method.largest(agreed) + 256
    assert most / 2 < max(sizes) <= most


def test_who_misses_an_announcement_has_it_from_the_echoes() -> None:
    nodes = members()

    def torn(sender: int, out: Outgoing) -> Outgoing | None:
        message = out.message
        assert isinstance(message, Share)
        if message.header.segment == ANNOUNCE and sender == 4:
            return replace(out, to=(0, 1, 2))
        return out

    run(nodes, EXCHANGE, torn)
    assert len({tuple(node._roll.carriers.items()) for node in nodes}) == 1
    assert len(nodes[3]._roll.carriers) == MEMBERS * K


def test_a_member_that_falls_silent_is_not_awaited_in_later_hops() -> None:
    nodes = members()

    def silent(sender: int, out: Outgoing) -> Outgoing | None:
        return None if sender == 4 else out

    said = [node.begin(1, np.full(N, -me, np.float32)) for me, node in enumerate(nodes)]
    for step in range(HOPS):
        hop(nodes, said, silent)
        awaited = {*nodes[0].awaited(step)}
        assert awaited == ({4} if step == HAND_OUT else set())
        said = [node.turn(step) for node in nodes]
    mixed = [value for me, node in enumerate(nodes[:4]) for value in node.model if value != me]
    assert mixed, "what it did not carry is mixed"


FORGED: list[tuple[int, Callable[[Share], Share], str]] = [
    (HAND_OUT, lambda one: replace(one, names=b"x"), "at most 1 names"),
    (HAND_OUT, lambda one: replace(one, names=pack_labels([(b"n" * 16, K)])), "there are 3"),
    (HAND_OUT, lambda one: replace(
        one, names=pack_labels([(b"m" * 16, 0), (b"n" * 16, 1)])), "at most 1 names"),
    (HAND_OUT, lambda one: replace(
        one, names=pack_labels([(b"n" * 16, 0)]),
        payload=Payload(encode_values(np.full(N // K, np.nan, np.float32)))), "not finite"),
    (HAND_OUT, lambda one: replace(one, header=replace(one.header, shard=1)), "in its names"),
    (HAND_OUT, lambda one: replace(one, header=replace(one.header, round=2)), "is of round 2"),
    (HAND_OUT, lambda one: replace(one, header=replace(one.header, epoch=9)), "is of epoch 9"),
    (HAND_OUT, lambda one: replace(one, header=replace(one.header, segment=HOPS)), "is of step 5"),
    (HAND_OUT, lambda one: replace(one, header=replace(one.header, sender=2)), "claims to be"),
    (ANNOUNCE, lambda one: replace(one, names=2 * pack_labels([(b"n" * 16, 0)])), "comes twice"),
    (ANNOUNCE, lambda one: replace(
        one, names=pack_labels([(bytes(15) + bytes([i]), 0) for i in range(15)])), "at most 14"),
    (ECHO, lambda one: replace(one, names=one.names[:-1]), "share.names"),
    (ECHO, lambda one: replace(one, names=one.names + b"x"), "expected"),
    (ECHO, lambda one: replace(one, names=b"\x00\x00\x00\x01" * MEMBERS), "of one; at most 14"),
    (EXCHANGE, lambda one: replace(one, payload=empty()), "expected"),
    (HAND_BACK, lambda one: replace(one, names=bytes(36 * 5), payload=empty()), "at most 2 edges"),
]  # fmt: skip


@pytest.mark.parametrize(("step", "forge", "why"), FORGED)
def test_what_is_no_message_of_its_hop_is_refused_and_changes_nothing(
    step: int, forge: Callable[[Share], Share], why: str
) -> None:
    nodes = members()
    said = run(nodes, step)
    sender, share = next(
        (sender, one.message)
        for sender, out in enumerate(said)
        for one in out
        if 0 in one.to and isinstance(one.message, Share)
    )
    with pytest.raises(ErisError, match=why):
        nodes[0].receive(forge(share), sender)
    nodes[0].receive(share, sender)
    with pytest.raises(ErisError, match="has already sent this"):
        nodes[0].receive(share, sender)


def test_chunks_that_nobody_asked_for_are_not_mixed() -> None:
    nodes = members()

    def invent(sender: int, out: Outgoing) -> Outgoing | None:
        message = out.message
        assert isinstance(message, Share)
        if message.header.segment == HAND_BACK:
            count = message.payload.encoded.count // (N // K)
            names = b"".join(os.urandom(32) + bytes(4) for _ in range(count))
            return replace(out, message=replace(message, names=names))
        return out

    run(nodes, HOPS, invent)
    assert [{*node.model.tolist()} for node in nodes] == [{float(me)} for me in range(MEMBERS)]


def test_names_decide_the_graph_and_one_alone_has_no_neighbour() -> None:
    announced = {place: [(bytes([place, i]) * 8, i) for i in range(K)] for place in range(4)}
    one = Roll.of(announced, 2, seed=1, round=1)
    assert {len(around) for around in one.neighbours.values()} == {2}
    assert Roll.of(announced, 2, seed=1, round=2).neighbours != one.neighbours
    other = {**announced, 0: [(b"other name here!", 0), *announced[0][1:]]}
    assert Roll.of(other, 2, seed=1, round=1).neighbours != one.neighbours
    assert dict(Roll.of({0: announced[0][:1]}, 2, seed=1, round=1).neighbours) == {bytes(16): ()}
    # Three names cannot have three neighbours each, nor one each.
    few = Roll.of({0: announced[0]}, 3, seed=1, round=1)
    assert {len(around) for around in few.neighbours.values()} == {2}


def test_carriers_are_others_each_as_often_as_any_other() -> None:
    carrying = Shatter(virtual_nodes=6, degree=2).carrying(SETTINGS)
    met = np.zeros((MEMBERS, 6), int)
    for _ in range(400):
        dealt = carrying.deal(os.urandom, me=1)
        assert [chunk for _, (_, chunk) in dealt] == list(range(6))
        carriers = [carrier for carrier, _ in dealt]
        assert max(map(carriers.count, carriers)) == 2 == carrying.of_one
        for carrier, (_, chunk) in dealt:
            met[carrier, chunk] += 1
    assert not met[1].any(), "nobody carries its own"
    # Binomial(400, 1/4): seven standard deviations around 100.
    assert met[[0, 2, 3, 4]].min() > 39
    assert met.max() < 161


def test_too_few_members_are_refused_in_one_line() -> None:
    with pytest.raises(InvalidSetting) as refused:
        METHOD.members(replace(SETTINGS, nodes=3), os.urandom)
    assert str(refused.value) == (
        "the number of members is 3; expected at least 4: with fewer whoever gets a chunk knows "
        "whose it is"
    )
    with pytest.raises(InvalidSetting, match="degree is 50; expected 1 to 14 for 15 nodes"):
        replace(METHOD, degree=50).members(SETTINGS, os.urandom)
