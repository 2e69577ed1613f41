"""What was measured, as the planner cites it: attacks, rounds on links, what noise costs.

``evidence.toml`` holds the figures with the commands that show them; docs/audit.md,
docs/benchmarks.md and docs/shared-noise.md print them (a test holds one against the other).
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np

MEASURED_CLIENTS = 50
"""Of every training with noise that was measured."""
MEASURED_ROUNDS = 160
Kind = Literal["plain", "masked"]


@dataclass(frozen=True)
class Fact:
    """What an attack of ours got, where, and the command that shows it."""

    name: str
    says: str
    figures: tuple[str, ...]
    setting: str
    source: str
    page: str


@dataclass(frozen=True)
class NoisyTraining:
    """A training with noise that was measured (MNIST, 50 clients, 160 rounds, seed 0)."""

    model: str
    parameters: int
    samples: int
    std: float
    """Of the noise in a sum, in units of the clip."""
    accuracy: float
    clipped: float
    """Accuracy with clipped gradients and no noise."""

    @property
    def ratio(self) -> float:
        """Length of the noise over the longest mean gradient.

        >>> round(NoisyTraining("LeNet-5", 61_706, 64, 48.2, 83.4, 96.0).ratio, 2)
        3.74
        """
        return noise_ratio(self.std, self.parameters, MEASURED_CLIENTS * self.samples)


def noise_ratio(std: float, coordinates: float, divisor: float) -> float:
    """Length of the noise in a mean over the longest that the mean itself can be, the clip.

    ``std`` is that of a sum in units of the clip, ``divisor`` what the sum is divided by.
    """
    return std * math.sqrt(coordinates) / divisor


@cache
def _stored() -> dict[str, Any]:
    text = files("eris.planning").joinpath("evidence.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def facts() -> dict[str, Fact]:
    """All attacks that are cited, by name."""
    found = (Fact(**{**one, "figures": tuple(one["figures"])}) for one in _stored()["fact"])
    return {one.name: one for one in found}


@cache
def noisy_trainings() -> tuple[NoisyTraining, ...]:
    """All trainings with noise, the least noise first."""
    found = (NoisyTraining(**one) for one in _stored()["noise"])
    return tuple(sorted(found, key=lambda one: one.ratio))


def beside_noise(ratio: float) -> NoisyTraining | None:
    """The training with the least noise that had as much as this; None: none had so much.

    >>> beside_noise(3.0).accuracy, beside_noise(1000.0)
    (83.4, None)
    """
    return next((one for one in noisy_trainings() if one.ratio >= ratio), None)


@cache
def overhead(kind: Kind) -> tuple[float, float]:
    """(a, c): a round of nodes takes a·limit + c seconds, by least squares of what was measured.

    >>> [round(one, 2) for one in overhead("plain")]
    [1.09, 0.06]
    """
    rounds = [one for one in _stored()["round"] if one["kind"] == kind]
    slope, intercept = np.polyfit([1 / r["limit"] for r in rounds], [r["ratio"] for r in rounds], 1)
    return float(intercept), float(slope)


@cache
def cpu_seconds(of: Literal["kept", "noise"]) -> float:
    """CPU seconds of a member and coordinate beside the links, for one part of the method."""
    found: float = next(one["seconds"] for one in _stored()["cpu"] if one["kind"] == of)
    return found / 1e6


@cache
def busy_seconds(kind: Kind) -> float:
    """CPU seconds of a member and coordinate that travels."""
    found: float = next(one["seconds"] for one in _stored()["busy"] if one["kind"] == kind)
    return found / 1e6
