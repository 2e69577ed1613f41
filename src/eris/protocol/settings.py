"""What the members of a federation agree on before the first round, and what follows from it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from eris.core.combine import FixedPoint, NonFinite
from eris.core.compress import Compressor, Encoding, RandK, RandP, TopK
from eris.core.errors import InvalidSetting
from eris.core.masks import KeptSet
from eris.core.rules import FedAvg, ServerRule
from eris.core.shards import RandomPlan, ShardMap, ShardPlan, segment_length
from eris.core.shift import shift_step
from eris.core.streams import Stream

Key = tuple[int, int]
"""(shard, segment): names a segment."""


@dataclass(frozen=True)
class Segment:
    """A contiguous piece of a shard: the unit that is sent, combined, published and versioned."""

    shard: int
    number: int
    start: int
    stop: int

    @property
    def key(self) -> Key:
        """(shard, segment number)."""
        return self.shard, self.number

    @property
    def size(self) -> int:
        """Coordinates in the segment."""
        return self.stop - self.start


@dataclass(frozen=True)
class Layout:
    """The shard map of a round and its segments."""

    shard_map: ShardMap
    segments: dict[Key, Segment]

    @lru_cache(maxsize=256)  # noqa: B019 - layouts are few and live as long as their federation
    def coordinates(self, key: Key) -> NDArray[np.int64]:
        """Global coordinates of a segment."""
        segment = self.segments[key]
        return self.shard_map.coordinates(segment.shard, segment.start, segment.stop)

    def __hash__(self) -> int:
        return id(self)


@dataclass(frozen=True)
class Settings:
    """The agreement of a federation: every member must hold the same.

    ``n`` is the number of coordinates of the model. With ``compressor`` the federation uses
    shifted compression; ``masks="independent"`` is the paper's mode (a mask and a reference per
    client; for simulation), in which ``estimate`` chooses between renormalising over the included
    clients and the unbiased K/|I| scaling. Times are in seconds.
    """

    n: int
    plan: ShardPlan = RandomPlan(1)
    rule: ServerRule = FedAvg()
    compressor: Compressor | None = None
    masks: Literal["shared", "independent"] = "shared"
    estimate: Literal["renormalised", "unbiased"] = "renormalised"
    precision: FixedPoint = FixedPoint()
    non_finite: NonFinite = "refuse"
    segment_size: int | None = None
    min_included: int = 3
    quorum: int = 1
    close_after: float = 10.0
    catch_up_after: float = 15.0
    retry_every: float = 2.0
    history: int = 64
    seed: int = 0
    name: str = "federation"

    def __post_init__(self) -> None:
        self.layout(1)  # refuses a plan that does not fit n
        _one_of("masks", self.masks, ("shared", "independent"))
        _one_of("estimate", self.estimate, ("renormalised", "unbiased"))
        _one_of("non_finite", self.non_finite, ("refuse", "clip", "zero"))
        if self.min_included < 1:
            raise InvalidSetting("min_included", self.min_included, "at least 1 client")
        if self.quorum < 1:
            raise InvalidSetting("quorum", self.quorum, "at least 1 client")
        if not 0 < self.close_after < self.catch_up_after:
            raise InvalidSetting(
                "close_after", self.close_after, f"above 0, below catch_up_after = "
                f"{self.catch_up_after}",
            )  # fmt: skip
        if self.retry_every <= 0:
            raise InvalidSetting("retry_every", self.retry_every, "a positive number of seconds")
        if self.history < 1:
            raise InvalidSetting("history", self.history, "at least 1 round")
        if isinstance(self.compressor, TopK):
            raise InvalidSetting("compressor", "top-k", "an unbiased compressor: a shift needs one")
        if self.compressor is not None and not self.rule.works_compressed:
            raise InvalidSetting(
                "rule", self.rule.name, "a mean: order statistics of compressed values mean nothing"
            )
        if isinstance(self.compressor, RandK):
            self.compressor.kept(self.n, self.mask_stream(1))  # refuses k > n
        if self.masks == "independent" and not isinstance(self.compressor, RandP | RandK):
            raise InvalidSetting("masks", "independent", "rand-p or rand-k as the compressor")
        if self.rotates and self.rule.counts_updates:
            raise InvalidSetting(
                "plan.rotate", self._rotate, "0 with bias correction: it counts per segment"
            )

    # -- shards and segments ------------------------------------------------------------------

    @property
    def _rotate(self) -> int:
        return getattr(self.plan, "rotate", 0)

    @property
    def rotates(self) -> bool:
        """Whether shards are drawn anew during training."""
        return self._rotate > 0

    def turn_start(self, round: int) -> int:
        """The first round with the same shards as ``round``."""
        return round - (round - 1) % self._rotate if self.rotates else 1

    @cached_property
    def _layouts(self) -> dict[int, Layout]:
        return {}

    def layout(self, round: int) -> Layout:
        """Shards and segments of a round (rounds count from 1)."""
        start = self.turn_start(round)
        if start not in self._layouts:
            if len(self._layouts) > 2:
                self._layouts.pop(next(iter(self._layouts)))
            self._layouts[start] = self._lay_out(start)
        return self._layouts[start]

    def _lay_out(self, round: int) -> Layout:
        shard_map = self.plan.at(self.n, self.seed, round - 1)
        sizes = [shard_map.size(shard) for shard in range(shard_map.shards)]
        length = segment_length(max(sizes), self.segment_size)
        # As many segments in every shard and turn, so that a segment's name outlives a rotation;
        # where sizes differ by one the last may be empty.
        count = -(-max(sizes) // length)
        segments = {
            (shard, i): Segment(shard, i, min(i * length, size), min((i + 1) * length, size))
            for shard, size in enumerate(sizes)
            for i in range(count)
        }
        return Layout(shard_map, segments)

    # -- compression --------------------------------------------------------------------------

    @property
    def masked(self) -> bool:
        """Whether only kept coordinates travel."""
        return isinstance(self.compressor, RandP | RandK)

    @property
    def download_encoding(self) -> Encoding:
        """How results travel: as small as contributions where all clients keep the same."""
        kept = self.masked and self.masks == "shared"
        return Encoding.KEPT if kept else Encoding.DENSE

    def mask_stream(self, round: int, client: int = 0) -> Stream:
        """The stream behind a kept set; one for all clients unless masks are independent."""
        owner = client + 1 if self.masks == "independent" else 0
        return Stream(self.seed, "mask", round, owner)

    def kept(self, round: int, client: int = 0) -> KeptSet:
        """The kept set of a round (of a client, where masks are independent)."""
        assert isinstance(self.compressor, RandP | RandK)
        return _kept(self.compressor, self.n, self.mask_stream(round, client))

    def shift_step(self, segment_size: int) -> float:
        """γ for a segment (masks act on the whole vector, quantisers on a segment)."""
        assert self.compressor is not None
        return shift_step(self.compressor.omega(self.n if self.masked else max(1, segment_size)))

    # -- identity -----------------------------------------------------------------------------

    @cached_property
    def canonical(self) -> str:
        """The agreement as text, the same for the same agreement."""
        text = asdict(self)
        text["kinds"] = [type(part).__name__ for part in (self.plan, self.rule, self.compressor)]
        return json.dumps(text, sort_keys=True)

    @cached_property
    def fingerprint(self) -> int:
        """64 bits of the agreement's hash; every message carries it."""
        return int.from_bytes(hashlib.sha256(self.canonical.encode()).digest()[:8], "little")


@lru_cache(maxsize=64)
def _kept(compressor: RandP | RandK, n: int, stream: Stream) -> KeptSet:
    return compressor.kept(n, stream)


def stream_tag(stream: Stream) -> int:
    """The 64-bit name of a stream on the wire."""
    return int(stream.name[0]) | int(stream.name[1]) << 32


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidSetting(name, value, f"one of {', '.join(allowed)}")
