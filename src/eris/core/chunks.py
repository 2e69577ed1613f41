"""How Shatter cuts a model into k chunks (sections 4.2 and appendix C of its paper).

Static chunks are one random partition for all nodes and rounds, the same as the random shards of
:mod:`eris.core.shards`. The others are the appendix's alternatives: ``linear`` chunks are
contiguous, ``dynamic`` ones a new random partition every round, and with ``replacement`` every
carrier draws its n/k coordinates on its own, so that chunks of one model overlap or leave gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from eris.core.errors import InvalidSetting, one_of, require
from eris.core.shards import ContiguousPlan, RandomPlan, ShardPlan
from eris.core.streams import Stream
from eris.core.vectors import Indices

ChunkKind = Literal["static", "linear", "replacement", "dynamic"]


@dataclass(frozen=True)
class Chunking:
    """``chunks`` pieces of a model of n coordinates, drawn from a public seed.

    >>> [len(Chunking(3, "static", n=10, seed=1).places(1, chunk, chunk)) for chunk in range(3)]
    [3, 3, 4]
    """

    chunks: int
    kind: ChunkKind
    n: int
    seed: int

    def __post_init__(self) -> None:
        if self.kind not in get_args(ChunkKind):
            expected = one_of(get_args(ChunkKind), self.kind)
            raise InvalidSetting("chunking", self.kind, expected)
        require(self.n >= 1, "n", self.n, "at least 1 coordinate")
        expected = f"1 to n = {self.n}: every chunk holds a coordinate"
        require(1 <= self.chunks <= self.n, "chunks", self.chunks, expected)

    def size(self, round: int, chunk: int) -> int:
        """How many coordinates a chunk holds in a round; chunks differ by at most 1."""
        return len(self._part(round, chunk))

    def places(self, round: int, chunk: int, carrier: int) -> Indices:
        """The coordinates of a chunk in a round; who carries it matters with replacement only."""
        if self.kind != "replacement":
            return self._part(round, chunk)
        draws = Stream(self.seed, "chunk", round, carrier).uniform(0, self.size(round, chunk))
        return (draws * self.n).astype(np.int64)

    def _part(self, round: int, chunk: int) -> Indices:
        if self.kind in ("static", "dynamic"):
            turn = round if self.kind == "dynamic" else 0
            return _partition(RandomPlan(self.chunks, rotate=1), self.n, self.seed, turn)[chunk]
        return _partition(ContiguousPlan(self.chunks), self.n, self.seed, 0)[chunk]


@lru_cache(maxsize=4)
def _partition(plan: ShardPlan, n: int, seed: int, turn: int) -> tuple[Indices, ...]:
    shard_map = plan.at(n, seed, turn)
    parts = tuple(shard_map.coordinates(shard) for shard in range(plan.shards))
    for part in parts:
        part.setflags(write=False)  # shared by all who ask
    return parts
