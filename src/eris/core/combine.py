"""Combining contributions, exactly and in any order.

The mean of a segment is accumulated in 64-bit fixed point: integer addition neither rounds nor
cares about order, so the mean is the same bits for every number of shards, every segment size and
every order of arrival, in the memory of one segment. The range of a coordinate is declared in the
federation's settings; measuring it each round would leak norms. A client looks through its whole
update (:func:`examine`) and sends all of it or nothing, so that a value out of range takes the same
from the mean wherever segments begin.

Median and trimmed mean need all values of a segment at once and are order-free by sorting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from eris.core import kernels
from eris.core.errors import InvalidSetting, RefusedContribution, require
from eris.core.masks import KeptSet
from eris.core.vectors import Vector

NonFinite = Literal["refuse", "clip", "zero"]


VALUE_BITS, LIMB_BITS = 39, 24
"""Of the integer that stands for a value, and of the weight that one 64-bit word has room for:
their sum is below 64. What is heavier goes on in a second word, 2^24 times as large."""
MOST_SAMPLES = (1 << 2 * LIMB_BITS - 1) - 1
"""The largest sum of sample counts in one mean: two words hold twice that."""

FAINT = 0.01
"""The share of an update's norm that may vanish in fixed point without a word."""


@dataclass(frozen=True)
class FixedPoint:
    """How a value becomes an integer of 39 bits and a sign.

    ``value_range`` is the largest magnitude a coordinate may have. A value is rounded to a multiple
    of 2^−f with f = 39 − bits(range), so a mean is off by at most half of that
    (:attr:`resolution` / 2) and 2⁻⁵¹ of itself (it passes through a double) before it is rounded to
    float32, which adds half a unit in the last place of the result. Values below half the
    resolution vanish: with the default range of 64 those below 2⁻³⁴, about 6·10⁻¹¹. The sum of
    samples in a mean may be up to :data:`MOST_SAMPLES`, about 1.4·10¹⁴.

    >>> FixedPoint(value_range=64).fraction_bits
    33
    """

    value_range: float = 64.0

    def __post_init__(self) -> None:
        if not 0 < self.value_range < math.inf:
            raise InvalidSetting("value_range", self.value_range, "a positive finite number")
        if self.fraction_bits < 8:
            raise InvalidSetting(
                "value_range", self.value_range, "at most 2**31, which leaves 8 fraction bits"
            )

    @cached_property
    def fraction_bits(self) -> int:
        """f: binary places of a value."""
        mantissa, exponent = math.frexp(self.value_range)
        range_bits = exponent if mantissa > 0.5 else exponent - 1
        # Beyond 2^-149 a float32 has no more places to give.
        return min(149, VALUE_BITS - range_bits)

    @property
    def resolution(self) -> float:
        """2^−f: the grid on which values are added."""
        return 2.0**-self.fraction_bits


@dataclass
class ExactMean:
    """The running weighted mean of one segment; order-free and exact up to one rounding.

    The sum is a word a coordinate and, once the samples are 2²⁴ or more, a second one: together
    they are one integer, whatever the order in which they were filled.

    >>> mean = ExactMean(2, FixedPoint())
    >>> mean.add(np.array([1, 2], np.float32), weight=1, client=0)
    >>> mean.add(np.array([3, 4], np.float32), weight=3, client=1)
    >>> mean.result()
    array([2.5, 3.5], dtype=float32)
    """

    size: int
    precision: FixedPoint
    non_finite: NonFinite = "refuse"
    weight: int = 0
    _low: NDArray[np.int64] = field(init=False, repr=False)
    _high: NDArray[np.int64] | None = field(default=None, init=False, repr=False)
    _filled: int = field(default=0, init=False, repr=False)
    """The weight that is in the low words."""

    def __post_init__(self) -> None:
        self._low = np.zeros(self.size, np.int64)

    def add(self, values: Vector, weight: int, client: object) -> None:
        """Add one contribution, or refuse it whole and leave the mean as it was."""
        values = admit(values, self, weight, client)
        scale = 2.0**self.precision.fraction_bits
        high, low = divmod(weight, 1 << LIMB_BITS)
        if high or (self._filled + low) >> LIMB_BITS:
            kernels.add_weighted(self._carried(), values, high, scale)
        kernels.add_weighted(self._low, values, low, scale)
        self._filled += low
        self.weight += weight

    def result(self) -> Vector:
        """Σ w_k v_k / Σ w_k as float32."""
        _not_empty(self)
        out = np.empty(self.size, np.float32)
        divisor = math.ldexp(self.weight, self.precision.fraction_bits)
        high = None if self._high is None else self._carried()
        kernels.mean_of(out, self._low, high, LIMB_BITS, divisor)
        return out

    def _carried(self) -> NDArray[np.int64]:
        """The high words, once the low ones have given them what is not theirs."""
        if self._high is None:
            self._high = np.zeros(self.size, np.int64)
        kernels.carry(self._low, self._high, LIMB_BITS)
        self._filled = 0
        return self._high


@dataclass
class OrderStatistic:
    """All values of one segment, for the median (trim=None) or the mean of those in the middle.

    ``trim`` is the share cut off at either end. Clients count alike, whatever their samples.

    >>> median = OrderStatistic(1, FixedPoint(), trim=None)
    >>> for client, value in enumerate([5.0, 1.0, 2.0]):
    ...     median.add(np.array([value], np.float32), 1, client)
    >>> median.result()
    array([2.], dtype=float32)
    """

    size: int
    precision: FixedPoint
    trim: float | None
    non_finite: NonFinite = "refuse"
    weight: int = 0
    _values: list[Vector] = field(default_factory=list, init=False, repr=False)

    def add(self, values: Vector, weight: int, client: object) -> None:
        """Keep one contribution, or refuse it."""
        values = admit(values, self, weight, client)
        self._values.append(values)
        self.weight += weight

    def result(self) -> Vector:
        """The middle of the values, coordinate by coordinate."""
        _not_empty(self)
        ordered = np.sort(np.stack(self._values), axis=0)
        count = len(ordered)
        cut = (count - 1) // 2 if self.trim is None else trimmed(count, self.trim)
        middle = ordered[cut : count - cut].astype(np.float64)
        # Summed in sorted order, one by one: NumPy's pairwise sum depends on memory layout. The
        # start at +0 also makes one of −0 and +0, either of which may have come first.
        total = np.zeros(self.size)
        for row in middle:
            total += row
        return (total / len(middle)).astype(np.float32)


def trimmed(count: int, trim: float) -> int:
    """How many of ``count`` values the share ``trim`` cuts at either end.

    >>> trimmed(100, 0.29), trimmed(5, 0.1)
    (29, 0)
    """
    # 100 · 0.29 is a hair below 29 in floating point; no share is meant to a billionth.
    return int(count * trim + 1e-9)


def admit(
    values: Vector, collector: ExactMean | OrderStatistic, weight: int, client: object
) -> Vector:
    """The values as they may be added to a collector, or the reason why not."""
    if values.shape != (collector.size,) or values.dtype != np.float32:
        found = f"{values.dtype} array of shape {values.shape}"
        raise RefusedContribution(client, f"is a {found}; expected {collector.size} float32 values")
    if weight < 1:
        raise RefusedContribution(client, f"has {weight} samples; expected at least 1")
    if collector.weight + weight > MOST_SAMPLES:
        reason = f"{weight} samples would raise the sum of samples above {MOST_SAMPLES}"
        raise RefusedContribution(client, reason)
    return bounded(values, client, collector.precision, collector.non_finite)


def bounded(values: Vector, client: object, precision: FixedPoint, policy: NonFinite) -> Vector:
    """Values inside the agreed range, under the policy for NaN, infinite and too large ones.

    ``refuse`` names the client and the first bad coordinate; ``clip`` moves values to the nearest
    end of the range (NaN to 0); ``zero`` replaces them by 0.

    >>> bounded(np.array([1, np.nan], np.float32), "anna", FixedPoint(), "zero")
    array([1., 0.], dtype=float32)
    """
    limit = precision.value_range
    refused = kernels.count_refused(values, limit)
    if not refused:
        return values
    # In double precision, as the compiled check: a limit need not be a float32.
    bad = ~(np.abs(values.astype(np.float64)) <= limit)
    if policy == "zero":
        return np.where(bad, np.float32(0), values)
    if policy == "clip":
        edge = np.float32(limit)
        edge = edge if float(edge) <= limit else np.nextafter(edge, np.float32(0))
        return np.where(np.isnan(values), 0, np.clip(values, -edge, edge)).astype(np.float32)
    first = int(np.argmax(bad))
    where = f"the first is {values[first]} at {first} of the segment"
    raise RefusedContribution(client, _beyond(refused, len(values), limit, where))


def examine(
    update: Vector,
    client: object,
    precision: FixedPoint,
    policy: NonFinite = "refuse",
    *,
    reference: Vector | None = None,
    kept: KeptSet | None = None,
) -> float:
    """Refuse an update whole if one of the values that are to be combined would be refused.

    Those are update − reference on the kept coordinates. Returns the share of their norm that the
    grid takes away if that is above :data:`FAINT`, else 0: values far below half the resolution
    vanish. One pass over memory, a second one only where values are that small.

    >>> examine(np.array([1, 65], np.float32), "anna", FixedPoint())
    Traceback (most recent call last):
    ...
    eris.core.errors.RefusedContribution: contribution of client anna: 1 of 2 values are not \
finite or beyond ±64 (the first is 65.0 at coordinate 1); precision.value_range is what was agreed
    >>> examine(np.full(9, 1e-12, np.float32), "anna", FixedPoint())
    1.0
    """
    limit, bits = precision.value_range, None if kept is None else kept.bits
    largest = _largest(update, reference, bits)
    count = len(update) if kept is None else kept.count
    if not largest <= limit:
        if policy != "refuse":
            return 0.0
        refused, first = kernels.beyond(update, reference, bits, limit)
        value = update[first] if reference is None else update[first] - reference[first]
        where = f"the first is {value} at coordinate {first}"
        raise RefusedContribution(client, _beyond(refused, count, limit, where))
    if _tells(largest, count, precision):
        return 0.0
    lost, whole = kernels.squares(update, reference, bits, 2.0**precision.fraction_bits)
    share = math.sqrt(lost / whole)
    return share if share > FAINT else 0.0


def unremarkable(values: Vector, precision: FixedPoint) -> bool:
    """Whether :func:`examine` would find nothing in values that are to be combined.

    >>> unremarkable(np.ones(2, np.float32), FixedPoint())
    True
    >>> unremarkable(np.full(2, 1e-12, np.float32), FixedPoint())
    False
    """
    largest = _largest(values)
    return largest <= precision.value_range and _tells(largest, len(values), precision)


def _largest(
    values: Vector, reference: Vector | None = None, bits: NDArray[np.uint64] | None = None
) -> float:
    return float(np.uint32(kernels.largest_bits(values, reference, bits)).view(np.float32))


def _tells(largest: float, count: int, precision: FixedPoint) -> bool:
    """Whether the grid takes nothing worth a word: a value loses half a step at most, and with one
    this large it cannot be more."""
    return largest == 0 or largest * FAINT >= precision.resolution / 2 * math.sqrt(count)


def _beyond(refused: int, count: int, limit: float, where: str) -> str:
    return (
        f"{refused} of {count} values are not finite or beyond ±{limit:g} ({where}); "
        "precision.value_range is what was agreed"
    )


def _not_empty(collector: ExactMean | OrderStatistic) -> None:
    require(collector.weight > 0, "contributions", 0, "at least 1 before there is a result")
