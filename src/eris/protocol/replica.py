"""The federation's state, replayed from published results; the same on every node.

A segment's state is the model, the reference of shifted compression and the server rule's slots on
its coordinates, and its *version*: the round of the last result applied. Results form a chain (each
names the round of the one before), are applied in order and never twice, so two replicas at the
same version of a segment hold the same bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from eris.core.compress import Encoding, decode_values, encode_values
from eris.core.errors import InvalidSetting, MalformedMessage
from eris.core.shift import advance, estimate
from eris.protocol.membership import View
from eris.protocol.messages import Header, Payload, Result, Snapshot
from eris.protocol.settings import Key, Segment, Settings, stream_tag

Vector = NDArray[np.float32]


class Replica:
    """One node's copy of the model and of everything needed to continue from it."""

    def __init__(self, settings: Settings, view: View, initial: Vector) -> None:
        if initial.shape != (settings.n,):
            raise InvalidSetting("initial model", initial.shape, f"({settings.n},) coordinates")
        self.settings, self.view = settings, view
        self.model = np.array(initial, np.float32)
        compressed = settings.compressor is not None
        self.reference = np.zeros(settings.n, np.float32) if compressed else None
        self.slots = [np.full(settings.n, value, np.float32) for value in settings.rule.initial]
        self.versions: dict[Key, int] = dict.fromkeys(settings.layout(1).segments, 0)
        self.updates: dict[Key, int] = dict.fromkeys(self.versions, 0)
        self._log: dict[Key, dict[int, Result]] = {key: {} for key in self.versions}
        self._waiting: dict[Key, dict[int, Result]] = {key: {} for key in self.versions}
        # Only a client of the paper's mode needs each result as such; a snapshot would skip some.
        self._keep_all = settings.rotates or settings.masks == "independent"

    # -- reading ------------------------------------------------------------------------------

    def settled(self, round: int) -> bool:
        """Whether the result of ``round`` (or a later one) is known for every segment."""
        return min(self.versions.values()) >= round

    def ready(self, round: int) -> bool:
        """Whether a client may train for ``round``: shards drawn anew need the old ones settled."""
        return self.settled(self.settings.turn_start(round) - 1)

    def results_after(self, key: Key, have: int) -> list[Result] | None:
        """The chain of results after round ``have``, or None if it is no longer kept."""
        chain = [self._log[key][r] for r in sorted(self._log[key]) if r > have]
        if chain and chain[0].previous > have:
            return None
        return chain if chain or self.versions[key] <= have else None

    def result_of(self, key: Key, round: int) -> Result | None:
        """The result of one round, if there was one and it is still kept."""
        return self._log[key].get(round)

    def digest(self, key: Key) -> bytes:
        """A hash of a segment's whole state; equal exactly where the bits are."""
        coordinates = self.settings.layout(max(1, self.versions[key])).coordinates(key)
        hashed = hashlib.sha256()
        for vector in self._vectors():
            hashed.update(vector[coordinates].tobytes())
        hashed.update(self.updates[key].to_bytes(8, "little"))
        return hashed.digest()

    def _vectors(self) -> Iterator[Vector]:
        yield self.model
        if self.reference is not None:
            yield self.reference
        yield from self.slots

    # -- writing ------------------------------------------------------------------------------

    def offer(self, result: Result) -> list[Result]:
        """Take a result in; returns the results that could be applied now, in order.

        A result whose predecessor is missing waits. One that is older than the segment, or already
        known, changes nothing.
        """
        key, round = result.header.key, result.header.round
        if round <= self.versions[key]:
            return []
        self._check(result)
        self._waiting[key].setdefault(result.previous, result)
        applied: list[Result] = []
        progress = True
        while progress:
            progress = False
            for waiting_key in self._waiting if self.settings.rotates else (key,):
                waiting = self._waiting[waiting_key]
                while (following := waiting.get(self.versions[waiting_key])) is not None:
                    if not self.ready(following.header.round):
                        break
                    self._apply(following)
                    applied.append(following)
                    progress = True
                    for previous in [p for p in waiting if p < self.versions[waiting_key]]:
                        del waiting[previous]
        return applied

    def _segment(self, result: Result) -> Segment:
        return self.settings.layout(result.header.round).segments[result.header.key]

    def _check(self, result: Result) -> None:
        """Refuse a result that does not fit the agreement before anything of it is stored."""
        if result.payload is None:
            return
        if not result.included <= set(self.view.clients):
            raise MalformedMessage("result.included", "names a client that is not in the view")
        if len(result.included) < self.settings.min_included:
            raise MalformedMessage(
                "result.included",
                f"names {len(result.included)} clients; at least {self.settings.min_included}",
            )
        self._values(result)

    def _values(self, result: Result) -> tuple[Vector, NDArray[np.int64] | None]:
        """The published values and, where only kept ones travelled, their places."""
        assert result.payload is not None
        segment = self._segment(result)
        encoded = result.payload.encoded
        if self.settings.download_encoding == Encoding.DENSE:
            return decode_values(encoded, Encoding.DENSE, segment.size), None
        round = result.header.round
        if result.payload.stream != stream_tag(self.settings.mask_stream(round)):
            raise MalformedMessage(
                "result.payload.stream", "names another kept set than the round's"
            )
        coordinates = self.settings.layout(round).coordinates(segment.key)
        places = self.settings.kept(round).among(coordinates)
        return decode_values(encoded, Encoding.KEPT, len(places)), places

    def _apply(self, result: Result) -> None:
        key, round = result.header.key, result.header.round
        if result.payload is not None:
            self._replay(result)
            self.updates[key] += 1
        self.versions[key] = round
        log = self._log[key]
        log[round] = result
        if not self._keep_all:
            while len(log) > self.settings.history:
                del log[min(log)]

    def _replay(self, result: Result) -> None:
        """x ← rule(x, s + v̄) and s ← s + γ v̄ on one segment (or x ← rule(x, v̄) without shift)."""
        settings, segment = self.settings, self._segment(result)
        values, places = self._values(result)
        coordinates = settings.layout(result.header.round).coordinates(segment.key)
        direction = values
        if settings.compressor is not None:
            assert self.reference is not None
            increment = values
            if settings.masked:
                # The mean was of unscaled values; 1/p makes it unbiased, once.
                increment = values * np.float32(settings.kept(result.header.round).scale)
            if places is not None:
                spread = np.zeros(segment.size, np.float32)
                spread[places] = increment
                increment = spread
            gamma = settings.shift_step(segment.size)
            reference = self.reference[coordinates]
            direction, self.reference[coordinates] = self._shifted(
                reference, increment, gamma, result
            )
        steps = result.sample_steps / result.samples
        slots = tuple(slot[coordinates] for slot in self.slots)
        count = self.updates[segment.key] + 1
        model, slots = settings.rule.step(self.model[coordinates], direction, slots, count, steps)
        self.model[coordinates] = model
        for slot, new in zip(self.slots, slots, strict=True):
            slot[coordinates] = new

    def _shifted(
        self, reference: Vector, increment: Vector, gamma: float, result: Result
    ) -> tuple[Vector, Vector]:
        """(v̂, next reference); in the paper's mode only the included clients' references moved."""
        if self.settings.masks == "shared":
            return estimate(reference, increment), advance(reference, increment, gamma)
        share = included_share(self.view, result)
        scale = 1.0
        if self.settings.estimate == "unbiased":
            scale = share * len(self.view.clients) / len(result.included)
        return (
            estimate(reference, np.float32(scale) * increment),
            advance(reference, np.float32(share) * increment, gamma),
        )

    # -- far behind ---------------------------------------------------------------------------

    def snapshot(self, key: Key, sender: int) -> Snapshot:
        """This segment's state, for a peer that is further behind than the results kept here."""
        version = self.versions[key]
        coordinates = self.settings.layout(max(1, version)).coordinates(key)
        header = Header(self.settings.fingerprint, self.view.epoch, sender, version, *key)
        model, *rest = (Payload(encode_values(v[coordinates])) for v in self._vectors())
        reference = rest.pop(0) if self.reference is not None else None
        return Snapshot(header, version, self.updates[key], model, reference, tuple(rest))

    def adopt(self, snapshot: Snapshot) -> bool:
        """Take over a segment's state if it is newer than what is here."""
        key = snapshot.header.key
        if snapshot.at <= self.versions[key] or self._keep_all:
            return False
        segment = self.settings.layout(1).segments[key]
        coordinates = self.settings.layout(1).coordinates(key)
        payloads = [snapshot.model, *((snapshot.reference,) if snapshot.reference else ())]
        payloads += snapshot.slots
        vectors = list(self._vectors())
        if len(payloads) != len(vectors):
            raise MalformedMessage(
                "snapshot", f"has {len(payloads)} vectors; this federation has {len(vectors)}"
            )
        values = [decode_values(p.encoded, Encoding.DENSE, segment.size) for p in payloads]
        for vector, new in zip(vectors, values, strict=True):
            vector[coordinates] = new
        self.versions[key], self.updates[key] = snapshot.at, snapshot.updates
        self._log[key].clear()
        self._waiting[key] = {p: r for p, r in self._waiting[key].items() if p >= snapshot.at}
        return True


def included_share(view: View, result: Result) -> float:
    """Σ_{k∈I} w_k with the agreed weights (paper's mode)."""
    if view.samples is None:
        raise InvalidSetting("samples", None, "every client's weight in the view (paper's mode)")
    return result.samples / sum(view.samples)
