"""The paper's mode: a mask and a reference for every client (ERIS, algorithm 1; SoteriaFL).

What a client sends is C_k(g_k − s_k); s_k moves if it is included. All follow the common reference
s = Σ w_k s_k, which moves by the included clients' share. Results are dense and most of their
values come from few clients: this is for comparing.

Nobody else knows s_k, so whoever loses it takes w_k s_k out of the sum without a word. Where
members may fail, therefore, s and all s_k are 0 when an epoch begins. A client that has started
again, or skipped a result that it may be in, gives nothing until the next one does; it joins once
more, and the directory begins one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from eris.core.errors import InvalidSetting, MalformedMessage
from eris.core.exact_clip import Content
from eris.core.shift import advance, estimate
from eris.core.vectors import Indices, Vector
from eris.protocol.messages import Contribution, Result
from eris.protocol.schemes.masked import MaskCoding, Masked
from eris.protocol.schemes.reader import Reader
from eris.protocol.schemes.scheme import Coding, Sender

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Key, Segment
    from eris.protocol.round.replica import Replica
    from eris.protocol.secure.vault import Vault
    from eris.protocol.settings import Settings
    from eris.protocol.view import View


@dataclass(frozen=True)
class Independent(Masked):
    """rand-p or rand-k with a kept set and a reference a client.

    ``estimate`` renormalises over the included clients, or scales by K/|I| (unbiased).
    """

    estimate: Literal["renormalised", "unbiased"] = "renormalised"
    name: ClassVar[str] = "independent"
    lasting: ClassVar[str] = "every client has a reference"
    own_references: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.shift:
            raise InvalidSetting("shift", False, "True: independent masks need references")
        if self.estimate not in ("renormalised", "unbiased"):
            raise InvalidSetting("estimate", self.estimate, "one of renormalised, unbiased")

    @property
    def weighed(self) -> bool:
        """Whether a view declares every client's samples: references are weighed by them."""
        return True

    def caution(self, settings: Settings) -> str:
        """Independent masks average out."""
        return ""

    def check_view(self, view: View) -> None:
        """Refuse a view in which this scheme cannot work."""
        if view.samples is None:
            expected = "every client's number of samples: the paper's mode agrees on weights"
            raise InvalidSetting("samples", None, expected)

    def at(self, agreement: Agreement) -> Coding:
        """This scheme at work."""
        return IndependentCoding(self, agreement)


class IndependentCoding(MaskCoding):
    """The paper's mode at work."""

    def __init__(self, scheme: Independent, agreement: Agreement) -> None:
        super().__init__(scheme, agreement)
        self._unbiased = scheme.estimate == "unbiased"

    def who(self, round: int, client: int) -> int:
        """Whose mask a client uses: its own."""
        return client + 1

    def agreed(self, client: int, round: int) -> int:
        """A client's weight as the view of a round says."""
        view = self.agreement.view_at(round)
        assert view.samples is not None
        return view.samples[view.clients.index(client)]

    def check_agreed(self, client: int, samples: int, round: int) -> None:
        """Refuse another weight than the agreed one."""
        if samples != (agreed := self.agreed(client, round)):
            expected = f"{agreed}, as agreed in the view: the paper's mode weighs references by it"
            name = self.agreement.view.members[client]
            raise InvalidSetting(f"samples of {name}", samples, expected)

    # -- the four halves ----------------------------------------------------------------------

    def sender(self, me: int, vault: Vault | None = None) -> Sender:
        """A client's half."""
        return IndependentSender(self, me)

    def check_weight(self, contribution: Contribution) -> None:
        """Refuse a weight that cannot be a client's."""
        super().check_weight(contribution)
        header = contribution.header
        self.check_agreed(header.sender, contribution.samples, header.round)

    def decode(self, contribution: Contribution, segment: Segment) -> Vector:
        """The values that are combined: zeros where this client keeps nothing."""
        values = self.read(contribution, segment)
        header = contribution.header
        spread = np.zeros(segment.size, np.float32)
        spread[self.places(header.round, segment.key, header.sender)] = values
        return spread

    # Clients keep different coordinates, so results are dense.
    size, publish = Coding.size, Coding.publish

    def published(self, result: Result, segment: Segment) -> Vector:
        """The values of a result; refused if they do not fit, or its weight is not that of its
        clients: by it the common reference moves, without any other limit."""
        round = result.header.round
        view = self.agreement.view_at(round)
        if self.agreement.knows(round) and view.samples is not None:
            weights = dict(zip(view.clients, view.samples, strict=True))
            expected = sum(weights.get(client, 0) for client in result.included)
            if result.samples != expected:
                reason = f"are {result.samples}; those of its clients are {expected} in the view"
                raise MalformedMessage("result.samples", reason)
        return Coding.published(self, result, segment)

    def begins_anew(self, round: int, previous: int) -> bool:
        """Whether a result is a segment's first in its epoch, published or withheld."""
        return previous < self.agreement.began(round)

    def scale(self, round: int, client: int) -> np.float32:
        """1/p, or n/k."""
        return np.float32(self.kept(round, client).scale)

    def move(
        self, result: Result, segment: Segment, reference: Vector | None
    ) -> tuple[Vector, Vector | None]:
        """What the server rule is given of a result, and the segment's next reference."""
        round = result.header.round
        view = self.agreement.view_at(round)
        assert reference is not None
        assert view.samples is not None
        increment = self.published(result, segment) * self.scale(round, 0)
        # Only the included clients' references moved, each by its agreed weight.
        moved = np.float32(result.samples / sum(view.samples)) * increment
        if self._unbiased:
            increment = np.float32(len(view.clients) / len(result.included)) * moved
        return estimate(reference, increment), advance(reference, moved, self.gamma(segment))

    def reader(self) -> Reader:
        """An observer's half."""
        return IndependentReader(self)


class IndependentSender(Sender):
    """A client with a reference of its own."""

    coding: IndependentCoding

    def __init__(self, coding: IndependentCoding, me: int) -> None:
        super().__init__(coding, me)
        self.own_reference = np.zeros(self.agreement.settings.places, np.float32)
        self._since = 1
        """The first round of the epoch that the reference is of."""
        self._prepared = 0
        """The last round that something was prepared for."""
        self._uncertain = 0
        """Something that was sent up to this round may be in a result, or not."""

    # -- whether the reference is right -------------------------------------------------------

    def uncertain(self, round: int) -> None:
        """What became of what was sent up to a round will not be known."""
        self._uncertain = max(self._uncertain, round)

    @property
    def astray(self) -> bool:
        """Whether this client can give nothing more before another epoch begins."""
        return self.agreement.newest_from <= self._uncertain

    def trains(self, round: int) -> bool:
        """Whether the reference is known in the epoch of a round."""
        return self.agreement.began(round) > self._uncertain

    def gives(self, round: int, shard: int) -> bool:
        """Whether it still is, and what was prepared belongs to the epoch."""
        fits = self._prepared != round or self.agreement.began(round) == self._since
        return fits and self.trains(round)

    # -- giving -------------------------------------------------------------------------------

    def prepare(
        self, update: Vector, samples: int, steps: int, round: int, replica: Replica,
        content: Content | None = None,
    ) -> dict[Key, Vector]:  # fmt: skip
        """By segment: the values that are sent of an update."""
        if (began := self.agreement.began(round)) > self._since:
            self.own_reference[:] = 0
            self._since = began
        self._prepared = round
        return super().prepare(update, samples, steps, round, replica, content)

    def reference(self, replica: Replica) -> Vector | None:
        """What travels is the difference to this."""
        return self.own_reference

    def reference_sent(self, round: int, replica: Replica) -> Vector | None:
        """The same of what is sent, segment after segment."""
        return self.coding.gather(round, self.me, self.own_reference)

    def check_weight(self, samples: int, steps: int, round: int) -> None:
        """Refuse what cannot be this client's weight."""
        super().check_weight(samples, steps, round)
        self.coding.check_agreed(self.me, samples, round)

    def remember(self, piece: Vector) -> Vector | None:
        """The own reference moves along it, if it is included."""
        return piece

    def included(self, result: Result, segment: Segment, remembered: Vector) -> None:
        """s_k ← s_k + γ·v_k; not by what belongs to an epoch that is over."""
        round = result.header.round
        if round < self._since:
            return
        moved = np.zeros(segment.size, np.float32)
        places = self.coding.places(round, segment.key, self.me)
        moved[places] = remembered * self.coding.scale(round, self.me)
        reference = segment.gather(self.own_reference)
        gamma = self.coding.gamma(segment)
        segment.scatter(self.own_reference, advance(reference, moved, gamma))

    def state(self) -> dict[str, Vector]:
        """What only this client knows, at the end of a round."""
        return {"reference": self.own_reference}

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()``."""
        found = state.get("reference")
        if found is None or found.shape != self.own_reference.shape:
            what = f"no fitting reference of member {self.me}"
            raise InvalidSetting("checkpoint", what, "one of this federation")
        self.own_reference = found.copy()


class IndependentReader(Reader):
    """Follows every client's reference, as far as results and contributions tell."""

    coding: IndependentCoding

    def __init__(self, coding: IndependentCoding) -> None:
        super().__init__(coding)
        self.guessed: dict[int, Vector] = {}
        """Every client's reference, as far as published results tell."""
        self.tracked: dict[int, Vector] = {}
        """The same from the contributions themselves, for who sees them."""
        self._since = 1
        """The first round of the epoch that these are of."""

    def reference(
        self, replica: Replica, client: int, coordinates: Indices, *, exact: bool
    ) -> Vector:
        """What a client's contributions are the difference to, on some coordinates."""
        # Where shards move, nobody has seen all that was sent of a coordinate.
        known = self.tracked if exact and not self.agreement.settings.plan.rotate else self.guessed
        return self._of(known, client)[coordinates]

    def sums(self, round: int, results: Iterable[Result]) -> tuple[Vector, Vector]:
        """Σ w_k v_k over the included clients, and Σ w_k, by coordinate: of those that kept it."""
        n, segments = self.agreement.settings.places, self.agreement.segments(round)
        sums, weights = np.zeros(n, np.float32), np.zeros(n, np.float32)
        results = list(results)
        for result, values in self._means(round, results):
            total = np.float32(result.samples)
            segments[result.header.key].scatter(sums, total * values)
        for client, at in self._included(round, results):
            weights[at] += np.float32(self.coding.agreed(client, round))
        return sums, weights

    def follow(
        self,
        round: int,
        results: Iterable[Result],
        mean: Callable[[Indices], Vector],
        sent: Callable[[int], Vector],
    ) -> None:
        """s_k ← s_k + γ·v_k of every included client, exactly or as far as the mean tells."""
        segment = next(iter(self.agreement.segments(round).values()))
        step = self.coding.scale(round, 0) * np.float32(self.coding.gamma(segment))
        for client, at in self._included(round, results):
            self._of(self.guessed, client)[at] += step * mean(at)
            self._of(self.tracked, client)[at] += step * sent(client)[at]

    def _included(self, round: int, results: Iterable[Result]) -> Iterator[tuple[int, Indices]]:
        """Clients, and the coordinates of theirs that are in what was published."""
        there = {one.header.key: one.included for one in results if one.payload is not None}
        for client in sorted(frozenset[int]().union(*there.values())):
            coordinates, edges = self.coding.layout(round, client)
            chosen = [client in there.get(key, ()) for key in self.agreement.keys]
            yield client, coordinates[np.repeat(chosen, np.diff(edges))]

    def _of(self, known: dict[int, Vector], client: int) -> Vector:
        if self.agreement.newest_from > self._since:
            self._since = self.agreement.newest_from
            self.guessed.clear()
            self.tracked.clear()
        return known.setdefault(client, np.zeros(self.agreement.settings.places, np.float32))
