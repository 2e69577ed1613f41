"""A scheme that proves the reveal phase: additive shares of random masks, revealed once.

A client adds a random mask to the fixed-point words of its segment; the mask is the sum of a share
for each of two helpers, and what a helper needs to make its share again travels with the words. The
owner adds masked words, closes on a set, and asks the helpers for the sum of their shares over
exactly that set. **For testing**: shares follow from the seed of the run and travel in the clear,
so nothing is hidden from an owner that cheats. What is proved is who is asked what, how often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from eris.core.compress import Encoded, Encoding
from eris.core.errors import MalformedMessage
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.protocol.messages import Contribution, Payload, RevealRequest
from eris.protocol.schemes import Asking, Coding, Collector, Scheme, Sender
from eris.testing.shape import Shape

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Segment

HELPERS = 2
WEIGHT, SEED = 8, 8
"""Bytes of a client's samples and of a share's seed, in a question."""

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class AdditiveShares(Scheme):
    """Dense segments under masks that two helpers can take off, together and once."""

    name: ClassVar[str] = "additive-shares"
    small_results: ClassVar[bool] = False
    reveals: ClassVar[bool] = True

    def at(self, agreement: Agreement) -> Coding:
        """This scheme at work."""
        return SharesCoding(self, agreement)


@dataclass(frozen=True)
class SharedShape(Shape):
    """A shape whose owners open sums with helpers, if it has ``shares``."""

    shares: bool = False

    def scheme(self) -> Scheme:
        """How segments travel."""
        return AdditiveShares() if self.shares else super().scheme()


def share(seed: bytes, count: int) -> Words:
    """The words of a share."""
    drawn = Stream(int.from_bytes(seed, "little"), "share").words(0, 2 * count)
    return drawn.astype(np.uint64)[::2] << np.uint64(32) | drawn.astype(np.uint64)[1::2]


class SharesCoding(Coding):
    """Masked words at work."""

    def helpers(self, round: int, shard: int) -> list[int]:
        """Who helps an owner: the next clients after it."""
        view = self.agreement.view_at(round)
        owner, members = view.owners[shard], len(view.members)
        others = [client for client in view.clients if client != owner]
        return sorted(others, key=lambda client: (client - owner) % members)[:HELPERS]

    def sender(self, me: int) -> Sender:
        """A client's half."""
        return SharesSender(self, me)

    def collector(self, round: int, segment: Segment) -> Collector:
        """An owner's half."""
        return SharesCollector(self, round, segment)

    def encode(self, piece: Vector, segment: Segment, round: int, client: int) -> Payload:
        """Masked words, and the seeds of the shares."""
        scale = 2.0**self.agreement.settings.precision.fraction_bits
        words = np.rint(piece.astype(np.float64) * scale).astype(np.int64).view(np.uint64)
        seeds = b""
        for helper in self.helpers(round, segment.shard):
            purpose = f"share-seed/{segment.number}/{helper}"
            drawn = Stream(self.agreement.settings.seed, purpose, round, client, segment.shard)
            seed = drawn.words(0, SEED // 4).tobytes()
            words = words + share(seed, len(words))
            seeds += seed
        return Payload(Encoded(Encoding.RING, len(piece), words.tobytes() + seeds))

    def read(self, contribution: Contribution, segment: Segment) -> Vector:
        """Nothing."""
        raise MalformedMessage("contribution.payload", "is masked: nothing can be read of it")


class SharesSender(Sender):
    """A client that masks, and helps owners."""

    def reveal(self, request: RevealRequest, segment: Segment) -> bytes | None:
        """The sum of this helper's shares over the included clients, by their samples."""
        item = WEIGHT + SEED
        if len(request.data) != item * len(request.included):
            raise MalformedMessage("reveal_request.data", "does not fit the included clients")
        total = np.zeros(segment.size, np.uint64)
        for at in range(0, len(request.data), item):
            weight = int.from_bytes(request.data[at : at + WEIGHT], "little")
            seed = request.data[at + WEIGHT : at + item]
            total += np.uint64(weight) * share(seed, segment.size)
        return total.tobytes()


class SharesCollector(Collector):
    """An owner that adds masked words."""

    _coding: SharesCoding

    def __init__(self, coding: SharesCoding, round: int, segment: Segment) -> None:
        super().__init__(coding, round, segment)
        self._sum = np.zeros(segment.size, np.uint64)
        self._weights: dict[int, int] = {}
        self._seeds: dict[int, bytes] = {}
        self._helpers = coding.helpers(round, segment.shard)
        self._waiting = set(self._helpers)

    @property
    def samples(self) -> int:
        """The samples of the included clients."""
        return sum(self._weights.values())

    def take(self, contribution: Contribution) -> None:
        """Count a contribution in, or refuse it."""
        encoded, size = contribution.payload.encoded, self._segment.size
        expected = 8 * size + SEED * len(self._helpers)
        if (encoded.encoding, encoded.count, len(encoded.data)) != (Encoding.RING, size, expected):
            raise MalformedMessage("contribution.payload", "does not hold masked words")
        sender = contribution.header.sender
        words = np.frombuffer(encoded.data, "<u8", size)
        self._sum += np.uint64(contribution.samples) * words
        self._weights[sender] = contribution.samples
        self._seeds[sender] = encoded.data[8 * size :]
        self.included.add(sender)
        self.sample_steps += contribution.samples * contribution.steps

    def finish(self) -> Payload | Asking:
        """The questions to the helpers; the mean, if there are none."""
        questions = {}
        for number, helper in enumerate(self._helpers):
            place = slice(SEED * number, SEED * (number + 1))
            questions[helper] = b"".join(
                self._weights[client].to_bytes(WEIGHT, "little") + self._seeds[client][place]
                for client in sorted(self.included)
            )
        return Asking(questions) if questions else self._opened()

    def reveal(self, member: int, data: bytes) -> Payload | None:
        """Take a helper's shares off."""
        if len(data) != 8 * self._segment.size:
            raise MalformedMessage("reveal.data", "does not fit the segment")
        self._sum -= np.frombuffer(data, "<u8")
        self._waiting.discard(member)
        return None if self._waiting else self._opened()

    def _opened(self) -> Payload:
        places = self._coding.agreement.settings.precision.fraction_bits
        mean = self._sum.view(np.int64) / np.ldexp(float(self.samples), places)
        return self._coding.publish(mean.astype(np.float32), self._round)
