"""An owner's half of the round: collect contributions to its segments, publish one result each.

A segment closes when every client has contributed, or at its deadline if enough have; otherwise it
is withheld and keeps its value. There is exactly one result per segment and round, ever: two, with
included sets I and I∖{k}, would reveal k's contribution.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from eris.core.combine import ExactMean, OrderStatistic
from eris.core.compress import Encoding, RandK, RandP, decode_values, encode_values
from eris.core.errors import MalformedMessage, RefusedContribution
from eris.protocol.membership import View
from eris.protocol.messages import Contribution, Header, Outgoing, Payload, Refusal, Result
from eris.protocol.replica import Replica
from eris.protocol.settings import Key, Segment, Settings, stream_tag

Vector = NDArray[np.float32]


@dataclass
class _Open:
    """A segment that is collecting contributions."""

    segment: Segment
    collector: ExactMean | OrderStatistic
    places: NDArray[np.int64] | None
    deadline: float
    included: set[int] = field(default_factory=set)
    sample_steps: int = 0


class Aggregator:
    """One member's aggregator machine for the shards it owns, on the node's replica.

    Memory is that of the segments that are open, not of all clients' shards.
    """

    def __init__(self, settings: Settings, view: View, me: int, replica: Replica) -> None:
        self.settings, self.view, self.me, self.replica = settings, view, me, replica
        self.shards = view.owned_by(me)
        self.round = 0
        self._deadline = float("inf")
        self._open: dict[Key, _Open] = {}
        self._closed: set[Key] = set()

    @property
    def _keys(self) -> list[Key]:
        return [key for key in self.replica.versions if key[0] in self.shards]

    def begin(self, round: int, now: float) -> list[Result]:
        """Enter a round. Segments that are still open close now; returns their results."""
        finished = self._close_all() if self.round else []
        self.round = round
        self._deadline = now + self.settings.close_after
        self._closed = {key for key in self._keys if self.replica.versions[key] >= round}
        return finished

    def abstain(self, round: int, now: float) -> list[Result]:
        """Enter a round after a crash in it: contributions may be lost, so nothing is published.

        A result of this round may have left before the crash; it is in the replica then, and stays
        the only one.
        """
        self._open.clear()
        self.round, self._deadline = round, now
        self._closed = {key for key in self._keys if self.replica.versions[key] >= round}
        return self._close_all()

    def receive(
        self, contribution: Contribution, now: float
    ) -> tuple[list[Result], list[Outgoing]]:
        """Add a contribution; returns results that are complete now and answers to the client."""
        header = contribution.header
        key = header.key
        if header.round != self.round or key in self._closed or key[0] not in self.shards:
            return [], self._late(contribution)
        if contribution.based_on != self.replica.versions[key]:
            return [], self._late(contribution)
        if header.sender not in self.view.clients:
            return [], [self._refuse(header, "the sender is not a client of this federation")]
        state = self._open.get(key) or self._begin_segment(key)
        if header.sender in state.included:
            return [], []
        try:
            values = self._decode(contribution, state)
            state.collector.add(values, contribution.samples, self.view.members[header.sender])
        except (RefusedContribution, MalformedMessage) as error:
            return [], [self._refuse(header, str(error))]
        state.included.add(header.sender)
        state.sample_steps += contribution.samples * contribution.steps
        if len(state.included) == len(self.view.clients):
            return [self._close(key)], []
        return [], []

    def tick(self, now: float) -> list[Result]:
        """Close what is past its deadline."""
        return self._close_all() if now >= self._deadline else []

    # -- collecting ---------------------------------------------------------------------------

    def _begin_segment(self, key: Key) -> _Open:
        settings, layout = self.settings, self.settings.layout(self.round)
        segment, places = layout.segments[key], None
        size = segment.size
        if settings.download_encoding == Encoding.KEPT:
            places = settings.kept(self.round).among(layout.coordinates(key))
            size = len(places)
        collector = settings.rule.collector(size, settings.precision, settings.non_finite)
        state = _Open(segment, collector, places, self._deadline)
        self._open[key] = state
        return state

    def _decode(self, contribution: Contribution, state: _Open) -> Vector:
        """The values to combine. Kept values are combined unscaled: 1/p is applied once, after."""
        settings, payload = self.settings, contribution.payload
        if settings.compressor is None:
            return decode_values(payload.encoded, Encoding.DENSE, state.segment.size)
        if not isinstance(settings.compressor, RandP | RandK):
            return settings.compressor.decode(payload.encoded, state.segment.size)
        sender = contribution.header.sender
        if payload.stream != stream_tag(settings.mask_stream(self.round, sender)):
            raise MalformedMessage(
                "contribution.payload.stream", "names another kept set than the round's"
            )
        if state.places is not None:
            return decode_values(payload.encoded, Encoding.KEPT, len(state.places))
        coordinates = settings.layout(self.round).coordinates(state.segment.key)
        places = settings.kept(self.round, sender).among(coordinates)
        spread = np.zeros(state.segment.size, np.float32)
        spread[places] = decode_values(payload.encoded, Encoding.KEPT, len(places))
        return spread

    def _late(self, contribution: Contribution) -> list[Outgoing]:
        """Tell a client whose contribution cannot count what it missed, if anything."""
        key, sender = contribution.header.key, contribution.header.sender
        if key not in self.replica.versions or contribution.based_on >= self.replica.versions[key]:
            return []
        chain = self.replica.results_after(key, contribution.based_on)
        if chain is None:
            return [Outgoing((sender,), self.replica.snapshot(key, self.me))]
        return [Outgoing((sender,), result) for result in chain]

    def _refuse(self, header: Header, reason: str) -> Outgoing:
        back = Header(header.federation, header.epoch, self.me, header.round, *header.key)
        return Outgoing((header.sender,), Refusal(back, reason))

    # -- publishing ---------------------------------------------------------------------------

    def _close_all(self) -> list[Result]:
        return [self._close(key) for key in self._keys if key not in self._closed]

    def _close(self, key: Key) -> Result:
        state = self._open.pop(key, None)
        self._closed.add(key)
        header = Header(self.settings.fingerprint, self.view.epoch, self.me, self.round, *key)
        previous = self.replica.versions[key]
        enough = max(self.settings.quorum, self.settings.min_included)
        if state is None or len(state.included) < enough:
            return Result(header, previous, frozenset(), 0, 0, None)
        encoding = self.settings.download_encoding
        stream = 0
        if encoding == Encoding.KEPT:
            stream = stream_tag(self.settings.mask_stream(self.round))
        payload = Payload(encode_values(state.collector.result(), encoding), stream)
        return Result(
            header,
            previous,
            frozenset(state.included),
            state.collector.weight,
            state.sample_steps,
            payload,
        )
