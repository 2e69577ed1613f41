"""Weights that travel in place of updates: x − λ·g, on the model x that a client trained from.

An owner that has the mean of them publishes the mean update (x − mean)/λ, so that results, replicas
and rules are those of all other schemes. λ is the rule's learning rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from eris.core.errors import InvalidSetting
from eris.core.exact_clip import Content
from eris.core.vectors import Indices, Vector
from eris.protocol.messages import Payload
from eris.protocol.schemes.collector import Asking, Collector
from eris.protocol.schemes.reader import Flags, Reader
from eris.protocol.schemes.scheme import Coding, Held, Scheme, Sender

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement, Key, Segment
    from eris.protocol.round.replica import Replica
    from eris.protocol.secure.vault import Vault

Travelling = Literal["weights", "updates"]


def check_travelling(name: str, value: str) -> None:
    """Refuse what is neither weights nor updates."""
    if value not in ("weights", "updates"):
        raise InvalidSetting(name, value, "one of weights, updates")


def moved(model: Vector, updates: Vector, rate: float) -> Vector:
    """x − λ·g, rounded once.

    >>> moved(np.ones(1, np.float32), np.ones(1, np.float32), 0.25)
    array([0.75], dtype=float32)
    """
    return (model.astype(np.float64) - rate * updates.astype(np.float64)).astype(np.float32)


def moved_by(model: Vector, weights: Vector, rate: float) -> Vector:
    """(x − w)/λ: undoes :func:`moved`, but for rounding."""
    return ((model.astype(np.float64) - weights.astype(np.float64)) / rate).astype(np.float32)


class WeightCoding(Coding):
    """Weights at work; or updates, if the scheme says so."""

    def __init__(self, scheme: Scheme, agreement: Agreement, travelling: Travelling) -> None:
        super().__init__(scheme, agreement)
        self.of_weights = travelling == "weights"

    @property
    def rate(self) -> float:
        """λ."""
        return self.agreement.settings.rule.learning_rate

    def sender(self, me: int, vault: Vault | None = None) -> Sender:
        """A client's half."""
        return WeightSender(self, me)

    def collector(self, round: int, segment: Segment, held: Held) -> Collector:
        """An owner's half, for one segment and round."""
        return WeightCollector(self, round, segment, held)

    @property
    def largest_weight(self) -> float:
        """No weight that travels is larger in magnitude."""
        return self.agreement.settings.precision.value_range

    @property
    def largest_mean(self) -> float:
        """No published value is larger: from one end of the weights to the other in a step."""
        largest = self.largest_weight
        return 2 * largest / self.rate if self.of_weights else largest

    def travelling(
        self, pieces: Mapping[Key, Vector], round: int, replica: Replica
    ) -> Mapping[Key, Vector]:
        """What travels of the pieces of an update."""
        if not self.of_weights:
            return pieces
        segments = self.agreement.segments(round)
        return {
            key: moved(replica.held.piece(segments[key]), piece, self.rate)
            for key, piece in pieces.items()
        }

    def mean_update(self, mean: Vector, held: Held) -> Vector:
        """What is published of a mean of what travelled."""
        return moved_by(held(), mean, self.rate) if self.of_weights else mean

    def reader(self) -> Reader:
        """An observer's half."""
        return WeightReader(self)


class WeightSender(Sender):
    """A client that sends weights."""

    coding: WeightCoding

    def __init__(self, coding: WeightCoding, me: int) -> None:
        super().__init__(coding, me)

    def prepare(
        self, update: Vector, samples: int, steps: int, round: int, replica: Replica,
        content: Content | None = None,
    ) -> dict[Key, Vector]:  # fmt: skip
        """By segment: the values that are sent of an update."""
        pieces = super().prepare(update, samples, steps, round, replica)
        return dict(self.coding.travelling(pieces, round, replica))


class WeightCollector(Collector):
    """One segment and round of an owner to whom weights are sent."""

    _coding: WeightCoding

    def __init__(self, coding: WeightCoding, round: int, segment: Segment, held: Held) -> None:
        super().__init__(coding, round, segment)
        self._held = held

    def finish(self) -> Payload | Asking | None:
        """What is published of the included clients' weights."""
        mean = self._coding.mean_update(self.mean(), self._held)
        return self._coding.publish(mean, self._round)


class WeightReader(Reader):
    """Takes weights for the updates that led to them."""

    coding: WeightCoding

    def update(
        self, replica: Replica, client: int, coordinates: Indices, sent: Vector, heard: Flags
    ) -> Vector:
        """A client's update on some coordinates, of what it sent; 0 was not ``heard``."""
        if not self.coding.of_weights:
            return sent
        found = moved_by(replica.held.whole()[coordinates], sent, self.coding.rate)
        return np.where(heard, found, np.float32(0))
