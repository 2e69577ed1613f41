"""The shape of a simulated federation: who is in it, in which roles, on what terms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from eris.core.compress import RandP
from eris.core.rules import FedAdam, FedAvg
from eris.core.shards import RandomPlan
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.protocol.authority.succession import Candidate, assign
from eris.protocol.enccluster.mapped import MappingCoding
from eris.protocol.enccluster.sets import SetLaw
from eris.protocol.gossip.carried import LEAST as CARRYING
from eris.protocol.schemes import (
    EncryptedClusters,
    EncryptedWeights,
    Grid,
    Independent,
    Scheme,
    scheme_for,
)
from eris.protocol.secure.seats import Threshold
from eris.protocol.secure.terms import RINGS, SecureSums
from eris.protocol.settings import Settings, model_digest
from eris.protocol.view import View

NAMES = ("anna", "ben", "cleo", "dora", "emil", "fay", "gus")
MOST_SAMPLES = (1 << 13) - 1
"""In a secure sum: so few that words of four bytes keep 12 binary places."""
GRID_RANGE = 0.5
"""Of a mean, on a common grid: so little that most first sums do not fit."""
CLUSTERED = 40
"""Coordinates of a segment that are worth four encrypted clusters."""
RANGE, PLACES, COLLUDERS = 60.0, 4, 1
"""Of encrypted sums: all that is trained here fits, and a small table of logarithms is enough."""


@dataclass(frozen=True)
class Shape:
    """Who takes part and how.

    The federation begins with the first ``start_with`` of its hosts. The last ``helpers`` have no
    data, the ``clients_only`` before them own no shards. With a ``roster`` there is no directory
    and no takeover. On ``ordered`` links no message overtakes another, as on a stream.

    >>> Shape(members=5).enough  # a majority
    3
    """

    members: int = 5
    start_with: int = 0
    """0: all of them."""
    rounds: int = 6
    shards: int = 3
    max_share: float = 0.5
    helpers: int = 0
    clients_only: int = 0
    roster: bool = False
    ordered: bool = False
    min_included: int = 2
    segment_size: int | None = None
    kept: float = 0.5
    """Of the coordinates, below 3 % of rotated ones; 1 without compression."""
    history: int = 2
    adaptive: bool = False
    cautious: bool = False
    """Whether the directory makes no view with too few clients for a result."""
    secure: str = "none"
    """Whose help opens sums, such as ``2 of 3``."""
    ring_bytes: int = 8
    """Of the words of such a sum."""
    bits: int = 0
    """Of such words on a common grid that follows the last mean; 0: in fixed point."""
    encrypted: str = "none"
    """What is encrypted: ``clusters``, or ``weights``."""
    coding: MappingCoding = "packed"
    """How the mapping to such clusters travels."""
    own: bool = False
    """Whether every client has a mask and a reference of its own."""
    gossip: str = ""
    """The method by which members gossip; empty where they aggregate."""

    @classmethod
    def drawn(cls, seed: int) -> Self:
        """The shape that belongs to a seed: three to seven members, in any mode."""
        draw = iter(Stream(seed, "shape").uniform(0, 16).tolist())

        def below(limit: int) -> int:
            return int(next(draw) * limit)

        members = 3 + below(5)
        helpers, clients_only = (below(members - 1) // 2 for _ in range(2))
        helpers = min(helpers, members - 3)
        roster = below(6) == 0
        shards, min_included = 2 + below(members - 1), 2 + below(2)
        least = max((members - helpers) // 2 + 1, min_included)
        return cls(
            members=members,
            start_with=members if roster else least + below(members - least + 1),
            rounds=4 + below(12),
            shards=shards,
            # Never so little that a member could not own a single one.
            max_share=max(1.1 / shards, (0.0, 0.5, 0.5, 1.0)[below(4)]),
            helpers=helpers,
            clients_only=min(clients_only, members - helpers - 1),
            roster=roster,
            ordered=below(2) == 0,
            min_included=min_included,
            segment_size=(2, 4, 9, None)[below(4)],
            kept=(0.5, 1.0)[below(5) // 3],
            history=1 + below(3),
            adaptive=below(3) == 0,
            cautious=below(2) == 0,
        )

    @classmethod
    def secured(cls, seed: int) -> Self:
        """The shape that belongs to a seed where sums are secure: five to seven members, words of
        any size, every fourth on a common grid."""
        drawn, pick = cls.drawn(seed), Stream(seed, "secured").uniform(0, 4)
        members = max(drawn.members, 5 + int(3 * pick[2]))
        made = replace(
            drawn, members=members, start_with=0, helpers=0, roster=False, min_included=4,
            clients_only=min(drawn.clients_only, 1), secure=("2 of 3", "2 of 3", "3 of 4")[
                int(3 * pick[0])] if members > 5 else "2 of 3",
            shards=min(drawn.shards, members), max_share=max(drawn.max_share, 0.5),
            ring_bytes=RINGS[int(len(RINGS) * pick[1])],
        )  # fmt: skip
        bits = [8, 10, 12, 16][int(16 * pick[3]) :][:1]
        return replace(made, bits=bits[0], ring_bytes=8, kept=1.0) if bits else made

    @classmethod
    def encrypting(cls, seed: int) -> Self:
        """The shape that belongs to a seed where sums are encrypted: five to seven members, most
        of them with clusters."""
        drawn, pick = cls.drawn(seed), Stream(seed, "encrypting").uniform(0, 4)
        members = max(drawn.members, 5 + int(3 * pick[0]))
        return replace(
            drawn, members=members, start_with=0, helpers=int(2 * pick[3]) if members > 5 else 0,
            roster=False, clients_only=min(drawn.clients_only, 1), kept=1.0,
            shards=min(drawn.shards, 3), max_share=max(drawn.max_share, 0.6),
            segment_size=CLUSTERED if pick[1] < 0.3 else None,
            encrypted="weights" if pick[1] > 0.9 else "clusters",
            coding=("packed", "packed", "sealed", "huffman", "filter16")[int(5 * pick[2])],
        )  # fmt: skip

    @classmethod
    def referring(cls, seed: int) -> Self:
        """The shape that belongs to a seed where every client has a reference of its own."""
        drawn = cls.drawn(seed)
        return replace(drawn, own=True, roster=False, rounds=2 * drawn.rounds, kept=0.5)

    @property
    def n(self) -> int:
        """Coordinates of the model."""
        if self.encrypted == "none":
            return 8 + 4 * self.members
        if self.encrypted == "weights":
            return 8 * self.shards
        return (2 if self.segment_size else 1) * CLUSTERED * self.shards

    @classmethod
    def gossiping(cls, seed: int) -> Self:
        """The shape that belongs to a seed where members gossip, by one method after another."""
        methods = ("d-psgd", "el", "muffliato", "q-dpsgd-1", "ako", "shatter")
        drawn = cls.drawn(seed)
        rounds = 3 * drawn.rounds  # some of them after the storm
        made = replace(drawn, helpers=0, rounds=rounds, gossip=methods[seed % len(methods)])
        least = max(made.start_with, made.fewest)
        return replace(made, members=max(made.members, made.fewest + 1), start_with=least)

    @property
    def fewest(self) -> int:
        """Clients without whom there is no round, whoever else is there."""
        return CARRYING if self.gossip == "shatter" else 1

    @property
    def sums(self) -> SecureSums | None:
        """What is agreed on about sums."""
        if self.secure == "none":
            return None
        threshold = Threshold.parse(self.secure)
        return SecureSums(threshold, self.ring_bytes, total_samples=MOST_SAMPLES)

    @property
    def keyed(self) -> bool:
        """Whether members have keys that a view states."""
        return self.secure != "none" or self.encrypted != "none"

    @property
    def clients(self) -> int:
        """How many hosts have data: the first ones."""
        return self.members - self.helpers

    @property
    def enough(self) -> int:
        """Clients that a result needs: a majority, so that any two results share one."""
        least = max(self.min_included, self._least, self._lawful, self.fewest)
        return max(self.clients // 2 + 1, min(least, self.clients))

    @property
    def _least(self) -> int:
        return 0 if self.sums is None else self.sums.least_included

    @property
    def _lawful(self) -> int:
        return 0 if self.encrypted == "none" else SetLaw(self.clients, COLLUDERS).least

    @staticmethod
    def name(host: int) -> str:
        """How the member on a host is called."""
        return NAMES[host] if host < len(NAMES) else f"member-{host}"

    def is_client(self, host: int) -> bool:
        """Whether a host has data."""
        return host < self.clients

    @staticmethod
    def samples(host: int) -> int:
        """A host's samples: no two sets of clients weigh the same."""
        return int(3**host)

    def is_aggregator(self, host: int) -> bool:
        """Whether a host may own shards."""
        return not self.clients - self.clients_only <= host < self.clients

    def settings(self, seed: int) -> Settings:
        """What the members agree on."""
        return Settings(
            n=self.n,
            plan=RandomPlan(self.shards),
            rule=FedAdam(0.1, bias_correction=True) if self.adaptive else FedAvg(),
            scheme=self.scheme(),
            secure=self.sums,
            segment_size=self.segment_size,
            min_included=min(max(self.min_included, self._least), self.clients),
            quorum=min(self.start_with or self.members, self.clients) // 2 + 1,
            close_after=0.9,
            catch_up_after=1.2,
            retry_every=0.3,
            history=self.history,
            seed=seed,
            initial=model_digest(self.initial(seed)),
        )

    def scheme(self) -> Scheme:
        """How segments travel."""
        if self.bits:
            return Grid(self.bits, range=GRID_RANGE, average="plain")
        if self.encrypted == "clusters":
            return EncryptedClusters(
                RANGE, PLACES, "plain", COLLUDERS, clusters=4, coding=self.coding
            )
        if self.encrypted == "weights":
            return EncryptedWeights(RANGE, PLACES, "plain", COLLUDERS)
        if self.own:
            return Independent(RandP(self.kept))
        return scheme_for(RandP(self.kept) if self.kept < 1 else None)

    def initial(self, seed: int) -> Vector:
        """The model that all start from."""
        drawn = Stream(seed, "initial").uniform(0, self.n)
        return drawn.astype(np.float32)

    def roster_view(self, sizes: list[int]) -> View:
        """The one view of a federation with a roster: its shards never wait or move."""
        hosts = range(self.members)
        candidates = [Candidate(host) for host in hosts if self.is_aggregator(host)]
        names = tuple(map(self.name, hosts))
        clients = tuple(host for host in hosts if self.is_client(host))
        return View(names, clients, assign(sizes, candidates), epoch=1)
