"""A coarse grid that all clients have in common: a masked sum of small words, and no mappings.

EncCluster's repaired form (docs/enccluster.md): what it saves in bytes without what it gives away.
An update, or the weights that it leads to, becomes integers whose sum fits ``bits`` bits; secure
sums hide them. Of updates the unit 2^−e follows the last mean: e is of a segment's replicated
state, its owner says the next one with every result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from eris.core.combine import FixedPoint, bounded
from eris.core.errors import (
    ErisError,
    InvalidSetting,
    MalformedMessage,
    RefusedContribution,
    require,
)
from eris.core.grid import (
    MOST_EXPONENT,
    ROOM,
    STEP_BACK,
    CommonGrid,
    Integers,
    exponent_for,
    most_clients,
    room,
)
from eris.core.ring import EXPONENTS, packed_form
from eris.core.rules import ServerRule
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.protocol.schemes import declared
from eris.protocol.schemes.declared import Average
from eris.protocol.schemes.scheme import Coding, Scheme
from eris.protocol.schemes.weights import Travelling, WeightCoding, check_travelling

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Key, Segment
    from eris.protocol.messages import Contribution
    from eris.protocol.round.replica import Replica
    from eris.protocol.settings import Settings
    from eris.protocol.view import View

Rounding = Literal["stochastic", "nearest"]
MEAN_RANGE, WEIGHT_RANGE = 0.5, 2.0
"""How far a mean of clients moves a weight in a first round, and how large a weight is, at most."""


@dataclass(frozen=True)
class Grid(Scheme):
    """Words of ``bits`` bits of ``travelling`` updates or weights.

    ``range`` is the bound of a mean update in the first round, or of a weight in any; left out, it
    is 0.5 by the rule's step, or 2. The unit ``follows`` the last mean, or stays as it is: that of
    weights does. ``rounding`` is stochastic, or to the nearest, which swallows small updates.
    ``average`` weighs clients by the samples that the view declares, or all alike.

    >>> str(Grid(bits=10))
    'updates on a common grid of 10 bits that follows the last mean'
    """

    bits: int = 12
    travelling: Travelling = "updates"
    follows: bool = True
    rounding: Rounding = "stochastic"
    range: float | None = None
    average: Average = "samples"
    name: ClassVar[str] = "grid"
    small_results: ClassVar[bool] = False

    def __post_init__(self) -> None:
        packed_form(self.bits)  # refuses other words
        check_travelling("travelling", self.travelling)
        declared.check_average(self.average)
        if self.rounding not in ("stochastic", "nearest"):
            raise InvalidSetting("rounding", self.rounding, "one of stochastic, nearest")
        if self.range is not None:
            require(0 < self.range < math.inf, "range", self.range, "a positive number")
        if self.travelling == "weights" and self.follows:
            expected = "False for weights: what follows the last mean is the size of updates"
            raise InvalidSetting("follows", True, expected)

    @property
    def relative(self) -> bool:
        """Whether what travels is an update only beside the state that it was trained from."""
        return self.travelling == "weights"

    @property
    def weighed(self) -> bool:
        """Whether a view declares every client's samples: they scale what is sent."""
        return self.average == "samples"

    @property
    def lasting(self) -> str:  # type: ignore[override]
        """Why clients must be the same in all rounds, if they must."""
        return declared.why_lasting(self.average)

    def fitted(self, rule: ServerRule, initial: Vector, layers: tuple[int, ...] = ()) -> Scheme:
        """With the range that goes with the rule, where it was not said."""
        if self.range is not None:
            return self
        return replace(self, range=self.bound(rule))

    def bound(self, rule: ServerRule) -> float:
        """W₀ or W: the range, said or not."""
        if self.range is not None:
            return self.range
        return WEIGHT_RANGE if self.travelling == "weights" else MEAN_RANGE / rule.learning_rate

    def check(self, settings: Settings) -> None:
        """Refuse what does not go together with this scheme."""
        if settings.secure is None:
            expected = 'some, such as "2 of 3": words on a common grid are those of a masked sum'
            raise InvalidSetting("secure_sums", "none", expected)
        if settings.noise is not None:
            expected = "none: shared noise has a grid of its own, that of whole segments or masks"
            raise InvalidSetting("epsilon", settings.noise.epsilon, expected)
        if self.follows and settings.plan.rotate:
            expected = "0 where the grid follows the last mean: it is one of the same coordinates"
            raise InvalidSetting("plan.rotate", settings.plan.rotate, expected)
        found, most = self.bound(settings.rule), settings.precision.value_range
        require(found <= most, "range", found, f"at most value_range = {most:g}")
        least, _ = EXPONENTS
        if exponent_for(self.bits, most_clients(self.bits), found) - STEP_BACK < least:
            raise InvalidSetting("range", found, f"less: {self.bits} bits leave no unit for it")

    def check_view(self, view: View) -> None:
        """Refuse a view in which sums would not fit, or clients have no weights."""
        most = most_clients(self.bits)
        expected = f"at most {most} where words have {self.bits} bits"
        require(len(view.clients) <= most, "clients", len(view.clients), expected)
        declared.check_samples(self.average, view)

    def serves(self, view: View) -> bool:
        """Whether sums of all clients of a view fit, and what they weigh is known."""
        known = self.average == "plain" or view.samples is not None
        return known and len(view.clients) <= most_clients(self.bits)

    def at(self, agreement: Agreement) -> Coding:
        """This scheme at work."""
        return GridCoding(self, agreement)

    def __str__(self) -> str:
        how = "that follows the last mean" if self.follows else "that stays"
        return f"{self.travelling} on a common grid of {self.bits} bits {how}"


class GridCoding(WeightCoding):
    """A common grid at work in one federation."""

    def __init__(self, terms: Grid, agreement: Agreement) -> None:
        super().__init__(terms, agreement, terms.travelling)
        self.terms = terms

    # -- the grid -----------------------------------------------------------------------------

    @property
    def follows(self) -> bool:  # type: ignore[override]
        """Whether results say in which unit the next words are."""
        return self.terms.follows

    @property
    def bound(self) -> float:
        """W₀ or W."""
        return self.terms.bound(self.agreement.settings.rule)

    def first_exponent(self, round: int) -> int:
        """e₀: of a segment that has no result yet, and the least that one says."""
        if not self.follows:
            return 0
        clients = len(self.agreement.view_at(round).clients)
        return exponent_for(self.terms.bits, clients, self.bound)

    def next_exponent(self, mean: Vector, round: int) -> int:
        """What follows a mean: the next may be so much larger."""
        clients, first = len(self.agreement.view_at(round).clients), self.first_exponent(round)
        largest = float(np.abs(mean).max(initial=0.0))
        return max(first, exponent_for(self.terms.bits, clients, ROOM * largest))

    def exponent_after_wrap(self, exponent: int, round: int) -> int:
        """What follows a sum that did not fit."""
        return max(exponent, self.first_exponent(round)) - STEP_BACK

    def check_exponent(self, field: str, exponent: int) -> None:
        """Refuse what no owner says."""
        if not self.follows:
            super().check_exponent(field, exponent)
        elif exponent > MOST_EXPONENT:
            raise MalformedMessage(field, f"is {exponent}; expected at most {MOST_EXPONENT}")

    def form(self, exponent: int) -> int:
        """The form of words."""
        return packed_form(self.terms.bits, exponent if self.follows else None)

    def grid(self, round: int, exponent: int) -> CommonGrid:
        """How values become integers."""
        view, terms = self.agreement.view_at(round), self.terms
        levels = room(terms.bits, len(view.clients)) / self.bound
        if self.follows:
            levels = math.ldexp(1.0, exponent)
        return CommonGrid(levels, declared.reference_of(terms.average, view))

    # -- the client ---------------------------------------------------------------------------

    def weight(self, samples: int) -> int:
        """S_i: what a client counts with this many samples."""
        return declared.weight_of(self.terms.average, samples)

    def check_declared(self, client: int, samples: int, round: int) -> None:
        """Refuse more samples than the view declares: sums have room for those."""
        view = self.agreement.view_at(round)
        declared.check_declared(self.terms.average, view, client, samples)

    def integers(
        self, pieces: Mapping[Key, Vector], client: int, samples: int, round: int, replica: Replica
    ) -> dict[Key, Integers]:
        """By segment: what is masked of an update; refused whole if one value is out of range."""
        settings, segments = self.agreement.settings, self.agreement.segments(round)
        pieces = self.travelling(pieces, round, replica)
        bound = {key: self._within(piece, client) for key, piece in pieces.items()}
        draws = None
        if self.terms.rounding == "stochastic":
            draws = Stream(settings.seed, "grid", round, client).uniform(0, settings.n)
        return {
            key: self.grid(round, replica.exponent(key, round)).integers(
                values, self.weight(samples),
                None if draws is None else draws[segments[key].coordinates],
            )
            for key, values in bound.items()
        }  # fmt: skip

    def _within(self, values: Vector, client: int) -> Vector:
        """Values inside the agreed range; inside the grid's, where it stays: then no sum of them is
        too large."""
        settings, name = self.agreement.settings, self.agreement.view.members[client]
        if self.follows:
            return bounded(values, name, settings.precision, settings.non_finite)
        if settings.non_finite != "refuse":
            return bounded(values, name, FixedPoint(self.bound), settings.non_finite)
        beyond = ~(np.abs(values.astype(np.float64)) <= self.bound)
        if beyond.any():
            first = float(values[int(beyond.argmax())])
            found = f"{int(beyond.sum())} of {len(values)} {self.terms.travelling} are beyond"
            range = f"the grid's range of ±{self.bound:g}, the first is {first:g}"
            raise RefusedContribution(name, f"{found} {range}")
        return values

    # -- the owner ----------------------------------------------------------------------------

    @property
    def largest_weight(self) -> float:
        """No weight that travels is larger in magnitude."""
        return max(super().largest_weight, self.bound)

    @property
    def largest_mean(self) -> float:
        """No published value is larger, however few samples a mean on the coarsest grid is of."""
        last = self.agreement.newest_from
        coarsest = self.grid(last, self.first_exponent(last) - STEP_BACK)
        rounding = len(self.agreement.view.clients) * coarsest.unit(1)
        return super().largest_mean + (rounding / self.rate if self.of_weights else rounding)

    def read(self, contribution: Contribution, segment: Segment) -> Vector:
        """What whoever holds a contribution can read: nothing of it."""
        raise ErisError("a single contribution is masked: its owner and helpers open sums")
