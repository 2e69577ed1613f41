"""The roll of a round: which virtual nodes there are, who carries them, and the graph over them.

A virtual node has a name of 128 random bits for one round, and says which chunk it has: that is its
label. Carriers announce the labels of those that they carry, members echo what they were told, and
what more than two thirds say is the roll. Were half enough, a carrier could tell two halves of the
members two things, tip both by its own echo, and have them go by two rolls: as long as less than a
third lie, they neither do that nor take anybody off.

The roll is in the order of names, and the graph over it follows from them, from the public seed and
the round. Names are random, and who draws them for its chunks does not know the others; a carrier
that announces last does, and can try names that it makes up.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from eris.core.errors import MalformedMessage
from eris.core.graphs import possible_degree, regular_graph

NAME_BYTES = 16
LABEL_BYTES = NAME_BYTES + 4
_UNHEARD = 0xFFFFFFFF

Label = tuple[bytes, int]
"""A virtual node's name and the number of its chunk."""
Echo = tuple[tuple[Label, ...] | None, ...]
"""By place: what a carrier announced, or None if it was not heard."""


def pack_labels(labels: Iterable[Label]) -> bytes:
    """Labels one after another: 16 bytes of name, and the chunk in four, little-endian."""
    return b"".join(name + chunk.to_bytes(4, "little") for name, chunk in labels)


def unpack_labels(data: bytes, chunks: int, most: int) -> tuple[Label, ...]:
    """What :func:`pack_labels` packed: at most so many, each name once and in their order.

    >>> labels = ((bytes(16), 2), (b"n" * 16, 0))
    >>> unpack_labels(pack_labels(labels), chunks=3, most=2) == labels
    True
    """
    count, rest = divmod(len(data), LABEL_BYTES)
    if rest or count > most:
        raise MalformedMessage("share.names", f"has {len(data)} bytes; at most {most} names here")
    found = tuple((name, chunk) for name, chunk in struct.iter_unpack("<16sI", data))
    names = [name for name, _ in found]
    if any(one >= other for one, other in pairwise(names)):
        raise MalformedMessage("share.names", "are not in order, or one comes twice")
    for _, chunk in found:
        if chunk >= chunks:
            raise MalformedMessage("share.names", f"has chunk {chunk}; there are {chunks}")
    return found


def pack_echo(echo: Echo) -> bytes:
    """What every place announced, each after the number of its labels."""
    return b"".join(
        struct.pack("<I", _UNHEARD)
        if said is None
        else struct.pack("<I", len(said)) + pack_labels(said)
        for said in echo
    )


def unpack_echo(data: bytes, places: int, chunks: int, most: int) -> Echo:
    """What :func:`pack_echo` packed, for so many places.

    >>> echo = (((b"n" * 16, 1),), None, ())
    >>> unpack_echo(pack_echo(echo), places=3, chunks=2, most=4) == echo
    True
    """
    found: list[tuple[Label, ...] | None] = []
    at = 0
    for _ in range(places):
        count = int.from_bytes(data[at : at + 4], "little")
        at += 4
        if count == _UNHEARD:
            found.append(None)
            continue
        if count > most:
            raise MalformedMessage("share.names", f"has {count} names of one; at most {most}")
        stop = at + count * LABEL_BYTES
        found.append(unpack_labels(data[at:stop], chunks, most))
        at = stop
    if at != len(data):
        raise MalformedMessage("share.names", f"has {len(data)} bytes; expected {at}")
    return tuple(found)


def most_say(echoes: Sequence[Echo]) -> dict[int, tuple[Label, ...]]:
    """By place: what more than two thirds of some echoes say that it announced.

    >>> most_say([(None, ((b"n" * 16, 0),)), (((b"m" * 16, 0),), ((b"n" * 16, 0),))])
    {1: ((b'nnnnnnnnnnnnnnnn', 0),)}
    """
    agreed = {}
    for place, told in enumerate(zip(*echoes, strict=True)):
        said, times = Counter(told).most_common(1)[0]
        if said is not None and 3 * times > 2 * len(echoes):
            agreed[place] = said
    return agreed


@dataclass(frozen=True)
class Roll:
    """The virtual nodes of a round in the order of their names, and their graph.

    >>> roll = Roll.of({0: [(b"b" * 16, 0)], 1: [(b"a" * 16, 1)], 2: []}, 1, seed=3, round=1)
    >>> roll.carriers[b"b" * 16], roll.neighbours[b"b" * 16] == (b"a" * 16,)
    ((0, 0), True)
    """

    carriers: Mapping[bytes, tuple[int, int]]
    """By name: the carrier's place, and the chunk."""
    degree: int
    seed: int
    round: int

    @classmethod
    def of(
        cls, announced: Mapping[int, Sequence[Label]], degree: int, seed: int, round: int
    ) -> Roll:
        """Of what carriers announced; a name that several announce is nobody's."""
        times = Counter(name for labels in announced.values() for name, _ in labels)
        listed = sorted(
            (name, place, chunk)
            for place, labels in announced.items()
            for name, chunk in labels
            if times[name] == 1
        )
        carriers = {name: (place, chunk) for name, place, chunk in listed}
        return cls(carriers, degree, seed, round)

    @cached_property
    def neighbours(self) -> Mapping[bytes, tuple[bytes, ...]]:
        """By name: those that a virtual node exchanges with; one alone has none."""
        names = list(self.carriers)
        if len(names) < 2:
            return dict.fromkeys(names, ())
        # The names are in the seed: whoever draws them does not know the graph yet.
        text = struct.pack("<QQ", self.seed, self.round) + b"".join(names)
        seed = int.from_bytes(hashlib.sha256(text).digest()[:8], "little")
        degree = possible_degree(len(names), self.degree)
        graph = regular_graph(len(names), degree, seed, self.round)
        return {
            name: tuple(names[other] for other in graph.neighbours[node])
            for node, name in enumerate(names)
        }
