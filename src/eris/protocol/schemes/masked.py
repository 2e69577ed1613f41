"""Kept sets that all clients share: only the kept coordinates travel, both ways.

With one mask for all, Σ w_k C(g_k − s) = C(ḡ − s), so one reference on every node does what the
paper's references per client do (ERIS, section 3.3), and every published value is a mean of all.
Without a reference the variance is ω‖ḡ‖², which vanishes with the mean as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from eris.core.compress import Encoding, MaskCompressor, RandK, decode_values, encode_values
from eris.core.errors import InvalidSetting, MalformedMessage
from eris.core.masks import KeptSet
from eris.core.rules import FedAvgM
from eris.core.shift import shift_step
from eris.core.streams import Stream
from eris.core.vectors import Indices, Vector
from eris.protocol.messages import Contribution, Payload, Result
from eris.protocol.schemes.scheme import Coding, Scheme

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Key, Segment
    from eris.protocol.round.laid import Laid
    from eris.protocol.settings import Settings

LEAST_SHARED = 0.02
"""The smallest share of kept coordinates with which shared masks have been seen to train."""


@dataclass(frozen=True)
class Masked(Scheme):
    """rand-p or rand-k with one kept set a round; ``shift`` compresses differences (DSC).

    ``limit`` = ρ bounds what a published value may move, where the rule has the momentum β: values
    are cut to ±ℓ, ℓ = ρ·√((1 − β²)/(p·n))/λ, after they were combined. With all of them at ℓ the
    steps have a length of about ρ. 0 is no limit.

    >>> Masked(RandK(10)).kept_share(1000)
    0.01
    """

    compressor: MaskCompressor
    shift: bool = True
    limit: float | None = None
    name: ClassVar[str] = "masked"

    @property
    def shifted(self) -> bool:
        """Whether differences to a reference travel."""
        return self.shift

    def kept_share(self, n: int) -> float:
        """The share of ``n`` coordinates that a client sends."""
        return 1 / (1 + self.compressor.omega(n))

    def published_share(self, n: int) -> float:
        """The share of ``n`` coordinates that results have."""
        return self.kept_share(n)

    def caution(self, settings: Settings) -> str:
        """What a user should know before training with it.

        Masks that all clients share do not average out: their variance is that of one client's.
        With 0.6 % kept LeNet-5 diverges on MNIST at the step at which the paper's mode trains.
        """
        if self.limit or self.published_share(settings.places) >= LEAST_SHARED:
            return ""
        return (
            f"less than {LEAST_SHARED:.0%} of the coordinates are kept, by masks that all clients "
            "share: training may diverge; keep more, or let them act in a rotated basis "
            "(basis=rotated)"
        )

    def check(self, settings: Settings) -> None:
        """Refuse what does not go together with this scheme."""
        refuse_order_statistics(settings)
        if isinstance(self.compressor, RandK) and self.compressor.kept_count > settings.places:
            expected = f"at most n = {settings.places} coordinates"
            raise InvalidSetting("kept_count", self.compressor.kept_count, expected)
        if self.limit is None:
            return
        if not 0 <= self.limit < math.inf:
            raise InvalidSetting("limit", self.limit, "a finite number, 0 or more")
        if self.shift:
            raise InvalidSetting("limit", self.limit, "none where differences travel (shift)")
        if not isinstance(settings.rule, FedAvgM):
            expected = (
                f"none: it bounds the steps of the rule fedavgm, this is {settings.rule.name}"
            )
            raise InvalidSetting("limit", self.limit, expected)

    def largest_entry(self, settings: Settings) -> float:
        """ℓ: the largest magnitude that a published value is given, made unbiased."""
        rule = settings.rule
        if not self.limit or not isinstance(rule, FedAvgM):
            return math.inf
        n, beta = settings.places, rule.momentum
        # × ÷ √ alone, each rounded alike everywhere.
        room = math.sqrt((1 - beta * beta) / (self.published_share(n) * n))
        return self.limit * room / rule.learning_rate

    def at(self, agreement: Agreement) -> Coding:
        """This scheme at work."""
        return MaskCoding(self, agreement)

    def __str__(self) -> str:
        return str(self.compressor)


def refuse_order_statistics(settings: Settings) -> None:
    """Refuse rules that cannot work on compressed values."""
    if not settings.rule.works_compressed:
        expected = "a mean: order statistics of compressed values mean nothing"
        raise InvalidSetting("rule", settings.rule.name, expected)


class Kept(NamedTuple):
    """The kept coordinates of a round, segment after segment."""

    places: Indices
    """Where they are in a vector whose shards lie one behind the other."""
    within: Indices
    """Where each is in its segment."""
    coordinates: Indices
    """Where they are in the vector itself."""
    edges: Indices
    """Where among them each segment begins, and the end."""


class MaskCoding(Coding):
    """Kept values at work: unscaled on the wire, 1/p applied once, when a result is replayed."""

    def __init__(self, scheme: Masked, agreement: Agreement) -> None:
        super().__init__(scheme, agreement)
        self.compressor = scheme.compressor
        self._largest = np.float32(scheme.largest_entry(agreement.settings))
        self._numbers = {key: number for number, key in enumerate(agreement.keys)}
        self._rounds: set[int] = set()
        """Rounds of which something is kept here."""
        self._sets: dict[tuple[int, int], KeptSet] = {}
        self._tags: dict[tuple[int, int], int] = {}
        self._within: dict[tuple[int, int], Kept] = {}

    # -- kept sets ----------------------------------------------------------------------------

    def who(self, round: int, client: int) -> int:
        """Whose mask a client uses: 0 is everybody's."""
        return 0

    def stream(self, round: int, client: int = 0) -> Stream:
        """The stream behind a kept set."""
        return Stream(self.agreement.settings.seed, "mask", round, self.who(round, client))

    def tag(self, round: int, client: int = 0) -> int:
        """The 64-bit name of that stream on the wire."""
        who = (round, self.who(round, client))
        if who not in self._tags:
            self._forget(round)
            name = self.stream(round, client).name
            self._tags[who] = int(name[0]) | int(name[1]) << 32
        return self._tags[who]

    def kept(self, round: int, client: int = 0) -> KeptSet:
        """The kept set of a round."""
        who = (round, self.who(round, client))
        if who not in self._sets:
            self._forget(round)
            self._sets[who] = self.draw(round, client)
        return self._sets[who]

    def draw(self, round: int, client: int) -> KeptSet:
        """The kept set of a round, derived."""
        return self.compressor.kept(self.agreement.settings.places, self.stream(round, client))

    def places(self, round: int, key: Key, client: int = 0) -> Indices:
        """Where in a segment the kept coordinates are."""
        return self._kept_in(round, client).within[slice(*self._range(round, key, client))]

    def coordinates(self, round: int, key: Key, client: int) -> Indices:
        """The places, in a whole vector, of the values that a client sends of a segment."""
        return self._kept_in(round, client).coordinates[slice(*self._range(round, key, client))]

    def _range(self, round: int, key: Key, client: int) -> tuple[int, int]:
        """Where among all that is kept a segment's coordinates are."""
        begin, end = self._kept_in(round, client).edges[self._numbers[key] :][:2].tolist()
        return begin, end

    def _count(self, round: int, key: Key, client: int) -> int:
        begin, end = self._range(round, key, client)
        return end - begin

    def pick(self, round: int, segment: Segment, client: int, values: Vector) -> Vector:
        """What a client sends of a segment's values."""
        return values[self.places(round, segment.key, client)]

    def _kept_in(self, round: int, client: int) -> Kept:
        who = (round, self.who(round, client))
        if who not in self._within:
            self._forget(round)
            shard_map = next(iter(self.agreement.segments(round).values())).shard_map
            places, coordinates = shard_map.kept(self.kept(round, client).bits)
            begins = self.agreement.edges(round)
            edges = np.searchsorted(places, begins)
            within = places - np.repeat(begins[:-1], np.diff(edges))
            self._within[who] = Kept(places, within, coordinates, edges)
        return self._within[who]

    def layout(self, round: int, client: int) -> tuple[Indices, Indices]:
        """The coordinates of all that a client sends, and the segments' edges among them."""
        kept = self._kept_in(round, client)
        return kept.coordinates, kept.edges

    def gather(self, round: int, client: int, vector: Vector) -> Vector:
        """All that a client sends of a vector, segment after segment."""
        return vector[self._kept_in(round, client).coordinates]

    def gather_laid(self, round: int, client: int, laid: Laid) -> Vector:
        """:meth:`gather` of a replicated vector."""
        arranged = laid.arranged()
        if arranged is None:
            return self.gather(round, client, laid.whole())
        return arranged[self._kept_in(round, client).places]

    def edges(self, round: int, client: int) -> Indices:
        """Where in that each segment begins, in the order of the agreement's keys, and the end."""
        return self._kept_in(round, client).edges

    def _forget(self, round: int) -> None:
        """Drop the kept sets of rounds that are over; a straggler's can be derived again."""
        if round in self._rounds:
            return
        self._rounds = {known for known in self._rounds if abs(known - round) <= 1} | {round}
        for cache in (self._tags, self._sets, self._within):
            for old in [name for name in cache if abs(name[0] - round) > 1]:
                del cache[old]

    # -- the four halves ----------------------------------------------------------------------

    def encode(self, piece: Vector, segment: Segment, round: int, client: int) -> Payload:
        """What travels of a segment."""
        return Payload(encode_values(piece, Encoding.KEPT), self.tag(round, client))

    def read(self, contribution: Contribution, segment: Segment) -> Vector:
        """What whoever holds a contribution can read: one value a coordinate, unscaled."""
        round, sender = contribution.header.round, contribution.header.sender
        if contribution.payload.stream != self.tag(round, sender):
            raise MalformedMessage("contribution.payload.stream", "names another kept set")
        return decode_values(
            contribution.payload.encoded, Encoding.KEPT, self._count(round, segment.key, sender)
        )

    def size(self, round: int, segment: Segment, client: int) -> int:
        """How many values are combined of a segment, where this client's are among them."""
        return self._count(round, segment.key, client)

    def publish(self, mean: Vector, round: int) -> Payload:
        """How a mean travels: as small as what it is of."""
        return Payload(encode_values(mean, Encoding.KEPT), self.tag(round))

    def published_in(self, result: Result, segment: Segment) -> Indices:
        """Where in a segment a result's values are."""
        return self.places(result.header.round, segment.key)

    def published(self, result: Result, segment: Segment) -> Vector:
        """The values of a result, refused if they do not fit."""
        assert result.payload is not None
        if result.payload.stream != self.tag(result.header.round):
            raise MalformedMessage("result.payload.stream", "names another round's kept set")
        count = len(self.published_in(result, segment))
        return decode_values(result.payload.encoded, Encoding.KEPT, count)

    def increment(self, result: Result, segment: Segment) -> Vector:
        """The mean on all coordinates of the segment: 1/p makes it unbiased, once."""
        scale = self.kept(result.header.round, min(result.included)).scale
        values = self.published(result, segment) * np.float32(scale)
        if self._largest < math.inf:
            np.clip(values, -self._largest, self._largest, out=values)
        increment = np.zeros(segment.size, np.float32)
        increment[self.published_in(result, segment)] = values
        return increment

    @cached_property
    def _gamma(self) -> float:
        return shift_step(self.compressor.omega(self.agreement.settings.places))

    def gamma(self, segment: Segment) -> float:
        """The step γ of the reference: the kept set is one of the whole vector, and so is ω."""
        return self._gamma
