"""What must hold of sums on a common grid whatever fails, beside the laws of secure sums.

A result is the exact sum of integers in the unit that the segment's last result named, and names
the next unit by the rule; a withheld one keeps it, or steps back after a sum that did not fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from eris.core.compress import Encoding, decode_values, encode_values
from eris.core.grid import MOST_EXPONENT, ROOM, STEP_BACK, Integers
from eris.core.streams import Stream
from eris.core.vectors import Indices, Vector
from eris.protocol.agreement import Key
from eris.protocol.messages import Contribution, Result
from eris.protocol.schemes.grid import Grid
from eris.testing.sum_laws import LawBroken, Place, SumLaws

if TYPE_CHECKING:
    from eris.protocol.view import View
    from eris.testing.witness import Witness


class GridLaws:
    """Computes sums and units from what was trained and published; a part of the witness."""

    def __init__(self, witness: Witness) -> None:
        scheme = witness.settings.scheme
        assert isinstance(scheme, Grid)
        self._witness, self._settings, self._scheme = witness, witness.settings, scheme
        self.stepped_back: set[Place] = set()
        """Segments and rounds whose sums did not fit."""

    def _least(self, clients: int) -> tuple[int, int]:
        """e₀, and how far a sum may be from 0."""
        room = (1 << self._scheme.bits - 1) - 1 - clients
        most = self._scheme.bound(self._settings.rule)
        return min(MOST_EXPONENT, math.floor(math.log2(room / most))), room

    def _exponent(self, key: Key, version: int, view: View) -> int:
        """In which unit words that are based on a version are."""
        if not version:
            return self._least(len(view.clients))[0]
        return self._witness.results[key, version].exponent

    def integers(self, sent: Contribution, values: Vector, coordinates: Indices) -> Integers:
        """What an honest client masks of these values; all clients weigh alike."""
        header, view = sent.header, self._witness.views[sent.header.epoch].view
        unit = 2.0 ** self._exponent(header.key, sent.based_on, view)
        stream = Stream(self._settings.seed, "grid", header.round, header.sender)
        draws = stream.uniform(0, self._settings.n)[coordinates]
        scaled = values.astype(np.float64) * unit / len(view.clients)
        return np.floor(scaled + draws).astype(np.int64)

    def is_mean(self, result: Result, words: Sequence[Integers]) -> bool:
        """Whether a result is the mean of the clients that masked these words."""
        assert result.payload is not None
        view = self._witness.views[result.header.epoch].view
        unit = 2.0 ** self._exponent(result.header.key, result.previous, view)
        total = np.stack(words).sum(axis=0)
        mean: Vector = (total / unit * (len(view.clients) / len(words))).astype(np.float32)
        return encode_values(mean) == result.payload.encoded and len(words) == result.samples

    def published(self, result: Result, where: str) -> None:
        """A result names the unit of the next words as the rule has it."""
        view = self._witness.views[result.header.epoch].view
        first, room = self._least(len(view.clients))
        before = self._exponent(result.header.key, result.previous, view)
        back = max(before, first) - STEP_BACK
        if result.payload is None:
            allowed = {before, back}
            self._withheld(result, where, stepped_back=result.exponent == back != before)
        else:
            encoded = result.payload.encoded
            mean = decode_values(encoded, Encoding.DENSE, encoded.count)
            largest = float(np.abs(mean).max(initial=0.0))
            fits = math.floor(math.log2(room / (ROOM * largest))) if largest else MOST_EXPONENT
            allowed = {max(first, min(MOST_EXPONENT, fits))}
            self._witness.saw["a unit follows the mean"] += result.exponent != before
        if result.exponent not in allowed:
            expected = " or ".join(map(str, sorted(allowed)))
            raise LawBroken(f"{where} names the exponent {result.exponent}; expected {expected}")

    def _withheld(self, result: Result, where: str, *, stepped_back: bool) -> None:
        """Where nobody lies, a unit steps back exactly if a sum was opened that did not fit."""
        sums = self._witness.sums
        assert isinstance(sums, SumLaws)
        if stepped_back:
            self._witness.saw["a unit steps back"] += 1
            self.stepped_back.add((result.header.key, result.header.round))
        if sums.lying:
            return
        wraps = any(self._wraps(clients, result) for clients in sums.opened_by(result.header))
        if wraps != stepped_back:
            how = "keeps its unit, but its sum did not fit" if wraps else "steps back without cause"
            raise LawBroken(f"{where} {how}")

    def _wraps(self, clients: frozenset[int], result: Result) -> bool:
        """Whether the sum over these clients does not fit its words."""
        most = 1 << self._scheme.bits - 1
        masked = self._witness.masked(result.header.key, result.header.round, result.previous)
        totals = (np.sum(words, axis=0) for words in product(*(masked[c] for c in clients)))
        return any(bool(((total >= most) | (total < -most)).any()) for total in totals)
