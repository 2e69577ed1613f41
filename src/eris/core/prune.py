"""PriPrune's defence: a client withholds the coordinates of its update that give most away.

Chu et al., "PriPrune: quantifying and preserving privacy in pruned federated learning", 2024: the
largest magnitudes of the whole update are not sent. What is withheld depends on the data, so a
bitmap travels with the values that are sent: one bit a coordinate beside 32 for each value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from eris.core.compress import Encoded, Encoding
from eris.core.errors import InvalidSetting, MalformedMessage
from eris.core.streams import Stream
from eris.core.vectors import Vector


@dataclass(frozen=True)
class Prune:
    """Withhold the share ``rate`` of largest magnitudes or, with ``energy``, adapt the rate.

    The adaptive rate is the smallest at which what is sent carries at most the share ``energy`` of
    the update's squared norm: an update whose norm lies in few coordinates loses few. With
    ``pseudo`` the client keeps training what it withheld: those coordinates of its local model stay
    as it left them (pseudo-pruning) instead of being set to the federation's.

    >>> Prune(rate=0.5).withheld(np.array([4, -3, 1, 2], np.float32))
    array([ True,  True, False, False])
    >>> Prune(energy=0.5).withheld(np.array([4, -3, 1, 2], np.float32))
    array([ True, False, False, False])
    """

    rate: float | None = None
    energy: float | None = None
    pseudo: bool = False
    name: ClassVar[str] = "prune"
    encoding: ClassVar[Encoding] = Encoding.SPARSE

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.energy is None):
            raise InvalidSetting("rate, energy", (self.rate, self.energy), "one of the two")
        for name in ("rate", "energy"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise InvalidSetting(name, value, "a number between 0 and 1")

    def withheld(self, update: Vector) -> NDArray[np.bool_]:
        """Which coordinates of a whole update stay at the client; ties go to the lower index."""
        # NaN counts as nothing and infinity as the most: neither may let the others through.
        sizes: Vector = np.nan_to_num(np.abs(update), nan=0.0)
        return largest(sizes, self._count(sizes))

    def _count(self, sizes: Vector) -> int:
        """How many of these magnitudes to withhold."""
        if self.rate is not None:
            return round(self.rate * len(sizes))
        assert self.energy is not None
        squares = np.square(np.sort(sizes), dtype=np.float64)
        sent = np.concatenate([[0.0], np.cumsum(squares)])  # energy of the smallest 0, 1, 2, …
        most = int(np.searchsorted(sent, self.energy * sent[-1], side="right")) - 1
        return len(sizes) - most

    def encode(self, values: Vector, draw: Stream) -> Encoded:
        """Which coordinates are not zero, one bit each, and their values."""
        sent = values != 0
        data = np.packbits(sent, bitorder="little").tobytes() + values[sent].astype("<f4").tobytes()
        return Encoded(self.encoding, int(sent.sum()), data)

    def decode(self, encoded: Encoded, size: int) -> Vector:
        """The segment with zeros where nothing travelled."""
        bitmap = -(-size // 8)
        if encoded.encoding != self.encoding:
            raise MalformedMessage("payload.encoding", f"is {encoded.encoding!r}, not sparse")
        if not 0 <= encoded.count <= size or len(encoded.data) != bitmap + 4 * encoded.count:
            found = f"has {len(encoded.data)} bytes for {encoded.count} of {size} coordinates"
            raise MalformedMessage("payload.data", found)
        bits = np.frombuffer(encoded.data, np.uint8, bitmap)
        sent = np.unpackbits(bits, bitorder="little").astype(bool)
        if sent[size:].any() or int(sent.sum()) != encoded.count:
            raise MalformedMessage("payload.data", "its bitmap does not fit the number of values")
        values = np.zeros(size, np.float32)
        values[sent[:size]] = np.frombuffer(encoded.data, "<f4", encoded.count, bitmap)
        return values


def largest(sizes: Vector, count: int) -> NDArray[np.bool_]:
    """Which are the ``count`` largest of some numbers; ties go to the lower index.

    >>> largest(np.array([1, 3, 3, 3], np.float32), 2)
    array([False,  True,  True, False])
    """
    if count == 0:
        return np.zeros(len(sizes), bool)
    least = np.partition(sizes, len(sizes) - count)[len(sizes) - count]
    mask: NDArray[np.bool_] = sizes > least
    ties = np.flatnonzero(sizes == least)
    mask[ties[: count - int(mask.sum())]] = True
    return mask
