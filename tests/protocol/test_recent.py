"""What a node counts goes on when what it remembers has reached its limit."""

from __future__ import annotations

from dataclasses import replace

from eris.protocol.round.client import MOST_LEFT_OUT
from eris.protocol.round.roles import MOST_REFUSALS
from support.machines import begin, federation, play, to_owner


def test_refusals_are_counted_beyond_what_is_remembered() -> None:
    nodes = federation()
    begin(nodes, 1)
    message = to_owner(nodes[2])
    stranger = replace(message, header=replace(message.header, federation=1))
    for _ in range(MOST_REFUSALS + 7):
        nodes[0].receive(stranger, 2)
    assert len(nodes[0].refused) == MOST_REFUSALS
    assert nodes[0].refused.count_of_all == MOST_REFUSALS + 7


def test_contributions_left_out_are_counted_beyond_what_is_remembered() -> None:
    nodes = federation()
    late = nodes[3].client
    for _ in range(MOST_LEFT_OUT):  # a long life
        late.left_out.append((0, (0, 0)))
    begin(nodes, 1)
    to_owner(nodes[3])  # made, and lost on its way
    play(nodes, 2, who=[0, 1, 2])
    assert len(late.left_out) == MOST_LEFT_OUT
    assert late.left_out.count_of_all > MOST_LEFT_OUT
