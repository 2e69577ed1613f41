"""What must hold where members carry each other's virtual nodes, whatever fails.

The oracle goes along as in :mod:`~eris.testing.gossip_laws`, in five hops: from what reached a
member it says, byte for byte, what the member must tell whom in the next one, and in the end what
its model must be. And of the names: none is handed out twice in a whole training, nobody carries
its own, nobody gets more of one member than its part, and every value that is mixed is the one that
the chunk's owner has handed out in this round.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from eris.core.chunks import Chunking
from eris.core.graphs import possible_degree, regular_graph
from eris.core.vectors import Vector
from eris.methods.method import GossipMethod
from eris.methods.shatter import Shatter
from eris.protocol.gossip.carried import ANNOUNCE, ECHO, EXCHANGE, HAND_BACK, HAND_OUT
from eris.protocol.gossip.member import AHEAD, MOST_EARLY, GossipMember
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.messages import Header, Message, Outgoing, Share
from eris.protocol.round.ending import Phase
from eris.protocol.view import View
from eris.testing.gossip_laws import CLOSE, TO_ALL, Exact, GossipWitness, Shadow
from eris.testing.sum_laws import LawBroken

Labelled = tuple[bytes, int]
"""A name and its chunk."""
_NAME, _LABEL, _EDGE = 16, 20, 36
"""Bytes of a name, of it with its chunk, and of an edge: a name and what it met."""


@dataclass
class CarriedCourse:
    """What a member knows of its round, as the oracle has it."""

    guests: dict[bytes, tuple[int, int, bytes]] = field(default_factory=dict)
    """By name: the owner, the chunk, its values."""
    told: dict[int, list[Labelled] | None] = field(default_factory=dict)
    """By member: what it announced; None: not heard."""
    roll: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """By name: carrier and chunk."""
    around: dict[bytes, list[bytes]] = field(default_factory=dict)


class CarriedWitness(GossipWitness):
    """Checks the laws of a run of members that carry each other's virtual nodes."""

    method: Shatter

    def __init__(self, settings: GossipSettings, method: GossipMethod, initial: Vector) -> None:
        super().__init__(settings, method, initial)
        self._courses: dict[int, CarriedCourse] = {}
        self._dealt: dict[tuple[int, int], dict[bytes, tuple[int, int]]] = {}
        """By member and round: its names, with carrier and chunk."""
        self._owners: dict[bytes, tuple[int, int, bytes]] = {}
        """By name, of all rounds: owner, round and values."""
        self._lied: set[int] = set()
        """Rounds about which somebody was told what is not true."""

    @property
    def _phases(self) -> int:
        return HAND_BACK + 1

    @property
    def _chunks(self) -> Chunking:
        kind, k = self.method.chunking, self.method.virtual_nodes
        return Chunking(k, kind, self.settings.n, self.settings.seed)

    def _of_one(self, view: View) -> int:
        return -(-self.method.virtual_nodes // (len(view.clients) - 1))

    @property
    def _most(self) -> int:
        return 2 * self.method.virtual_nodes + 8

    # -- messages -----------------------------------------------------------------------------

    def _neighbours(self, view: View, header: Header, me: int) -> set[int]:
        return {*view.clients} - {me}

    def _said_to(self, said: Outgoing) -> tuple[int, ...]:
        step = said.message.header.segment
        return (TO_ALL,) if step in (ANNOUNCE, ECHO) else said.to

    def received(self, message: Message, source: int, member: GossipMember) -> None:
        """A message reaches a member that is up; what it need not keep it does not have."""
        if isinstance(message, Share):
            header, kept = message.header, member._early.get(source, {})
            early = header.round > member.round or (
                header.round == member.round and member.phase is not Phase.EXCHANGING
            )
            key = (header.round, *header.key)
            if early and (key in kept or len(kept) >= MOST_EARLY):
                self.saw["a share is not kept"] += key not in kept
                return
            here = self._shadow(member).here.get((header.round, header.segment), {})
            if source in here and not self._fits_now(here[source], source, member):
                del here[source]
        super().received(message, source, member)

    def _fits_now(self, share: Share, source: int, member: GossipMember) -> bool:
        """Whether what came is of the round's view: another may have been made since."""
        return source not in self.liars or self._sound(share, source, member)

    def _is_lie(self, share: Share, liar: int) -> bool:
        said = self.said.get((liar, share.header.round, share.header.segment), {}).values()
        return share.names not in [one.names for one in said]

    def _sound(self, share: Share, source: int, member: GossipMember) -> bool:
        header, view = share.header, self.view_of(share.header.round)
        right = (header.federation, header.epoch) == (self.settings.fingerprint, view.epoch)
        if not right or header.sender != source or header.shard or header.segment > HAND_BACK:
            return False
        if not 1 <= header.round <= min(member.rounds, member.round + AHEAD):
            return False
        if source == member.me or not {source, member.me} <= view.client_set:
            return False
        try:
            return self._fits(share, view)
        except (ValueError, IndexError, struct.error):
            return False

    def _fits(self, share: Share, view: View) -> bool:
        """Whether names and values are such as a hop has."""
        hop, names = share.header.segment, share.names
        count = 0
        if hop == ECHO:
            told = _echoed(names, len(view.clients))
            return not share.payload.encoded.count and all(
                labels is None or self._in_order(labels, self._most) for labels in told
            )
        if hop == HAND_BACK:
            edges = [label for _, label in _edges(names)]
            if len(edges) > self._of_one(view) * max(2, self._degree(view)):
                return False
            if any(chunk >= self.method.virtual_nodes for _, chunk in edges):
                return False
            labels = edges
        else:
            labels = _labels(names)
            if not self._in_order(labels, self._of_one(view) if hop == HAND_OUT else self._most):
                return False
            if hop == HAND_OUT and len({chunk for _, chunk in labels}) < len(labels):
                return False
        if hop != ANNOUNCE:
            count = sum(self._chunks.size(share.header.round, chunk) for _, chunk in labels)
        encoded = share.payload.encoded
        values = np.frombuffer(encoded.data, "<f4")
        return len(values) == encoded.count == count and bool(np.isfinite(values).all())

    def _degree(self, view: View) -> int:
        return possible_degree(len(view.clients) * self.method.virtual_nodes, self.method.degree)

    def _in_order(self, labels: list[Labelled], most: int) -> bool:
        names = [name for name, _ in labels]
        known = all(chunk < self.method.virtual_nodes for _, chunk in labels)
        return known and len(names) <= most and names == sorted(set(names))

    # -- a round ------------------------------------------------------------------------------

    def _stepped(self, model: Exact, update: Vector, view: View, round: int, me: int) -> Exact:
        return model - self.settings.learning_rate * update.astype(np.float64)

    def _turn(self, member: GossipMember, shadow: Shadow) -> None:
        round, step, me = shadow.begun, shadow.step, member.me
        view, came = self.view_of(round), shadow.here.pop((round, step), {})
        came = {one: share for one, share in came.items() if self._fits_now(share, one, member)}
        if step == HAND_OUT:
            self._courses[me] = CarriedCourse()
            self._check_dealt(shadow, view, me)
        course, others = self._courses[me], {*view.clients} - {me}
        wanted = others
        if step == HAND_OUT:
            self._welcome(course, came, view, round)
            labels = sorted((name, chunk) for name, (_, chunk, _) in course.guests.items())
            course.told = {me: labels}
            self._expect(me, round, ANNOUNCE, {TO_ALL: (_packed(labels), b"")})
        elif step == ANNOUNCE:
            course.told |= {one: _labels(share.names) for one, share in came.items()}
            echo = b"".join(_heard(course.told.get(one)) for one in view.clients)
            self._expect(me, round, ECHO, {TO_ALL: (echo, b"")})
        elif step == ECHO:
            self._call(course, came, view, round)
            self._expect(me, round, EXCHANGE, self._exchanged(course, me))
        elif step == EXCHANGE:
            wanted = {
                course.roll[far][0]
                for name in self._here(course, me)
                for far in course.around[name]
            } - {me}
            self._expect(me, round, HAND_BACK, self._returned(course, came, me))
        else:
            dealt = self._dealt[me, round]
            wanted = {dealt[name][0] for name in dealt if course.roll.get(name) == dealt[name]}
            self._mix(shadow, came, me)
        shadow.step += 1
        missing = frozenset(wanted - came.keys())
        if any(self._is_lie(came[liar], liar) for liar in self.liars & came.keys()):
            self._lied.add(round)
        if round in self._lied:  # rolls differ, also if it was told long ago
            self.missed.pop(round, None)
        else:
            self.missed.setdefault(round, []).append((me, missing))
        if missing:
            self.saw["a share is missing at its deadline"] += 1

    def _expect(
        self, me: int, round: int, hop: int, wanted: Mapping[int, tuple[bytes, bytes]]
    ) -> None:
        """A member has said what it must, and nothing else."""
        told = self.said.get((me, round, hop), {})
        said = {to: (one.names, one.payload.encoded.data) for (_, to), one in told.items()}
        if said != wanted:
            raise LawBroken(
                f"member {me}, round {round}, step {hop}: it told {sorted(said)} something else "
                f"than what follows, for {sorted(wanted)}, from what it was told"
            )

    def _check_dealt(self, shadow: Shadow, view: View, me: int) -> None:
        """The own chunks are with others, each once, under names that nobody had before."""
        round, dealt = shadow.begun, dict[bytes, tuple[int, int]]()
        where = f"member {me}, round {round}"
        told = self.said.get((me, round, HAND_OUT), {})
        if {to for _, to in told} != {*view.clients} - {me}:
            raise LawBroken(f"{where}: somebody is handed nothing, not even that")
        for (_, to), share in told.items():
            labels = _labels(share.names)
            if len(labels) > self._of_one(view):
                raise LawBroken(f"{where}: member {to} carries too much of it")
            values = np.frombuffer(share.payload.encoded.data, "<f4")
            for name, chunk in labels:
                if name in self._owners:
                    raise LawBroken(f"{where}: a name is handed out again")
                places = self._chunks.places(round, chunk, int.from_bytes(name[:8], "little"))
                mine, values = values[: len(places)], values[len(places) :]
                if not np.allclose(mine, shadow.model[places], rtol=1e-5, atol=CLOSE):
                    raise LawBroken(f"{where}: a chunk is not of its model")
                self._owners[name] = me, round, mine.tobytes()
                dealt[name] = to, chunk
        if sorted(chunk for _, chunk in dealt.values()) != [*range(self.method.virtual_nodes)]:
            raise LawBroken(f"{where}: its chunks are not handed out once each")
        self._dealt[me, round] = dealt

    def _welcome(
        self, course: CarriedCourse, came: Mapping[int, Share], view: View, round: int
    ) -> None:
        for owner in (one for one in view.clients if one in came):
            data, at = came[owner].payload.encoded.data, 0
            for name, chunk in _labels(came[owner].names):
                size = 4 * self._chunks.size(round, chunk)
                if len(course.guests) < self._most:
                    course.guests.setdefault(name, (owner, chunk, bytes(data[at : at + size])))
                at += size

    def _call(
        self, course: CarriedCourse, came: Mapping[int, Share], view: View, round: int
    ) -> None:
        """What most say is the roll; a name that comes twice is on none."""
        echoes = [[course.told.get(one) for one in view.clients]]
        echoes += [_echoed(share.names, len(view.clients)) for share in came.values()]
        listed: list[tuple[bytes, int, int]] = []
        for place, carrier in enumerate(view.clients):
            votes = [echo[place] for echo in echoes]
            for said in votes:
                if said is not None and 3 * votes.count(said) > 2 * len(votes):
                    listed += [(name, carrier, chunk) for name, chunk in said]
                    break
            else:
                self.saw["a carrier is not on the roll"] += 1
        names = [name for name, _, _ in listed]
        self.saw["a name is announced twice"] += len(names) - len(set(names))
        once = sorted(one for one in listed if names.count(one[0]) == 1)
        course.roll = {name: (carrier, chunk) for name, carrier, chunk in once}
        course.around = {name: [] for name in course.roll}
        names = list(course.roll)
        if len(names) > 1:
            text = struct.pack("<QQ", self.settings.seed, round) + b"".join(names)
            seed = int.from_bytes(hashlib.sha256(text).digest()[:8], "little")
            degree = possible_degree(len(names), self._degree(view))
            graph = regular_graph(len(names), degree, seed, round)
            course.around = {
                name: [names[other] for other in graph.neighbours[at]]
                for at, name in enumerate(names)
            }

    def _here(self, course: CarriedCourse, me: int) -> list[bytes]:
        """What is carried here and on the roll, in order."""
        return sorted(
            name
            for name, (_, chunk, _) in course.guests.items()
            if course.roll.get(name) == (me, chunk)
        )

    def _exchanged(self, course: CarriedCourse, me: int) -> dict[int, tuple[bytes, bytes]]:
        sends: dict[int, tuple[bytes, bytes]] = {}
        for name in self._here(course, me):
            _, chunk, values = course.guests[name]
            for to in {course.roll[far][0] for far in course.around[name]} - {me}:
                names, data = sends.get(to, (b"", b""))
                sends[to] = names + _packed([(name, chunk)]), data + values
        return sends

    def _returned(
        self, course: CarriedCourse, came: Mapping[int, Share], me: int
    ) -> dict[int, tuple[bytes, bytes]]:
        met = {(name, chunk): values for name, (_, chunk, values) in course.guests.items()}
        for source, share in came.items():
            data = share.payload.encoded.data
            for name, chunk in _labels(share.names):
                size = 4 * self._chunks.size(share.header.round, chunk)
                if course.roll.get(name) == (source, chunk):
                    met[name, chunk] = bytes(data[:size])
                data = data[size:]
        sends: dict[int, tuple[bytes, bytes]] = {}
        for name in self._here(course, me):
            owner = course.guests[name][0]
            names, data = sends.get(owner, (b"", b""))
            for far in course.around[name]:
                label = (far, course.roll[far][1])
                if label in met:
                    names, data = names + name + _packed([label]), data + met[label]
            sends[owner] = names, data
        return sends

    def _mix(self, shadow: Shadow, came: Mapping[int, Share], me: int) -> None:
        """Coordinate by coordinate, the mean of what came back and the own value."""
        course, dealt, round = self._courses[me], self._dealt[me, shadow.begun], shadow.begun
        sums, counts = shadow.model.copy(), np.ones(len(shadow.model))
        seen = set()
        for carrier, share in came.items():
            data = share.payload.encoded.data
            for near, (far, chunk) in _edges(share.names):
                size = 4 * self._chunks.size(round, chunk)
                values, data = bytes(data[:size]), data[size:]
                if near not in dealt or dealt[near][0] != carrier or (near, far) in seen:
                    continue
                if far not in course.around.get(near, ()) or course.roll[far][1] != chunk:
                    continue
                seen.add((near, far))
                if far in self._owners and self._owners[far][1:] != (round, values):
                    raise LawBroken(
                        f"member {me}, round {round}: a value is mixed that the owner of its chunk "
                        "has not sent in this round"
                    )
                places = self._chunks.places(round, chunk, int.from_bytes(far[:8], "little"))
                for place, value in zip(places, np.frombuffer(values, "<f4"), strict=True):
                    sums[place] += float(value)
                    counts[place] += 1
        self.saw["a chunk is mixed"] += len(seen)
        shadow.model = sums / counts


# -- names, once more ------------------------------------------------------------------------------


def _packed(labels: Iterable[Labelled]) -> bytes:
    return b"".join(name + struct.pack("<I", chunk) for name, chunk in labels)


def _labels(names: bytes) -> list[Labelled]:
    if len(names) % _LABEL:
        raise ValueError("not whole labels")
    found = struct.iter_unpack(f"<{_NAME}sI", names)
    return [(name, chunk) for name, chunk in found]


def _edges(names: bytes) -> list[tuple[bytes, Labelled]]:
    if len(names) % _EDGE:
        raise ValueError("not whole edges")
    found = struct.iter_unpack(f"<{_NAME}s{_NAME}sI", names)
    return [(near, (far, chunk)) for near, far, chunk in found]


def _heard(labels: list[Labelled] | None) -> bytes:
    if labels is None:
        return b"\xff" * 4
    return struct.pack("<I", len(labels)) + _packed(labels)


def _echoed(names: bytes, places: int) -> list[list[Labelled] | None]:
    found: list[list[Labelled] | None] = []
    for _ in range(places):
        (count,) = struct.unpack("<I", names[:4])
        names = names[4:]
        if count == 0xFFFFFFFF:
            found.append(None)
            continue
        if _LABEL * count > len(names):
            raise ValueError("more names than there are")
        found.append(_labels(names[: _LABEL * count]))
        names = names[_LABEL * count :]
    if names:
        raise ValueError("names of nobody")
    return found
