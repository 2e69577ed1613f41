"""What follows from a federation's settings and view: shards, segments, kept sets, steps.

Pure functions of (settings, view, round) that every node evaluates alike, kept for the current
rounds so that nodes in one process share the work.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eris.core.combine import MOST_SAMPLES
from eris.core.errors import InvalidSetting
from eris.core.rules import TrimmedMean
from eris.core.shardmap import Route, ShardMap
from eris.core.vectors import Indices, Vector
from eris.protocol.authority.standing import Epochs, Scheduled
from eris.protocol.codec import MOST_SAMPLE_STEPS
from eris.protocol.messages import Header
from eris.protocol.schemes.halves import Halves
from eris.protocol.secure.halves import SecureHalves
from eris.protocol.secure.noising import GAUGE
from eris.protocol.settings import Settings
from eris.protocol.view import View

Key = tuple[int, int]
"""(shard, segment number): names a segment."""


@dataclass(frozen=True)
class Segment:
    """A contiguous piece of a shard: the unit that is sent, combined, published and versioned."""

    shard_map: ShardMap
    shard: int
    number: int
    start: int
    stop: int

    @cached_property
    def key(self) -> Key:
        """(shard, segment number)."""
        return self.shard, self.number

    @property
    def size(self) -> int:
        """Coordinates in the segment."""
        return self.stop - self.start

    @property
    def coordinates(self) -> Indices:
        """Where in a whole vector the segment's coordinates are."""
        return self.shard_map.coordinates(self.shard, self.start, self.stop)

    @cached_property
    def _route(self) -> Route:
        return self.shard_map.route([(self.shard, self.start, self.stop)])

    def gather(self, vector: Vector) -> Vector:
        """The segment of a whole vector."""
        return self._route.gather(vector)

    def scatter(self, vector: Vector, values: Vector) -> None:
        """Write the segment back into a whole vector."""
        self._route.scatter(vector, values)


LOWERED = (
    "What that gives away: a mean over two clients tells each of them the other's update, and one "
    "over a single client is its update"
)
"""What whoever lowers ``min_included`` is to know."""


class Agreement(Epochs):
    """Settings and view of a federation, and what follows from them.

    ``majority``: whether a result needs most clients of its view, as on a network. ``founding`` are
    32 bytes that were drawn when the federation was founded; a simulation has none.
    """

    def __init__(
        self, settings: Settings, view: View, *, majority: bool = False, founding: bytes = b""
    ) -> None:
        if len(view.owners) != settings.plan.shards:
            raise InvalidSetting(
                "owners", len(view.owners), f"one for each of {settings.plan.shards} shards"
            )
        if settings.secure is not None:
            settings.secure.check_view(view)
        for name in ("min_included", "quorum"):
            if getattr(settings, name) > len(view.clients):
                expected = f"at most {len(view.clients)}, the clients: else nothing is published"
                if name == "min_included":
                    expected += f"; min_included={len(view.clients)} allows it. {LOWERED}"
                raise InvalidSetting(name, getattr(settings, name), expected)
        rule, clients = settings.rule, len(view.clients)
        if isinstance(rule, TrimmedMean) and rule.trim and rule.values_mixed(clients) == clients:
            expected = f"0, or at least {1 / clients:.3g}: of {clients} clients it cuts none"
            raise InvalidSetting("trim", rule.trim, expected)
        settings.scheme.check_view(view)
        self.settings, self.majority, self.founding = settings, majority, founding
        super().__init__((Scheduled(view, 1),))
        self._layouts: dict[int, dict[Key, Segment]] = {}
        self._routes: tuple[int, Route] | None = None
        self.keys = tuple(self.segments(1))
        self.coding = settings.scheme.at(self)
        """What contributions and results are."""

    def in_view(self, view: View) -> Agreement:
        """The same settings in the view of another epoch; what was derived is shared."""
        other = copy.copy(self)
        other.schedule((Scheduled(view, 1),))
        other.coding = copy.copy(self.coding)
        other.coding.agreement = other
        return other

    @property
    def halves(self) -> Halves:
        """How members send, collect and answer."""
        return self.coding if self.settings.secure is None else SecureHalves(self)

    def enough(self, round: int) -> int:
        """Clients that a result of a round needs: as many as were agreed, and where members may be
        cut off from each other a majority. Any two results of a view then have one in common."""
        most = len(self.view_at(round).clients) // 2 + 1 if self.majority else 1
        return max(most, self.settings.quorum, self.settings.min_included)

    # -- shards and segments ------------------------------------------------------------------

    def turn_start(self, round: int) -> int:
        """The first round with the same shards as ``round`` (rounds count from 1)."""
        rotate = self.settings.plan.rotate
        return round - (round - 1) % rotate if rotate else 1

    def turn_ends(self, after: int, before: int) -> range:
        """The last rounds of turns that lie after one round and before another."""
        rotate = self.settings.plan.rotate
        if not rotate:
            return range(0)
        return range(self.turn_start(after + 1) + rotate - 1, before, rotate)

    def segments(self, round: int) -> dict[Key, Segment]:
        """All segments of a round by name."""
        start = self.turn_start(round)
        if start not in self._layouts:
            if len(self._layouts) > 2:
                self._layouts.pop(next(iter(self._layouts)))
            self._layouts[start] = self._lay_out(start)
        return self._layouts[start]

    def _lay_out(self, round: int) -> dict[Key, Segment]:
        settings = self.settings
        shard_map = settings.shard_map(round - 1)
        sizes = [shard_map.size(shard) for shard in range(shard_map.shards)]
        length = settings.segment_length(max(sizes))
        # As many segments in every shard and turn, so that a segment's name outlives a rotation;
        # where sizes differ by one the last may be empty.
        count = -(-max(sizes) // length)
        found = {
            (shard, i): Segment(
                shard_map, shard, i, min(i * length, size), min((i + 1) * length, size)
            )
            for shard, size in enumerate(sizes)
            for i in range(count)
        }
        if settings.noise is not None:  # the gauge: it has none of the model's coordinates
            last = Segment(shard_map, len(sizes) - 1, count, sizes[-1], sizes[-1])
            found[last.key] = last
        return found

    @cached_property
    def gauge(self) -> Key | None:
        """The segment of the gauge coordinates, where there is noise."""
        return None if self.settings.noise is None else self.keys[-1]

    def count(self, round: int, key: Key) -> int:
        """Values that a client of a secure sum sends of a segment."""
        if key == self.gauge:
            return GAUGE
        return self.coding.size(round, self.segments(round)[key], 0)

    def route(self, round: int) -> Route:
        """The way to all shards of a round, one behind the other and so segment after segment."""
        start = self.turn_start(round)
        if self._routes is None or self._routes[0] != start:
            shard_map = next(iter(self.segments(round).values())).shard_map
            self._routes = (start, shard_map.stripe())
        return self._routes[1]

    def edges(self, round: int) -> Indices:
        """Where on that way each segment begins, in the order of :attr:`keys`, and the end."""
        return np.cumsum([0, *(segment.size for segment in self.segments(round).values())])

    def header(self, sender: int, round: int, key: Key) -> Header:
        """The header of a message of this federation."""
        epoch = self.view_at(round).epoch
        return Header(self.settings.fingerprint, epoch, sender, round, *key)

    # -- weights -------------------------------------------------------------------------------

    def check_weight(self, client: int, samples: int, steps: int, round: int) -> None:
        """Refuse what cannot be a client's weight and number of local steps.

        Each may have its part of what a sum over all clients can hold, so that no sum is ever too
        large and nobody is refused for having come after others.
        """
        name = self.view.members[client]
        if samples < 1:
            raise InvalidSetting(
                f"samples of {name}", samples, "at least 1: it is the client's weight"
            )
        if steps < 1:
            raise InvalidSetting(f"steps of {name}", steps, "at least 1 local step")
        clients = len(self.view_at(round).clients)
        if samples > MOST_SAMPLES // clients:
            expected = f"at most {MOST_SAMPLES // clients} of each of {clients} clients"
            raise InvalidSetting(f"samples of {name}", samples, expected)
        if samples * steps > MOST_SAMPLE_STEPS // clients:
            most = MOST_SAMPLE_STEPS // clients // samples
            expected = f"at most {most} where each of {clients} clients has {samples} samples"
            raise InvalidSetting(f"steps of {name}", steps, expected)


def networked(settings: Settings, views: Sequence[Scheduled], founding: bytes = b"") -> Agreement:
    """The agreement of members that may fail, in the views that their authority told."""
    if settings.scheme.in_step:
        expected = f"another one where members may fail: {settings.scheme.in_step}"
        raise InvalidSetting("scheme", settings.scheme.name, expected)
    if settings.plan.rotate:
        expected = "0 where members may fail: shards drawn anew wait for every owner"
        raise InvalidSetting("plan.rotate", settings.plan.rotate, expected)
    if not views:
        raise InvalidSetting("standing", "without a view", "one, to begin in")
    # Settings are checked against a view in which all members are there.
    members = views[-1].view.members
    clients = tuple(range(int(settings.scheme.apart), len(members)))
    samples = (1,) * len(clients) if settings.scheme.weighed else None
    everyone = View(members, clients, (0,) * settings.plan.shards, samples)
    agreement = Agreement(settings, everyone, majority=True, founding=founding)
    agreement.schedule(views)
    return agreement
