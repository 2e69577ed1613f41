"""What follows from a federation's settings and view: shards, segments, kept sets, steps.

Pure functions of (settings, view, round) that every node evaluates alike, kept for the current
rounds so that nodes in one process share the work.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from eris.core.combine import MOST_SAMPLES
from eris.core.compress import Encoding, RandK, RandP
from eris.core.errors import InvalidSetting
from eris.core.masks import KeptSet
from eris.core.prune import Prune
from eris.core.rules import TrimmedMean
from eris.core.shardmap import Route, ShardMap
from eris.core.shards import segment_length
from eris.core.shift import shift_step
from eris.core.streams import Stream
from eris.core.vectors import Indices, Vector
from eris.protocol.codec import MOST_SAMPLE_STEPS
from eris.protocol.membership import View
from eris.protocol.messages import Header, Result
from eris.protocol.settings import Settings
from eris.protocol.standing import Scheduled

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

    @cached_property
    def _route(self) -> Route:
        return self.shard_map.route([(self.shard, self.start, self.stop)])

    def gather(self, vector: Vector) -> Vector:
        """The segment of a whole vector."""
        return self._route.gather(vector)

    def scatter(self, vector: Vector, values: Vector) -> None:
        """Write the segment back into a whole vector."""
        self._route.scatter(vector, values)


@dataclass(frozen=True)
class Stripe:
    """The segments of one number in all shards: cut out together, they are one pass over memory."""

    segments: tuple[Segment, ...]

    @cached_property
    def _route(self) -> Route:
        shard_map = self.segments[0].shard_map
        return shard_map.route([(s.shard, s.start, s.stop) for s in self.segments])

    def cut(self, vector: Vector) -> list[Vector]:
        """The stripe's segments of a whole vector, in the order of ``segments``."""
        return self._route.cut(self._route.gather(vector))


@dataclass(frozen=True)
class KeptStripe:
    """The kept coordinates of a stripe's segments: what is not kept need not be cut out.

    ``coordinates`` are their places in a whole vector, one segment's behind the other's.
    """

    coordinates: Indices
    edges: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, segments: Sequence[Indices]) -> KeptStripe:
        """From the kept coordinates of each segment."""
        edges = np.cumsum([0, *map(len, segments)]).tolist()
        return cls(np.concatenate(segments), tuple(pairwise(edges)))

    def gather(self, vector: Vector) -> Vector:
        """The kept values of a whole vector."""
        return vector[self.coordinates]

    def cut(self, kept: Vector) -> list[Vector]:
        """Those of the single segments, as views."""
        return [kept[a:b] for a, b in self.edges]


class Agreement:
    """Settings and view of a federation, and what follows from them."""

    def __init__(self, settings: Settings, view: View) -> None:
        if len(view.owners) != settings.plan.shards:
            raise InvalidSetting(
                "owners", len(view.owners), f"one for each of {settings.plan.shards} shards"
            )
        for name in ("min_included", "quorum"):
            if getattr(settings, name) > len(view.clients):
                expected = f"at most {len(view.clients)}, the clients: else nothing is published"
                raise InvalidSetting(name, getattr(settings, name), expected)
        rule, clients = settings.rule, len(view.clients)
        if isinstance(rule, TrimmedMean) and rule.trim and rule.values_mixed(clients) == clients:
            expected = f"0, or at least {1 / clients:.3g}: of {clients} clients it cuts none"
            raise InvalidSetting("trim", rule.trim, expected)
        if settings.masks == "independent" and view.samples is None:
            raise InvalidSetting("samples", None, "every client's weight in the view: the paper's "
                                 "mode weighs references by it")  # fmt: skip
        self.settings = settings
        self._views: tuple[Scheduled, ...] = (Scheduled(view, 1),)
        kept = settings.masked and settings.masks == "shared"
        self.download_encoding = Encoding.KEPT if kept else Encoding.DENSE
        """How results travel: as small as contributions where all clients keep the same."""
        self._layouts: dict[int, dict[Key, Segment]] = {}
        self._stripes: tuple[int, list[Stripe]] | None = None
        self._tags: dict[tuple[int, int], int] = {}
        self._kept: dict[tuple[int, int], KeptSet] = {}
        self._places: dict[tuple[int, int, Key], tuple[Indices, Indices]] = {}
        self._in_stripe: dict[tuple[int, int, int], KeptStripe] = {}
        self.keys = tuple(self.segments(1))

    def in_view(self, view: View) -> Agreement:
        """The same settings in the view of another epoch; what was derived is shared."""
        other = copy.copy(self)
        other._views = (Scheduled(view, 1),)
        return other

    @property
    def view(self) -> View:
        """The newest view."""
        return self._views[-1].view

    def view_at(self, round: int) -> View:
        """The view that holds in a round."""
        for scheduled in reversed(self._views):
            if scheduled.from_round <= round:
                return scheduled.view
        return self._views[0].view

    @property
    def newest_from(self) -> int:
        """The first round of the newest view."""
        return self._views[-1].from_round

    def knows(self, round: int) -> bool:
        """Whether the view of a round is known: a newcomer is not told of all that have been."""
        return self._views[0].from_round <= round

    def schedule(self, views: Sequence[Scheduled]) -> None:
        """Go by these views from now on, in the order of their epochs."""
        self._views = tuple(views)

    def enough(self, round: int) -> int:
        """Clients that a result of a round needs on a network: a majority of those of its view, and
        no fewer than were agreed. Any two results of a view have one in common."""
        clients = len(self.view_at(round).clients)
        return max(clients // 2 + 1, self.settings.quorum, self.settings.min_included)

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
        shard_map = settings.plan.at(settings.n, settings.seed, round - 1)
        sizes = [shard_map.size(shard) for shard in range(shard_map.shards)]
        length = segment_length(max(sizes), settings.segment_size)
        # As many segments in every shard and turn, so that a segment's name outlives a rotation;
        # where sizes differ by one the last may be empty.
        count = -(-max(sizes) // length)
        return {
            (shard, i): Segment(
                shard_map, shard, i, min(i * length, size), min((i + 1) * length, size)
            )
            for shard, size in enumerate(sizes)
            for i in range(count)
        }

    def stripes(self, round: int) -> list[Stripe]:
        """The segments of a round, by number: the order in which a client sends them, so that all
        owners are kept busy and each can publish early segments while later ones still arrive."""
        segments = self.segments(round)
        start = self.turn_start(round)
        if self._stripes is None or self._stripes[0] != start:
            numbers = sorted({number for _, number in segments})
            shards = range(self.settings.plan.shards)
            stripes = [Stripe(tuple(segments[a, i] for a in shards)) for i in numbers]
            self._stripes = (start, stripes)
        return self._stripes[1]

    def header(self, sender: int, round: int, key: Key) -> Header:
        """The header of a message of this federation."""
        epoch = self.view_at(round).epoch
        return Header(self.settings.fingerprint, epoch, sender, round, *key)

    # -- compression --------------------------------------------------------------------------

    def _mask_owner(self, client: int) -> int:
        return client + 1 if self.settings.masks == "independent" else 0

    def mask_stream(self, round: int, client: int = 0) -> Stream:
        """The stream behind a kept set; one for all clients unless masks are independent."""
        return Stream(self.settings.seed, "mask", round, self._mask_owner(client))

    def mask_tag(self, round: int, client: int = 0) -> int:
        """The 64-bit name of that stream on the wire."""
        who = (round, self._mask_owner(client))
        if who not in self._tags:
            self._forget(round)
            name = self.mask_stream(round, client).name
            self._tags[who] = int(name[0]) | int(name[1]) << 32
        return self._tags[who]

    def kept(self, round: int, client: int = 0) -> KeptSet:
        """The kept set of a round (of a client, where masks are independent)."""
        compressor = self.settings.compressor
        assert isinstance(compressor, RandP | RandK)
        name = (round, self._mask_owner(client))
        if name not in self._kept:
            self._forget(round)
            self._kept[name] = compressor.kept(self.settings.n, self.mask_stream(round, client))
        return self._kept[name]

    def places(self, round: int, key: Key, client: int = 0) -> Indices:
        """Where in a segment the kept coordinates are."""
        return self._kept_in(round, key, client)[0]

    def kept_in_stripe(self, round: int, stripe: Stripe, client: int = 0) -> KeptStripe:
        """What is kept of a stripe."""
        name = (round, self._mask_owner(client), stripe.segments[0].number)
        if name not in self._in_stripe:
            kept = [self._kept_in(round, segment.key, client)[1] for segment in stripe.segments]
            self._in_stripe[name] = KeptStripe.of(kept)
        return self._in_stripe[name]

    def kept_coordinates(self, round: int, key: Key, client: int = 0) -> Indices:
        """Where in a whole vector the kept coordinates of a segment are."""
        return self._kept_in(round, key, client)[1]

    def _kept_in(self, round: int, key: Key, client: int) -> tuple[Indices, Indices]:
        """Where the kept coordinates of a segment are: in it, and in a whole vector."""
        name = (round, self._mask_owner(client), key)
        if name not in self._places:
            segment = self.segments(round)[key]
            coordinates = segment.shard_map.coordinates(segment.shard, segment.start, segment.stop)
            places = self.kept(round, client).among(coordinates)
            self._places[name] = places, coordinates[places]
        return self._places[name]

    def _forget(self, round: int) -> None:
        """Drop the kept sets of rounds that are over; a straggler's can be derived again."""
        for cache in (self._tags, self._kept, self._places, self._in_stripe):
            for old in [name for name in cache if abs(name[0] - round) > 1]:
                del cache[old]  # type: ignore[arg-type]

    def shift_step(self, segment: Segment) -> float:
        """γ for a segment (masks act on the whole vector, quantisers on a segment)."""
        assert self.settings.compressor is not None
        assert not isinstance(self.settings.compressor, Prune)
        size = self.settings.n if self.settings.masked else max(1, segment.size)
        return shift_step(self.settings.compressor.omega(size))

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
        agreed = self.agreed_samples(client, samples)
        if samples != agreed:
            expected = f"{agreed}, as agreed in the view: the paper's mode weighs references by it"
            raise InvalidSetting(f"samples of {name}", samples, expected)

    def agreed_samples(self, client: int, claimed: int) -> int:
        """A client's weight: what it claims, or in the paper's mode what the view says."""
        if self.settings.masks == "shared":
            return claimed
        assert self.view.samples is not None
        return self.view.samples[self.view.clients.index(client)]

    def included_share(self, result: Result) -> float:
        """Σ_{k∈I} w_k with the agreed weights (paper's mode)."""
        assert self.view.samples is not None
        return result.samples / sum(self.view.samples)


def networked(settings: Settings, views: Sequence[Scheduled]) -> Agreement:
    """The agreement of a federation on a network, in the views that its authority told."""
    if settings.masks == "independent":
        expected = "shared: a reference per client does not survive its client"
        raise InvalidSetting("masks", "independent", expected)
    if settings.plan.rotate:
        expected = "0 on a network: shards drawn anew wait for every owner, and owners may die"
        raise InvalidSetting("plan.rotate", settings.plan.rotate, expected)
    if not views:
        raise InvalidSetting("standing", "without a view", "one, to begin in")
    # Settings are checked against a view in which all members are there.
    members = views[-1].view.members
    everyone = View(members, tuple(range(len(members))), (0,) * settings.plan.shards)
    agreement = Agreement(settings, everyone)
    agreement.schedule(views)
    return agreement
