"""What a member reads that carries virtual nodes for others: chunks with and without a name.

What others hand out to it has their name on it; what its guests and its own virtual nodes receive
has names of one round. A name becomes a number (:func:`alias`), so that whoever reads knows it
again within the round, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from eris.core.compress import Encoding, decode_values
from eris.core.errors import ErisError, MalformedMessage
from eris.core.mixing import add_difference_at, settled
from eris.core.vectors import Vector
from eris.protocol.gossip.carried import EXCHANGE, HAND_BACK, HAND_OUT, Carrying
from eris.protocol.gossip.peer import Arrived, Piece, Sends, direction
from eris.protocol.gossip.roll import LABEL_BYTES, NAME_BYTES, Label, unpack_labels
from eris.protocol.messages import Share
from eris.protocol.settings import starting_model


def alias(nodes: int, name: bytes) -> int:
    """A number for a virtual node's name, none of a member's.

    >>> alias(5, bytes(16)), alias(5, b"n" * 16) == alias(5, b"n" * 16)
    (5, True)
    """
    return nodes + int.from_bytes(name[:6], "little")


def handed_out(share: Share) -> list[bytes]:
    """The names that a member hands out with a share; whoever has all messages knows owners."""
    if share.header.segment != HAND_OUT:
        return []
    return [share.names[at : at + NAME_BYTES] for at in range(0, len(share.names), LABEL_BYTES)]


class CarriedNeighbour:
    """What a member of a federation that carries virtual nodes gets to know from its messages.

    Its own model follows from the chunks that it handed out and those that came back; what its
    machine has not taken, because it was late or on another roll, counts here as if it had been.
    """

    names_clients: ClassVar[bool] = False
    sends: ClassVar[Sends] = "models"

    def __init__(self, carrying: Carrying, me: int, initial: Vector) -> None:
        self.carrying, self.me, self.settings = carrying, me, carrying.settings
        self.model = starting_model(self.settings.n, self.settings.initial, initial)

    def overhear(self, round: int, own: Sequence[Arrived], came: Sequence[Arrived]) -> list[Piece]:
        """Go through a round: from what was handed out, with what came back."""
        before, model, mine = self.model, self.model.copy(), set[bytes]()
        for one in own:
            if one.share.header.segment == HAND_OUT:
                for _, label, values in self.chunks(one.share):
                    model[self.carrying.places(round, label)] = values
                    mine.add(label[0])
        if not mine:
            return []  # away in this round
        pieces: dict[int, Piece] = {}
        edges: dict[tuple[bytes, bytes], tuple[Label, Vector]] = {}
        for one in came:
            try:
                found = list(self.chunks(one.share))
            except ErisError:
                continue  # as the member's machine does
            for near, label, values in found:
                if near in mine:
                    edges.setdefault((label[0], near), (label, values))
                if label[0] not in mine:
                    handed = one.share.header.segment == HAND_OUT
                    sender = one.source if handed else alias(self.settings.nodes, label[0])
                    key = alias(self.settings.nodes, label[0])
                    # A guest is met again under its name: it is known already.
                    pieces.setdefault(key, self._piece(round, sender, label, values, before))
        total, count = np.zeros(self.settings.n), np.zeros(self.settings.n, np.int64)
        for _, (label, values) in sorted(edges.items(), key=lambda item: item[0]):
            add_difference_at(total, count, self.carrying.places(round, label), values, model)
        self.model = settled(model, total / (count + 1))
        return list(pieces.values())

    def tapped(self, one: Arrived) -> Piece:
        """The first chunk of what a member sends another."""
        for _, label, values in self.chunks(one.share):
            handed = one.share.header.segment == HAND_OUT
            sender = one.source if handed else alias(self.settings.nodes, label[0])
            return self._piece(one.share.header.round, sender, label, values, self.model)
        raise MalformedMessage("share.names", "tell of no chunk")

    def _piece(
        self, round: int, sender: int, label: Label, values: Vector, before: Vector
    ) -> Piece:
        # Drawn with replacement, a coordinate may come twice; it has one value.
        places, first = np.unique(self.carrying.places(round, label), return_index=True)
        seen = values[first]
        return Piece(sender, 0, places, seen, direction(before[places], seen, self.settings))

    def chunks(self, share: Share) -> Iterator[tuple[bytes, Label, Vector]]:
        """(name that it was sent to, label, values) of all chunks in a share."""
        hop, names = share.header.segment, share.names
        if hop not in (HAND_OUT, EXCHANGE, HAND_BACK):
            return
        before = NAME_BYTES if hop == HAND_BACK else 0
        size, chunks = before + LABEL_BYTES, self.carrying.chunking.chunks
        parts = [names[at : at + size] for at in range(0, len(names), size)]
        labels = [one for part in parts for one in unpack_labels(part[before:], chunks, 1)]
        sizes = [self.carrying.chunking.size(share.header.round, chunk) for _, chunk in labels]
        values = decode_values(share.payload.encoded, Encoding.DENSE, sum(sizes))
        cut = np.split(values, np.cumsum(sizes)[:-1]) if sizes else []
        for part, label, piece in zip(parts, labels, cut, strict=True):
            yield part[:before], label, piece
