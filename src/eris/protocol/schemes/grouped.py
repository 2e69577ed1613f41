"""Rotated masks in groups: clients of one group share a kept set, those of another have another.

With G groups G times as many places are published as a client sends, and what masks add to a step
is that of G·p kept. The price is the crowd: a published value is a mean over one group. Kept sets
are disjoint: group g keeps the places whose word lies from g·θ to (g + 1)·θ, so one group is the
shared set, bit for bit. Groups last for an epoch: drawn anew in every round, they would let readers
subtract neighbouring rounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from eris.core.compress import RandP
from eris.core.errors import InvalidSetting, MalformedMessage
from eris.core.masks import KeptSet, fraction_kept
from eris.core.streams import Stream
from eris.core.vectors import Indices, Vector
from eris.protocol.messages import Contribution, Payload, Result
from eris.protocol.schemes.collector import Collector
from eris.protocol.schemes.reader import Reader
from eris.protocol.schemes.rotated import Rotated, RotatedCoding
from eris.protocol.schemes.scheme import Coding, Held

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Segment
    from eris.protocol.settings import Settings
    from eris.protocol.view import View

FEWEST = 5
"""Clients of a group: with five a published mean was seen to tell members from others a little."""


@dataclass(frozen=True)
class Grouped(Rotated):
    """rand-p of a rotated update, with one kept set a round for each of ``groups``."""

    groups: int = 2
    name: ClassVar[str] = "grouped"

    def published_share(self, n: int) -> float:
        """The share of ``n`` coordinates that results have: the groups' sets are disjoint."""
        return self.groups * self.kept_share(n)

    def check(self, settings: Settings) -> None:
        """Refuse what does not go together with this scheme."""
        super().check(settings)
        if not isinstance(self.compressor, RandP):
            expected = f"rand-p with mask_groups = {self.groups}"
            raise InvalidSetting("compressor", self.compressor.name, expected)
        if self.groups < 2 or self.published_share(settings.places) > 1:
            expected = "1 or more whose disjoint kept sets have room: mask_groups · kept_fraction"
            raise InvalidSetting("mask_groups", self.groups, f"{expected} is at most 1")

    def check_view(self, view: View) -> None:
        """Refuse a view in which this scheme cannot work."""
        if len(view.clients) < FEWEST * self.groups:
            expected = f"at most {len(view.clients) // FEWEST} with {len(view.clients)} clients"
            raise InvalidSetting("mask_groups", self.groups, f"{expected}: {FEWEST} in a group")

    def at(self, agreement: Agreement) -> Coding:
        """This scheme at work."""
        return GroupedCoding(self, agreement)

    def __str__(self) -> str:
        return f"{super().__str__()}, {self.groups} groups"


class GroupedCoding(RotatedCoding):
    """Masks in groups at work."""

    def __init__(self, scheme: Grouped, agreement: Agreement) -> None:
        super().__init__(scheme, agreement)
        self._groups = scheme.groups
        self._dealt: tuple[int, dict[int, int]] = (-1, {})

    def groups(self, round: int) -> dict[int, int]:
        """By client: its group; dealt in turn, in an order drawn for the epoch."""
        view = self.agreement.view_at(round)
        if self._dealt[0] != view.epoch:
            stream = Stream(self.agreement.settings.seed, "mask-groups", view.epoch)
            words = stream.words(0, max(view.clients) + 1)
            order = sorted(view.clients, key=lambda client: (words[client], client))
            dealt = {client: turn % self._groups for turn, client in enumerate(order)}
            self._dealt = view.epoch, dealt
        return self._dealt[1]

    def who(self, round: int, client: int) -> int:
        """Whose mask a client uses: its group's."""
        if client not in self.groups(round):
            raise MalformedMessage("member", f"{client} is no client of round {round}")
        return self.groups(round)[client]

    def stream(self, round: int, client: int = 0) -> Stream:
        """The stream behind the kept sets: one word a place, for all groups."""
        return Stream(self.agreement.settings.seed, "mask", round)

    def tag(self, round: int, client: int | None = None) -> int:
        """The 64-bit name of that stream on the wire."""
        return super().tag(round, self.agreement.view_at(round).clients[0])

    def draw(self, round: int, client: int) -> KeptSet:
        """The kept set of a client's group."""
        assert isinstance(self.compressor, RandP)
        n, group = self.agreement.settings.places, self.who(round, client)
        return fraction_kept(n, self.compressor.kept_fraction, self.stream(round), group)

    def published_parts(self, result: Result) -> list[tuple[list[int], Indices]]:
        """By group that is in a result: its clients, and where in the segment their values are."""
        round, crowds = result.header.round, dict[int, list[int]]()
        for client in sorted(result.included):
            crowds.setdefault(self.who(round, client), []).append(client)
        return [
            (crowd, self.places(round, result.header.key, crowd[0]))
            for _, crowd in sorted(crowds.items())
        ]

    def published_in(self, result: Result, segment: Segment) -> Indices:
        """Where in a segment a result's values are: group after group."""
        return np.concatenate([places for _, places in self.published_parts(result)])

    def collector(self, round: int, segment: Segment, held: Held) -> Collector:
        """An owner's half, for one segment and round."""
        return GroupedCollector(self, round, segment)

    def reader(self) -> Reader:
        """An observer's half."""
        return GroupedReader(self)


class GroupedCollector(Collector):
    """A mean a group. A group of too few is left out, and its places count as not kept."""

    _coding: GroupedCoding

    def __init__(self, coding: GroupedCoding, round: int, segment: Segment) -> None:
        super().__init__(coding, round, segment, coding.agreement.view_at(round).clients[0])
        self._parts: dict[int, Collector] = {}

    @property
    def _published(self) -> list[Collector]:
        least = self._coding.agreement.settings.min_included
        return [part for _, part in sorted(self._parts.items()) if len(part.included) >= least]

    @property
    def samples(self) -> int:
        """The samples of the included clients."""
        return sum(part.samples for part in self._published)

    def take(self, contribution: Contribution) -> None:
        """Count a contribution in, or refuse it."""
        sender = contribution.header.sender
        group = self._coding.who(self._round, sender)
        if group not in self._parts:
            self._parts[group] = Collector(self._coding, self._round, self._segment, sender)
        self._parts[group].take(contribution)
        self._included = set().union(*(part.included for part in self._published))
        self.sample_steps = sum(part.sample_steps for part in self._published)

    def finish(self) -> Payload:
        """The groups' means, each times its share of the samples: places of groups add up to one
        mean over all that are included."""
        whole = self.samples
        means = [np.float32(part.samples / whole) * part.mean() for part in self._published]
        return self._coding.publish(np.concatenate(means), self._round)


class GroupedReader(Reader):
    """What groups' means tell: their weights are known where clients' samples are agreed."""

    coding: GroupedCoding

    def sums(self, round: int, results: Iterable[Result]) -> tuple[Vector, Vector]:
        """Σ w_k v_k over the included clients, and Σ w_k, by coordinate: of those that kept it."""
        n, segments = self.agreement.settings.places, self.agreement.segments(round)
        sums, weights = np.zeros(n, np.float32), np.zeros(n, np.float32)
        view = self.agreement.view_at(round)
        agreed = dict(zip(view.clients, view.samples or (), strict=False))
        for result, values in self._means(round, results):
            coordinates, begin = segments[result.header.key].coordinates, 0
            usual = result.samples / len(result.included)
            for crowd, places in self.coding.published_parts(result):
                at, end = coordinates[places], begin + len(places)
                sums[at] = np.float32(result.samples) * values[begin:end]
                weights[at] = sum(agreed.get(client, usual) for client in crowd)
                begin = end
        return sums, weights
