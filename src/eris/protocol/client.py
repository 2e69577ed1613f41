"""A client's half of the round: cut its update into segments, follow results, catch up.

A machine without I/O: an update, a message or the time goes in, messages come out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eris.core.compress import Encoding, RandK, RandP, encode_values
from eris.core.errors import InvalidSetting
from eris.core.shift import advance, difference
from eris.core.streams import Stream
from eris.protocol.membership import View
from eris.protocol.messages import CatchUp, Contribution, Header, Outgoing, Payload, Result
from eris.protocol.replica import Replica
from eris.protocol.settings import Key, Segment, Settings, stream_tag

Vector = NDArray[np.float32]


class Client:
    """One member's client machine, on the node's replica."""

    def __init__(self, settings: Settings, view: View, me: int, replica: Replica) -> None:
        self.settings, self.view, self.me, self.replica = settings, view, me, replica
        self.round = 0
        self.left_out: list[tuple[int, Key]] = []
        """(round, segment) of contributions that are in no result."""
        self._sent: dict[tuple[int, Key], Vector | None] = {}
        self._retry_at = float("inf")
        self._asked = 0
        independent = settings.masks == "independent"
        self.own_reference = np.zeros(settings.n, np.float32) if independent else None

    # -- contributing -------------------------------------------------------------------------

    def begin(self, round: int, now: float) -> None:
        """Enter a round; from ``catch_up_after`` on, missing results are asked for."""
        self.round = round
        self._retry_at = now + self.settings.catch_up_after
        self._asked = 0

    def contribute(self, update: Vector, samples: int, steps: int = 1) -> list[Outgoing]:
        """This round's contributions, one a segment, each for the owner of its shard."""
        if update.shape != (self.settings.n,):
            raise InvalidSetting("update", update.shape, f"({self.settings.n},) coordinates")
        if samples < 1:
            raise InvalidSetting("samples", samples, "at least 1: it is the client's weight")
        if self.settings.rule.normalises_steps:
            update = update / np.float32(steps)
        layout = self.settings.layout(self.round)
        return [
            Outgoing(
                (self.view.owners[segment.shard],),
                self._contribution(update, segment, samples, steps),
            )
            for segment in layout.segments.values()
        ]

    def _contribution(
        self, update: Vector, segment: Segment, samples: int, steps: int
    ) -> Contribution:
        key = segment.key
        coordinates = self.settings.layout(self.round).coordinates(key)
        payload, sent = self._encode(update[coordinates], coordinates, segment)
        self._sent[self.round, key] = sent
        header = Header(self.settings.fingerprint, self.view.epoch, self.me, self.round, *key)
        return Contribution(header, self.replica.versions[key], samples, steps, payload)

    def _encode(
        self, values: Vector, coordinates: NDArray[np.int64], segment: Segment
    ) -> tuple[Payload, Vector | None]:
        """What travels, and (paper's mode) what the own reference moves along if it is included."""
        settings = self.settings
        if settings.compressor is None:
            return Payload(encode_values(values)), None
        reference = self.replica.reference if self.own_reference is None else self.own_reference
        assert reference is not None
        shifted = difference(values, reference[coordinates])
        if not isinstance(settings.compressor, RandP | RandK):
            draw = Stream(settings.seed, f"quantise/{segment.number}", self.round, self.me,
                          segment.shard)  # fmt: skip
            return Payload(settings.compressor.encode(shifted, draw)), None
        kept = settings.kept(self.round, self.me)
        places = kept.among(coordinates)
        stream = stream_tag(settings.mask_stream(self.round, self.me))
        payload = Payload(encode_values(shifted[places], Encoding.KEPT), stream)
        if self.own_reference is None:
            return payload, None
        spread = np.zeros(segment.size, np.float32)
        spread[places] = shifted[places] * np.float32(kept.scale)
        return payload, spread

    # -- following ----------------------------------------------------------------------------

    def follow(self, result: Result) -> None:
        """Learn from an applied result whether this client is in it."""
        key, round = result.header.key, result.header.round
        for past in [p for p in self._sent if p[1] == key and p[0] <= round]:
            sent = self._sent.pop(past)
            if past[0] < round or self.me not in result.included:
                self.left_out.append(past)
            elif self.own_reference is not None and sent is not None:
                coordinates = self.settings.layout(round).coordinates(key)
                gamma = self.settings.shift_step(len(coordinates))
                self.own_reference[coordinates] = advance(
                    self.own_reference[coordinates], sent, gamma
                )

    def tick(self, now: float) -> list[Outgoing]:
        """Ask for results that have not come: the owner first, then one peer after another."""
        if now < self._retry_at or self.replica.settled(self.round):
            return []
        self._retry_at = now + self.settings.retry_every
        missing = [key for key, version in self.replica.versions.items() if version < self.round]
        out = [self.ask(key, self._peer(key)) for key in missing]
        self._asked += 1
        return [ask for ask in out if ask.to != (self.me,)]

    def ask(self, key: Key, peer: int) -> Outgoing:
        """Ask one peer for what this node misses of a segment."""
        header = Header(
            self.settings.fingerprint, self.view.epoch, self.me, max(1, self.round), *key
        )
        return Outgoing((peer,), CatchUp(header, self.replica.versions[key]))

    def _peer(self, key: Key) -> int:
        owner = self.view.owners[key[0]]
        if self._asked == 0 and owner != self.me:
            return owner
        others = [m for m in range(len(self.view.members)) if m != self.me]
        return others[(self._asked + key[0] + key[1]) % len(others)] if others else self.me
