"""Weights as integers, and sums of integers as means: the same on every platform."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eris.core.errors import RefusedContribution, require
from eris.core.grid import MOST_SAMPLES
from eris.core.vectors import Vector
from eris.protocol.enccluster.logarithms import REACH, Integers


@dataclass(frozen=True)
class CentroidScale:
    """m = rint(x·2^f·S_i/S_ref): a client's weight is inside, so sums are of plain integers.

    ``reference`` is S_ref, the declared samples of all eligible clients; for a plain average every
    client has 1 sample and it is their number.

    >>> scale = CentroidScale(eligible=2, reference=2)
    >>> scale.scaled(np.array([0.5, -1], np.float32), samples=1).tolist()
    [262144, -524288]
    >>> scale.mean(np.array([262144, -524288]), included_samples=1).tolist()
    [0.5, -1.0]
    """

    eligible: int
    """K"""
    reference: int
    """S_ref"""
    most: float = 2 - 2**-10
    """W: the largest magnitude of a weight."""
    fraction_bits: int = 20
    """f"""
    reach: int = REACH
    """T: how far logarithms go."""

    def __post_init__(self) -> None:
        require(self.eligible >= 1, "eligible clients", self.eligible, "at least 1")
        most_reference = self.eligible * MOST_SAMPLES
        require(
            1 <= self.reference <= min(most_reference, 1 << 53),
            "reference samples",
            self.reference,
            f"from 1 to {min(most_reference, 1 << 53)}",
        )
        require(0 <= self.fraction_bits <= 38, "fraction_bits", self.fraction_bits, "from 0 to 38")
        require(0 < self.most < math.inf, "weight range", self.most, "a positive finite number")
        bound = self.most * 2.0**self.fraction_bits + self.eligible / 2
        require(
            bound <= self.reach,
            "weight range",
            self.most,
            f"at most {(self.reach - self.eligible / 2) / 2.0**self.fraction_bits:g}: a sum of "
            f"{self.eligible} clients at {self.fraction_bits} bits reaches {bound:g}, and "
            f"logarithms go to {self.reach}",
        )

    @cached_property
    def bound(self) -> int:
        """B: no sum of any set is larger."""
        return math.floor(self.most * 2.0**self.fraction_bits + self.eligible / 2)

    def examine(
        self, client: int, values: Vector, where: Callable[[int], str] = "coordinate {}".format
    ) -> None:
        """Refuse weights that are beyond the range, or no numbers, before anything is encrypted.

        ``where`` names the place of a value, with its layer.
        """
        within = np.abs(values) <= np.float64(self.most)  # false of NaN, too
        if not within.all():
            at = int(np.argmin(within))
            reason = f"{where(at)} is {float(values[at]):g}; expected at most ±{self.most:g}"
            raise RefusedContribution(client, reason)

    def scaled(self, values: Vector, samples: int, client: int = 0) -> Integers:
        """Centroids as integers, rounded once, ties to even."""
        if not 1 <= samples <= min(MOST_SAMPLES, self.reference):
            most = min(MOST_SAMPLES, self.reference)
            raise RefusedContribution(client, f"has {samples} samples; expected from 1 to {most}")
        single = np.asarray(values, np.float32)
        self.examine(client, single, "centroid {}".format)
        # Both products are exact; the division rounds, and that is all that does.
        product = single.astype(np.float64) * 2.0**self.fraction_bits * float(samples)
        return np.rint(product / float(self.reference)).astype(np.int64)

    def mean(self, sums: Integers, included_samples: int) -> Vector:
        """x̄ = (v/2^f)·(S_ref/Σ_I S): the weighted mean of those that are included."""
        require(
            1 <= included_samples <= self.reference,
            "included samples",
            included_samples,
            f"from 1 to {self.reference}",
        )
        factor = self.reference / included_samples
        return (sums / 2.0**self.fraction_bits * factor).astype(np.float32)
