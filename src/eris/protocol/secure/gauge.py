"""Gauge coordinates of a result: noise without content, by which every member measures it.

They are a segment of their own, the last of the last shard: summed, opened and published like any
other, and no part of the model. They find mistakes, not liars.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eris.core.compress import Encoding, decode_values, encode_values
from eris.core.vectors import Vector
from eris.protocol.messages import Payload, Result
from eris.protocol.secure.noising import GAUGE, gauged

if TYPE_CHECKING:
    from eris.protocol.settings import Settings

WARN = 6.0
"""Standard deviations beyond which noise is off; by chance in one of 10⁸ rounds."""


@dataclass(frozen=True)
class Gauge:
    """How far the size of the noise in a round's sum is from what was agreed, in standard
    deviations."""

    round: int
    off: float

    @property
    def warning(self) -> str:
        """What everyone should know; nothing: empty.

        >>> Gauge(3, -9.5).warning
        'the noise of round 3 is 9.5 standard deviations too small: what was promised does not hold'
        >>> Gauge(3, 1.5).warning
        ''
        """
        if abs(self.off) < WARN:
            return ""
        found = f"the noise of round {self.round} is {abs(self.off):.1f} standard deviations too"
        if self.off > 0:
            return f"{found} large: somebody adds more than was agreed"
        return f"{found} small: what was promised does not hold"


def written(mean: Vector) -> Payload:
    """Gauge coordinates as they are published."""
    return Payload(encode_values(mean))


def read(result: Result) -> Vector:
    """Gauge coordinates of a result, refused if they are none."""
    assert result.payload is not None
    return decode_values(result.payload.encoded, Encoding.DENSE, GAUGE)


def measured(result: Result, settings: Settings) -> Gauge:
    """The noise of a sum, by its gauge coordinates."""
    noise, secure = settings.noise, settings.secure
    assert noise is not None
    assert secure is not None
    grid = noise.grid(secure.ring_bytes, settings.precision.fraction_bits)
    scale = math.ldexp(noise.divisor(result.samples), grid.places)
    opened = read(result).astype(np.float64) * scale
    return Gauge(result.header.round, gauged(opened, len(result.included), noise, grid))
