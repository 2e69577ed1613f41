"""SEFL's owner: it multiplies ciphertexts, and has a client open the products."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eris.core import kernels
from eris.core.combine import LIMB_BITS
from eris.core.compress import Encoding
from eris.core.errors import MalformedMessage
from eris.protocol.messages import Contribution, Payload
from eris.protocol.schemes.collector import Asking, Collector, Desk

if TYPE_CHECKING:
    from eris.protocol.agreement import Segment
    from eris.protocol.round.replica import Replica
    from eris.protocol.schemes.encrypted_entries import EntryCoding


class EntryDesk(Desk):
    """What one owner's collectors have in common."""

    def __init__(self, coding: EntryCoding, replica: Replica) -> None:
        super().__init__(coding.agreement, replica)
        self.coding = coding

    def collector(self, round: int, segment: Segment) -> Collector:
        """An owner's half, for one segment and round."""
        return EntryCollector(self, round, segment)


class EntryCollector(Collector):
    """One segment and round of an owner that multiplies ciphertexts."""

    def __init__(self, desk: EntryDesk, round: int, segment: Segment) -> None:
        self._desk, self._round, self._segment = desk, round, segment
        self._entries = desk.coding
        self._sums: dict[int, Any] = {}
        """By place: the product of ciphertexts."""
        self._included: set[int] = set()
        self._weight = self.sample_steps = 0
        self._silent: list[int] = []
        """Who has not been asked."""
        self._data = b""

    @property
    def included(self) -> AbstractSet[int]:
        """Whose contributions are counted in."""
        return self._included

    @property
    def samples(self) -> int:
        """The samples of the included clients."""
        return self._weight

    @property
    def closed(self) -> bytes:
        """Names the products that were opened."""
        return hashlib.sha256(self._data).digest()

    def take(self, contribution: Contribution) -> None:
        """Count a contribution in, or refuse it."""
        client, encoded = contribution.header.sender, contribution.payload.encoded
        size = self._segment.size
        if encoded.encoding != Encoding.CIPHERTEXTS or encoded.count != size:
            raise MalformedMessage("contribution.payload", f"is not of {size} coordinates")
        public = self._entries.public
        if size:
            places, found = self._entries.received(encoded.data, size)
            for place, one in zip(places.tolist(), found, strict=True):
                before = self._sums.get(place)
                self._sums[place] = one if before is None else public.added(before, one)
        self._included.add(client)
        self._weight += contribution.samples
        self.sample_steps += contribution.samples * contribution.steps

    def finish(self) -> Payload | Asking | None:
        """The products, to a first client that opens them; nothing has to be opened of nothing."""
        if not self._sums:
            return self._published([])
        places = sorted(self._sums)
        self._data = self._entries.public.write([self._sums[place] for place in places])
        self._silent = sorted(self._included)
        return self._next()

    def _next(self) -> Asking:
        return Asking({self._silent.pop(0): self._data} if self._silent else {})

    def again(self, silent: frozenset[int]) -> Asking:
        """Whoever was asked did not answer: the next one is asked."""
        return self._next()

    def reveal(self, member: int, data: bytes) -> Payload | Asking | None:
        """Take in the sums that a client has opened."""
        count = len(self._sums) if self._entries.packing is None else self._segment.size
        try:
            asked = self.closed
            if not data.startswith(asked) or len(data) != len(asked) + 8 * count:
                expected = f"expected the name of the products and {8 * count} more"
                raise MalformedMessage("reveal", f"has {len(data)} bytes; {expected}")
            sums = np.frombuffer(data, ">i8", offset=len(asked)).astype(np.int64)
            self._check(sums)
        except MalformedMessage as refused:
            name = self._desk.agreement.view.members[member]
            self._note(f"what {name} opened: {refused}")
            return self._next()
        return self._published(sums)

    def _check(self, sums: NDArray[np.int64]) -> None:
        """Refuse sums that no included clients can have, whose mean nobody would take."""
        coding = self._entries
        largest = coding.agreement.settings.precision.value_range
        most = self._weight * round(math.ldexp(largest, coding.fraction_bits))
        beyond = (sums > most) | (sums < -most)
        if beyond.any():
            at = int(beyond.argmax())
            raise MalformedMessage("reveal", f"sum {at} is {sums[at]}, beyond ±{most}")

    def _published(self, sums: Sequence[int] | NDArray[np.int64]) -> Payload:
        total = np.zeros(self._segment.size, np.int64)
        total[sorted(self._sums) if self._entries.packing is None else slice(None)] = sums
        mean = np.empty(len(total), np.float32)
        divisor = math.ldexp(self._weight, self._entries.fraction_bits)
        kernels.mean_of(mean, total, None, LIMB_BITS, divisor)
        return self._entries.publish(mean, self._round)

    def abandon(self) -> None:
        """Nobody opened the sums: the result is withheld."""
        self._note("withheld: no client opened the sums")

    def _note(self, text: str) -> None:
        self._desk.notes.append(f"round {self._round}, segment {self._segment.key}: {text}")
